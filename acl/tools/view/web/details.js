// Shows all data of the chosen allocation.

import { roomOf } from "./history.js";
import { lifeText, momentText } from "./moment.js";
import { addressText, bytesText, countText } from "./numbers.js";
import { element } from "./parts.js";
import { goTo } from "./timeline.js";

function facts(history, block) {
  const lines = [
    ["Size", `${bytesText(history.size[block])} (${countText(history.size[block])} bytes)`],
    ["Tag", history.tags[history.tag[block]]],
    ["Stream", history.streams[history.stream[block]]],
    ["Allocated", momentText(history, history.start[block])],
    ["Freed", history.end[block] < history.events ? momentText(history, history.end[block]) : "not in this file"],
    ["Lived", lifeText(history, block)],
  ];
  if (history.address && history.address[block]) lines.push(["Address", addressText(history.address[block])]);
  if (history.room) lines.push(["Rounding", bytesText(roomOf(history, block) - history.size[block])]);
  return lines;
}

function goButton(store, text, event) {
  return element("button", { type: "button", class: "button", text, onclick: () => goTo(store, event) });
}

export function startDetails(place, store) {
  const { state } = store, { history } = state;
  function redraw() {
    const block = state.chosen;
    if (block < 0) {
      place.replaceChildren(element("p", { class: "quiet", text: "Choose an allocation to see everything about it." }));
      return;
    }
    const stack = history.stacks[history.stack[block]];
    const freed = history.end[block] < history.events;
    place.replaceChildren(
      element("h3", { text: `Allocation #${history.id[block]}` }),
      element("dl", {}, ...facts(history, block).flatMap(([name, text]) => [
        element("dt", { text: name }), element("dd", { text })])),
      element("div", { class: "buttons" },
        goButton(store, "Go to its start", history.start[block]),
        freed ? goButton(store, "Go to its end", history.end[block]) : ""),
      stack ? element("pre", { text: stack, tabindex: "0", "aria-label": "Stack" }) : "");
  }
  store.watch(["chosen"], redraw);
}
