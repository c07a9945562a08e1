// Sets the remembered theme before the first paint. Loaded in the head, blocking: it is tiny and avoids a flash.
"use strict";
(() => {
  const chosen = localStorage.getItem("pulse-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
