// Keeps the page up to date while a study runs: the server pushes each new report and a line that
// says how far the study is.
const bar = document.getElementById("live");
const source = new EventSource("events?" + bar.dataset.version);

function say(text, state) {
  bar.textContent = text;
  bar.dataset.state = state;
}

source.addEventListener("report", (event) => {
  const next = new DOMParser().parseFromString(JSON.parse(event.data), "text/html");
  const open = [...document.querySelectorAll("details[id][open]")].map((part) => part.id);
  for (const part of ["header", "main"]) {
    document.querySelector(part).replaceWith(next.querySelector(part));
  }
  const specs = document.getElementById("chart-specs");
  specs.textContent = next.getElementById("chart-specs").textContent;
  document.title = next.title;
  drawAll(open);
});

source.addEventListener("status", (event) => {
  const [text, over] = JSON.parse(event.data);
  say(text, over ? "over" : "on");
  if (over) source.close();
});

source.addEventListener("error", () => {
  if (bar.dataset.state !== "over") {
    say("No connection to the study. The page shows what was measured; trying again.", "lost");
  }
});
