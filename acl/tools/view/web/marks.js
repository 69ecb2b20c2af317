// What happened besides allocations: out of memory with the reason, trims, steals. A click goes there.

import { momentText } from "./moment.js";
import { plural } from "./numbers.js";
import { byId, element } from "./parts.js";
import { goTo } from "./timeline.js";

const SHOWN = 200;

export function startMarks(store) {
  const { history } = store.state;
  const ranked = [...history.marks.filter((mark) => mark.kind === "oom"), ...history.marks.filter((mark) => mark.kind !== "oom")];
  byId("marksPanel").hidden = ranked.length === 0;
  byId("marks").replaceChildren(...ranked.slice(0, SHOWN).map((mark) => element("li", { class: `mark ${mark.kind}` },
    element("button", { type: "button", onclick: () => goTo(store, mark.event) },
      element("b", { text: mark.kind === "oom" ? "Out of memory" : mark.kind }),
      element("span", { text: mark.title }), element("span", { class: "quiet", text: momentText(history, mark.event) })),
    mark.text ? element("p", { text: mark.text }) : "")));
  if (ranked.length > SHOWN) byId("marks").append(element("li", { class: "quiet", text: `and ${plural(ranked.length - SHOWN, "more event")}` }));
}
