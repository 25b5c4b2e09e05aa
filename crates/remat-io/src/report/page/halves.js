// ---- the two halves of a program, side by side

const HALF_ROWS = 200;
let halfRows = HALF_ROWS;
// The elements of the values that are shown.
let halfItems = new Map();
let marked = [];
// The temporaries by scope: those of the forward pass, and those after it. Scopes are in the order of their first step.
const halvesOf = (of) => {
  if (of.halves) return of.halves;
  const scopes = new Map();
  const inOrder = of.values.filter((value) => value.kind === 3).sort((a, b) => a.born - b.born || a.number - b.number);
  for (const value of inOrder) {
    if (!scopes.has(value.scope)) scopes.set(value.scope, { scope: value.scope, sides: [[], []] });
    scopes.get(value.scope).sides[value.isForward ? 0 : 1].push(value);
  }
  of.halves = [...scopes.values()];
  return of.halves;
};
const sum = (values) => values.reduce((sum, value) => sum + value.bytes, 0);
const showHalves = () => {
  const isWanted = { all: () => true, saved: (v) => v.saved, again: (v) => v.role === 1 || v.again.length > 0 || v.first !== null }[at("halves-filter").value];
  const wanted = halvesOf(plan).map(({ scope, sides }) => ({ scope, sides: sides.map((values) => values.filter(isWanted)) }));
  const groups = wanted.filter(({ sides: [left, right] }) => left.length + right.length > 0);
  const count = [0, 1].map((side) => groups.reduce((sum, { sides }) => sum + sides[side].length, 0));
  at("halves-count").textContent = count[0] + " values of the forward pass, " + count[1] + " of the backward pass"
    + (count[0] + count[1] === 0 && at("halves-filter").value === "again" ? "; nothing is computed again" : "");
  const all = at("halves");
  all.replaceChildren();
  [halfItems, marked] = [new Map(), []];
  let [room, isCut] = [halfRows, false];
  for (const { scope, sides } of groups) {
    if (room <= 0) { isCut = true; break; }
    const title = element("div", null, all, "scope");
    element("span", shown(scope || "outside of scopes"), title, "data");
    element("span", sides.map((values) => bytes(sum(values))).join(" · "), title, "quiet").title = "bytes of all values, forward and backward";
    for (const values of sides) {
      const half = element("div", null, all, "half");
      // A scope may have all values of a program.
      const first = values.slice(0, Math.max(1, room));
      for (const value of first) halfItems.set(value, halfItem(value, half));
      isCut ||= first.length < values.length;
    }
    room -= sides[0].length + sides[1].length;
  }
  at("halves-more").hidden = !isCut;
  const first = halfItems.values().next().value;
  if (first) first.tabIndex = 0;
  markHalves();
};
const halfItem = (value, half) => {
  const item = element("div", null, half, "item c" + value.role);
  item.tabIndex = -1;
  item.setAttribute("role", "button");
  element("span", shown(value.label), item, "data name");
  const steps = value.again.map((other) => other.born).join(", ");
  if (steps) element("span", "again at " + steps, item, "twin-note");
  if (value.first) element("span", "first at " + value.first.born, item, "twin-note");
  if (value.saved && !steps) element("span", "saved", item, "quiet");
  element("span", shown(value.aval), item, "quiet data aval");
  element("span", bytes(value.bytes), item, "quiet");
  element("span", "step " + value.born, item, "quiet");
  item.title = describe(value);
  item.addEventListener("mouseenter", () => point(value));
  item.addEventListener("mouseleave", () => point(null));
  item.addEventListener("focus", () => point(value));
  item.addEventListener("blur", () => point(null));
  item.addEventListener("click", () => { choose(value, value.born); item.focus(); });
  item.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const goal = { ArrowDown: () => beside(half, item, 1), ArrowUp: () => beside(half, item, -1), ArrowLeft: () => across(value, 0), ArrowRight: () => across(value, 1) }[event.key];
    if (event.key === "Enter" || event.key === " ") item.click();
    else if (!goal) return;
    else focusHalf(goal());
    event.preventDefault();
  });
  return item;
};
const focusHalf = (item) => {
  if (!item) return;
  for (const other of halfItems.values()) if (other.tabIndex === 0) other.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
};
// The next value of this half, also in the next scope that has one.
const beside = (half, item, by) => {
  const next = by > 0 ? item.nextElementSibling : item.previousElementSibling;
  if (next) return next;
  const column = [...at("halves").querySelectorAll(".half")].filter((_, i, all) => i % 2 === all.indexOf(half) % 2);
  for (let i = column.indexOf(half) + by; i >= 0 && i < column.length; i += by) {
    const found = by > 0 ? column[i].firstElementChild : column[i].lastElementChild;
    if (found) return found;
  }
  return null;
};
// The same value in the half on this side, or else the first of its scope there.
const across = (value, side) => {
  const isThere = (other) => halfItems.has(other) && (other.isForward ? 0 : 1) === side;
  const twin = twins(value).find(isThere);
  if (twin) return halfItems.get(twin);
  if ((value.isForward ? 0 : 1) === side) return null;
  const { sides } = halvesOf(plan).find(({ scope }) => scope === value.scope);
  return halfItems.get(sides[side].find(isThere)) || null;
};
// A value that is pointed at: it and those that are the same are marked, here and in the chart.
const point = (value) => {
  state.hovered = value;
  markHalves();
  drawMarks();
};
const markHalves = () => {
  for (const item of marked) item.classList.remove("on", "twin", "chosen");
  marked = [];
  const mark = (value, kind) => {
    const item = halfItems.get(value);
    if (!item) return;
    item.classList.add(kind);
    marked.push(item);
  };
  if (state.chosen) { mark(state.chosen, "chosen"); twins(state.chosen).forEach((twin) => mark(twin, "twin")); }
  if (state.hovered) { mark(state.hovered, "on"); twins(state.hovered).forEach((twin) => mark(twin, "twin")); }
};
