// The allocations as a table that holds only the visible rows: search, scope, sorting, keyboard.

import { frameOf } from "./addresses.js";
import { lifeText } from "./moment.js";
import { bytesText, countText, durationText } from "./numbers.js";
import { byId, element, makeChoice } from "./parts.js";
import { findBlocks, sortBlocks, sortKey } from "./query.js";
import { goTo } from "./timeline.js";

const ROW = 28;
const WIDTHS = {
  id: "minmax(4.8rem, 0.4fr)", size: "minmax(5rem, 0.5fr)", tag: "minmax(6rem, 1fr)", stream: "minmax(5rem, 0.8fr)",
  start: "minmax(6.5rem, 0.5fr)", life: "minmax(6.5rem, 0.5fr)", stack: "minmax(8rem, 1.6fr)",
};
const TALLEST = 15000000;   // pixels; browsers limit the height of an element

function columnsOf(history) {
  const began = (block) => (history.time ? durationText(history.time[history.start[block]]) : countText(history.start[block]));
  return [
    ["id", "ID", (block) => `#${history.id[block]}`, "number"],
    ["size", "Size", (block) => bytesText(history.size[block]), "number"],
    ["tag", "Tag", (block) => history.tags[history.tag[block]], "text", history.tags.length > 1],
    ["stream", "Stream", (block) => history.streams[history.stream[block]], "text", history.streams.length > 1],
    ["start", history.time ? "Allocated" : "At event", began, "number"],
    ["life", "Lived", (block) => (history.end[block] < history.events ? lifeText(history, block) : "not freed"), "number"],
    ["stack", "Allocated by", (block) => frameOf(history, block), "text wide", history.stacks.length > 1],
  ].filter((column) => column[4] !== false).map(([name, title, text, kind]) => ({ name, title, text, kind }));
}

export function startList(store) {
  const { state } = store, { history } = state;
  const list = byId("list"), head = byId("listHead"), rows = byId("listRows"), space = byId("listSpace");
  const columns = columnsOf(history);
  let found = new Uint32Array(0), sort = { column: "size", descending: true }, scope = "all", at = -1;

  const tall = () => Math.min(TALLEST, found.length * ROW);
  const inSight = () => Math.max(1, Math.floor(rows.clientHeight / ROW));
  // Returns the first visible row; in very long lists one pixel of the scroll bar moves by more than a pixel of rows.
  const firstRow = () => {
    const room = tall() - rows.clientHeight;
    if (found.length * ROW === tall() || room <= 0) return Math.floor(rows.scrollTop / ROW);
    return Math.floor((rows.scrollTop / room) * (found.length - inSight()));
  };

  function search() {
    found = sortBlocks(findBlocks(state, scope, byId("search").value), sortKey(history, sort.column), sort.descending);
    space.style.height = `${tall()}px`;
    rows.style.height = `${Math.max(4, Math.min(13, history.blocks)) * ROW}px`;
    rows.scrollTop = 0;
    at = found.indexOf(state.chosen);
    byId("listCount").textContent = `${countText(found.length)} of ${countText(history.blocks)}`;
    list.setAttribute("aria-rowcount", String(found.length + 1));
    show();
  }

  function rowOf(place) {
    const block = found[place];
    const row = element("div", {
      role: "row", class: "listRow", id: `row${place}`, "aria-rowindex": place + 2, "aria-selected": String(block === state.chosen),
      onclick: () => choose(place), ondblclick: () => goTo(store, history.start[block]),
    }, ...columns.map((column) => {
      const text = column.text(block);
      return element("span", { role: "gridcell", class: column.kind, title: column.kind === "number" ? undefined : text, text });
    }));
    return row;
  }

  function show() {
    const first = Math.max(0, firstRow()), count = inSight() + 2, made = [];
    for (let place = first; place < Math.min(found.length, first + count); place++) made.push(rowOf(place));
    const shift = found.length * ROW === tall() ? first * ROW : rows.scrollTop;
    for (const [i, row] of made.entries()) row.style.transform = `translateY(${shift + i * ROW}px)`;
    rows.replaceChildren(space, ...made);
    if (at >= first && at < first + count) list.setAttribute("aria-activedescendant", `row${at}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function choose(place) {
    at = Math.max(0, Math.min(found.length - 1, place));
    const first = firstRow();
    const room = Math.max(1, tall() - rows.clientHeight);
    const toTop = (row) => (found.length * ROW === tall() ? row * ROW : (row / (found.length - inSight())) * room);
    if (at < first) rows.scrollTop = toTop(at);
    else if (at >= first + inSight()) rows.scrollTop = toTop(at - inSight() + 1);
    store.set({ chosen: found[at] });
    show();
  }

  function sortBy(column) {
    const descending = sort.column === column ? !sort.descending : column === "size" || column === "life";
    sort = { column, descending };
    for (const cell of head.children) {
      const own = cell.dataset.column === column;
      cell.setAttribute("aria-sort", own ? (descending ? "descending" : "ascending") : "none");
    }
    search();
  }

  head.replaceChildren(...columns.map((column) => element("span", {
    role: "columnheader", class: column.kind, "data-column": column.name, "aria-sort": column.name === "size" ? "descending" : "none",
  }, element("button", { type: "button", text: column.title, onclick: () => sortBy(column.name) }))));
  list.style.setProperty("--columns", columns.map((column) => WIDTHS[column.name]).join(" "));

  makeChoice(byId("scope"), [["all", "All"], ["cursor", "At the cursor"], ["window", "In the window"], ["kept", "Not freed"]], "all",
    (name) => { scope = name; search(); });
  let due = 0;
  const soon = () => { clearTimeout(due); due = setTimeout(search, 120); };
  byId("search").addEventListener("input", soon);
  rows.addEventListener("scroll", () => requestAnimationFrame(show));
  list.addEventListener("keydown", (event) => {
    if (event.target.closest("button")) return;
    const to = {
      ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + inSight(), PageUp: at - inSight(), Home: 0, End: found.length - 1,
    }[event.key];
    if (to !== undefined && found.length) choose(to);
    else if (event.key === "Enter" && at >= 0) goTo(store, history.start[found[at]]);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(show).observe(rows);
  search();
  store.watch(["chosen"], () => { at = found.indexOf(state.chosen); show(); });
  store.watch(["cursor"], () => { if (scope === "cursor") soon(); });
  store.watch(["window"], () => { if (scope === "window") soon(); });
}
