// Draws every chart of the page from the data in it. Colours are variables of the style sheet, so
// that light, dark and print need no second drawing.
const read = (id, revive) => JSON.parse(document.getElementById(id).textContent, revive);
const config = read("chart-config");
// On a phone, the entries of a legend are below each other.
const narrow = (key, value) => (key === "columns" && innerWidth < 600 ? 1 : value);
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

const drawn = [];

async function drawAll(open = [location.hash.slice(1)]) {
  delete document.documentElement.dataset.drawn;
  while (drawn.length) drawn.pop().finalize();
  for (const [name, spec] of Object.entries(read("chart-specs", narrow))) {
    const place = document.getElementById("chart-" + name);
    try {
      drawn.push(await vegaEmbed(place, spec, options));
      // The place has a label, and the chart a table; what Vega says of each mark adds nothing.
      place.querySelector("svg").setAttribute("aria-hidden", "true");
      place.dataset.drawn = "yes";
    } catch (error) {
      place.textContent = "This chart could not be drawn; its table is below.";
      place.dataset.drawn = "no";
      console.error(name, error);
    }
  }
  // Folded only now: a chart in a folded part has no width to be drawn at.
  for (const part of document.querySelectorAll("details.appendix, details.part")) {
    part.open = open.some((id) => id && part.contains(document.getElementById(id)));
  }
  document.querySelectorAll("pre.copy").forEach(addButton);
  document.documentElement.dataset.drawn = "yes";
}

// A link to a folded part opens it.
addEventListener("hashchange", () => {
  const part = document.getElementById(location.hash.slice(1))?.closest("details");
  if (part) part.open = true;
});

function addButton(command) {
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
