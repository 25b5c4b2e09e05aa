// ---- the chart

// Asking for a size lays out the page, which takes longer than drawing.
const sizes = new Map();
const measure = () => { for (const id of ["bands", "marks", "curve"]) sizes.set(at(id), at(id).getBoundingClientRect()); };
const fit = (canvas) => {
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = sizes.get(canvas);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  return { pen, width, height };
};
const LEFT = 74, BOTTOM = 22, TOP = 8, RIGHT = 10;
let scale = null;
const rescale = (width, height) => {
  const low = at("arena").checked ? plan.base : 0;
  const high = Math.max(plan.top, low + 1);
  const [w, h] = [width - LEFT - RIGHT, height - TOP - BOTTOM];
  scale = {
    width, height, low, high,
    x: (step) => LEFT + (step - state.from) / (state.to - state.from) * w,
    y: (byte) => TOP + (high - byte) / (high - low) * h,
    step: (x) => state.from + (x - LEFT) / w * (state.to - state.from),
    byte: (y) => high - (y - TOP) / h * (high - low),
  };
};
const drawBands = () => {
  const { pen, width, height } = fit(at("bands"));
  rescale(width, height);
  const groups = new Map();
  for (const value of plan.values) {
    if (value.reserved === 0 || value.end <= state.from || value.born >= state.to) continue;
    const colour = colourOf.get(groupOf(value));
    if (!groups.has(colour)) groups.set(colour, []);
    groups.get(colour).push(value);
  }
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
  pen.clip();
  for (const [colour, values] of groups) {
    pen.fillStyle = colours[colour];
    for (const value of values) {
      // Whole pixels are drawn faster.
      const x = Math.round(scale.x(value.born)), y = Math.round(scale.y(value.low + value.reserved));
      const w = Math.round(scale.x(value.end)) - x, h = Math.round(scale.y(value.low)) - y;
      // A gap between bands that are large enough for one.
      pen.fillRect(x, y, Math.max(w > 3 ? w - 1 : w, 1), Math.max(h > 3 ? h - 1 : h, 1));
    }
  }
  drawLive(pen);
  pen.strokeStyle = colours.mark;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  pen.moveTo(LEFT, scale.y(plan.peak));
  pen.lineTo(width - RIGHT, scale.y(plan.peak));
  pen.stroke();
  pen.restore();
  axes(pen, width, height);
};
// The bytes in use. Of several steps in one column of pixels, the least and the most are drawn.
const drawLive = (pen) => {
  pen.strokeStyle = colours.text;
  pen.lineWidth = 1.2;
  pen.beginPath();
  const last = Math.min(plan.steps.length, Math.ceil(state.to));
  for (let i = Math.floor(state.from); i < last;) {
    const x = scale.x(i);
    let [low, high] = [plan.live[i], plan.live[i]];
    let next = i + 1;
    for (; next < last && scale.x(next + 1) <= x + 1; next += 1) {
      low = Math.min(low, plan.live[next]);
      high = Math.max(high, plan.live[next]);
    }
    pen.lineTo(x, scale.y(high));
    if (low < high) pen.lineTo(x, scale.y(low));
    pen.lineTo(scale.x(next), scale.y(plan.live[next - 1]));
    i = next;
  }
  pen.stroke();
};
const axes = (pen, width, height) => {
  pen.fillStyle = colours.quiet;
  pen.strokeStyle = colours.line;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (let i = 0; i <= 4; i += 1) {
    const byte = scale.low + (scale.high - scale.low) * i / 4;
    pen.fillText(bytes(Math.round(byte)), LEFT - 6, clamp(scale.y(byte), 12, height - BOTTOM - 4));
  }
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  for (let i = 0; i <= 8; i += 1) {
    const step = Math.round(state.from + (state.to - state.from) * i / 8);
    pen.fillText(String(step), clamp(scale.x(step), LEFT + 8, width - RIGHT - 14), height - 4);
  }
  pen.strokeRect(LEFT - 0.5, TOP - 0.5, width - LEFT - RIGHT + 1, height - TOP - BOTTOM + 1);
};
const drawMarks = () => {
  const { pen, width, height } = fit(at("marks"));
  if (scale === null) return;
  pen.beginPath();
  pen.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
  pen.clip();
  pen.strokeStyle = colours.mark;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(scale.x(state.step + 0.5), TOP);
  pen.lineTo(scale.x(state.step + 0.5), height - BOTTOM);
  pen.stroke();
  const related = new Set([state.chosen, state.hovered].filter(Boolean).flatMap((value) => [value, ...twins(value)]));
  for (const value of related) {
    if (value.low === undefined) continue;
    const [x, y] = [scale.x(value.born), scale.y(value.low + value.reserved)];
    pen.strokeStyle = value === state.hovered ? colours.text : colours.mark;
    pen.lineWidth = 2;
    pen.strokeRect(x, y, Math.max(scale.x(value.end) - x, 2), Math.max(scale.y(value.low) - y, 2));
  }
};
const valueAt = (step, byte) =>
  plan.values.find((v) => v.low !== undefined && v.born <= step && step < v.end && v.low <= byte && byte < v.low + v.reserved) || null;
const died = (value) => value.end >= plan.steps.length ? "the end" : "step " + (value.end - 1);
const describe = (value) => [
  shown(value.label),
  bytes(value.bytes) + "  " + shown(value.aval) + "  " + KINDS[value.kind] + (value.kind > 1 ? ", " + ROLES[value.role] : ""),
  value.line && "line " + shown(value.line), value.scope && "scope " + shown(value.scope),
  "in memory from step " + value.born + " to " + died(value),
  value.again.length > 0 && "computed again at step " + value.again.map((other) => other.born).join(", "), value.first && "first computed at step " + value.first.born,
].filter(Boolean).join("\n");
const hover = (x, y) => {
  const inside = x >= LEFT && x <= scale.width - RIGHT && y >= TOP && y <= scale.height - BOTTOM;
  state.hovered = inside ? valueAt(Math.floor(scale.step(x)), scale.byte(y)) : null;
  const tip = at("hover");
  tip.hidden = state.hovered === null;
  if (state.hovered !== null) {
    tip.textContent = describe(state.hovered);
    tip.style.left = Math.min(x + 14, Math.max(0, scale.width - tip.offsetWidth - 4)) + "px";
    tip.style.top = (y + 18 + tip.offsetHeight > scale.height ? Math.max(0, y - tip.offsetHeight - 10) : y + 18) + "px";
  }
  markHalves();
  drawMarks();
};
