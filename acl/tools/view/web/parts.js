// Small parts of the page: elements, groups of radio buttons, the tooltip beside the pointer.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}

// Makes radio buttons drawn as one bar; arrow keys move the choice, as in any radio group.
export function makeChoice(place, options, value, onChange) {
  const buttons = options.map(([name, label]) => element("button", {
    type: "button", role: "radio", class: "option", "data-value": name, text: label, onclick: () => choose(name, false),
  }));
  function choose(name, silent) {
    for (const button of buttons) {
      const on = button.dataset.value === name;
      button.setAttribute("aria-checked", String(on));
      button.tabIndex = on ? 0 : -1;
    }
    if (!silent) onChange(name);
  }
  place.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const at = buttons.findIndex((button) => button.getAttribute("aria-checked") === "true");
    const next = buttons[(at + move + buttons.length) % buttons.length];
    next.focus();
    choose(next.dataset.value, false);
  });
  place.replaceChildren(...buttons);
  place.hidden = options.length < 2;
  choose(value, true);
  return (name) => choose(name, true);
}

// Shows a tooltip beside the pointer: a heading, then lines that are [label, value, colour] or text.
export function showTip(tip, x, y, heading, lines) {
  tip.replaceChildren(element("strong", { text: heading }), ...lines.map((line) => (
    Array.isArray(line)
      ? element("div", { class: "tipLine" }, swatch(line[2]), element("span", { text: line[0] }), element("b", { text: line[1] }))
      : element("div", { class: "tipText", text: line })
  )));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 16 : x + 16;
  const top = Math.max(8, Math.min(innerHeight - height - 8, y + 16));
  tip.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
}

export function hideTip(tip) {
  tip.hidden = true;
}

export function swatch(paint) {
  const made = element("i", { class: "swatch", "aria-hidden": "true" });
  if (paint) made.style.background = paint;
  else made.hidden = true;
  return made;
}
