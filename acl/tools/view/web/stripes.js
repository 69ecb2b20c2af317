// The single allocations in the stack, each with a line on top of it, if the window shows few enough of them.

import { eventAt, positionOf } from "./axis.js";
import { liveAt } from "./history.js";
import { colour } from "./theme.js";

const MOST_EVENTS = 400;    // most events in the window
const MOST_LINES = 100000;  // most lines: events times blocks
const LEAST_PIXELS = 3;     // least height of a block that has a line

// Returns the events that a window shows, or none if they are too many.
export function stripedEvents(state) {
  const { history, axis, window } = state;
  const first = eventAt(history, axis, window[0]), last = eventAt(history, axis, window[1]);
  if (last - first >= MOST_EVENTS || (last - first + 1) * liveAt(history, last).length > MOST_LINES) return [];
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

// Draws the lines. In each group the older blocks lie below the newer ones.
export function paintStripes(context, box, state, scale, xOf) {
  const { history, axis, groups } = state, bottom = box.top + box.height;
  context.strokeStyle = colour("panel");
  context.globalAlpha = 0.6;
  context.lineWidth = 1;
  context.beginPath();
  for (const event of stripedEvents(state)) {
    const left = xOf(positionOf(history, axis, event)), right = xOf(positionOf(history, axis, event + 1));
    const blocks = liveAt(history, event).sort((a, b) => groups.of[a] - groups.of[b] || a - b);
    let top = 0;
    for (const block of blocks) {
      top += history.size[block];
      if (history.size[block] * scale < LEAST_PIXELS) continue;
      const y = Math.round(bottom - top * scale) + 0.5;
      context.moveTo(left, y);
      context.lineTo(right, y);
    }
  }
  context.stroke();
  context.globalAlpha = 1;
}
