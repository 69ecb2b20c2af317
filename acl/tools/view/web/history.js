// Queries of a history: which blocks are live at an event, what is mapped, what is reserved.
// A history is plain data (typed arrays), which buildHistory makes once in the worker.

const CHUNK = 512;

// Returns how many elements of a sorted array are at most `value`.
export function countUpTo(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Returns the blocks in the order of their ends, by a counting sort, without those that never end.
function orderByEnd(end, events) {
  const at = new Uint32Array(events + 2);
  for (let i = 0; i < end.length; i++) at[end[i] + 1]++;
  for (let e = 1; e < at.length; e++) at[e] += at[e - 1];
  const ended = at[events];
  const order = new Uint32Array(ended);
  for (let i = 0; i < end.length; i++) if (end[i] < events) order[at[end[i]]++] = i;
  return order;
}

function highestEnds(end) {
  const highest = new Uint32Array(Math.ceil(end.length / CHUNK));
  for (let i = 0; i < end.length; i++) {
    const chunk = Math.floor(i / CHUNK);
    if (end[i] > highest[chunk]) highest[chunk] = end[i];
  }
  return highest;
}

export function buildHistory({ meta, columns }) {
  const { start, life } = columns;
  const end = new Uint32Array(start.length);
  for (let i = 0; i < end.length; i++) end[i] = start[i] + life[i];
  const order = orderByEnd(end, meta.events);
  const endAt = new Uint32Array(order.length);
  for (let i = 0; i < order.length; i++) endAt[i] = end[order[i]];
  return {
    ...meta, ...columns, end, endOrder: order, endAt, chunkEnd: highestEnds(end), blocks: start.length,
    names: { tag: meta.tags, stream: meta.streams },
  };
}

// Returns the indexes of the blocks that are in use after an event.
export function liveAt(history, event) {
  const { start, end, chunkEnd } = history;
  const begun = countUpTo(start, event);
  const live = [];
  for (let chunk = 0; chunk * CHUNK < begun; chunk++) {
    if (chunkEnd[chunk] <= event) continue;
    const stop = Math.min(begun, (chunk + 1) * CHUNK);
    for (let i = chunk * CHUNK; i < stop; i++) if (end[i] > event) live.push(i);
  }
  return live;
}

// Returns the mapped spans after an event, by address.
export function spansAt(history, event) {
  const { spanStart, spanEnd } = history;
  const found = [];
  for (let i = 0; i < spanStart.length; i++) if (spanStart[i] <= event && spanEnd[i] > event) found.push(i);
  return found;
}

// Returns the parts [low, high) of a block that no span of `spans` (sorted by address) covers: they are asleep.
// Only recordings know all spans; for other files the list is empty.
export function asleepParts(history, spans, block) {
  if (history.source !== "recording" || !history.spanStart.length) return [];
  const low = history.address[block], high = low + roomOf(history, block), parts = [];
  let first = 0, above = spans.length;
  while (first < above) {
    const middle = (first + above) >>> 1, span = spans[middle];
    if (history.spanAddress[span] + history.spanSize[span] <= low) first = middle + 1;
    else above = middle;
  }
  let at = low;
  for (let s = first; s < spans.length && at < high; s++) {
    const begin = history.spanAddress[spans[s]];
    if (begin > at) parts.push([at, Math.min(begin, high)]);
    at = Math.max(at, begin + history.spanSize[spans[s]]);
  }
  if (at < high) parts.push([at, high]);
  return parts;
}

export function reservedAt(history, event) {
  const count = countUpTo(history.reservedAt, event);
  return count ? history.reserved[count - 1] : 0;
}

export function knowsReserved(history) {
  return history.reservedAt.length > 0;
}

export function roomOf(history, block) {
  return history.room ? history.room[block] : history.size[block];
}

// Returns the blocks that begin or end with an event.
export function changesOf(history, event) {
  const begun = [], ended = [];
  for (let i = countUpTo(history.start, event) - 1; i >= 0 && history.start[i] === event; i--) begun.push(i);
  for (let i = countUpTo(history.endAt, event) - 1; i >= 0 && history.endAt[i] === event; i--) {
    ended.push(history.endOrder[i]);
  }
  return { begun, ended };
}

// Returns the step that an event belongs to, from 0; -1 if there are no steps.
export function stepOf(history, event) {
  return history.steps ? countUpTo(history.steps, event) - 1 : -1;
}

// The number of events at which the largest free run is computed.
export const RUN_SAMPLES = 400;

// Returns the bytes of the longest run that is mapped and not live after an event.
export function largestFreeRun(history, event) {
  const live = liveAt(history, event).filter((block) => history.address[block] > 0);
  live.sort((a, b) => history.address[a] - history.address[b]);
  const spans = spansAt(history, event);
  let longest = 0, from = 0, at = 0, next = 0;
  for (let s = 0; s < spans.length; s++) {
    const begin = history.spanAddress[spans[s]], stop = begin + history.spanSize[spans[s]];
    if (begin !== at) from = begin;
    at = stop;
    while (next < live.length && history.address[live[next]] < stop) {
      const block = live[next++];
      longest = Math.max(longest, history.address[block] - from);
      from = Math.max(from, history.address[block] + roomOf(history, block));
    }
    longest = Math.max(longest, stop - from);
  }
  return longest;
}
