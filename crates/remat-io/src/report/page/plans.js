// ---- the plans: columns of numbers become objects when a plan is shown for the first time

const text = (number) => data.strings[number];
const unpacked = new Map();
const unpack = (number) => {
  if (unpacked.has(number)) return unpacked.get(number);
  const { steps: s, ranges: r, backward } = data.plans[number];
  const steps = s.operation.map((operation, i) => ({
    operation: text(operation), line: text(s.line[i]), scope: text(s.scope[i]), role: s.role[i], time: s.time[i],
  }));
  const values = r.bytes.map((bytes, i) => ({
    number: i, name: text(r.name[i]), operation: text(r.operation[i]), line: text(r.line[i]), scope: text(r.scope[i]),
    aval: text(r.aval[i]), kind: r.kind[i], argument: r.argument[i], role: r.role[i], first: null, again: [], bytes, reserved: r.reserved[i],
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
  for (const value of values) {
    value.label = label(value);
    value.saved = value.kind === 3 && value.role === 0 && value.born < backward && value.end > backward;
    value.isForward = value.born < backward;
    value.found = [value.label, value.operation, value.line, value.scope, value.aval, ROLES[value.role]].join("\n").toLowerCase();
  }
  // What is computed again, and what was computed first.
  r.repeats.forEach((first, i) => {
    if (first === null) return;
    values[i].first = values[first];
    values[first].again.push(values[i]);
  });
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
// The values of which one is computed again as the others: its repetitions, or what it repeats.
const twins = (value) => value.first ? [value.first, ...value.first.again.filter((other) => other !== value)] : value.again;
