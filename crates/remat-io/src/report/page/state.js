// ---- state

let plan = unpack(0);
const state = { step: 0, from: 0, to: 1, chosen: null, hovered: null, sort: "bytes", down: true, rows: ROWS, layerSort: 2, layerDown: true, policy: null };
const clamp = (n, low, high) => Math.min(Math.max(n, low), high);

const colours = {};
const readColours = () => {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "text", "quiet", "line", "panel", "mark", ...Array.from({ length: 10 }, (_, i) => "c" + i)]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
};
const groupOf = (value) => {
  const by = at("colours").value;
  if (value.kind < 2) return "arguments";
  if (by === "scope") return value.scope || "outside of scopes";
  if (by === "operation") return value.operation || "the program";
  if (value.kind === 2) return "outputs";
  return value.kind === 4 ? "scratch" : ROLES[value.role];
};
const FIXED = { arguments: "c0", outputs: "c1", forward: "c2", recomputed: "c3", derivative: "c4", scratch: "c5" };
let colourOf = new Map();
// The groups with the most bytes have colours of their own.
const assignColours = () => {
  const sums = new Map();
  for (const value of plan.values) {
    const group = groupOf(value);
    sums.set(group, (sums.get(group) || 0) + value.reserved * (value.end - value.born));
  }
  const groups = [...sums].sort((a, b) => b[1] - a[1]).map(([group]) => group);
  colourOf = new Map();
  const isFixed = at("colours").value === "role";
  const free = ["c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"];
  for (const group of groups) colourOf.set(group, isFixed || group === "arguments" ? FIXED[group] : free.shift() || "c1");
  const legend = at("legend");
  legend.replaceChildren();
  let others = false;
  for (const [group, colour] of colourOf) {
    if (!isFixed && colour === "c1") { others = true; continue; }
    const item = element("li", null, legend);
    element("i", null, item).style.background = "var(--" + colour + ")";
    element("span", shown(group), item, "data");
  }
  const line = (colour, height, text) => {
    const item = element("li", null, legend);
    const mark = element("i", null, item);
    mark.style.background = "var(--" + colour + ")";
    mark.style.height = height;
    element("span", text, item);
  };
  if (others) line("c1", "", "others");
  line("text", "2px", "bytes in memory");
  line("mark", "2px", "bytes of a call, with overhead");
};
