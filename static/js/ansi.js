// Terminal text to nodes: colours are kept, every other control is dropped or shown as a mark. Nothing is parsed as HTML.
"use strict";
(() => {
  // CSI sequences, OSC and other strings (links and titles among them), then single escapes, 7-bit and C1 alike.
  // A string without its end loses only its beginning: what follows is text that somebody wants to read.
  const CONTROL =
    /(?:\x1b\[|\x9b)([0-9;:?<=>]*)[ -/]*([@-~])|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]|\x1b/g;
  const HIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
  const MOST_SPANS = 40; // of one line: a million escapes must not become a million nodes

  const mark = (character) => {
    const code = character.codePointAt(0);
    return code < 32 ? String.fromCodePoint(0x2400 + code) : code === 127 ? "\u2421" : "\u{fffd}";
  };

  const start = () => ({ fg: "", bg: "", bold: false, dim: false, italic: false, under: false, inverse: false });

  const palette = (codes, at) => {
    // 38;5;n and 38;2;r;g;b: the 16 named ones keep their name, the rest goes to the nearest of them.
    if (codes[at + 1] === 5) return [nearest256(codes[at + 2]), at + 2];
    if (codes[at + 1] === 2) return [nearestRgb(codes[at + 2], codes[at + 3], codes[at + 4]), at + 4];
    return ["", at];
  };
  const nearestRgb = (r = 0, g = 0, b = 0) => {
    const most = Math.max(r, g, b);
    if (most < 64) return "0";
    const index = (r > most / 2 ? 1 : 0) + (g > most / 2 ? 2 : 0) + (b > most / 2 ? 4 : 0);
    return String(most > 170 && index !== 0 ? index + 8 : index || 8);
  };
  const nearest256 = (n = 0) => {
    if (n < 16) return String(n);
    if (n >= 232) return n < 238 ? "0" : n < 246 ? "8" : "7";
    const cube = n - 16;
    const level = (x) => (x === 0 ? 0 : 55 + 40 * x);
    return nearestRgb(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
  };

  const apply = (style, parameters) => {
    const codes = parameters === "" ? [0] : parameters.split(/[;:]/).map(Number);
    for (let at = 0; at < codes.length; at += 1) {
      const code = codes[at];
      if (code === 0) Object.assign(style, start());
      else if (code === 1) style.bold = true;
      else if (code === 2) style.dim = true;
      else if (code === 3) style.italic = true;
      else if (code === 4) style.under = true;
      else if (code === 7) style.inverse = true;
      else if (code === 22) style.bold = style.dim = false;
      else if (code === 23) style.italic = false;
      else if (code === 24) style.under = false;
      else if (code === 27) style.inverse = false;
      else if (code >= 30 && code <= 37) style.fg = String(code - 30);
      else if (code === 38) [style.fg, at] = palette(codes, at);
      else if (code === 39) style.fg = "";
      else if (code >= 40 && code <= 47) style.bg = String(code - 40);
      else if (code === 48) [style.bg, at] = palette(codes, at);
      else if (code === 49) style.bg = "";
      else if (code >= 90 && code <= 97) style.fg = String(code - 82);
      else if (code >= 100 && code <= 107) style.bg = String(code - 92);
    }
  };

  const names = (style) =>
    [
      style.fg && `fg-${style.fg}`,
      style.bg && `bg-${style.bg}`,
      style.bold && "is-bold",
      style.dim && "is-dim",
      style.italic && "is-italic",
      style.under && "is-under",
      style.inverse && "is-inverse",
    ]
      .filter(Boolean)
      .join(" ");

  // A bar that redraws itself with carriage returns: what a terminal would show last.
  const lastDrawn = (text) => {
    const parts = text.replace(/\r+$/, "").split("\r");
    return parts[parts.length - 1];
  };

  const pieces = (raw) => {
    const found = [];
    const style = start();
    const text = lastDrawn(raw);
    let from = 0;
    const put = (until) => {
      if (until <= from) return;
      const shown = text.slice(from, until).replace(HIDDEN, mark);
      const last = found[found.length - 1];
      if (last && last[0] === names(style)) last[1] += shown;
      else found.push([names(style), shown]);
    };
    CONTROL.lastIndex = 0;
    for (let hit = CONTROL.exec(text); hit; hit = CONTROL.exec(text)) {
      put(hit.index);
      from = CONTROL.lastIndex;
      if (hit[2] === "m" && found.length < MOST_SPANS) apply(style, hit[1]);
    }
    put(text.length);
    return found;
  };

  const plain = (raw) => pieces(raw).map(([, text]) => text).join("");

  // Appends the line to `parent`, with each occurrence of `needle` (lower case) marked.
  const write = (parent, raw, needle) => {
    for (const [classes, text] of pieces(raw)) {
      const home = classes ? document.createElement("span") : parent;
      if (classes) {
        home.className = classes;
        parent.append(home);
      }
      if (!needle) {
        home.append(text);
        continue;
      }
      const lower = text.toLowerCase();
      let from = 0;
      for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
        const hit = document.createElement("mark");
        hit.textContent = text.slice(at, at + needle.length);
        home.append(text.slice(from, at), hit);
        from = at + needle.length;
      }
      home.append(text.slice(from));
    }
  };

  window.pulseAnsi = { write, plain };
})();
