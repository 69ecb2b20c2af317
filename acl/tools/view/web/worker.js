// The worker: unpacks the data, puts the blocks into groups, then computes the largest free runs.
// It sends "ready" as soon as the groups are built, and "runs" later, in parts.

import { unpack } from "./decode.js";
import { RUN_SAMPLES, buildHistory, largestFreeRun } from "./history.js";
import { buildGroups } from "./groups.js";

// Yields the largest free runs at evenly spaced events, in parts, so that the page can show them early.
function* freeRuns(history) {
  const count = Math.min(RUN_SAMPLES, history.events);
  const at = new Float64Array(count), bytes = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    at[i] = Math.floor((i * (history.events - 1)) / Math.max(1, count - 1));
    bytes[i] = largestFreeRun(history, at[i]);
    if (i === count - 1 || i % 100 === 99) yield { at: at.slice(0, i + 1), bytes: bytes.slice(0, i + 1) };
  }
}

self.onmessage = async ({ data }) => {
  try {
    const history = buildHistory(await unpack(data));
    const groups = Object.fromEntries(["tag", "stream", "size"].map((name) => [name, buildGroups(history, name)]));
    self.postMessage({ kind: "ready", history, groups });
    if (history.address && history.spanStart.length) {
      for (const runs of freeRuns(history)) self.postMessage({ kind: "runs", runs });
    }
  } catch (error) {
    self.postMessage({ kind: "failed", text: String(error.message || error) });
  }
};
