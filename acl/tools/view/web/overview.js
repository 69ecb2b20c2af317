// The whole recording in a strip, with the timeline's window: drag the window, its edges, or a new one.

import { columnEdges, extentOf, fitWindow } from "./axis.js";
import { areaPath, makeBackdrop, watchSize } from "./canvas.js";
import { sampleColumns } from "./groups.js";
import { plotBox } from "./timeline.js";
import { colour } from "./theme.js";

const GRIP = 8;

export function startOverview(canvas, store) {
  const { state } = store;
  const backdrop = makeBackdrop(canvas);
  let drag = null;

  const box = () => ({ ...plotBox(canvas), top: 4, height: canvas.clientHeight - 8 });
  const extent = () => extentOf(state.history, state.axis);
  const xOf = (position) => box().left + (box().width * (position - extent()[0])) / (extent()[1] - extent()[0]);
  const positionAt = (x) => extent()[0] + ((x - box().left) / box().width) * (extent()[1] - extent()[0]);

  function repaint() {
    const area = box(), columns = Math.round(area.width);
    const sample = sampleColumns(state.history, state.groups, columnEdges(state.history, state.axis, extent(), columns));
    let highest = 1;
    for (const total of sample.total) if (total > highest) highest = total;
    backdrop.paint((context) => {
      areaPath(context, area, new Float64Array(columns), sample.total, area.height / highest);
      context.fillStyle = colour("faint");
      context.fill();
    });
    overlay();
  }

  function overlay() {
    const area = box(), context = backdrop.show();
    const [left, right] = state.window.map(xOf);
    context.fillStyle = colour("brush");
    context.fillRect(left, area.top, right - left, area.height);
    context.fillStyle = colour("accent");
    for (const x of [left, right]) context.fillRect(x - 1, area.top, 2, area.height);
    canvas.setAttribute("aria-valuetext", `${Math.round(((state.window[1] - state.window[0]) / extent()[1]) * 100)} % shown`);
  }

  function kindAt(x) {
    const [left, right] = state.window.map(xOf);
    if (Math.abs(x - left) <= GRIP) return "left";
    if (Math.abs(x - right) <= GRIP) return "right";
    return x > left && x < right && right - left < box().width - 2 ? "move" : "new";
  }

  function move(event) {
    const at = positionAt(event.offsetX);
    if (!drag) {
      canvas.style.cursor = { left: "ew-resize", right: "ew-resize", move: "grab", new: "crosshair" }[kindAt(event.offsetX)];
      return;
    }
    const { kind, from, window } = drag;
    const next = {
      left: [Math.min(at, window[1]), window[1]], right: [window[0], Math.max(at, window[0])],
      move: window.map((edge) => edge + at - from), new: [Math.min(from, at), Math.max(from, at)],
    }[kind];
    store.set({ window: fitWindow(state.history, state.axis, next) });
  }

  function key(event) {
    const [low, high] = state.window, span = high - low;
    const next = {
      ArrowLeft: [low - span / 10, high - span / 10], ArrowRight: [low + span / 10, high + span / 10],
      "+": [low + span / 4, high - span / 4], "-": [low - span / 2, high + span / 2], "0": extent(),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    store.set({ window: fitWindow(state.history, state.axis, next) });
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag = { kind: kindAt(event.offsetX), from: positionAt(event.offsetX), window: state.window };
  });
  canvas.addEventListener("pointermove", move);
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { drag = null; });
  canvas.addEventListener("dblclick", () => store.set({ window: extent() }));
  canvas.addEventListener("keydown", key);
  watchSize(canvas, repaint);
  store.watch(["axis", "theme"], repaint);
  store.watch(["window"], overlay);
}
