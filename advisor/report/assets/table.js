// Makes a table that sorts by its headings; a long one can be searched and shows its first rows.

import { element } from "./dom.js";

const FIRST_ROWS = 25;
const LONG = 48;
const SHORT = 12;
const SEARCHED_FROM = 12;
const SORTED_FROM = 7;
const FEW_COLUMNS = 6;

/** Make the table with its controls. */
export function buildTable(table) {
  const rows = table.rows.map((cells, index) => ({ cells, index }));
  const isSorted = rows.length >= SORTED_FROM;
  const state = { sortedBy: null, isDescending: false, words: "", choices: new Map(), showsAll: false };
  const body = element("tbody");
  const status = element("span", { role: "status" });
  const more = element("button", { type: "button", class: "more", on: { click: () => update({ showsAll: true }) } });
  const headings = table.columns.map((column, index) => heading(column, isSorted && (() => sortBy(index))));
  const kinds = table.columns.map((column, index) => kindOf(column, rows, index));

  function sortBy(index) {
    const again = state.sortedBy === index;
    update({ sortedBy: index, isDescending: again && !state.isDescending });
  }

  function update(change) {
    Object.assign(state, change);
    headings.forEach((one, index) => {
      if (index === state.sortedBy) one.setAttribute("aria-sort", state.isDescending ? "descending" : "ascending");
      else one.removeAttribute("aria-sort");
    });
    const found = sorted(rows.filter((row) => matches(row, state)), table, state);
    const shown = state.showsAll ? found : found.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map((row) => tableRow(row, kinds, table.highlighted)));
    status.textContent = `${shown.length.toLocaleString("en")} of ${found.length.toLocaleString("en")} rows`;
    more.textContent = `Show all ${found.length.toLocaleString("en")} rows`;
    more.hidden = shown.length === found.length;
  }

  const grid = element(
    "table",
    { class: table.columns.length <= FEW_COLUMNS && "few" },
    element("caption", {}, table.title),
    element("thead", {}, element("tr", {}, ...headings)),
    body,
  );
  update({});
  const box = element("div", { class: "scroll", role: "region", "aria-label": table.title }, grid);
  const hint = element("p", { class: "note hint-to-scroll", hidden: true }, "More columns to the right: scroll the table sideways.");
  const sizes = new ResizeObserver(() => {
    hint.hidden = box.scrollWidth <= box.clientWidth;
    box.tabIndex = hint.hidden ? -1 : 0;
  });
  sizes.observe(box);
  sizes.observe(grid);
  return element(
    "div",
    { class: "table" },
    rows.length > SEARCHED_FROM ? controls(table, update, state, status) : null,
    hint,
    box,
    more,
    ...table.notes.map((note) => element("p", { class: "note" }, note)),
  );
}

function heading(column, sort) {
  const name = sort ? element("button", { type: "button", on: { click: sort } }, column.header) : column.header;
  return element("th", { scope: "col", class: column.is_number ? "number" : null }, name);
}

/** Align numbers to the right; wrap text only in columns with long text, and on a phone in the first ones. */
function kindOf(column, rows, index) {
  if (column.is_number) return "number";
  const longest = Math.max(...rows.map((row) => row.cells[index].length));
  if (longest > LONG) return "long";
  return longest <= SHORT ? "short" : null;
}

function tableRow({ cells, index }, kinds, highlighted) {
  return element("tr", { class: index === highlighted && "first" }, ...cells.map((cell, at) => element("td", { class: kinds[at] }, cell)));
}

function controls(table, update, state, status) {
  const search = element("input", { type: "search", on: { input: (event) => update({ words: event.target.value.toLowerCase() }) } });
  const selects = table.columns.flatMap((column, index) => (column.is_choice ? [choice(table, column, index)] : []));

  function choice({ rows }, { header }, index) {
    const values = [...new Set(rows.map((row) => row[index]))].sort();
    const select = element("select", { on: { change: choose } }, ...["", ...values].map(option));
    function choose() {
      update({ choices: new Map(state.choices).set(index, select.value) });
    }
    return element("label", {}, header, select);
  }

  return element("div", { class: "controls" }, element("label", {}, "search", search), ...selects, status);
}

function option(value) {
  return element("option", { value }, value || "all");
}

function matches({ cells }, { words, choices }) {
  for (const [index, value] of choices) if (value && cells[index] !== value) return false;
  const text = cells.join(" ").toLowerCase();
  return words.split(/\s+/).every((word) => text.includes(word));
}

/** Compare by number, rows without one last; otherwise by text in natural order (2 before 10). */
function sorted(rows, { columns }, { sortedBy, isDescending }) {
  if (sortedBy === null) return rows;
  const { keys } = columns[sortedBy];
  const sign = isDescending ? -1 : 1;
  const order = new Intl.Collator("en", { numeric: true });
  return [...rows].sort((first, second) => {
    if (keys.length === 0) return sign * order.compare(first.cells[sortedBy], second.cells[sortedBy]);
    const [one, other] = [keys[first.index], keys[second.index]];
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (one - other);
  });
}
