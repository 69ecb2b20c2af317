// Events other than allocations: out of memory with the reason; trims, steals, sleep and wake folded. A click moves there.

import { momentText } from "./moment.js";
import { plural } from "./numbers.js";
import { byId, element } from "./parts.js";
import { goTo } from "./timeline.js";

const SHOWN = 200;
const TITLES = { oom: "Out of memory", trim: "Trim", steal: "Moved", sleep: "Sleep", wake: "Wake" };

function markLine(store, mark) {
  return element("li", { class: `mark ${mark.kind}` },
    element("button", { type: "button", onclick: () => goTo(store, mark.event) },
      element("b", { text: TITLES[mark.kind] || mark.kind }), element("span", { text: mark.title }),
      element("span", { class: "quiet", text: momentText(store.state.history, mark.event) })),
    mark.text ? element("p", { text: mark.text }) : "");
}

function markLines(store, marks) {
  const lines = marks.slice(0, SHOWN).map((mark) => markLine(store, mark));
  if (marks.length > SHOWN) lines.push(element("li", { class: "quiet", text: `and ${plural(marks.length - SHOWN, "more")}` }));
  return element("ol", { class: "marks" }, ...lines);
}

export function startMarks(store) {
  const { marks } = store.state.history;
  const ooms = marks.filter((mark) => mark.kind === "oom"), others = marks.filter((mark) => mark.kind !== "oom");
  byId("marksPanel").hidden = marks.length === 0;
  const parts = [];
  if (ooms.length) parts.push(markLines(store, ooms));
  if (others.length) {
    const fold = element("details", { class: "fold" },
      element("summary", { text: `Memory was moved, given back, or slept: ${plural(others.length, "event")}` }));
    fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) fold.append(markLines(store, others)); });
    parts.push(fold);
  }
  byId("marks").replaceChildren(...parts);
}
