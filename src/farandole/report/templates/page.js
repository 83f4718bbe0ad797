// Draws every chart of the page from the data in it. Colours are variables of the style sheet, so
// that light, dark and print need no second drawing.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const config = read("chart-config");
const refuse = () => Promise.reject(new Error("a report loads nothing"));
const options = {
  config,
  mode: "vega-lite",
  renderer: "svg",
  actions: false,
  ast: true, // an interpreter in place of eval, which the page's policy forbids
  defaultStyle: false,
  loader: { load: refuse, sanitize: refuse, http: refuse, file: refuse, options: {} },
  tooltip: { disableDefaultStyle: true, theme: "report" },
};

async function drawAll() {
  for (const [name, spec] of Object.entries(read("chart-specs"))) {
    const place = document.getElementById("chart-" + name);
    try {
      await vegaEmbed(place, spec, options);
      place.dataset.drawn = "yes";
    } catch (error) {
      place.textContent = "This chart could not be drawn; its table is below.";
      place.dataset.drawn = "no";
      console.error(name, error);
    }
  }
  // Folded only now: a chart in a folded part has no width to be drawn at.
  for (const part of document.querySelectorAll("details.appendix, details.part")) {
    part.open = part.contains(document.getElementById(location.hash.slice(1)));
  }
  document.documentElement.dataset.drawn = "yes";
}

// A link to a folded part opens it.
addEventListener("hashchange", () => {
  const part = document.getElementById(location.hash.slice(1))?.closest("details");
  if (part) part.open = true;
});

for (const command of document.querySelectorAll("pre.copy")) {
  const button = document.createElement("button");
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command.querySelector("code").textContent);
    button.textContent = "copied";
  });
  command.append(button);
}

// Paper has no hidden parts.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const part of opened) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of opened) part.open = false;
});
drawAll();
