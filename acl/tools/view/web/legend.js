// The groups beside the timeline, with their bytes at the cursor; hovering or focusing one highlights it.

import { groupsAt } from "./groups.js";
import { knowsReserved, reservedAt } from "./history.js";
import { changeText, momentText } from "./moment.js";
import { bytesText, countText } from "./numbers.js";
import { element, swatch } from "./parts.js";
import { groupColours } from "./theme.js";

function put(value, bytes) {
  value.textContent = bytesText(bytes);
  value.title = `${countText(bytes)} bytes`;
}

export function startLegend(place, store) {
  const { state } = store;
  const when = element("p", { class: "legendWhen" });
  const what = element("p", { class: "quiet legendWhat" });
  const list = element("ul", { class: "legendList" });
  place.replaceChildren(when, what, list);
  let values = [];

  function line(name, paint, group) {
    const value = element("b");
    const bring = (on) => () => store.set({ highlight: on ? group : -1 });
    const item = group === undefined
      ? element("li", { class: "legendItem" }, swatch(paint), element("span", { text: name }), value)
      : element("li", {}, element("button", {
        type: "button", class: "legendItem", title: name, onmouseenter: bring(true), onmouseleave: bring(false),
        onfocus: bring(true), onblur: bring(false),
      }, swatch(paint), element("span", { text: name }), value));
    list.append(item);
    return value;
  }

  function rebuild() {
    list.replaceChildren();
    const colours = groupColours(state.groups);
    const reserved = knowsReserved(state.history) ? line("reserved", null) : null;
    if (reserved) {
      const mark = reserved.parentElement.firstElementChild;
      mark.hidden = false;
      mark.classList.add("dashed");
    }
    const live = line("live", null);
    const groups = [];
    for (let g = colours.length - 1; g >= 0; g--) groups[g] = line(state.groups.names[g], colours[g], g);
    values = { reserved, live, groups };
    fill();
  }

  function fill() {
    const bytes = groupsAt(state.history, state.groups, state.cursor);
    when.textContent = momentText(state.history, state.cursor);
    what.textContent = changeText(state.history, state.cursor);
    if (values.reserved) put(values.reserved, reservedAt(state.history, state.cursor));
    put(values.live, bytes.reduce((a, b) => a + b, 0));
    values.groups.forEach((value, g) => put(value, bytes[g]));
  }

  store.watch(["groups", "theme"], rebuild);
  store.watch(["cursor"], fill);
}
