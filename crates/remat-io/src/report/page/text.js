const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const ROLES = ["forward", "recomputed", "derivative"];
const KINDS = ["argument", "constant", "output", "temporary", "scratch"];
const [OWN, SHARED] = [-1, -2];
const ROWS = 100;
const SCOPES = 200;
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
