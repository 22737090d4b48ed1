"use strict";
// The page is complete without this: it only shows the sentence of a mark under the pointer or the arrow keys.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  let shown = null;

  const hide = () => {
    tip.hidden = true;
    if (shown) shown.classList.remove("shown");
    shown = null;
  };
  const show = (mark) => {
    hide();
    shown = mark;
    mark.classList.add("shown");
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const at = mark.getBoundingClientRect();
    const left = Math.min(Math.max(12, at.left + at.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 12);
    const above = at.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : at.bottom + 8}px`;
  };

  for (const chart of document.querySelectorAll("figure svg")) {
    const marks = [...chart.querySelectorAll('[role="graphics-symbol"][aria-label]')];
    if (marks.length === 0) continue;
    for (const mark of marks) {
      mark.addEventListener("pointerenter", () => show(mark));
      mark.addEventListener("pointerleave", hide);
    }
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const place = marks.indexOf(shown);
      show(marks[place < 0 ? (step > 0 ? 0 : marks.length - 1) : (place + step + marks.length) % marks.length]);
    });
  }
  addEventListener("scroll", hide, { passive: true });
  // Paper has no clicks.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
})();
