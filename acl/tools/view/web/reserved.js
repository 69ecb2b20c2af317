// Returns reserved bytes by pixel column: the most within each; a column without a change repeats the last value.

import { countUpTo } from "./history.js";

export function reservedColumns(history, edges) {
  const out = new Float64Array(edges.length - 1);
  let next = countUpTo(history.reservedAt, edges[0] - 1);
  let now = next ? history.reserved[next - 1] : 0;
  for (let c = 0; c < out.length; c++) {
    out[c] = now;
    while (next < history.reservedAt.length && history.reservedAt[next] < edges[c + 1]) {
      now = history.reserved[next++];
      if (now > out[c]) out[c] = now;
    }
  }
  return out;
}
