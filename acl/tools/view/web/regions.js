// Places addresses on the map: stretches that were ever in use, cut into segments that lie in rows of equal length.
// A stretch begins in a row of its own; if that takes too many rows, stretches follow each other with a small gap.

import { roomOf } from "./history.js";

const ROWS = 20;
const APART = 1 / 64;   // the gap, as a share of a row

// Returns every stretch of addresses that held memory or a block at any time, low to high; near ones are joined.
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

// Returns the map: segments {low, high, row, offset, stretch} by address, the number of rows, and the bytes of a row.
export function mapSegments(history) {
  const total = everUsed(history, 0).reduce((sum, one) => sum + one.high - one.low, 0);
  const length = 2 ** Math.ceil(Math.log2(Math.max(4096, total / ROWS)));
  const stretches = everUsed(history, length);
  const own = stretches.reduce((sum, one) => sum + Math.ceil((one.high - one.low) / length), 0) <= 2 * ROWS;
  const segments = [];
  let row = 0, offset = 0;
  const nextRow = () => { row++; offset = 0; };
  for (const stretch of stretches) {
    if (offset > 0) offset += length * APART;
    if (offset > 0 && (own || offset > length * (1 - 2 * APART))) nextRow();
    for (let low = stretch.low; low < stretch.high;) {
      const high = Math.min(stretch.high, low + length - offset);
      segments.push({ low, high, row, offset, stretch });
      offset += high - low;
      low = high;
      if (offset >= length && low < stretch.high) nextRow();
    }
  }
  return { segments, rows: row + 1, length, own };
}
