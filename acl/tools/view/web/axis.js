// The horizontal axis: events at equal distances, or the time at which they happened.
// A window is [low, high) in the axis's own unit; event e is drawn from position(e) to position(e + 1).

import { countUpTo } from "./history.js";

export function axesOf(history) {
  return history.time && history.time[history.events - 1] > 0 ? ["events", "time"] : ["events"];
}

export function extentOf(history, axis) {
  return axis === "time" ? [0, history.time[history.events - 1] * 1.0001 + 1] : [0, history.events];
}

// Returns the width of the narrowest window: 100 ns or 8 events.
export function narrowest(axis) {
  return axis === "time" ? 100 : 8;
}

export function positionOf(history, axis, event) {
  return axis === "time" ? history.time[Math.min(event, history.events - 1)] : event;
}

// Returns the last event that is at or before a position.
export function eventAt(history, axis, position) {
  const event = axis === "time" ? countUpTo(history.time, position) - 1 : Math.floor(position);
  return Math.max(0, Math.min(history.events - 1, event));
}

function firstEventFrom(history, axis, position) {
  if (axis !== "time") return Math.max(0, Math.min(history.events, Math.ceil(position)));
  let low = 0, high = history.events;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (history.time[middle] < position) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Returns the first event of each pixel column of a window, and the first event after the last column.
export function columnEdges(history, axis, [low, high], columns) {
  const edges = new Float64Array(columns + 1);
  for (let c = 0; c <= columns; c++) edges[c] = firstEventFrom(history, axis, low + ((high - low) * c) / columns);
  return edges;
}

// Returns the window, moved and cut so that it lies inside the extent.
export function fitWindow(history, axis, [low, high]) {
  const [first, last] = extentOf(history, axis);
  const width = Math.min(last - first, Math.max(narrowest(axis), high - low));
  const start = Math.max(first, Math.min(last - width, low + (high - low - width) / 2));
  return [start, start + width];
}

export function zoomWindow(history, axis, [low, high], factor, around) {
  return fitWindow(history, axis, [around - (around - low) * factor, around + (high - around) * factor]);
}

export function isWhole(history, axis, [low, high]) {
  const [first, last] = extentOf(history, axis);
  return low <= first && high >= last;
}
