// Formats numbers for people.

export function bytesText(bytes) {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(value) < 1024) return `${unit === "B" ? value : shortNumber(value)} ${unit}`;
    value /= 1024;
  }
  return `${shortNumber(value)} TiB`;
}

export function shortNumber(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits);
}

export function countText(count) {
  return Math.round(count).toLocaleString("en");
}

export function percentText(part) {
  return `${shortNumber(part * 100)} %`;
}

export function durationText(ns) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${shortNumber(ns / 1e3)} µs`;
  if (ns < 1e9) return `${shortNumber(ns / 1e6)} ms`;
  return ns < 120e9 ? `${shortNumber(ns / 1e9)} s` : `${shortNumber(ns / 60e9)} min`;
}

export function addressText(address) {
  return `0x${address.toString(16)}`;
}

export function plural(count, word) {
  return `${countText(count)} ${word}${count === 1 ? "" : "s"}`;
}

// Returns about `count` round numbers between two; with `base` 1024 they are round in bytes.
export function niceTicks(low, high, count, base = 10) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0)) return [low];
  const step = base === 1024 ? byteStep(raw) : decimalStep(raw);
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) ticks.push(value);
  return ticks;
}

function decimalStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw * 0.999);
}

function byteStep(raw) {
  const power = 1024 ** Math.max(0, Math.floor(Math.log2(raw) / 10));
  for (const factor of [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 512]) {
    if (factor * power >= raw) return factor * power;
  }
  return 1024 * power;
}

// Returns the label of a tick, with just enough digits to differ from the labels beside it.
export function tickText(value, step, format) {
  if (format === "bytes") {
    // The largest unit of which the step is at least a quarter: 0.25, 0.5, 1, ...
    const unit = Math.max(0, Math.min(4, Math.floor(Math.log2(Math.max(step, 1) * 4) / 10)));
    const shown = (value / 1024 ** unit).toLocaleString("en", { maximumFractionDigits: 2 });
    return value === 0 ? "0" : `${shown} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
  }
  if (format === "time") {
    const [size, unit] = step >= 1e9 ? [1e9, "s"] : step >= 1e6 ? [1e6, "ms"] : step >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    return `${countText(value / size)} ${unit}`;
  }
  return countText(value);
}
