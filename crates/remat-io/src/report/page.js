"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const ROLES = ["forward", "recomputed", "derivative"];
  const KINDS = ["argument", "constant", "output", "temporary", "scratch"];
  const [OWN, SHARED] = [-1, -2];
  const ROWS = 100;
  const SCOPES = 15;
  const LONGEST = 300;

  // Characters that change how the text around them is shown are shown as their numbers.
  const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;
  const shown = (text) => {
    const cut = text.length > LONGEST ? Array.from(text.slice(0, 2 * LONGEST)).slice(0, LONGEST).join("") + "…" : text;
    return cut.replace(HIDDEN, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
  };
  const element = (tag, text, parent, kind) => {
    const made = document.createElement(tag);
    if (text !== null) made.textContent = text;
    if (kind) made.className = kind;
    parent.append(made);
    return made;
  };
  const bytes = (n) => {
    if (n < 1024) return n + " B";
    let unit = -1;
    do { n /= 1024; unit += 1; } while (n >= 1024 && unit < 4);
    return n.toFixed(2) + " " + ["KiB", "MiB", "GiB", "TiB", "PiB"][unit];
  };
  const percent = (share, digits = 1) => (100 * share).toFixed(digits) + " %";
  const time = (ns) => ns < 1e3 ? ns + " ns" : ns < 1e6 ? (ns / 1e3).toFixed(2) + " µs" : ns < 1e9 ? (ns / 1e6).toFixed(2) + " ms" : (ns / 1e9).toFixed(2) + " s";

  // ---- the plans: columns of numbers become objects when a plan is shown for the first time

  const text = (number) => data.strings[number];
  const unpacked = new Map();
  const unpack = (number) => {
    if (unpacked.has(number)) return unpacked.get(number);
    const { steps: s, ranges: r } = data.plans[number];
    const steps = s.operation.map((operation, i) => ({
      operation: text(operation), line: text(s.line[i]), scope: text(s.scope[i]), role: s.role[i], time: s.time[i],
    }));
    const values = r.bytes.map((bytes, i) => ({
      number: i, name: text(r.name[i]), operation: text(r.operation[i]), line: text(r.line[i]), scope: text(r.scope[i]),
      aval: text(r.aval[i]), kind: r.kind[i], argument: r.argument[i], role: r.role[i], first: null, again: null, firstAt: r.first[i], bytes, reserved: r.reserved[i],
      born: r.born[i], end: r.end[i], offset: r.offset[i],
    }));
    // What the caller holds lies below the arena.
    let base = 0;
    for (const value of values) {
      if (value.offset === OWN) { value.low = base; base += value.reserved; }
    }
    for (const value of values) if (value.offset >= 0) value.low = base + value.offset;
    const live = new Float64Array(steps.length + 1);
    for (const value of values) { live[value.born] += value.reserved; live[value.end] -= value.reserved; }
    for (let i = 1; i < live.length; i += 1) live[i] += live[i - 1];
    let peak = 0;
    for (let i = 0; i < steps.length; i += 1) if (live[i] > live[peak]) peak = i;
    const derivative = steps.findIndex((step) => step.role === 2);
    for (const value of values) {
      value.label = label(value);
      value.saved = value.kind === 3 && value.role === 0 && derivative > value.born && value.end > derivative;
      value.found = [value.label, value.operation, value.line, value.scope, value.aval, ROLES[value.role]].join("\n").toLowerCase();
    }
    link(values);
    const top = Math.max(data.plans[number].peak, base);
    const made = { ...data.plans[number], number, steps, values, base, live, top, peakAt: peak };
    unpacked.set(number, made);
    return made;
  };
  const label = (value) => {
    const operation = value.operation || "the program";
    if (value.kind === 0) return "argument " + (value.name || value.argument);
    if (value.kind === 1) return "constant" + (value.name ? " " + value.name : "");
    if (value.kind === 4) return "scratch of " + operation;
    const name = value.name ? " '" + value.name + "'" : "";
    return (value.kind === 2 ? "output of " : "") + operation + name;
  };
  // What a value and its repetition have in common.
  const IDENTITY = ["aval", "operation", "line", "name"];
  // A value that is computed again, and the one that the same equation has computed first.
  const link = (values) => {
    const born = new Map();
    for (const value of values.filter((value) => value.kind === 3)) {
      const before = (born.get(value.firstAt) || []).find((other) => IDENTITY.every((what) => other[what] === value[what]));
      if (before !== undefined) {
        value.first = before;
        before.again = before.again || value;
      }
      if (!born.has(value.born)) born.set(value.born, []);
      born.get(value.born).push(value);
    }
  };

  // ---- state

  let plan = unpack(0);
  const state = { step: 0, from: 0, to: 1, chosen: null, hovered: null, sort: "bytes", down: true, rows: ROWS };
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
    const related = [state.chosen, state.chosen && (state.chosen.again || state.chosen.first), state.hovered];
    for (const value of related) {
      if (!value || value.low === undefined) continue;
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
    value.again && "computed again at step " + value.again.born, value.first && "first computed at step " + value.first.born,
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
    drawMarks();
  };

  // ---- the panels

  const showSummary = () => {
    const most = data.plans[data.plans.length - 1].peak;
    at("summary").textContent = "a call needs " + bytes(plan.peak) + " (" + percent(plan.peak / Math.max(1, most), 0) + " of " + bytes(most) + "); "
      + percent(plan.overhead) + " more time by the cost model; computed again: " + percent(plan.repeated) + " of the time, at least "
      + percent(plan.bound) + " in any plan of these bytes; " + plan.steps.length + " steps, " + plan.values.length + " values";
    at("plan-number").textContent = (plan.number + 1) + " of " + data.plans.length;
  };
  const showStep = () => {
    const step = plan.steps[state.step];
    if (step === undefined) return;
    at("step").textContent = "step " + state.step + (state.step === plan.peakAt ? ", the peak" : "") + ": " + shown(step.operation)
      + (step.line ? " at " + shown(step.line) : "") + (step.scope ? " (" + shown(step.scope) + ")" : "") + ", " + ROLES[step.role] + ", "
      + time(step.time) + " by the cost model; " + bytes(plan.live[state.step]) + " in memory";
    at("scope-step").textContent = "at step " + state.step;
    showScopes();
    if (at("filter").value === "live") showValues();
    drawMarks();
  };
  const isLive = (value) => value.born <= state.step && state.step < value.end;
  const showScopes = () => {
    const depth = clamp(Number(at("depth").value) || 1, 1, 9);
    const sums = new Map();
    for (const value of plan.values) {
      if (!isLive(value) || value.reserved === 0) continue;
      const scope = value.kind < 2 ? KINDS[value.kind] + "s " + value.name.split(".").slice(0, depth - 1).join(".")
        : value.scope.split("/").slice(0, depth).join("/") || "outside of scopes";
      sums.set(scope, (sums.get(scope) || 0) + value.reserved);
    }
    const body = at("scopes").tBodies[0];
    body.replaceChildren();
    const all = Math.max(1, plan.live[state.step]);
    const sorted = [...sums].sort((a, b) => b[1] - a[1]);
    const rest = sorted.splice(SCOPES);
    if (rest.length > 0) sorted.push([rest.length + " others", rest.reduce((sum, [, bytes]) => sum + bytes, 0)]);
    for (const [scope, sum] of sorted) {
      const row = element("tr", null, body);
      element("td", shown(scope), row).title = shown(scope);
      element("td", bytes(sum), row, "number");
      element("span", null, element("td", null, row), "bar").style.width = 100 * sum / all + "%";
    }
  };
  const COLUMNS = [
    ["value", (v) => v.label, false, 18], ["bytes", (v) => v.bytes, true, 7], ["aval", (v) => v.aval, false, 11],
    ["role", (v) => v.kind < 3 ? KINDS[v.kind] : v.kind === 4 ? "scratch" : ROLES[v.role], false, 8], ["born", (v) => v.born, true, 5],
    ["last", (v) => v.end - 1, true, 5], ["line", (v) => v.line, false, 28], ["scope", (v) => v.scope, false, 12],
    ["again at", (v) => v.again ? v.again.born : -1, true, 6],
  ];
  const showHeader = () => {
    const row = at("values").tHead.rows[0];
    row.replaceChildren();
    for (const [name, , isNumber, width] of COLUMNS) {
      const head = element("th", null, row, isNumber ? "number" : "");
      head.style.width = width + "%";
      const isSorted = state.sort === name;
      head.setAttribute("aria-sort", isSorted ? state.down ? "descending" : "ascending" : "none");
      element("button", name + (isSorted ? state.down ? " ▾" : " ▴" : ""), head).addEventListener("click", () => {
        state.down = isSorted ? !state.down : isNumber;
        state.sort = name;
        showHeader();
        showValues();
        row.cells[COLUMNS.findIndex(([other]) => other === name)].firstChild.focus();
      });
    }
  };
  const FILTERS = { all: () => true, live: isLive, saved: (v) => v.saved, again: (v) => v.role === 1 && v.kind === 3 };
  const showValues = () => {
    const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const isWanted = FILTERS[at("filter").value];
    const found = plan.values.filter((v) => isWanted(v) && words.every((word) => v.found.includes(word)));
    const [, key, isNumber] = COLUMNS.find(([name]) => name === state.sort);
    const order = isNumber ? (a, b) => key(a) - key(b) : (a, b) => key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
    found.sort((a, b) => (state.down ? order(b, a) : order(a, b)) || a.number - b.number);
    const sum = found.reduce((sum, value) => sum + value.bytes, 0);
    at("count").textContent = found.length + " of " + plan.values.length + " values, " + bytes(sum);
    at("more").hidden = found.length <= state.rows;
    const body = at("values").tBodies[0];
    body.replaceChildren();
    for (const value of found.slice(0, state.rows)) {
      const row = element("tr", null, body, value === state.chosen ? "chosen" : "");
      row.tabIndex = 0;
      for (const [name, of, isNumber] of COLUMNS) {
        const cell = of(value);
        const text = name === "bytes" ? bytes(cell) : isNumber ? cell < 0 ? "" : String(cell) : shown(cell);
        element("td", text, row, isNumber ? "number" : "").title = text;
      }
      const choose = (isSecond) => {
        const goal = isSecond && value.again ? value.again : value;
        state.chosen = value;
        for (const other of body.rows) other.classList.toggle("chosen", other === row);
        goTo(goal.born);
      };
      row.addEventListener("click", (event) => choose(event.target === row.lastChild));
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter") choose(event.shiftKey);
        const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
        if (next) { next.focus(); event.preventDefault(); }
      });
    }
  };
  let points = [];
  const drawCurve = () => {
    const { pen, width, height } = fit(at("curve"));
    const peaks = data.plans.map((p) => p.peak);
    const shares = data.plans.flatMap((p) => [p.overhead, p.bound]);
    const [low, high] = [Math.min(...peaks), Math.max(...peaks)];
    const [least, most] = [Math.min(0, ...shares), Math.max(0.001, ...shares)];
    const x = (peak) => LEFT - 16 + (high > low ? (peak - low) / (high - low) : 0.5) * (width - LEFT - 14);
    const y = (share) => 14 + (most - share) / (most - least) * (height - 50);
    pen.fillStyle = colours.quiet;
    pen.textAlign = "right";
    for (const share of [least, (least + most) / 2, most]) pen.fillText(percent(share), LEFT - 26, y(share) + 4);
    pen.textAlign = "left";
    pen.fillText(bytes(low), LEFT - 16, height - 8);
    pen.textAlign = "right";
    if (high > low) pen.fillText(bytes(high), width - 10, height - 8);
    const path = (of, colour, dash) => {
      pen.strokeStyle = colour;
      pen.setLineDash(dash);
      pen.beginPath();
      for (const p of data.plans) pen.lineTo(x(p.peak), y(of(p)));
      pen.stroke();
      pen.setLineDash([]);
    };
    path((p) => p.bound, colours.quiet, [4, 4]);
    path((p) => p.overhead, colours.c2, []);
    points = data.plans.map((p) => [x(p.peak), y(p.overhead)]);
    points.forEach(([px, py], i) => {
      pen.fillStyle = i === plan.number ? colours.mark : colours.c2;
      pen.beginPath();
      pen.arc(px, py, i === plan.number ? 6 : 4, 0, 2 * Math.PI);
      pen.fill();
    });
  };

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
    state.chosen = state.hovered;
    goTo(Math.floor(scale.step(place(event)[0])));
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
  at("search").addEventListener("input", () => { state.rows = ROWS; showValues(); });
  at("filter").addEventListener("change", () => { state.rows = ROWS; showValues(); });
  at("more").addEventListener("click", () => { state.rows += 5 * ROWS; showValues(); });
  at("curve").addEventListener("click", (event) => {
    const box = at("curve").getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const far = points.map(([px, py]) => Math.hypot(px - x, py - y));
    const nearest = far.indexOf(Math.min(...far));
    if (far[nearest] < 30) show(nearest);
  });
  new ResizeObserver(redraw).observe(chart);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  at("title").textContent = shown(data.title);
  document.title = shown(data.title);
  at("plan").max = String(data.plans.length - 1);
  at("plan-label").hidden = data.plans.length < 2;
  readColours();
  measure();
  showHeader();
  show(data.plans.length - 1);
})();
