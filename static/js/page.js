// Small helps of every page. All data comes from attributes; the pages work without this file.
"use strict";
(() => {
  const root = document.documentElement;

  // The theme: light, dark or as the system has it, remembered in this browser.
  const label = () =>
    document.querySelectorAll("[data-theme-set]").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.themeSet === (root.dataset.theme || "")));
    });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-set]");
    if (!button) return;
    if (button.dataset.themeSet) root.dataset.theme = button.dataset.themeSet;
    else delete root.dataset.theme;
    localStorage.setItem("pulse-theme", button.dataset.themeSet);
    label();
  });

  // Copies the code beside the button; where the browser lends no clipboard (plain http), selects it.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: press Ctrl+C";
    }
  });
  document.querySelectorAll("[data-copy]").forEach((button) => (button.hidden = false));

  // Menus close on Escape and on a press elsewhere.
  const menus = () => document.querySelectorAll("details.who[open]");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menus().forEach((menu) => {
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  });
  document.addEventListener("click", (event) => {
    menus().forEach((menu) => menu.contains(event.target) || (menu.open = false));
  });

  // A select or a date inside a filter form sends it at once; without script there is its button.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-auto]");
    if (form) form.requestSubmit();
  });
  document.querySelectorAll("form[data-auto] [data-without-script]").forEach((button) => (button.hidden = true));

  // What the reader opened or follows stays as it is when a fragment is replaced by its fresh self.
  if (window.Idiomorph) {
    Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !(node.matches && node.matches("[data-kept]"));
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
      !(name === "open" && node.tagName === "DETAILS") && !(name === "aria-current" && "step" in node.dataset);
  }

  // A fragment polls only while no socket brings it (live.js says so on the body).
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const polls = event.detail.elt.matches("[data-fragment]") && !event.detail.requestConfig.triggeringEvent;
    if (polls && (document.body.dataset.live === "live" || document.hidden)) event.preventDefault();
  });

  // Fragments do not know which step the reader looks at; the address does.
  let marked = "";
  const mark = () => {
    const here = document.querySelector("[data-current-step]");
    document.querySelectorAll("a[data-step]").forEach((link) => {
      if (here && link.dataset.step === here.dataset.currentStep) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  };

  // A long list of steps shows the open one when that changes; else it stays where its reader put it.
  const showMarked = () => {
    const link = document.querySelector("a[data-step][aria-current]");
    if (!link || link.dataset.step === marked) return;
    marked = link.dataset.step;
    const list = link.closest(".run-left");
    if (list) list.scrollTop += link.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 3;
  };

  // Ages and running clocks count on between two fragments.
  const spell = (ms) => {
    const s = Math.max(0, ms / 1000);
    if (s < 60) return `${s.toFixed(0)} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
    return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  };
  const tick = () =>
    document.querySelectorAll("[data-since]").forEach((clock) => {
      clock.textContent = spell(Date.now() - Date.parse(clock.dataset.since));
    });

  // Times are written in UTC by the server; here they get the reader's own zone as a title.
  const zones = () =>
    document.querySelectorAll("time[datetime]:not([title])").forEach((time) => {
      time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    });

  const refresh = () => {
    mark();
    showMarked();
    zones();
    tick();
  };
  document.body.addEventListener("htmx:afterSettle", refresh);

  // What was fetched into an opened part of a fragment stays while the fragment is replaced, and is fetched anew after it.
  document.body.addEventListener("htmx:afterSettle", (event) => {
    if (!event.detail.elt.matches("[data-fragment]")) return;
    event.detail.elt.querySelectorAll("details[open] > * > [data-kept]").forEach((part) => htmx.trigger(part, "again"));
  });
  document.body.addEventListener("pulse:fragment", refresh);
  setInterval(tick, 1000);
  document.querySelectorAll(".tabs [aria-current]").forEach((tab) => {
    tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 16;
  });
  label();
  refresh();
})();
