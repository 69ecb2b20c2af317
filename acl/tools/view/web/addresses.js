// The address space at the cursor: live (in the colour of the block's group), cached, unmapped.

import { makeBackdrop, watchSize } from "./canvas.js";
import { asleepParts, liveAt, roomOf, spansAt } from "./history.js";
import { lifeText, momentText } from "./moment.js";
import { addressText, bytesText } from "./numbers.js";
import { byId, element, hideTip, showTip, swatch } from "./parts.js";
import { mapSegments } from "./regions.js";
import { colour, groupColours } from "./theme.js";

const LEFT = 128, LINE = 15, GAP = 3, BREAK = 9;

// Returns the index of the first element whose key(x) is above `value`, in a list sorted by key(x).
function firstAbove(list, value, key) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (key(list[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Returns the block that had an address last: the one there that ended latest, or -1.
function lastOwner(history, address, event) {
  let best = -1;
  for (let i = 0; i < history.blocks && history.start[i] <= event; i++) {
    if (history.end[i] > event || (best >= 0 && history.end[i] <= history.end[best])) continue;
    const low = history.address[i];
    if (low && low <= address && low + roomOf(history, i) > address) best = i;
  }
  return best;
}

export function frameOf(history, block) {
  const stack = history.stacks[history.stack[block]] || "";
  return stack.split("\n", 1)[0];
}

export function blockLines(history, block) {
  const lines = [
    ["tag", history.tags[history.tag[block]]], ["stream", history.streams[history.stream[block]]],
    ["since", momentText(history, history.start[block])], ["lived", lifeText(history, block)],
  ];
  if (history.address && history.address[block]) lines.splice(2, 0, ["at", addressText(history.address[block])]);
  const stack = history.stacks[history.stack[block]];
  return stack ? [...lines, ...stack.split("\n").slice(0, 6)] : lines;
}

export function startAddresses(canvas, tip, store, announce) {
  const { state } = store, { history } = state;
  if (!history.address) {
    canvas.hidden = true;
    byId("addressesHelp").hidden = true;
    byId("addressesNone").hidden = false;
    return;
  }
  const { segments, rows, length, own } = mapSegments(history);
  // The first segment of each row, and below, the top of each row.
  const heads = Array.from({ length: rows }, (_, row) => segments.find((segment) => segment.row === row));
  const tops = [];
  let height = 2;
  for (const head of heads) {
    if (own && tops.length && head.low === head.stretch.low) height += BREAK;
    tops.push(height);
    height += LINE + GAP;
  }
  canvas.style.height = `${height + 2}px`;
  const backdrop = makeBackdrop(canvas);
  let live = [], spans = [], hover = null;

  const byAddress = (block) => history.address[block];
  const perByte = () => (canvas.clientWidth - LEFT - 4) / length;

  // Calls `fill(x, y, width)` for the pieces of a range of addresses, one for each row that it touches.
  function pieces(low, high, fill) {
    let s = Math.max(0, firstAbove(segments, low, (segment) => segment.low) - 1);
    for (; s < segments.length && segments[s].low < high; s++) {
      const segment = segments[s], from = Math.max(low, segment.low), to = Math.min(high, segment.high);
      if (to <= from) continue;
      fill(LEFT + (segment.offset + from - segment.low) * perByte(), tops[segment.row], (to - from) * perByte());
    }
  }

  function paintRows(context) {
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = colour("unmapped");
    for (const { low, high, row, offset } of segments) {
      context.fillRect(LEFT + offset * perByte(), tops[row], (high - low) * perByte(), LINE);
    }
    context.fillStyle = colour("quiet");
    heads.forEach(({ low, stretch }, row) => {
      const text = !own || low === stretch.low ? addressText(low) : `+ ${bytesText(low - stretch.low)}`;
      context.fillText(text, LEFT - 10, tops[row] + LINE / 2);
    });
  }

  function paintBlocks(context) {
    const colours = groupColours(state.groups), edge = colour("panel");
    for (const block of live) {
      const group = state.groups.of[block], low = history.address[block];
      context.globalAlpha = state.highlight >= 0 && state.highlight !== group ? 0.25 : 1;
      pieces(low, low + roomOf(history, block), (x, y, width) => {
        context.fillStyle = colours[group];
        context.fillRect(x, y, Math.max(0.75, width), LINE);
        if (width > 3) {
          context.fillStyle = edge;
          context.fillRect(x + width - 0.75, y, 0.75, LINE);
        }
      });
      for (const [from, to] of asleepParts(history, spans, block)) {
        context.fillStyle = colour("unmapped");
        pieces(from, to, (x, y, width) => context.fillRect(x, y + LINE / 4, width, LINE / 2));
      }
    }
    context.globalAlpha = 1;
  }

  function repaint() {
    live = liveAt(history, state.cursor).filter((block) => history.address[block] > 0);
    live.sort((a, b) => history.address[a] - history.address[b]);
    spans = spansAt(history, state.cursor);
    backdrop.paint((context) => {
      paintRows(context);
      context.fillStyle = colour("cached");
      for (const span of spans) {
        const low = history.spanAddress[span];
        pieces(low, low + history.spanSize[span], (x, y, width) => context.fillRect(x, y, width, LINE));
      }
      paintBlocks(context);
    });
    byId("addressesWhen").textContent = `at ${momentText(history, state.cursor)}`;
    overlay();
  }

  function overlay() {
    const context = backdrop.show();
    const outline = (low, size, name) => pieces(low, low + size, (x, y, width) => {
      context.strokeStyle = colour(name);
      context.lineWidth = 2;
      context.strokeRect(x - 1, y - 1, Math.max(2, width) + 2, LINE + 2);
    });
    if (hover !== null) outline(hover.low, hover.size, "ink");
    const chosen = state.chosen;
    if (chosen >= 0 && history.start[chosen] <= state.cursor && history.end[chosen] > state.cursor) {
      outline(history.address[chosen], roomOf(history, chosen), "accent");
    }
  }

  // Returns what is drawn at a point of the canvas: {kind, low, size, block or span}, or null.
  function under(x, y) {
    const row = tops.findIndex((top) => y >= top - 1 && y < top + LINE + GAP - 1), offset = (x - LEFT) / perByte();
    const segment = segments.find((one) => (
      one.row === row && one.offset <= offset && one.offset + one.high - one.low > offset));
    if (!segment) return null;
    const address = segment.low + offset - segment.offset;
    const slack = 1.5 / perByte();   // in bytes: a block thinner than a pixel can be hit within this distance
    const next = firstAbove(live, address + slack, byAddress), block = live[next - 1];
    if (block !== undefined && history.address[block] + Math.max(roomOf(history, block), slack) > address) {
      return { kind: "live", low: history.address[block], size: roomOf(history, block), block };
    }
    return gapAt(address, next, segment.stretch);
  }

  // Returns the range without a live block around an address: cached as far as mapped, else unmapped.
  function gapAt(address, next, stretch) {
    const before = live[next - 1], after = live[next];
    const floor = before === undefined ? 0 : history.address[before] + roomOf(history, before);
    const ceiling = after === undefined ? Infinity : history.address[after];
    let s = firstAbove(spans, address, (span) => history.spanAddress[span]) - 1;
    const endOf = (i) => history.spanAddress[spans[i]] + history.spanSize[spans[i]];
    if (s < 0 || endOf(s) <= address) {
      const low = Math.max(stretch.low, floor, s < 0 ? 0 : endOf(s));
      const high = Math.min(stretch.high, ceiling, s + 1 < spans.length ? history.spanAddress[spans[s + 1]] : Infinity);
      return { kind: "unmapped", low, size: high - low, address };
    }
    const span = spans[s];
    let first = s;
    while (first > 0 && endOf(first - 1) === history.spanAddress[spans[first]] && history.spanAddress[spans[first]] > floor) first--;
    while (s + 1 < spans.length && history.spanAddress[spans[s + 1]] === endOf(s) && endOf(s) < ceiling) s++;
    const low = Math.max(floor, history.spanAddress[spans[first]]);
    return { kind: "cached", low, size: Math.min(ceiling, endOf(s)) - low, span, address };
  }

  function tipOf(found) {
    if (found.kind === "live") {
      const asleep = asleepParts(history, spans, found.block).reduce((sum, [from, to]) => sum + to - from, 0);
      const lines = blockLines(history, found.block);
      if (asleep) lines.unshift(["asleep", `${bytesText(asleep)} without memory`]);
      return [`live · ${bytesText(history.size[found.block])}`, lines];
    }
    const lines = [["from", addressText(found.low)]];
    if (found.kind === "cached") lines.push(["mapped since", momentText(history, history.spanStart[found.span])]);
    const owner = lastOwner(history, found.address, state.cursor);
    if (owner >= 0) {
      const who = `${history.tags[history.tag[owner]]}, ${bytesText(history.size[owner])}`;
      lines.push(["held last by", who], ["until", momentText(history, history.end[owner])]);
    }
    return [`${found.kind} · ${bytesText(found.size)}`, lines];
  }

  function step(by) {
    if (!live.length) return;
    const at = live.indexOf(state.chosen);
    const next = at < 0 ? (by > 0 ? 0 : live.length - 1) : Math.max(0, Math.min(live.length - 1, at + by));
    store.set({ chosen: live[next] });
    const { size, tags, tag, address } = history, block = live[next];
    announce(`${bytesText(size[block])}, ${tags[tag[block]]}, at ${addressText(address[block])}`);
  }

  canvas.addEventListener("pointermove", (event) => {
    hover = under(event.offsetX, event.offsetY);
    if (hover) showTip(tip, event.clientX, event.clientY, ...tipOf(hover));
    else hideTip(tip);
    overlay();
  });
  canvas.addEventListener("pointerleave", () => { hover = null; hideTip(tip); overlay(); });
  canvas.addEventListener("click", (event) => {
    const found = under(event.offsetX, event.offsetY);
    if (found && found.kind === "live") store.set({ chosen: found.block });
  });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (by) step(by);
    else if (event.key === "Enter") byId("list").focus();
    else return;
    event.preventDefault();
  });
  const name = (text, paint) => element("span", {}, swatch(paint), text);
  store.watch(["theme"], () => byId("addressesKey").replaceChildren(
    name("live: in the colours above; hollow where asleep", colour("group0")),
    name("cached", colour("cached")), name("unmapped", colour("unmapped"))));
  watchSize(canvas, repaint);
  store.watch(["cursor", "groups", "theme", "highlight"], repaint);
  store.watch(["chosen"], overlay);
}
