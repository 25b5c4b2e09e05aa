// ---- what the reader does

const zoomTo = (from, to) => {
  const count = Math.max(1, plan.steps.length);
  const width = clamp(to - from, Math.min(4, count), count);
  state.from = clamp(from, 0, count - width);
  state.to = state.from + width;
  drawBands();
  drawMarks();
};
const zoom = (by, around) => zoomTo(around - (around - state.from) * by, around + (state.to - around) * by);
const goTo = (step) => {
  state.step = clamp(step, 0, Math.max(0, plan.steps.length - 1));
  const width = state.to - state.from;
  if (state.step < state.from || state.step >= state.to) zoomTo(state.step - width / 2, state.step + width / 2);
  showStep();
  markHalves();
};
// A value, or none, that the reader picks anywhere: it is marked everywhere.
const choose = (value, step) => {
  state.chosen = value;
  markRow();
  goTo(step);
};
const show = (number) => {
  plan = unpack(number);
  Object.assign(state, { chosen: null, hovered: null, rows: ROWS, from: 0, to: Math.max(1, plan.steps.length), step: plan.peakAt });
  at("plan").value = String(number);
  at("plan").setAttribute("aria-valuetext", bytes(plan.peak) + ", " + percent(plan.overhead) + " more time");
  at("hover").hidden = true;
  assignColours();
  showSummary();
  drawBands();
  showStep();
  showValues();
  halfRows = HALF_ROWS;
  showHalves();
  drawCurve();
};
const redraw = () => { readColours(); measure(); drawBands(); drawMarks(); drawCurve(); };

const chart = at("chart");
const place = (event) => {
  const box = chart.getBoundingClientRect();
  return [event.clientX - box.left - chart.clientLeft, event.clientY - box.top - chart.clientTop];
};
chart.addEventListener("mousemove", (event) => hover(...place(event)));
chart.addEventListener("mouseleave", () => hover(-1, -1));
chart.addEventListener("click", (event) => {
  hover(...place(event));
  choose(state.hovered, Math.floor(scale.step(place(event)[0])));
});
chart.addEventListener("wheel", (event) => {
  event.preventDefault();
  const width = state.to - state.from;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = Math.sign(event.deltaX || event.deltaY) * width / 12;
    zoomTo(state.from + by, state.to + by);
  } else {
    zoom(event.deltaY > 0 ? 1.25 : 0.8, scale.step(place(event)[0]));
  }
}, { passive: false });
chart.addEventListener("keydown", (event) => {
  const far = event.shiftKey ? 10 : 1;
  const moves = {
    ArrowLeft: () => goTo(state.step - far), ArrowRight: () => goTo(state.step + far), Home: () => goTo(0), End: () => goTo(plan.steps.length - 1),
    "+": () => zoom(0.8, state.step + 0.5), "=": () => zoom(0.8, state.step + 0.5), "-": () => zoom(1.25, state.step + 0.5), p: () => goTo(plan.peakAt),
    0: () => zoomTo(0, plan.steps.length),
  };
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(moves, event.key)) return;
  moves[event.key]();
  event.preventDefault();
});
at("plan").addEventListener("input", () => show(Number(at("plan").value)));
at("colours").addEventListener("change", () => { assignColours(); drawBands(); });
at("arena").addEventListener("change", () => { drawBands(); drawMarks(); });
at("peak").addEventListener("click", () => goTo(plan.peakAt));
at("whole").addEventListener("click", () => zoomTo(0, plan.steps.length));
at("depth").addEventListener("input", showScopes);
at("together").addEventListener("change", showScopes);
at("halves-filter").addEventListener("change", () => { halfRows = HALF_ROWS; showHalves(); });
at("halves-more").addEventListener("click", () => { halfRows += 5 * HALF_ROWS; showHalves(); });
at("search").addEventListener("input", () => { state.rows = ROWS; showValues(); });
at("filter").addEventListener("change", () => { state.rows = ROWS; showValues(); });
at("more").addEventListener("click", () => { state.rows += 5 * ROWS; showValues(); });
at("curve").addEventListener("click", (event) => {
  const box = at("curve").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const far = points.slice(0, data.plans.length).map(([px, py]) => Math.hypot(px - x, py - y));
  const nearest = far.indexOf(Math.min(...far));
  if (far[nearest] < 30) show(nearest);
});
new ResizeObserver(redraw).observe(chart);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

at("title").textContent = shown(data.title);
document.title = shown(data.title);
at("plan").max = String(data.plans.length - 1);
at("plan-label").hidden = data.plans.length < 2;
at("time").hidden = data.plans.length + data.policies.length < 2;
readColours();
measure();
showHeader();
showLayerHeader();
showPolicies();
show(data.plans.length - 1);
