// Draws a report from data. Every name in it becomes a text node.

import { element } from "./dom.js";
import { buildFigure } from "./plots.js";
import { buildTable } from "./table.js";

/** Replace the content of `root` by the whole report. */
export function showReport(report, root) {
  root.replaceChildren(
    headerOf(report),
    navigationOf(report.sections),
    ...report.sections.map((section) => buildSection(section, report.money)),
    element("footer", {}, report.footer),
  );
}

/** Insert a late section and its link before the section whose id is `before`. */
export function addSection(section, money, root, before) {
  root.querySelector(`#${before}`).before(buildSection(section, money));
  root.querySelector(`nav a[href="#${before}"]`).before(linkTo(section));
}

function buildSection(section, money) {
  const content = [
    ...section.lists.map(listOf),
    element("div", { class: "plots" }, ...section.plots.map((plot) => buildFigure(plot, money))),
    ...section.tables.map(buildTable),
  ];
  return element(
    "section",
    { id: section.id, "aria-labelledby": `${section.id}-title` },
    element("h2", { id: `${section.id}-title` }, section.title),
    ...section.lead.slice(0, section.is_folded ? -1 : undefined).map((sentence) => element("p", { class: "lead" }, sentence)),
    ...(section.is_folded ? [element("details", { class: "folded" }, element("summary", {}, section.lead.at(-1)), ...content)] : content),
  );
}

function headerOf(report) {
  return element(
    "header",
    {},
    element("h1", {}, report.title),
    element("p", { class: "headline" }, report.headline),
    element("p", { class: "answer" }, report.answer),
    element("dl", { class: "figures" }, ...report.figures.map(figureOf)),
    ...report.warnings.map((warning) => element("p", { class: "warning" }, element("strong", {}, "Warning: "), warning)),
  );
}

function figureOf({ name, value, note }) {
  return element("div", {}, element("dt", {}, name), element("dd", { class: "value" }, value), element("dd", {}, note));
}

function navigationOf(sections) {
  return element("nav", { "aria-label": "Sections" }, ...sections.map(linkTo));
}

function linkTo({ id, title }) {
  const jump = (event) => {
    event.preventDefault(); // the hash of the URL may be in use
    const target = document.getElementById(id);
    target.querySelector(":scope > details.folded")?.setAttribute("open", "");
    target.scrollIntoView();
  };
  return element("a", { href: `#${id}`, on: { click: jump } }, title);
}

function listOf({ title, items }) {
  return element("details", { open: items.length <= 12 }, element("summary", {}, title), element("ul", {}, ...items.map((item) => element("li", {}, item))));
}
