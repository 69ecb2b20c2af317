// Reserved bytes that are not live, over the timeline's window, and the largest free run if addresses are known.

import { positionOf } from "./axis.js";
import { areaPath, drawByteAxis, drawCursor, drawWindowAxis, makeBackdrop, watchSize } from "./canvas.js";
import { RUN_SAMPLES, knowsReserved, largestFreeRun, reservedAt } from "./history.js";
import { groupsAt } from "./groups.js";
import { bytesText, percentText } from "./numbers.js";
import { byId } from "./parts.js";
import { plotBox, sampleWindow } from "./timeline.js";
import { colour } from "./theme.js";

function paintRuns(context, box, state, scale) {
  const { runs, history, axis, window } = state;
  if (!runs) return;
  context.beginPath();
  let before = 0;
  for (let i = 0; i < runs.at.length; i++) {
    const x = box.left + (box.width * (positionOf(history, axis, runs.at[i]) - window[0])) / (window[1] - window[0]);
    const y = box.top + box.height - runs.bytes[i] * scale;
    if (i === 0) context.moveTo(x, y);
    else context.lineTo(x, before);
    context.lineTo(x, y);
    before = y;
  }
  context.strokeStyle = colour("accent");
  context.lineWidth = 1.5;
  context.save();
  context.clip(rectangle(box));
  context.stroke();
  context.restore();
}

function rectangle({ left, top, width, height }) {
  const path = new Path2D();
  path.rect(left, top - 2, width, height + 4);
  return path;
}

// Returns the most and the least unused bytes of each column: reserved minus the least, and the most, live bytes.
function unusedColumns(sample) {
  const most = sample.reserved.map((bytes, c) => Math.max(0, bytes - sample.live.low[c]));
  const least = sample.reserved.map((bytes, c) => Math.max(0, bytes - sample.live.total[c]));
  return { most, least };
}

export function startFragmentation(canvas, store) {
  const { state } = store;
  if (!knowsReserved(state.history)) {
    canvas.hidden = true;
    byId("fragmentationText").textContent = "This file does not say what was reserved.";
    return;
  }
  const backdrop = makeBackdrop(canvas);

  function repaint() {
    const box = plotBox(canvas), columns = Math.round(box.width);
    const { most, least } = unusedColumns(sampleWindow(state, columns));
    const highest = Math.max(1, most.reduce((a, b) => Math.max(a, b), 0)) * 1.05;
    backdrop.paint((context) => {
      const scale = box.height / highest, zero = new Float64Array(columns);
      drawByteAxis(context, box, highest);
      areaPath(context, box, zero, most, scale);
      context.fillStyle = colour("unusedMost");
      context.fill();
      areaPath(context, box, zero, least, scale);
      context.fillStyle = colour("unusedLeast");
      context.fill();
      paintRuns(context, box, state, scale);
      drawWindowAxis(context, box, state.axis, state.window);
    });
    overlay();
  }

  function overlay() {
    const box = plotBox(canvas), context = backdrop.show();
    const x = (positionOf(state.history, state.axis, state.cursor) - state.window[0]) / (state.window[1] - state.window[0]);
    drawCursor(context, box, box.left + box.width * x);
    byId("fragmentationText").textContent = describe();
  }

  function describe() {
    const reserved = reservedAt(state.history, state.cursor);
    const live = groupsAt(state.history, state.groups, state.cursor).reduce((a, b) => a + b, 0);
    const unused = Math.max(0, reserved - live);
    let text = `At the cursor ${bytesText(unused)} of ${bytesText(reserved)} reserved are not live`
      + ` (${percentText(reserved ? unused / reserved : 0)}).`;
    if (state.history.address && state.history.spanStart.length) {
      const run = bytesText(largestFreeRun(state.history, state.cursor));
      text += ` The largest piece of that in one run is ${run}; the line shows it over time, at ${RUN_SAMPLES} moments.`;
    }
    return `${text} The darker area is what was unused even when most was live within a pixel.`;
  }

  watchSize(canvas, repaint);
  store.watch(["window", "axis", "theme", "runs", "groups"], repaint);
  store.watch(["cursor"], overlay);
}
