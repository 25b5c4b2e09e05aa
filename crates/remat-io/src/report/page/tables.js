// ---- the panels

const showSummary = () => {
  const most = data.plans[data.plans.length - 1].peak;
  at("summary").textContent = "a call needs " + bytes(plan.peak) + " (" + percent(plan.peak / Math.max(1, most), 0) + " of " + bytes(most) + "); "
    + percent(plan.overhead) + " more time by the cost model; computed again because of the plan, besides what a policy does: " + percent(plan.repeated)
    + " of the time, at least " + percent(plan.bound) + " in any plan of these bytes; " + plan.steps.length + " steps, " + plan.values.length + " values";
  at("plan-number").textContent = (plan.number + 1) + " of " + data.plans.length;
};
const showStep = () => {
  const step = plan.steps[state.step];
  if (step === undefined) return;
  at("step").textContent = "step " + state.step + (state.step === plan.peakAt ? ", the peak" : "") + ": " + shown(step.operation)
    + (step.line ? " at " + shown(step.line) : "") + (step.scope ? " (" + shown(step.scope) + ")" : "") + ", " + ROLES[step.role] + ", "
    + time(step.time) + " by the cost model; " + bytes(plan.live[state.step]) + " in memory";
  showScopes();
  if (at("filter").value === "live") showValues();
  drawMarks();
};
const isLive = (value) => value.born <= state.step && state.step < value.end;
// Names of one kind in their order: block 2 before block 10.
const { compare } = new Intl.Collator("en", { numeric: true });
// Where the numbers of two names differ, there is a star.
const common = (a, b) => {
  const [ours, theirs] = [a, b].map((text) => text.split(/(\d+|\*)/));
  return ours.map((part, i) => part === theirs[i] ? part : "*").join("");
};
// The bytes of values by scope, cut off at a depth: at the peak, and of all values together. Scopes that differ in numbers alone may be one.
const layersOf = (depth, together) => {
  const key = depth + (together ? " together" : "");
  plan.layers ||= new Map();
  if (plan.layers.has(key)) return plan.layers.get(key);
  const layers = new Map();
  const of = plan.values.map((value) => {
    const path = value.kind < 2 ? (KINDS[value.kind] + "s " + value.name.split(".").slice(0, depth - 1).join(".")).trim()
      : value.scope.split("/").slice(0, depth).join("/") || "outside of scopes";
    const scope = together ? path.replace(/\d+/g, "*") : path;
    if (!layers.has(scope)) layers.set(scope, { scope: path, step: 0, peak: 0, total: 0, values: 0 });
    const layer = layers.get(scope);
    if (layer.scope !== path) layer.scope = common(layer.scope, path);
    if (value.born <= plan.peakAt && plan.peakAt < value.end) layer.peak += value.reserved;
    layer.total += value.reserved;
    layer.values += 1;
    return layer;
  });
  const made = { layers: [...layers.values()], of };
  plan.layers.set(key, made);
  return made;
};
const LAYER_COLUMNS = [
  ["scope", (a, b) => compare(a.scope, b.scope)], ["at the step", (a, b) => a.step - b.step], ["at the peak", (a, b) => a.peak - b.peak],
  ["in total", (a, b) => a.total - b.total], ["values", (a, b) => a.values - b.values],
];
const showLayerHeader = () => {
  const row = at("scopes").tHead.rows[0];
  row.replaceChildren();
  LAYER_COLUMNS.forEach(([name], i) => {
    const isSorted = state.layerSort === i;
    sortable(row, name, i > 0, isSorted && (state.layerDown ? "descending" : "ascending"), () => {
      state.layerDown = isSorted ? !state.layerDown : i > 0;
      state.layerSort = i;
      showLayerHeader();
      showScopes();
      row.cells[i].firstChild.focus();
    });
  });
  element("th", "share", row).title = "of the bytes at the peak";
};
const showScopes = () => {
  const { layers, of } = layersOf(clamp(Number(at("depth").value) || 1, 1, 9), at("together").checked);
  for (const layer of layers) layer.step = 0;
  plan.values.forEach((value, i) => { if (isLive(value)) of[i].step += value.reserved; });
  const [, order] = LAYER_COLUMNS[state.layerSort];
  const sorted = layers.filter((layer) => layer.total > 0).sort((a, b) => (state.layerDown ? order(b, a) : order(a, b)) || compare(a.scope, b.scope));
  at("scope-count").textContent = sorted.length + " scopes; step " + state.step + (sorted.length > SCOPES ? "; the first " + SCOPES + " are shown" : "");
  const body = at("scopes").tBodies[0];
  body.replaceChildren();
  const all = Math.max(1, plan.live[plan.peakAt]);
  for (const layer of sorted.slice(0, SCOPES)) {
    const row = element("tr", null, body);
    element("td", shown(layer.scope), row).title = shown(layer.scope);
    for (const n of [layer.step, layer.peak, layer.total]) element("td", bytes(n), row, "number");
    element("td", String(layer.values), row, "number");
    element("span", null, element("td", null, row), "bar").style.width = 100 * layer.peak / all + "%";
  }
};
// The head of a column that sorts.
const sortable = (row, name, isNumber, sorted, sort) => {
  const head = element("th", null, row, isNumber ? "number" : "");
  head.setAttribute("aria-sort", sorted || "none");
  element("button", name + (sorted ? sorted === "descending" ? " ▾" : " ▴" : ""), head).addEventListener("click", sort);
  return head;
};
const COLUMNS = [
  ["value", (v) => v.label, false, 17], ["bytes", (v) => v.bytes, true, 8], ["aval", (v) => v.aval, false, 11],
  ["role", (v) => v.kind < 3 ? KINDS[v.kind] : v.kind === 4 ? "scratch" : ROLES[v.role], false, 8], ["born", (v) => v.born, true, 5],
  ["last", (v) => v.end - 1, true, 5], ["line", (v) => v.line, false, 28], ["scope", (v) => v.scope, false, 12],
  ["again at", (v) => v.again.length > 0 ? v.again[0].born : -1, true, 6],
];
const showHeader = () => {
  const row = at("values").tHead.rows[0];
  row.replaceChildren();
  for (const [name, , isNumber, width] of COLUMNS) {
    const isSorted = state.sort === name;
    const head = sortable(row, name, isNumber, isSorted && (state.down ? "descending" : "ascending"), () => {
      state.down = isSorted ? !state.down : isNumber;
      state.sort = name;
      showHeader();
      showValues();
      row.cells[COLUMNS.findIndex(([other]) => other === name)].firstChild.focus();
    });
    head.style.width = width + "%";
  }
};
const FILTERS = { all: () => true, live: isLive, saved: (v) => v.saved, again: (v) => v.role === 1 && v.kind === 3 };
// The rows of the values that are shown.
let valueRows = new Map();
const markRow = () => { for (const [value, row] of valueRows) row.classList.toggle("chosen", value === state.chosen); };
const showValues = () => {
  const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const isWanted = FILTERS[at("filter").value];
  const found = plan.values.filter((v) => isWanted(v) && words.every((word) => v.found.includes(word)));
  const [, key, isNumber] = COLUMNS.find(([name]) => name === state.sort);
  const order = isNumber ? (a, b) => key(a) - key(b) : (a, b) => key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
  found.sort((a, b) => (state.down ? order(b, a) : order(a, b)) || a.number - b.number);
  // What is in memory at a step takes no room of its own in the memory of a donated argument.
  const size = at("filter").value === "live" ? (value) => value.reserved : (value) => value.bytes;
  const sum = found.reduce((sum, value) => sum + size(value), 0);
  at("count").textContent = found.length + " of " + plan.values.length + " values, " + bytes(sum);
  at("more").hidden = found.length <= state.rows;
  const body = at("values").tBodies[0];
  body.replaceChildren();
  valueRows = new Map();
  for (const value of found.slice(0, state.rows)) {
    const row = element("tr", null, body);
    valueRows.set(value, row);
    row.tabIndex = 0;
    for (const [name, of, isNumber] of COLUMNS) {
      const cell = of(value);
      const text = name === "bytes" ? bytes(cell) : isNumber ? cell < 0 ? "" : String(cell) : shown(cell);
      element("td", text, row, isNumber ? "number" : "").title = text;
    }
    const chooseThis = (isSecond) => choose(value, (isSecond && value.again.length > 0 ? value.again[0] : value).born);
    row.addEventListener("click", (event) => chooseThis(event.target === row.lastChild));
    row.addEventListener("keydown", (event) => {
      if (event.key === "Enter") chooseThis(event.shiftKey);
      const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
      if (next) { next.focus(); event.preventDefault(); }
    });
  }
  markRow();
};
