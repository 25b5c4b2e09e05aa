// ---- the curve of bytes against time

let points = [];
// The plans, then the policies: where they are, and what they are called.
const drawCurve = () => {
  const { pen, width, height } = fit(at("curve"));
  const all = [...data.plans, ...data.policies];
  const peaks = all.map((p) => p.peak);
  const shares = [...all.map((p) => p.overhead), ...data.plans.map((p) => p.bound)];
  const [low, high] = [Math.min(...peaks), Math.max(...peaks)];
  const [least, most] = [Math.min(0, ...shares), Math.max(0.001, ...shares)];
  const [left, right, top, bottom] = [LEFT - 16, width - 16, 28, height - 40];
  const x = (peak) => left + (high > low ? (peak - low) / (high - low) : 0.5) * (right - left);
  const y = (share) => top + (most - share) / (most - least) * (bottom - top);
  pen.fillStyle = colours.quiet;
  pen.textAlign = "right";
  for (const share of [least, (least + most) / 2, most]) pen.fillText(percent(share), left - 10, y(share) + 4);
  pen.fillText(high > low ? bytes(high) : "", right, height - 8);
  pen.textAlign = "left";
  pen.fillText("more time", 6, 14);
  pen.fillText(bytes(low), left, height - 8);
  pen.textAlign = "center";
  pen.fillText("bytes of a call", (left + right) / 2, height - 8);
  const path = (of, colour, dash) => {
    pen.strokeStyle = colour;
    pen.setLineDash(dash);
    pen.beginPath();
    for (const p of data.plans) pen.lineTo(x(p.peak), y(of(p)));
    pen.stroke();
    pen.setLineDash([]);
  };
  pen.lineWidth = 1.2;
  path((p) => p.bound, colours.quiet, [4, 4]);
  path((p) => p.overhead, colours.c2, []);
  points = all.map((p) => [x(p.peak), y(p.overhead)]);
  points.forEach(([px, py], i) => {
    const isPolicy = i >= data.plans.length;
    pen.fillStyle = isPolicy ? colours.c3 : i === plan.number ? colours.mark : colours.c2;
    pen.beginPath();
    if (isPolicy) pen.rect(px - 4, py - 4, 8, 8);
    else pen.arc(px, py, i === plan.number ? 6 : 4, 0, 2 * Math.PI);
    pen.fill();
    if (state.policy === i - data.plans.length) {
      pen.strokeStyle = colours.text;
      pen.lineWidth = 2;
      pen.strokeRect(px - 7, py - 7, 14, 14);
    }
  });
  labels(pen, [left, right, 0, bottom + 14]);
};
// The names of the policies, each beside its point where no other name or point is.
const labels = (pen, [left, right, top, bottom]) => {
  const taken = points.map(([px, py]) => [px - 6, py - 6, px + 6, py + 6]);
  const meets = (a) => taken.some((b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]);
  pen.textAlign = "left";
  pen.fillStyle = colours.text;
  data.policies.forEach(({ name }, i) => {
    const [px, py] = points[data.plans.length + i];
    const text = shorter(shown(name));
    const size = pen.measureText(text).width;
    const places = [];
    for (let line = 0; line < 12; line += 1) {
      for (const dy of line === 0 ? [0] : [-14 * line, 14 * line]) for (const dx of [10, -10 - size, -size / 2]) places.push([px + dx, py - 7 + dy, px + dx + size, py + 7 + dy]);
    }
    const isInside = (place) => place[0] >= left && place[2] <= right + 12 && place[1] >= top && place[3] <= bottom;
    const place = places.find((place) => isInside(place) && !meets(place));
    if (place === undefined) return;
    taken.push(place);
    pen.fillText(text, place[0], place[3] - 3);
    if (Math.abs((place[1] + place[3]) / 2 - py) < 20) return;
    // A name that is far from its point has a line to it.
    pen.strokeStyle = colours.quiet;
    pen.lineWidth = 0.7;
    pen.beginPath();
    pen.moveTo(px, py);
    pen.lineTo(clamp(px, place[0], place[2]), place[1] > py ? place[1] : place[3]);
    pen.stroke();
  });
};
const shorter = (text) => text.length > 32 ? text.slice(0, 31) + "…" : text;
// The policies as a table, which names all of them.
const showPolicies = () => {
  at("policies").hidden = data.policies.length === 0;
  const body = at("policies").tBodies[0];
  body.replaceChildren();
  data.policies.forEach((policy, i) => {
    const row = element("tr", null, body);
    row.tabIndex = 0;
    element("td", shown(policy.name), row).title = shown(policy.name);
    element("td", bytes(policy.peak), row, "number");
    element("td", percent(policy.overhead), row, "number");
    const plans = data.plans.filter((p) => p.peak <= policy.peak);
    element("td", plans.length > 0 ? percent(plans[plans.length - 1].overhead) : "", row, "number");
    const point = (policy) => { state.policy = policy; drawCurve(); };
    for (const kind of ["mouseenter", "focus"]) row.addEventListener(kind, () => point(i));
    for (const kind of ["mouseleave", "blur"]) row.addEventListener(kind, () => point(null));
  });
};
