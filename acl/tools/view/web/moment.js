// Describes an event in words.

import { changesOf, stepOf } from "./history.js";
import { bytesText, countText, durationText } from "./numbers.js";

export function momentText(history, event) {
  const parts = [`event ${countText(event)}`];
  const step = stepOf(history, event);
  if (step >= 0) parts.push(`step ${countText(step)}`);
  if (history.time) parts.push(durationText(history.time[event]));
  return parts.join(" · ");
}

// Returns what changed with an event: "+ 3.00 MiB kv".
export function changeText(history, event) {
  const { begun, ended } = changesOf(history, event);
  if (begun.length + ended.length > 2) return `${begun.length} allocated, ${ended.length} freed`;
  const tag = (block) => (history.tags.length > 1 ? ` ${history.tags[history.tag[block]]}` : "");
  const word = (sign) => (block) => `${sign} ${bytesText(history.size[block])}${tag(block)}`;
  return [...begun.map(word("+")), ...ended.map(word("−"))].join(", ");
}

// Returns how long a block lived, or has lived so far.
export function lifeText(history, block) {
  const start = history.start[block], end = history.end[block];
  const open = end >= history.events;
  const last = open ? history.events - 1 : end;
  const text = history.time ? durationText(history.time[last] - history.time[start]) : `${countText(last - start)} events`;
  return open ? `${text}, not freed` : text;
}
