// Puts blocks into at most ten groups by tag, stream or size, with the bytes of each over time. For every BUCKET
// events there is a checkpoint and the event with the most live bytes, so that the cost of drawing a window
// depends on its pixels, not on its events. No DOM: built in the worker, read by the page.

import { countUpTo } from "./history.js";

export const BUCKET = 64;
const DIRECT = 200000;   // a window with at most this many events is drawn from its events, a larger one from buckets
const MOST_GROUPS = 9;   // groups with a colour of their own; further names form one more group
const CLASSES = [
  ["up to 64 KiB", 65536], ["up to 1 MiB", 1 << 20], ["up to 4 MiB", 1 << 22], ["up to 16 MiB", 1 << 24],
  ["up to 32 MiB", 1 << 25], ["up to 64 MiB", 1 << 26], ["up to 128 MiB", 1 << 27], ["larger", Infinity],
];

function sizeClasses(history) {
  const of = new Uint8Array(history.blocks);
  const used = new Uint8Array(CLASSES.length);
  for (let i = 0; i < of.length; i++) {
    while (history.size[i] > CLASSES[of[i]][1]) of[i]++;
    used[of[i]] = 1;
  }
  const place = CLASSES.map((_, i) => used.subarray(0, i).reduce((a, b) => a + b, 0));
  for (let i = 0; i < of.length; i++) of[i] = place[of[i]];
  return { of, names: CLASSES.filter((_, i) => used[i]).map((one) => one[0]), rest: false };
}

// Returns each value's own peak of live bytes, which orders the groups.
function peaksOf(history, values, count) {
  const now = new Float64Array(count), peak = new Float64Array(count);
  let ended = 0;
  for (let i = 0; i < history.blocks; i++) {
    while (ended < history.endAt.length && history.endAt[ended] <= history.start[i]) {
      const block = history.endOrder[ended++];
      now[values[block]] -= history.size[block];
    }
    now[values[i]] += history.size[i];
    if (now[values[i]] > peak[values[i]]) peak[values[i]] = now[values[i]];
  }
  return peak;
}

// Returns for each value how many events a byte of it lives on average.
function livesOf(history, values, count) {
  const bytes = new Float64Array(count), lived = new Float64Array(count);
  for (let i = 0; i < history.blocks; i++) {
    bytes[values[i]] += history.size[i];
    lived[values[i]] += history.size[i] * (history.end[i] - history.start[i]);
  }
  return lived.map((sum, i) => sum / Math.max(1, bytes[i]));
}

// The names with the largest peaks have a group of their own; the longest-lived ones, such as weights, are lowest.
function namedGroups(history, dimension) {
  const values = history[dimension], names = history.names[dimension];
  const peak = peaksOf(history, values, names.length);
  const order = [...names.keys()].filter((i) => peak[i] > 0).sort((a, b) => peak[b] - peak[a] || a - b);
  const own = order.length > MOST_GROUPS + 1 ? order.slice(0, MOST_GROUPS) : [...order];
  const life = livesOf(history, values, names.length);
  own.sort((a, b) => life[b] - life[a] || peak[b] - peak[a] || a - b);
  const groupOf = new Uint8Array(names.length).fill(own.length);
  own.forEach((value, group) => { groupOf[value] = group; });
  const of = new Uint8Array(history.blocks);
  for (let i = 0; i < of.length; i++) of[i] = groupOf[values[i]];
  const rest = order.length - own.length;
  return { of, names: own.map((value) => names[value]).concat(rest ? [`${rest} others`] : []), rest: rest > 0 };
}

// Steps through events and keeps the groups' live bytes in `now`.
class Walk {
  constructor(history, groups) {
    this.history = history;
    this.groups = groups;
    this.now = new Float64Array(groups.names.length);
    this.total = 0;
    this.begun = 0;
    this.ended = 0;
  }

  step(event) {
    const { start, size, endAt, endOrder, blocks } = this.history, of = this.groups.of;
    while (this.begun < blocks && start[this.begun] === event) {
      this.now[of[this.begun]] += size[this.begun];
      this.total += size[this.begun++];
    }
    while (this.ended < endAt.length && endAt[this.ended] === event) {
      const block = endOrder[this.ended++];
      this.now[of[block]] -= size[block];
      this.total -= size[block];
    }
  }

  // Jumps to just before an event, from the checkpoint before it.
  seek(event) {
    const bucket = Math.min(Math.floor(event / BUCKET), this.groups.buckets - 1), count = this.now.length;
    this.total = 0;
    for (let g = 0; g < count; g++) this.total += this.now[g] = this.groups.before[bucket * count + g];
    this.begun = countUpTo(this.history.start, bucket * BUCKET - 1);
    this.ended = countUpTo(this.history.endAt, bucket * BUCKET - 1);
    for (let e = bucket * BUCKET; e < event; e++) this.step(e);
  }
}

function addBuckets(history, groups) {
  const count = groups.names.length, buckets = Math.max(1, Math.ceil(history.events / BUCKET));
  Object.assign(groups, {
    buckets, before: new Float64Array(buckets * count), atPeak: new Float64Array(buckets * count),
    peakTotal: new Float64Array(buckets).fill(-1), peakEvent: new Uint32Array(buckets),
    lowTotal: new Float64Array(buckets).fill(Infinity),
  });
  const walk = new Walk(history, groups);
  for (let e = 0; e < history.events; e++) {
    const bucket = Math.floor(e / BUCKET);
    if (e % BUCKET === 0) groups.before.set(walk.now, bucket * count);
    walk.step(e);
    if (walk.total > groups.peakTotal[bucket]) {
      groups.peakTotal[bucket] = walk.total;
      groups.peakEvent[bucket] = e;
      groups.atPeak.set(walk.now, bucket * count);
    }
    if (walk.total < groups.lowTotal[bucket]) groups.lowTotal[bucket] = walk.total;
  }
}

export function buildGroups(history, dimension) {
  const groups = dimension === "size" ? sizeClasses(history) : namedGroups(history, dimension);
  groups.dimension = dimension;
  addBuckets(history, groups);
  return groups;
}

// Returns the groups' bytes after an event.
export function groupsAt(history, groups, event) {
  const walk = new Walk(history, groups);
  walk.seek(event + 1);
  return walk.now;
}

// Returns the event with the most live bytes, and those bytes.
export function peakOf(groups) {
  let best = 0;
  for (let b = 1; b < groups.buckets; b++) if (groups.peakTotal[b] > groups.peakTotal[best]) best = b;
  return { event: groups.peakEvent[best], bytes: Math.max(0, groups.peakTotal[best]) };
}

// Returns for each pixel column, with the events edges[c] up to edges[c + 1]: bytes by group at its event with the
// most live bytes, that event, and the least live bytes. A column without events repeats the state before it.
export function sampleColumns(history, groups, edges) {
  const columns = edges.length - 1, count = groups.names.length;
  const out = {
    columns, count, bytes: new Float64Array(columns * count), total: new Float64Array(columns),
    low: new Float64Array(columns), event: new Float64Array(columns),
  };
  if (edges[columns] - edges[0] <= DIRECT) sampleEvents(history, groups, edges, out);
  else sampleBuckets(groups, edges, out);
  return out;
}

function sampleEvents(history, groups, edges, out) {
  const walk = new Walk(history, groups), { count } = out;
  walk.seek(edges[0]);
  for (let c = 0; c < out.columns; c++) {
    let best = walk.total, least = best;
    out.bytes.set(walk.now, c * count);
    out.event[c] = Math.max(0, edges[c] - 1);
    for (let e = edges[c]; e < edges[c + 1]; e++) {
      walk.step(e);
      if (walk.total > best) {
        best = walk.total;
        out.bytes.set(walk.now, c * count);
        out.event[c] = e;
      } else if (walk.total < least) least = walk.total;
    }
    out.total[c] = best;
    out.low[c] = least;
  }
}

function sampleBuckets(groups, edges, out) {
  const { count } = out;
  for (let c = 0; c < out.columns; c++) {
    const first = Math.ceil(edges[c] / BUCKET);
    const stop = Math.min(Math.ceil(edges[c + 1] / BUCKET), groups.buckets);
    let best = -1, least = Infinity;
    for (let b = first; b < stop; b++) {
      if (best < 0 || groups.peakTotal[b] > groups.peakTotal[best]) best = b;
      if (groups.lowTotal[b] < least) least = groups.lowTotal[b];
    }
    const source = best < 0 ? groups.before : groups.atPeak;
    const from = best < 0 ? Math.min(first, groups.buckets - 1) : best;
    for (let g = 0; g < count; g++) out.total[c] += out.bytes[c * count + g] = source[from * count + g];
    out.event[c] = best < 0 ? Math.max(0, edges[c] - 1) : groups.peakEvent[best];
    out.low[c] = best < 0 ? out.total[c] : Math.min(least, out.total[c]);
  }
}
