// The numbers at the top: peak, reserved, allocations, bytes not freed, out of memory.

import { knowsReserved, stepOf } from "./history.js";
import { bytesText, countText, durationText, plural, shortNumber } from "./numbers.js";
import { byId, element } from "./parts.js";

function shortMoment(history, event) {
  const step = stepOf(history, event);
  const when = history.time ? `at ${durationText(history.time[event])}` : `event ${countText(event)}`;
  return step >= 0 ? `${when} · step ${countText(step)}` : when;
}

function figuresOf({ history, peak }) {
  const list = [["Peak live", bytesText(peak.bytes), shortMoment(history, peak.event), "peak"]];
  if (knowsReserved(history)) {
    const most = history.reserved.reduce((a, b) => Math.max(a, b), 0);
    list.push(["Reserved at most", bytesText(most), history.replayed ? "by aclpool, in a replay" : "of device memory", "reserved"]);
    list.push(["Reserved ÷ peak", shortNumber(most / Math.max(1, peak.bytes)), "1.00 would be no waste", "ratio"]);
  }
  list.push(["Allocations", countText(history.blocks), plural(history.streams.length, "stream"), "allocations"]);
  let kept = 0, bytes = 0;
  for (let i = 0; i < history.blocks; i++) if (history.end[i] >= history.events) { kept++; bytes += history.size[i]; }
  list.push(["Not freed", bytesText(bytes), plural(kept, "block"), "kept"]);
  const ooms = history.marks.filter((mark) => mark.kind === "oom").length;
  list.push(["Out of memory", ooms ? `${countText(ooms)} ×` : "never", ooms ? "see below" : "", "ooms"]);
  return list;
}

export function startFigures(store) {
  const { history } = store.state;
  byId("title").textContent = history.name;
  const kind = { trace: "allocation trace", recording: "recording", snapshot: "PyTorch memory snapshot" }[history.source];
  const parts = [kind, plural(history.events, "event")];
  if (history.time) parts.push(durationText(history.time[history.events - 1]));
  if (history.steps) parts.push(plural(history.steps.length, "step"));
  byId("subtitle").textContent = parts.join(" · ");
  byId("figures").replaceChildren(...figuresOf(store.state).map(([name, value, note, key]) => element("div", { "data-figure": key },
    element("dt", { text: name }), element("dd", { text: value }), element("dd", { class: "quiet", text: note }))));
  byId("notes").replaceChildren(...history.notes.map((note) => element("li", { text: note })));
  byId("footer").textContent = `Made by aclpool ${history.version}. Nothing on this page is loaded from elsewhere.`;
}
