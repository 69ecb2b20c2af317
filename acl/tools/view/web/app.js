// Starts the page: the worker prepares the data, then every view is started on one store.

import { axesOf, extentOf } from "./axis.js";
import { groupsAt } from "./groups.js";
import { startAddresses } from "./addresses.js";
import { startComposition } from "./composition.js";
import { startDetails } from "./details.js";
import { startFigures } from "./figures.js";
import { startFragmentation } from "./fragmentation.js";
import { startLegend } from "./legend.js";
import { startList } from "./list.js";
import { startMarks } from "./marks.js";
import { changeText, momentText } from "./moment.js";
import { bytesText } from "./numbers.js";
import { startOverview } from "./overview.js";
import { byId, makeChoice } from "./parts.js";
import { makeStore, setDimension } from "./store.js";
import { startTheme } from "./theme.js";
import { goTo, scaleToLive, startTimeline, zoomBy } from "./timeline.js";

const DIMENSIONS = [["tag", "Tag"], ["stream", "Stream"], ["size", "Size"]];

function fail(text) {
  byId("failed").textContent = `The data could not be read: ${text}`;
  byId("failed").hidden = false;
  byId("subtitle").textContent = "";
  document.body.dataset.state = "failed";
}

function startControls(store) {
  const { state } = store;
  const useful = DIMENSIONS.filter(([name]) => name === "size" || state.allGroups[name].names.length > 1);
  makeChoice(byId("stackBy"), useful, state.dimension, (name) => setDimension(store, name));
  makeChoice(byId("axis"), axesOf(state.history).map((name) => [name, name === "time" ? "Time" : "Events"]), state.axis,
    (axis) => store.set({ axis, window: extentOf(state.history, axis) }));
  byId("toPeak").addEventListener("click", () => goTo(store, state.peak.event));
  byId("zoomIn").addEventListener("click", () => zoomBy(store, 0.5));
  byId("zoomOut").addEventListener("click", () => zoomBy(store, 2));
  byId("zoomAll").addEventListener("click", () => store.set({ window: extentOf(state.history, state.axis) }));
  byId("toLive").addEventListener("click", () => scaleToLive(store));
  startTheme(byId("theme"), () => store.set({ theme: state.theme + 1 }));
}

// Describes the event at the cursor in words, for screen readers.
function announcer(state) {
  let due = 0;
  return (text) => {
    clearTimeout(due);
    due = setTimeout(() => {
      const bytes = groupsAt(state.history, state.groups, state.cursor).reduce((a, b) => a + b, 0);
      byId("status").textContent = text
        || `${momentText(state.history, state.cursor)}: ${bytesText(bytes)} live. ${changeText(state.history, state.cursor)}`;
    }, 150);
  };
}

function start({ history, groups }) {
  const store = makeStore(history, groups);
  const tip = byId("tip"), announce = announcer(store.state);
  startFigures(store);
  startControls(store);
  startTimeline(byId("timeline"), tip, store, announce);
  startOverview(byId("overview"), store);
  startLegend(byId("legend"), store);
  startAddresses(byId("addresses"), tip, store, announce);
  startComposition(byId("composition"), store);
  startFragmentation(byId("fragmentation"), store);
  startMarks(store);
  startList(store);
  startDetails(byId("details"), store);
  byId("main").removeAttribute("aria-busy");
  document.body.dataset.state = "ready";
  performance.mark("ready");
  return store;
}

function main() {
  const data = byId("data").textContent, source = byId("workerSource").textContent;
  byId("data").remove();
  const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  let store = null;
  worker.onerror = (event) => fail(event.message || "the worker could not start");
  worker.onmessage = ({ data: message }) => {
    if (message.kind === "failed") fail(message.text);
    else if (message.kind === "ready") store = start(message);
    else if (store) store.set({ runs: message.runs });
  };
  worker.postMessage(data);
}

main();
