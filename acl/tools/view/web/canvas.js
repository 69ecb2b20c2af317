// A canvas in the resolution of the screen, with a backdrop behind the parts that move, and axes.

import { niceTicks, tickText } from "./numbers.js";
import { colour } from "./theme.js";

export const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

// Keeps the canvas as large as its box; calls `onChange` when the size changes.
export function watchSize(canvas, onChange) {
  const fit = () => {
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    if (canvas.width === Math.round(width * ratio) && canvas.height === Math.round(height * ratio)) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    onChange();
  };
  const observer = new ResizeObserver(fit);
  try {
    observer.observe(canvas, { box: "device-pixel-content-box" });   // reports a change of the screen's resolution too
  } catch {
    observer.observe(canvas);
    addEventListener("resize", fit);
  }
  fit();
}

export function pen(canvas) {
  const context = canvas.getContext("2d");
  const ratio = devicePixelRatio || 1;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  return context;
}

// Makes an image of the canvas's size that is painted only when `paint` is called.
export function makeBackdrop(canvas) {
  const behind = document.createElement("canvas");
  return {
    paint(painter) {
      behind.width = canvas.width;
      behind.height = canvas.height;
      painter(pen(behind));
    },
    show() {
      const context = canvas.getContext("2d");
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, canvas.width, canvas.height);
      if (behind.width && behind.height) context.drawImage(behind, 0, 0);
      return pen(canvas);
    },
  };
}

export function drawByteAxis(context, box, highest) {
  const ticks = niceTicks(0, highest, Math.max(2, Math.floor(box.height / 44)), 1024);
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : highest || 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of ticks) {
    const y = Math.round(box.top + box.height * (1 - tick / highest)) + 0.5;
    context.strokeStyle = colour("grid");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(box.left, y);
    context.lineTo(box.left + box.width, y);
    context.stroke();
    context.fillStyle = colour("quiet");
    context.fillText(tickText(tick, step, "bytes"), box.left - 8, y);
  }
}

export function drawWindowAxis(context, box, axis, [low, high]) {
  const ticks = niceTicks(low, high, Math.max(2, Math.floor(box.width / 130)));
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : high - low;
  context.textBaseline = "top";
  context.fillStyle = colour("quiet");
  for (const tick of ticks) {
    if (axis === "events" && tick % 1) continue;
    const x = box.left + (box.width * (tick - low)) / (high - low);
    context.textAlign = x > box.left + box.width - 24 ? "right" : x < box.left + 12 ? "left" : "center";
    context.fillText(tickText(tick, step, axis === "time" ? "time" : "count"), x, box.top + box.height + 8);
  }
}

// Draws a vertical line that is visible on every colour.
export function drawCursor(context, box, x) {
  if (x < box.left - 1 || x > box.left + box.width + 1) return;
  context.fillStyle = colour("panel");
  context.globalAlpha = 0.7;
  context.fillRect(Math.round(x) - 2, box.top, 4, box.height);
  context.globalAlpha = 1;
  context.fillStyle = colour("ink");
  context.fillRect(Math.round(x) - 1, box.top - 5, 2, box.height + 5);
}

// Makes the path of a line of steps, with one value for each column.
export function stepPath(context, box, values, scale) {
  context.beginPath();
  const width = box.width / values.length;
  for (let c = 0; c < values.length; c++) {
    const y = box.top + box.height - values[c] * scale;
    if (c === 0) context.moveTo(box.left, y);
    else context.lineTo(box.left + c * width, y);
    context.lineTo(box.left + (c + 1) * width, y);
  }
}

// Makes the path of the area between two lines of steps; `low` is the lower one.
export function areaPath(context, box, low, high, scale) {
  stepPath(context, box, high, scale);
  const width = box.width / low.length, bottom = box.top + box.height;
  for (let c = low.length - 1; c >= 0; c--) {
    const y = bottom - low[c] * scale;
    context.lineTo(box.left + (c + 1) * width, y);
    context.lineTo(box.left + c * width, y);
  }
  context.closePath();
}
