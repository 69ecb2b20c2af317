// The composition of the memory at the cursor or at the peak: the groups as bars, and the largest blocks.

import { groupsAt } from "./groups.js";
import { liveAt } from "./history.js";
import { frameOf } from "./addresses.js";
import { lifeText, momentText } from "./moment.js";
import { bytesText, percentText, plural } from "./numbers.js";
import { byId, element, makeChoice } from "./parts.js";
import { groupColours } from "./theme.js";

const LARGEST = 6;

function bar(name, bytes, largest, total, paint) {
  const fill = element("i", { class: "barFill", "aria-hidden": "true" });
  fill.style.width = `${(bytes / largest) * 100}%`;
  fill.style.background = paint;
  return element("tr", {},
    element("th", { scope: "row", title: name, text: name }),
    element("td", { class: "barCell" }, element("span", { class: "bar" }, fill)),
    element("td", { class: "number", text: bytesText(bytes) }),
    element("td", { class: "number quiet", text: percentText(bytes / total) }));
}

function largestBlocks(store, event) {
  const { history } = store.state;
  const live = liveAt(history, event).sort((a, b) => history.size[b] - history.size[a]);
  const line = (block) => element("li", {}, element("button", {
    type: "button", class: "blockLine", onclick: () => store.set({ chosen: block }),
  }, element("b", { text: bytesText(history.size[block]) }),
  element("span", { text: [history.tags[history.tag[block]], frameOf(history, block)].filter(Boolean).join(" · ") }),
  element("span", { class: "quiet", text: lifeText(history, block) })));
  return [
    element("h3", { text: `${plural(live.length, "live block")}, the largest` }),
    element("ol", { class: "blocks" }, ...live.slice(0, LARGEST).map(line)),
  ];
}

export function startComposition(place, store) {
  const { state } = store;
  const show = makeChoice(byId("moment"), [["cursor", "Cursor"], ["peak", "Peak"]], "cursor",
    (moment) => store.set({ moment }));

  function redraw() {
    show(state.moment);
    const event = state.moment === "peak" ? state.peak.event : state.cursor;
    const bytes = groupsAt(state.history, state.groups, event);
    const total = bytes.reduce((a, b) => a + b, 0), colours = groupColours(state.groups);
    const order = [...bytes.keys()].filter((g) => bytes[g] > 0).sort((a, b) => bytes[b] - bytes[a]);
    byId("compositionWhen").textContent = `${bytesText(total)} at ${momentText(state.history, event)}`;
    place.replaceChildren(
      element("table", { class: "bars" }, element("tbody", {},
        ...order.map((g) => bar(state.groups.names[g], bytes[g], bytes[order[0]], total, colours[g])))),
      ...largestBlocks(store, event));
  }
  store.watch(["cursor", "groups", "moment", "theme"], redraw);
}
