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
