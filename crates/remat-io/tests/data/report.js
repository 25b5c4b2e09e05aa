"use strict";
// Does in a report what a reader does, and writes what it finds into the page. The test has put it, and a listener for errors, into a copy.
(() => {
  const at = (id) => document.getElementById(id);
  const wrong = [...window.problems];
  const expect = (is, what) => { if (!is) wrong.push(what); };
  const tell = (target, kind, more = {}) => {
    const Kind = kind.startsWith("key") ? KeyboardEvent : kind.startsWith("mouse") || kind === "click" ? MouseEvent : Event;
    target.dispatchEvent(new Kind(kind, { bubbles: true, cancelable: true, ...more }));
  };
  const key = (target, name, more = {}) => tell(target, "keydown", { key: name, ...more });
  const set = (id, value, kind) => { at(id).value = value; tell(at(id), kind); };
  const picture = () => at("bands").toDataURL();
  const step = () => Number(at("step").textContent.match(/^step (\d+)/)[1]);
  const rows = () => [...at("values").tBodies[0].rows];
  const cells = (column) => rows().map((row) => row.cells[column].textContent);
  const plans = Number(at("plan").max) + 1;
  const isLarge = Number(at("count").textContent.match(/of (\d+)/)[1]) >= 5000;
  const blank = () => !at("bands").getContext("2d").getImageData(0, 0, at("bands").width, at("bands").height).data.some((byte) => byte > 0);

  expect(at("title").textContent !== "" && document.title === at("title").textContent, "a title");
  expect(!blank(), "bands");
  expect(/, the peak:/.test(at("step").textContent), "the peak at first");

  // Hover over all of the chart.
  const box = at("chart").getBoundingClientRect();
  const seen = new Set();
  for (let x = 80; x < box.width - 12; x += isLarge ? 60 : 6) {
    for (let y = 10; y < box.height - 24; y += isLarge ? 40 : 4) {
      tell(at("chart"), "mousemove", { clientX: box.left + x, clientY: box.top + y });
      if (!at("hover").hidden) seen.add(at("hover").textContent);
    }
  }
  tell(at("chart"), "mouseleave");
  expect(at("hover").hidden, "no hover outside");
  const parts = [/^argument /m, /in memory from step \d+ to (step \d+|the end)/, /line .*\.rs:\d+:\d+/, /scope /, /\d B|KiB|MiB/];
  expect([...seen].some((text) => /'hidden/.test(text)), "a name");
  for (const part of parts) expect([...seen].some((text) => part.test(text)), "hover has " + part);

  // Search, filters and order.
  const all = at("count").textContent;
  set("search", "HIDDEN tanh", "input");
  expect(rows().length > 0 && rows().every((row) => /hidden/.test(row.textContent)), "found values");
  expect(at("count").textContent !== all, "fewer values");
  set("search", "no such value", "input");
  expect(rows().length === 0, "nothing is found");
  set("search", "", "input");
  expect(at("count").textContent === all, "all values again");
  for (const filter of ["live", "saved"]) {
    set("filter", filter, "change");
    expect(rows().length > 0 && at("count").textContent !== all, "values that are " + filter);
  }
  set("filter", "live", "change");
  const inMemory = at("step").textContent.match(/; ([^;]*) in memory$/)[1];
  expect(at("count").textContent.endsWith(", " + inMemory), "values in memory have its bytes: " + at("count").textContent + " and " + inMemory);
  set("filter", "all", "change");
  const head = (name) => [...at("values").tHead.querySelectorAll("button")].find((button) => button.textContent.startsWith(name));
  head("born").click();
  head("born").click();
  const born = cells(4).map(Number);
  expect(born.length > 1 && born.every((n, i) => i === 0 || born[i - 1] <= n), "in order of birth");
  head("bytes").click();

  // A row chooses a value; the steps are moved through by keys.
  const pictured = at("marks").toDataURL();
  rows()[1].click();
  expect(rows()[1].classList.contains("chosen") && at("marks").toDataURL() !== pictured, "a chosen value");
  rows()[0].focus();
  key(rows()[0], "ArrowDown");
  expect(document.activeElement === rows()[1], "the next row");
  key(rows()[1], "Enter");
  expect(step() === Number(cells(4)[1]), "the step at which the value is born");
  key(at("chart"), "Home");
  expect(step() === 0, "the first step");
  key(at("chart"), "ArrowRight");
  key(at("chart"), "ArrowRight", { shiftKey: true });
  key(at("chart"), "ArrowLeft");
  expect(step() === 10, "the eleventh step");
  key(at("chart"), "p");
  expect(/, the peak:/.test(at("step").textContent), "the peak by a key");
  key(at("chart"), "0");
  const wide = picture();
  key(at("chart"), "+");
  expect(picture() !== wide, "a closer look");
  key(at("chart"), "0");
  expect(picture() === wide, "the whole program");
  expect(at("chart").tabIndex === 0 && at("plan").type === "range", "what has the focus");
  set("colours", "scope", "change");
  expect(picture() !== wide && /layer/.test(at("legend").textContent), "colours by scope");
  set("colours", "role", "change");

  // Memory by layer: sorted by each column, at two depths, and layers together.
  const layers = (column) => [...at("scopes").tBodies[0].rows].map((row) => row.cells[column].textContent);
  const sortLayers = (name) => [...at("scopes").tHead.querySelectorAll("button")].find((button) => button.textContent.startsWith(name)).click();
  const size = (text) => Number(text.split(" ")[0]) * 1024 ** ["B", "KiB", "MiB", "GiB"].indexOf(text.split(" ")[1]);
  expect(layers(0).length > 8, "memory by layer");
  for (const [column, name] of [[1, "at the step"], [2, "at the peak"], [3, "in total"]]) {
    sortLayers(name);
    if (at("scopes").tHead.rows[0].cells[column].getAttribute("aria-sort") !== "descending") sortLayers(name);
    const sorted = layers(column).map(size);
    expect(sorted.every((n, i) => i === 0 || sorted[i - 1] >= n) && sorted[0] > 0, "layers " + name);
  }
  expect(layers(2).join() === layers(1).join(), "the step is the peak");
  const apart = layers(0);
  at("together").click();
  expect(layers(0).length < apart.length && layers(0).some((name) => name.startsWith("layer * ")) && layers(0).some((name) => name.startsWith("layer 2 ")), "layers together");
  at("together").click();
  expect(layers(0).join() === apart.join(), "layers apart again");
  sortLayers("scope");
  const named = layers(0).filter((name) => name.startsWith("layer "));
  expect(named.every((name, i) => name.startsWith("layer " + i + " ")), "scopes in the order of their numbers");

  // Policies are points of the curve with names.
  const policies = [...at("policies").tBodies[0].rows];
  expect(policies.length === 3 && !at("policies").hidden && policies[1].cells[0].textContent.includes("<script>"), "policies by name");
  expect(policies.every((row) => /B$/.test(row.cells[1].textContent) && /%$/.test(row.cells[2].textContent)), "bytes and times of policies");
  expect(!at("time").hidden, "the curve");
  const curve = () => at("curve").toDataURL();
  const plain = curve();
  const seenCurves = policies.map((row) => { row.focus(); return curve(); });
  document.activeElement.blur();
  expect(new Set([plain, ...seenCurves]).size === 4 && curve() === plain, "a policy that is pointed at");

  // Forward and backward, side by side.
  const halves = () => [...at("halves").querySelectorAll(".half")];
  const side = (i) => halves().filter((_, number) => number % 2 === i).flatMap((half) => [...half.children]);
  expect(side(0).length > 0 && side(1).length > 0, "both halves");
  expect(halves()[0].getBoundingClientRect().top === halves()[1].getBoundingClientRect().top, "halves of a scope in a line");
  if (isLarge) set("halves-filter", "again", "change");
  const first = side(0).find((item) => /again at/.test(item.textContent));
  const unmarked = at("marks").toDataURL();
  tell(first, "mouseenter", { bubbles: false });
  const twin = at("halves").querySelector(".twin");
  expect(twin !== null && side(1).includes(twin) && /first at/.test(twin.textContent), "the repetition of a value");
  expect(twin !== null && first.textContent.includes("again at " + twin.textContent.match(/step (\d+)$/)[1]), "the step of the repetition");
  expect(at("marks").toDataURL() !== unmarked, "both in the chart");
  tell(first, "mouseleave", { bubbles: false });
  expect(at("halves").querySelector(".twin, .on") === null, "nothing is pointed at");
  tell(twin, "mouseenter", { bubbles: false });
  expect(first.classList.contains("twin"), "what a value repeats");
  tell(twin, "mouseleave", { bubbles: false });
  first.focus();
  key(first, "ArrowRight");
  expect(document.activeElement === twin && first.classList.contains("twin") && twin.tabIndex === 0, "to the repetition by a key");
  key(twin, "ArrowLeft");
  expect(document.activeElement === first, "back by a key");
  key(first, "ArrowUp");
  key(document.activeElement, "ArrowDown");
  expect(document.activeElement === first, "up and down");
  key(first, "Enter");
  expect(step() === Number(first.textContent.match(/step (\d+)$/)[1]) && first.classList.contains("chosen") && twin.classList.contains("twin"), "a chosen value and its repetition");
  set("halves-filter", "again", "change");
  expect(side(0).length > 0 && side(0).every((item) => /again at/.test(item.textContent)) && side(1).every((item) => isLarge || /first at/.test(item.textContent)), "what is computed again");
  set("halves-filter", "saved", "change");
  expect(side(0).length > 0 && side(1).length === 0, "what is saved");
  set("halves-filter", "all", "change");
  if (!isLarge) {
    const item = at("halves").querySelector(".item");
    item.click();
    const marked = rows().filter((row) => row.classList.contains("chosen"));
    expect(marked.length === 1 && marked[0].cells[4].textContent === item.textContent.match(/step (\d+)$/)[1], "the row of a chosen value is marked");
  }
  expect([...at("halves").querySelectorAll(".item")].filter((item) => item.tabIndex === 0).length === 1, "one value in the order of the tab key");
  if (isLarge) {
    set("halves-filter", "all", "change");
    const before = side(0).length + side(1).length;
    expect(!at("halves-more").hidden && before < 4000, "not all values at once");
    at("halves-more").click();
    expect(side(0).length + side(1).length > before, "more values");
  }
  key(at("chart"), "p");

  // The slider draws all again.
  let before = null;
  const [times, again] = [[], []];
  for (let round = 0; round < 2; round += 1) {
    for (let number = 0; number < plans; number += 1) {
      const start = performance.now();
      set("plan", String(number), "input");
      at("bands").getContext("2d").getImageData(0, 0, 1, 1);
      if (round === 1) times.push(performance.now() - start);
      const now = [picture(), at("summary").textContent, at("curve").toDataURL()];
      expect(before === null || now.every((part, i) => isLarge && i === 0 || part !== before[i]), "plan " + number + " looks as the one before it");
      before = now;
      set("filter", "again", "change");
      again.push(rows().length);
      if (cells(8).some(Boolean)) expect(false, "a repetition of a repetition");
      set("filter", "all", "change");
    }
  }
  expect(again.some((count) => count > 0), "values that are computed again");
  // Frames without a new plan: the bands alone.
  const frames = [];
  for (let i = 0; i < 30; i += 1) {
    const start = performance.now();
    key(at("chart"), i % 2 ? "+" : "-");
    at("bands").getContext("2d").getImageData(0, 0, 1, 1);
    frames.push(performance.now() - start);
  }
  const middle = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

  // Names are text.
  const made = document.querySelectorAll("img, iframe, a, object, embed, link, svg, form, base, [onerror], [onload], [onclick], [src], [href]");
  expect(made.length === 0, made.length + " elements of names");
  expect(document.scripts.length === 4 && window.hostile === undefined, "scripts of names");
  expect(!/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText), "marks of direction");
  wrong.push(...window.problems);
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify({
    wrong: [...new Set(wrong)], back: getComputedStyle(document.body).backgroundColor, values: at("count").textContent, plans,
    slider: Math.min(...times), frame: Math.min(...frames), middle: middle(frames),
  });
  document.body.append(result);
})();
