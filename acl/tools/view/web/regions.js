// Where addresses go on the map: stretches that were ever in use, cut into rows of equal length.

import { roomOf } from "./history.js";

const ROWS = 20;

// Every stretch of addresses that held memory or a block at any time, low to high, near ones put together.
function everUsed(history, gap) {
  const count = history.spanStart.length || history.blocks;
  const from = history.spanStart.length ? (i) => history.spanAddress[i] : (i) => history.address[i];
  const size = history.spanStart.length ? (i) => history.spanSize[i] : (i) => roomOf(history, i);
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  if (!history.spanStart.length) order.sort((a, b) => from(a) - from(b));
  const found = [];
  for (const i of order) {
    const low = from(i), high = low + size(i), last = found.at(-1);
    if (!low) continue;
    if (last && low <= last.high + gap) last.high = Math.max(last.high, high);
    else found.push({ low, high });
  }
  return found;
}

// Rows of the map: {low, high, first}, where `first` says that a stretch begins.
export function mapRows(history) {
  const tight = everUsed(history, 0);
  const total = tight.reduce((sum, one) => sum + one.high - one.low, 0);
  let length = 2 ** Math.ceil(Math.log2(Math.max(4096, total / ROWS)));
  let rows = rowsOf(everUsed(history, length), length);
  while (rows.length > 2 * ROWS && length < 2 ** 52) {
    length *= 2;
    rows = rowsOf(everUsed(history, length), length);
  }
  return { rows, length };
}

function rowsOf(stretches, length) {
  const rows = [];
  for (const { low, high } of stretches) {
    for (let at = low; at < high; at += length) rows.push({ low: at, high: Math.min(high, at + length), first: at === low });
  }
  return rows;
}
