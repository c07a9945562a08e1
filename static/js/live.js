// One socket a page. It says what the page has, takes what it lacks, and shows whether the page is live.
// Protocol: docs/reference/live.md. The server's rows are the truth; this file holds only how far the page got.
"use strict";
(() => {
  const SILENT_MS = 12000; // nothing heard for so long, not even a ping: the line is dead though it looks open
  const LONGEST_WAIT_MS = 15000;
  const SIGNED_OUT = 4401;
  const body = document.body;
  const topics = new Map(); // topic -> {after, seen, takes: [function]}
  let socket = null;
  let received = 0;
  let receiptTimer = 0;
  let heard = 0;
  let tries = 0;
  let waiting = new Set(); // topics whose replay has not ended yet

  // The styles show it: `live`, `catching-up` or `stale`.
  const say = (state) => (body.dataset.live = state);

  const address = () => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live`;
  const tell = (message) => socket && socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));

  const open = () => {
    if (socket || topics.size === 0) return;
    say(tries === 0 ? "catching-up" : "stale");
    const line = new WebSocket(address());
    socket = line;
    received = 0;
    heard = Date.now();
    line.addEventListener("open", () => {
      waiting = new Set(topics.keys());
      topics.forEach((topic, name) => tell({ type: "subscribe", topic: name, after: topic.after }));
    });
    line.addEventListener("message", (event) => line === socket && take(JSON.parse(event.data)));
    line.addEventListener("close", (event) => {
      if (line !== socket) return; // given up already
      socket = null;
      say("stale");
      if (event.code === SIGNED_OUT) {
        body.dispatchEvent(new CustomEvent("pulse:signed-out"));
        return;
      }
      tries += 1;
      const wait = Math.min(LONGEST_WAIT_MS, 250 * 2 ** Math.min(tries, 6));
      setTimeout(open, wait * (0.5 + Math.random() / 2));
    });
  };

  const receipt = () => {
    clearTimeout(receiptTimer);
    receiptTimer = 0;
    tell({ type: "ack", n: received });
  };

  const take = (message) => {
    heard = Date.now();
    if (body.dataset.live === "stale") say("catching-up"); // not before something was heard: an open line may be dead
    received += 1;
    if (received % 20 === 0 || message.type === "ping") receipt();
    else if (!receiptTimer) receiptTimer = setTimeout(receipt, 400);
    const topic = topics.get(message.topic);
    if (!topic) return;
    if (message.type === "event") {
      if (message.seq <= topic.seen) return; // came twice over a broken line
      topic.seen = message.seq;
    } else if (message.type === "fragment") show(message);
    else if (message.type === "stale") refetch(message.names);
    else if (message.type === "refused") {
      topics.delete(message.topic);
      arrived(message.topic);
    } else if (message.type === "caught_up") {
      topic.after = Math.max(topic.after, message.seq);
      if (!message.more) arrived(message.topic);
    } else if (message.count > topic.after) topic.after = message.count; // of a log
    topic.takes.forEach((taker) => taker(message));
    body.dispatchEvent(new CustomEvent(`pulse:${message.type}`, { detail: message }));
  };

  const arrived = (name) => {
    waiting.delete(name);
    if (waiting.size > 0) return;
    tries = 0;
    say(topics.size ? "live" : "stale");
  };

  const show = (message) => {
    const fresh = new DOMParser().parseFromString(message.html, "text/html").body.firstElementChild;
    const old = fresh && document.getElementById(fresh.id);
    if (!old) return;
    Idiomorph.morph(old, fresh, { morphStyle: "outerHTML", ignoreActiveValue: true });
    const now = document.getElementById(fresh.id);
    if (now && window.htmx) htmx.process(now);
  };

  // Parts that only this page can ask for fetch themselves again: of a run by name, of a team by kinds of events.
  const refetch = (names) => {
    if (!window.htmx) return;
    document.querySelectorAll("[data-fragment]").forEach((part) => {
      if (names.includes(part.dataset.fragment)) htmx.trigger(part, "stale");
    });
    document.querySelectorAll("[data-stale-on]").forEach((part) => {
      const prefixes = part.dataset.staleOn.split(" ");
      if (names.some((name) => prefixes.some((prefix) => name.startsWith(prefix)))) htmx.trigger(part, "stale");
    });
  };

  const subscribe = (name, after, taker) => {
    const topic = topics.get(name) || { after, seen: after, takes: [] };
    if (taker) topic.takes.push(taker);
    const fresh = !topics.has(name);
    topics.set(name, topic);
    open();
    if (fresh && socket && socket.readyState === WebSocket.OPEN) {
      waiting.add(name);
      say("catching-up");
      tell({ type: "subscribe", topic: name, after });
    }
    return topic;
  };
  const unsubscribe = (name) => {
    topics.delete(name);
    tell({ type: "unsubscribe", topic: name });
    if (waiting.has(name)) arrived(name);
  };

  setInterval(() => {
    if (socket && Date.now() - heard > SILENT_MS) {
      // A half-open line never says that it is closed: leave it and take a new one.
      const dead = socket;
      socket = null;
      tries += 1;
      dead.close();
      open();
    }
  }, 1000);
  addEventListener("online", () => {
    tries = 0;
    open();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !socket) open();
  });

  window.pulseLive = { subscribe, unsubscribe };
  (body.dataset.topic || "")
    .split(" ")
    .filter(Boolean)
    .forEach((name) => subscribe(name, Number(body.dataset.after || 0)));
})();
