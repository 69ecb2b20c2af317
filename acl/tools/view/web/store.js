// The state that the page shows, and the views that are drawn when it changes, at most once a frame.

import { axesOf, extentOf } from "./axis.js";
import { peakOf } from "./groups.js";

export function makeStore(history, allGroups) {
  const peak = peakOf(allGroups.tag);
  const axis = axesOf(history).at(-1);
  const dimension = allGroups.tag.names.length > 1 ? "tag" : allGroups.stream.names.length > 1 ? "stream" : "size";
  const state = {
    history, allGroups, peak, axis, dimension, groups: allGroups[dimension], window: extentOf(history, axis),
    cursor: peak.event, chosen: -1, highlight: -1, moment: "cursor", runs: null, theme: 0, toLive: false,
  };
  const views = [];
  let changed = new Set(), due = false;

  function draw() {
    due = false;
    const keys = changed;
    changed = new Set();
    for (const view of views) if (!view.keys || view.keys.some((key) => keys.has(key))) view.draw(keys);
  }

  function set(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (state[key] === value) continue;
      state[key] = value;
      changed.add(key);
    }
    if (changed.size && !due) {
      due = true;
      requestAnimationFrame(draw);
    }
  }

  // `keys`: the names in the state whose change draws the view again.
  function watch(keys, drawView) {
    views.push({ keys, draw: drawView });
    drawView(new Set(keys));
  }

  return { state, set, watch };
}

export function setDimension(store, dimension) {
  store.set({ dimension, groups: store.state.allGroups[dimension], highlight: -1 });
}

export function setCursor(store, event) {
  const last = store.state.history.events - 1;
  store.set({ cursor: Math.max(0, Math.min(last, Math.round(event))), moment: "cursor" });
}
