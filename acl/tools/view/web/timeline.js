// Memory over time: the groups' bytes stacked, the reserved line above them, marks, the cursor.

import { columnEdges, eventAt, extentOf, fitWindow, isWhole, positionOf, zoomWindow } from "./axis.js";
import { areaPath, drawByteAxis, drawCursor, drawWindowAxis, makeBackdrop, stepPath, watchSize } from "./canvas.js";
import { groupsAt, sampleColumns } from "./groups.js";
import { knowsReserved, reservedAt } from "./history.js";
import { momentText } from "./moment.js";
import { bytesText } from "./numbers.js";
import { byId, hideTip, showTip } from "./parts.js";
import { reservedColumns } from "./reserved.js";
import { setCursor } from "./store.js";
import { paintStripes } from "./stripes.js";
import { colour, groupColours } from "./theme.js";

const MARGIN = { left: 76, right: 12, top: 16, bottom: 28 };

export function plotBox(canvas) {
  return {
    left: MARGIN.left, top: MARGIN.top, width: Math.max(10, canvas.clientWidth - MARGIN.left - MARGIN.right),
    height: Math.max(10, canvas.clientHeight - MARGIN.top - MARGIN.bottom),
  };
}

// Samples a window in a number of columns; all charts of the window use it.
export function sampleWindow(state, columns) {
  const edges = columnEdges(state.history, state.axis, state.window, columns);
  return {
    edges, live: sampleColumns(state.history, state.groups, edges),
    reserved: knowsReserved(state.history) ? reservedColumns(state.history, edges) : null,
  };
}

function paintStack(context, box, sample, scale, colours, highlight) {
  const { columns, count, bytes } = sample.live;
  let low = new Float64Array(columns);
  for (let g = 0; g < count; g++) {
    const high = new Float64Array(columns);
    for (let c = 0; c < columns; c++) high[c] = low[c] + bytes[c * count + g];
    areaPath(context, box, low, high, scale);
    context.globalAlpha = highlight >= 0 && highlight !== g ? 0.25 : 1;
    context.fillStyle = colours[g];
    context.fill();
    low = high;
  }
  context.globalAlpha = 1;
  stepPath(context, box, sample.live.total, scale);
  context.strokeStyle = colour("ink");
  context.globalAlpha = 0.3;
  context.lineWidth = 1;
  context.stroke();
  context.globalAlpha = 1;
}

function paintReserved(context, box, reserved, scale) {
  stepPath(context, box, reserved, scale);
  context.strokeStyle = colour("reserved");
  context.lineWidth = 1.5;
  context.setLineDash([5, 3]);
  context.stroke();
  context.setLineDash([]);
}

// Draws the pool's limit, if the axis reaches it.
function paintLimit(context, box, limit, highest) {
  if (!limit || limit > highest) return;
  const y = Math.round(box.top + box.height * (1 - limit / highest)) + 0.5;
  context.strokeStyle = context.fillStyle = colour("alarm");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(box.left, y);
  context.lineTo(box.left + box.width, y);
  context.stroke();
  context.textAlign = "left";
  context.textBaseline = "bottom";
  context.fillText(`limit ${bytesText(limit)}`, box.left + 4, y - 1);
}

// Returns the top of the vertical axis: above all that is drawn, and above the limit unless that is far away.
function heightOf(state, sample) {
  let highest = 1;
  for (const total of sample.live.total) if (total > highest) highest = total;
  if (!state.toLive) {
    if (sample.reserved) for (const total of sample.reserved) if (total > highest) highest = total;
    if (state.history.limit <= 2 * highest) highest = Math.max(highest, state.history.limit);
  }
  return highest * 1.04;
}

function paintMarks(context, box, state, xOf) {
  for (const mark of state.history.marks) {
    if (mark.kind !== "oom") continue;
    const x = xOf(positionOf(state.history, state.axis, mark.event));
    if (x < box.left || x > box.left + box.width) continue;
    context.fillStyle = colour("alarm");
    context.beginPath();
    context.moveTo(x, box.top);
    context.lineTo(x - 5, box.top - 10);
    context.lineTo(x + 5, box.top - 10);
    context.fill();
    context.fillRect(x - 0.5, box.top, 1, box.height);
  }
}

export function startTimeline(canvas, tip, store, announce) {
  const { state } = store;
  const backdrop = makeBackdrop(canvas);
  let sample = null, drag = null, hover = -1;

  const box = () => plotBox(canvas);
  const xOf = (position) => box().left + (box().width * (position - state.window[0])) / (state.window[1] - state.window[0]);
  const positionAt = (x) => state.window[0] + ((x - box().left) / box().width) * (state.window[1] - state.window[0]);

  // Returns the event under a pixel; if the pixel covers many, the one that is drawn there.
  function eventUnder(x) {
    const column = Math.max(0, Math.min(sample.live.columns - 1,
      Math.floor(((x - box().left) / box().width) * sample.live.columns)));
    const many = sample.edges[column + 1] - sample.edges[column] > 1;
    return many ? sample.live.event[column] : eventAt(state.history, state.axis, positionAt(x));
  }

  function repaint() {
    const area = box();
    sample = sampleWindow(state, Math.round(area.width * Math.min(2, devicePixelRatio || 1)));
    const highest = heightOf(state, sample);
    backdrop.paint((context) => {
      const scale = area.height / highest;
      drawByteAxis(context, area, highest);
      context.save();
      context.beginPath();
      context.rect(area.left, area.top, area.width, area.height);
      context.clip();
      paintStack(context, area, sample, scale, groupColours(state.groups), state.highlight);
      paintStripes(context, area, state, scale, xOf);
      if (sample.reserved) paintReserved(context, area, sample.reserved, scale);
      context.restore();
      paintLimit(context, area, state.history.limit, highest);
      paintMarks(context, area, state, xOf);
      drawWindowAxis(context, area, state.axis, state.window);
    });
    const [from, to] = state.window.map((edge) => momentText(state.history, eventAt(state.history, state.axis, edge)));
    canvas.setAttribute("aria-label", `Memory over time, from ${from} to ${to}`);
    overlay();
  }

  function overlay() {
    const area = box(), context = backdrop.show();
    const place = (event) => xOf(positionOf(state.history, state.axis, event));
    drawCursor(context, area, place(state.cursor));
    if (hover >= 0) {
      context.fillStyle = colour("ink");
      context.fillRect(Math.round(place(hover)), area.top, 1, area.height);
    }
    if (drag && drag.kind === "zoom") {
      context.fillStyle = colour("brush");
      context.fillRect(Math.min(drag.from, drag.to), area.top, Math.abs(drag.to - drag.from), area.height);
    }
  }

  function tipAt(event, x, y) {
    const bytes = groupsAt(state.history, state.groups, event), colours = groupColours(state.groups);
    const lines = [];
    let total = 0;
    for (let g = bytes.length - 1; g >= 0; g--) {
      total += bytes[g];
      if (bytes[g] > 0) lines.push([state.groups.names[g], bytesText(bytes[g]), colours[g]]);
    }
    lines.unshift(["live", bytesText(total)]);
    if (knowsReserved(state.history)) lines.unshift(["reserved", bytesText(reservedAt(state.history, event))]);
    showTip(tip, x, y, momentText(state.history, event), lines);
  }

  function move(event) {
    const x = event.offsetX;
    if (drag && drag.kind === "zoom") drag.to = Math.max(box().left, Math.min(box().left + box().width, x));
    if (drag && drag.kind === "pan") {
      const shift = ((drag.from - x) / box().width) * (drag.window[1] - drag.window[0]);
      store.set({ window: fitWindow(state.history, state.axis, drag.window.map((edge) => edge + shift)) });
    }
    hover = eventUnder(x);
    tipAt(hover, event.clientX, event.clientY);
    overlay();
  }

  function release(event) {
    const ended = drag;
    drag = null;
    if (!ended) return;
    if (ended.kind === "zoom" && Math.abs(ended.to - ended.from) > 4) {
      const edges = [ended.from, ended.to].sort((a, b) => a - b).map(positionAt);
      store.set({ window: fitWindow(state.history, state.axis, edges) });
    } else if (ended.kind === "zoom") setCursor(store, eventUnder(event.offsetX));
    overlay();
  }

  function wheel(event) {
    const span = state.window[1] - state.window[0];
    if (event.ctrlKey || event.metaKey || (document.activeElement === canvas && !event.deltaX)) {
      const factor = Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * 0.002)));
      store.set({ window: zoomWindow(state.history, state.axis, state.window, factor, positionAt(event.offsetX)) });
    } else if (event.deltaX || event.shiftKey) {
      const shift = ((event.deltaX || event.deltaY) / box().width) * span;
      store.set({ window: fitWindow(state.history, state.axis, state.window.map((edge) => edge + shift)) });
    } else return;
    event.preventDefault();
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { kind: event.shiftKey ? "pan" : "zoom", from: event.offsetX, to: event.offsetX, window: state.window };
  });
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", () => { drag = null; overlay(); });
  canvas.addEventListener("pointerleave", () => { hover = -1; hideTip(tip); overlay(); });
  canvas.addEventListener("dblclick", () => store.set({ window: extentOf(state.history, state.axis) }));
  canvas.addEventListener("wheel", wheel, { passive: false });
  canvas.addEventListener("keydown", (event) => timelineKey(event, store, announce));
  watchSize(canvas, repaint);
  store.watch(["window", "groups", "axis", "theme", "highlight", "toLive"], repaint);
  store.watch(["cursor"], overlay);
}

// Switches the vertical axis between the live bytes alone and all that is drawn.
export function scaleToLive(store) {
  store.set({ toLive: !store.state.toLive });
  byId("toLive").setAttribute("aria-pressed", String(store.state.toLive));
}

// Zooms around the cursor if it is visible, else around the middle.
export function zoomBy(store, factor) {
  const { history, axis, window, cursor } = store.state;
  const at = positionOf(history, axis, cursor);
  const around = at >= window[0] && at <= window[1] ? at : (window[0] + window[1]) / 2;
  store.set({ window: zoomWindow(history, axis, window, factor, around) });
}

// Moves the window, if the cursor is outside it, so that the cursor is inside.
export function followCursor(store) {
  const { history, axis, window, cursor } = store.state;
  const at = positionOf(history, axis, cursor), span = window[1] - window[0];
  if (isWhole(history, axis, window) || (at >= window[0] && at < window[1])) return;
  store.set({ window: fitWindow(history, axis, [at - span / 2, at + span / 2]) });
}

export function goTo(store, event) {
  setCursor(store, event);
  followCursor(store);
}

function nextMark(state, direction) {
  const events = state.history.marks.map((mark) => mark.event);
  return direction > 0 ? events.find((event) => event > state.cursor)
    : events.findLast((event) => event < state.cursor);
}

function timelineKey(event, store, announce) {
  const { state } = store, { history, axis, window } = state;
  const shown = eventAt(history, axis, window[1]) - eventAt(history, axis, window[0]);
  const step = event.shiftKey ? Math.max(1, Math.round(shown / 50)) : 1;
  const mark = { "[": -1, "]": 1 }[event.key];
  const target = {
    ArrowLeft: state.cursor - step, ArrowRight: state.cursor + step, Home: 0, End: history.events - 1,
    p: state.peak.event, P: state.peak.event,
  }[event.key] ?? (mark && nextMark(state, mark));
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target !== undefined) goTo(store, target);
  else if (event.key === "+" || event.key === "=") zoomBy(store, 0.5);
  else if (event.key === "-") zoomBy(store, 2);
  else if (event.key === "0") store.set({ window: extentOf(history, axis) });
  else if (event.key === "l" || event.key === "L") scaleToLive(store);
  else return;
  event.preventDefault();
  announce();
}
