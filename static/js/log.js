// The log reader: a window over any number of lines. Only what is on the screen becomes nodes; lines come in chunks
// over HTTP, new ones over the page's socket. The number of a line is its place in the log, from 1.
"use strict";
(() => {
  const ROW = 20; // px, as in log.css
  const CHUNK = 500;
  const CHUNKS_KEPT = 40;
  const AROUND = 12; // rows drawn above and below the window
  const TALLEST = 8_000_000; // px; browsers lose precision in taller boxes, so beyond it the scroll bar is scaled

  class LogView {
    constructor(root) {
      this.root = root;
      this.view = root.querySelector("[data-log-view]");
      this.space = root.querySelector("[data-log-space]");
      this.rows = root.querySelector("[data-log-rows]");
      this.count = Number(root.dataset.count);
      this.gap = root.dataset.gap ? root.dataset.gap.split(" ").map(Number) : null; // rows that were cut: [first, end]
      this.chunks = new Map(); // number -> {lines, asked}; `asked` while a request for it is under way
      this.needle = "";
      this.matches = [];
      this.match = -1;
      this.picked = 0;
      this.following = true;
      this.drawing = 0;
      this.drawn = new Map(); // number -> {line, looks, node}: what is on the screen
      this.bind();
      if (this.toHash()) this.follow(false);
      else if (root.dataset.ended === "false" || root.dataset.failed === "true") this.toEnd();
      else this.follow(false);
      this.draw();
      if (window.pulseLive && root.dataset.topic)
        window.pulseLive.subscribe(root.dataset.topic, this.count, (message) => this.hear(message));
    }
    leave() {
      this.sizes.disconnect();
      if (window.pulseLive) window.pulseLive.unsubscribe(this.root.dataset.topic);
    }

    bind() {
      const on = (name, act) => {
        const button = this.root.querySelector(`[data-log-${name}]`);
        if (button) button.addEventListener("click", act);
        return button;
      };
      this.followButton = on("follow", () => (this.following ? this.follow(false) : this.toEnd()));
      this.newButton = on("new", () => this.toEnd());
      on("top", () => this.toLine(1));
      on("end", () => this.toEnd());
      on("next", () => this.step(1));
      on("previous", () => this.step(-1));
      const times = on("times", () => {
        const shown = this.root.classList.toggle("shows-times");
        times.setAttribute("aria-pressed", String(shown));
      });
      this.found = this.root.querySelector("[data-log-found]");
      this.box = this.root.querySelector("[data-log-search]");
      let typing = 0;
      this.box.addEventListener("input", () => {
        clearTimeout(typing);
        typing = setTimeout(() => this.search(), 200);
      });
      this.box.addEventListener("keydown", (event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          this.step(event.shiftKey ? -1 : 1);
        } else if (event.key === "Escape") {
          this.box.value = "";
          this.search();
          this.view.focus();
        }
      });
      this.view.addEventListener("scroll", () => this.scrolled(), { passive: true });
      this.view.addEventListener("keydown", (event) => this.key(event));
      this.rows.addEventListener("click", (event) => {
        const number = event.target.closest("[data-line]");
        if (!number) return;
        event.preventDefault();
        history.replaceState(null, "", `#L${number.dataset.line}`);
        this.pick(Number(number.dataset.line), true);
      });
      this.sizes = new ResizeObserver(() => this.later());
      this.sizes.observe(this.view);
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const acts = {
        "/": () => this.box.focus(),
        f: () => (this.following ? this.follow(false) : this.toEnd()),
        g: () => this.toLine(1),
        G: () => this.toEnd(),
        n: () => this.step(1),
        N: () => this.step(-1),
        Home: () => this.toLine(1),
        End: () => this.toEnd(),
      };
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    }

    // --- where we are

    // Of the rows that were cut the first one stands for all, so a place on the screen is not a row's number.
    get hidden() {
      return this.gap ? this.gap[1] - this.gap[0] - 1 : 0;
    }
    get places() {
      return this.count - this.hidden;
    }
    rowAt(place) {
      return this.gap && place > this.gap[0] ? place + this.hidden : place;
    }
    placeOf(row) {
      if (!this.gap || row <= this.gap[0]) return row;
      return row < this.gap[1] ? this.gap[0] : row - this.hidden;
    }
    get height() {
      return Math.min(this.places * ROW, TALLEST);
    }
    get ratio() {
      const room = this.height - this.view.clientHeight;
      return room > 0 && this.places * ROW > TALLEST ? (this.places * ROW - this.view.clientHeight) / room : 1;
    }
    toLine(number) {
      this.follow(false);
      this.space.style.height = `${this.height}px`; // or there would be nowhere to go
      const top = this.placeOf(number - 1) * ROW - this.view.clientHeight / 3;
      this.view.scrollTop = Math.max(0, top) / this.ratio;
      this.later();
    }
    toEnd() {
      this.follow(true);
      this.space.style.height = `${this.height}px`;
      this.view.scrollTop = this.view.scrollHeight;
      this.later();
    }
    follow(yes) {
      this.following = yes;
      this.root.classList.toggle("is-following", yes);
      if (this.followButton) this.followButton.setAttribute("aria-pressed", String(yes));
      if (yes) this.newButton.hidden = true;
    }
    scrolled() {
      const atEnd = this.view.scrollTop + this.view.clientHeight >= this.view.scrollHeight - 2 * ROW;
      if (this.following && !atEnd && this.space.style.height === `${this.height}px`) this.follow(false);
      else if (!this.following && atEnd && this.root.dataset.ended === "false") this.follow(true);
      this.later();
    }
    toHash() {
      const hash = /^#L(\d+)$/.exec(location.hash);
      if (hash) this.pick(Number(hash[1]), false);
      return Boolean(hash);
    }
    pick(number, stay) {
      this.picked = number;
      if (!stay) this.toLine(number);
      this.later();
    }

    // --- lines

    hear(message) {
      if (message.type === "sealed") {
        this.root.dataset.ended = "true";
        this.grow(message.count);
        this.showSeal(message.seal);
        return;
      }
      if ("gap" in message) this.cut(message.gap);
      if (message.type === "lines") this.keep(message.first, message.lines);
      if (message.type === "lines" || message.type === "count") this.grow(message.count);
    }
    showSeal(seal) {
      const place = this.root.querySelector("[data-log-seal]");
      if (!place || !seal.sha256) return;
      place.querySelector("[data-seal-lines]").textContent = seal.lines.toLocaleString("en");
      place.querySelector("[data-seal-bytes]").textContent = seal.bytes.toLocaleString("en");
      place.querySelector("[data-seal-sha]").textContent = seal.sha256;
      place.querySelector("[data-seal-lost]").textContent = seal.lost ? seal.lost.text : "";
      place.hidden = false;
    }
    cut(gap) {
      if (String(gap) === String(this.gap)) return;
      this.gap = gap;
      if (gap) this.chunks.delete(Math.floor(gap[0] / CHUNK)); // the row that stands for the cut has changed
    }
    grow(count) {
      if (count <= this.count) return;
      const more = count - this.count;
      this.count = count;
      this.space.style.height = `${this.height}px`;
      if (this.following) this.view.scrollTop = this.view.scrollHeight;
      else {
        this.fresh = (this.newButton.hidden ? 0 : this.fresh || 0) + more;
        this.newButton.hidden = false;
        this.newButton.textContent = `${this.fresh.toLocaleString("en")} new ${this.fresh === 1 ? "line" : "lines"}`;
      }
      const empty = this.root.querySelector("[data-log-empty]");
      if (empty) empty.hidden = true;
      this.later();
    }
    keep(first, lines) {
      lines.forEach((line, at) => {
        const number = first + at;
        const index = Math.floor(number / CHUNK);
        let chunk = this.chunks.get(index);
        if (!chunk && number % CHUNK === 0) this.chunks.set(index, (chunk = { lines: [], asked: false }));
        if (chunk && chunk.lines.length === number % CHUNK) chunk.lines.push(line);
      });
      this.forget(Math.floor(first / CHUNK));
    }
    // The memory of a page that follows a log for hours is bounded: what is far from `near` is fetched again.
    forget(near) {
      for (const old of this.chunks.keys()) {
        if (this.chunks.size <= CHUNKS_KEPT) break;
        if (Math.abs(old - near) > 2) this.chunks.delete(old);
      }
    }
    line(number) {
      const index = Math.floor(number / CHUNK);
      let chunk = this.chunks.get(index);
      if (!chunk) this.chunks.set(index, (chunk = { lines: [], asked: false }));
      const line = chunk.lines[number % CHUNK];
      if (!line && !chunk.asked) this.fetch(index, chunk);
      return line || null;
    }
    async fetch(index, chunk) {
      chunk.asked = true;
      const before = chunk.lines.length;
      let pause = 0;
      try {
        const answer = await fetch(`${this.root.dataset.linesUrl}?first=${index * CHUNK}&count=${CHUNK}`);
        if (answer.status === 410) {
          this.root.classList.add("is-gone"); // `asked` stays: it will never come
          return;
        }
        if (!answer.ok) throw new Error(String(answer.status));
        const got = await answer.json();
        this.cut(got.gap);
        if (got.lines.length > chunk.lines.length) chunk.lines = got.lines;
        if (chunk.lines.length === before) pause = 500; // told of, not yet readable
        this.root.classList.remove("is-broken");
        if (got.count > this.count) this.grow(got.count);
      } catch {
        this.root.classList.add("is-broken");
        pause = 2000;
      }
      setTimeout(() => {
        chunk.asked = false;
        this.later();
      }, pause);
      this.forget(index);
    }

    // --- drawing

    later() {
      if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
    }
    draw() {
      this.drawing = 0;
      this.space.style.height = `${this.height}px`;
      const top = this.view.scrollTop;
      const virtual = top * this.ratio;
      const first = Math.max(0, Math.floor(virtual / ROW) - AROUND);
      const last = Math.min(this.places, Math.ceil((virtual + this.view.clientHeight) / ROW) + AROUND);
      // Rows that stay are left alone, so that text which is selected stays selected while the log grows.
      const drawn = new Map();
      let next = this.rows.firstChild;
      for (let place = first; place < last; place += 1) {
        const number = this.rowAt(place);
        const line = this.line(number);
        const looks = [this.needle, number + 1 === this.picked, this.matches[this.match] === number].join();
        const old = this.drawn.get(number);
        const kept = old && old.line === line && old.looks === looks ? old : { line, looks, node: this.row(number, line) };
        drawn.set(number, kept);
        while (next && next !== kept.node && kept === old) next = this.drop(next);
        if (next === kept.node) next = next.nextSibling;
        else this.rows.insertBefore(kept.node, next);
      }
      while (next) next = this.drop(next);
      this.drawn = drawn;
      this.rows.style.transform = `translateY(${top - virtual + first * ROW}px)`;
    }
    drop(node) {
      const next = node.nextSibling;
      node.remove();
      return next;
    }
    row(number, line) {
      const row = document.createElement("div");
      row.className = "log-row";
      const link = document.createElement("a");
      link.className = "log-number";
      link.href = `#L${number + 1}`;
      link.dataset.line = String(number + 1);
      link.textContent = String(number + 1);
      link.tabIndex = -1;
      row.append(link);
      if (number + 1 === this.picked) row.classList.add("is-picked");
      if (!line) {
        row.classList.add("is-coming");
        return row;
      }
      const [stream, ms, , text, isCut] = line;
      if (stream === 2) row.classList.add("is-error-stream");
      if (stream === 3) row.classList.add("is-platform");
      const time = document.createElement("span");
      time.className = "log-time";
      time.textContent = `+${(ms / 1000).toFixed(3)}`;
      const words = document.createElement("span");
      words.className = "log-text";
      pulseAnsi.write(words, text, this.needle);
      row.append(time, words);
      if (isCut) {
        const cut = document.createElement("a");
        cut.className = "log-cut";
        cut.href = `${this.root.dataset.lineUrl}?number=${number}`;
        cut.textContent = "the whole line";
        row.append(cut);
      }
      if (this.matches[this.match] === number) row.classList.add("is-match");
      return row;
    }

    // --- search: the server looks, since the page has only a window

    async search() {
      const wanted = this.box.value;
      this.needle = wanted.toLowerCase();
      this.matches = [];
      this.match = -1;
      this.root.classList.toggle("is-searching", Boolean(wanted));
      if (!wanted) {
        this.found.textContent = "";
        this.later();
        return;
      }
      const answer = await fetch(`${this.root.dataset.searchUrl}?q=${encodeURIComponent(wanted)}`);
      if (this.box.value !== wanted) return;
      if (!answer.ok) {
        this.found.textContent = "not searched";
        return;
      }
      const got = await answer.json();
      this.matches = got.lines;
      this.total = got.matches.toLocaleString("en") + (got.complete ? "" : "+");
      if (this.matches.length) this.step(1);
      else this.found.textContent = "none";
      this.later();
    }
    // Steps from line to line that holds a match; the count beside it is of matches.
    step(by) {
      if (!this.matches.length) return;
      this.match = (this.match + by + this.matches.length) % this.matches.length;
      this.found.textContent = `${(this.match + 1).toLocaleString("en")} of ${this.matches.length.toLocaleString("en")} lines, ${this.total} matches`;
      this.toLine(this.matches[this.match] + 1);
    }
  }

  let view = null;
  const wake = () => {
    const root = document.querySelector("[data-log]");
    if (view && view.root === root) return;
    if (view) view.leave();
    view = root && new LogView(root);
  };
  addEventListener("hashchange", () => view && view.toHash());

  // A step's first attempt, its next one, its end: the same page as the server shows it now, without a reload.
  let asking = 0;
  const renew = async () => {
    asking = 0;
    const answer = await fetch(location.href);
    const fresh = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".run-centre");
    const here = document.querySelector(".run-centre");
    if (!fresh || !here) return;
    const log = fresh.querySelector("[data-log]");
    if (view && log && log.dataset.topic === view.root.dataset.topic) {
      const head = here.querySelector(".card-head");
      if (head) Idiomorph.morph(head, fresh.querySelector(".card-head"), { morphStyle: "outerHTML" });
    } else if (!view || (log && view.following)) {
      here.replaceWith(fresh); // who reads further up is left where they are
      if (window.htmx) htmx.process(fresh);
      wake();
      document.body.dispatchEvent(new CustomEvent("pulse:fragment", { detail: { name: "log" } }));
    }
  };
  document.body.addEventListener("pulse:event", (event) => {
    const { kind, ids } = event.detail;
    if (asking || !/^(step|attempt)\./.test(kind)) return;
    const shown = document.querySelector("[data-current-step]");
    const over = !view || view.root.dataset.ended === "true"; // nothing more comes here: is there another to show?
    if (over || !shown || shown.dataset.currentStep === ids.step_id)
      asking = setTimeout(renew, 150 + 350 * Math.random()); // not all viewers at once
  });
  wake();
})();
