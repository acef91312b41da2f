// Charts of an analysis page: their numbers come as figures from a view of their own,
// the library that draws them only once it is needed.

const root = document.querySelector("[data-analysis]");
const words = root?.dataset;
// The library would write the styles of its maps into the page, which the policy
// refuses, unless an element with this id is there.
const MAP_STYLES = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
const QUIET_MS = 300;

let library = null;

function libraryLoad() {
  library ??= new Promise((resolve, reject) => {
    const map = document.createElement("meta");
    map.id = MAP_STYLES;
    const script = document.createElement("script");
    script.src = words.plotly;
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      library = null;
      script.remove();
      reject(new Error("script"));
    });
    document.head.append(map, script);
  });
  return library;
}

// Colours --------------------------------------------------------------------

const probe = document.createElement("span");
probe.hidden = true;

// A token may differ by theme: only a real element knows which colour it is now.
function colour(text) {
  probe.style.color = text;
  return getComputedStyle(probe).color;
}

function coloured(value) {
  if (typeof value === "string") return value.startsWith("var(--") ? colour(value) : value;
  if (Array.isArray(value)) return value.map(coloured);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, coloured(one)]));
}

// Table ----------------------------------------------------------------------

function cell(row, kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  row.append(made);
  return made;
}

function tableOf(chart, title) {
  const table = document.createElement("table");
  table.createCaption().textContent = title;
  table.caption.className = "hidden";
  const head = table.createTHead().insertRow();
  chart.columns.forEach((name, place) => {
    const made = cell(head, "th", name);
    made.scope = "col";
    if (place) made.className = "num";
  });
  const body = table.createTBody();
  [...chart.rows].reverse().forEach(([time, ...values], place) => {
    const row = body.insertRow();
    const open = chart.partial && place === 0;
    cell(row, "th", open ? `${time} (${words.untilNow})` : time).scope = "row";
    for (const value of values) {
      const text = value === null ? words.none : value.toLocaleString(document.documentElement.lang);
      cell(row, "td", text).className = "num";
    }
  });
  return table;
}

// One chart ------------------------------------------------------------------

class Plot {
  constructor(section) {
    this.section = section;
    const part = (name) => section.querySelector(`[data-plot-${name}]`);
    this.area = part("area");
    this.state = part("state");
    this.summary = part("summary");
    this.note = part("note");
    this.rows = part("rows");
    this.table = part("table");
    this.png = part("png");
    this.retry = part("retry");
    this.title = section.querySelector("h2").textContent;
    this.table.addEventListener("click", () => this.toggleTable());
    this.png.addEventListener("click", () => this.download());
    this.retry.addEventListener("click", load);
  }

  tell(text, { retry = false } = {}) {
    this.state.textContent = text;
    this.retry.hidden = !retry;
  }

  fill(chart) {
    this.chart = chart;
    this.summary.textContent = chart.summary;
    this.note.textContent = [chart.partial && !chart.empty ? words.partial : "", chart.note].filter(Boolean).join(" ");
    this.table.disabled = !chart.rows.length || !chart.figure.data.length;
    if (chart.empty) this.tell(chart.name === "errors" ? words.noErrors : words.empty);
    if (!this.rows.hidden) this.rows.replaceChildren(tableOf(chart, this.title));
  }

  toggleTable() {
    const open = this.rows.hidden;
    this.rows.hidden = !open;
    this.table.setAttribute("aria-expanded", String(open));
    if (open) this.rows.replaceChildren(tableOf(this.chart, this.title));
  }

  figure() {
    const { data, layout } = coloured(this.chart.figure);
    layout.font.family = getComputedStyle(document.body).fontFamily;
    return { data, layout };
  }

  async draw(Plotly) {
    if (this.chart.empty) return;
    const { data, layout } = this.figure();
    layout.autosize = true;
    await Plotly.react(this.area, data, layout, { displayModeBar: false, responsive: true, doubleClick: false });
    this.area.setAttribute("role", "img");
    this.area.setAttribute("aria-label", `${this.title}: ${this.chart.summary}`);
    this.png.disabled = false;
    this.tell("");
    this.section.dataset.drawn = "";
  }

  async download() {
    const Plotly = await libraryLoad();
    const { data, layout } = this.figure();
    layout.title = { text: this.title, font: { size: 15 } };
    layout.margin = { ...layout.margin, t: 56 };
    const filename = `${location.pathname.split("/").filter(Boolean).join("-")}-${this.chart.name}`;
    await Plotly.downloadImage({ data, layout }, { format: "png", filename, width: 1200, height: 500, scale: 2 });
  }
}

// The page -------------------------------------------------------------------

const plots = root ? [...root.querySelectorAll("[data-plot]")].map((section) => new Plot(section)) : [];

async function numbers() {
  const response = await fetch(words.analysis, { headers: { Accept: "application/json" } });
  // A session that ended leads to the login, which is no answer to this.
  if (!response.ok || response.redirected) throw new Error(String(response.status));
  return (await response.json()).charts;
}

async function load() {
  const slow = setTimeout(() => {
    // Those without anything to draw have said so by then.
    for (const plot of plots) if (!plot.chart?.empty) plot.tell(words.loading);
  }, QUIET_MS);
  plots.forEach((plot) => plot.tell(""));
  const drawing = libraryLoad().catch(() => null);
  try {
    const charts = await numbers();
    for (const plot of plots) plot.fill(charts.find((chart) => chart.name === plot.section.dataset.plot));
  } catch {
    clearTimeout(slow);
    for (const plot of plots) plot.tell(words.failed, { retry: true });
    return;
  }
  const Plotly = await drawing;
  clearTimeout(slow);
  if (Plotly) await drawAll(Plotly);
  else for (const plot of plots) if (!plot.chart.empty) plot.tell(words.undrawn, { retry: true });
}

async function drawAll(Plotly) {
  performance.mark("plots-begin");
  for (const plot of plots) await plot.draw(Plotly);
  performance.measure("plots", "plots-begin");
  root.dataset.done = "";
}

async function redraw() {
  if ("done" in root.dataset) await drawAll(await libraryLoad());
}

if (root) {
  document.body.append(probe);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["class"] });
  await load();
}
