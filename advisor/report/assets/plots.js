// Makes a figure for a plot of a report: legend, drawing with numbers at the pointer or the arrow keys, and a table of its data.

import { element } from "./dom.js";
import { buildTable } from "./table.js";
import { tickText, ticksOf } from "./ticks.js";

const FONT = { fontSize: "12px", fontFamily: "inherit" };
const DRAW = { chart: drawChart, bars: drawBars };
const TIP = { fontSize: 12, lineHeight: 1.3, lineWidth: 26 };
const BAR_HEIGHT = 44;

/** Make the figure of `plot`, which is redrawn when its width changes. */
export function buildFigure(plot, money) {
  const spoken = element("p", { class: "spoken", role: "status" });
  const label = `${plot.title}. Arrow keys go from point to point; the table below has all figures.`;
  const canvas = element("div", { class: "canvas", role: "application", "aria-label": label, tabindex: "0" });
  const stops = stopsOf(plot);
  let drawnWidth = 0;
  let at = null;

  function draw() {
    const drawing = DRAW[plot.kind](plot, drawnWidth, money, stops[at] ?? null);
    drawing.setAttribute("aria-hidden", "true");
    canvas.replaceChildren(drawing);
    spoken.textContent = stops[at]?.text ?? "";
  }

  function stopAt(place) {
    if (place === at) return;
    at = place;
    draw();
  }

  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && stopAt(0));
  canvas.addEventListener("blur", () => stopAt(null));
  canvas.addEventListener("keydown", (event) => {
    const place = stopAfter(event.key, at, stops.length);
    if (place === undefined) return;
    event.preventDefault();
    stopAt(place);
  });
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    if (width === drawnWidth || width === 0) return;
    drawnWidth = width;
    draw();
  }).observe(canvas);
  return element(
    "figure",
    {},
    element("figcaption", {}, plot.title),
    ...plot.notes.map((note) => element("p", { class: "note" }, note)),
    legendOf(plot),
    canvas,
    spoken,
    element("details", {}, element("summary", {}, `Table: ${plot.table.title}`), buildTable(plot.table)),
  );
}

/** What the arrow keys visit: the points that are not faint, or the parts of the bars. */
function stopsOf(plot) {
  if (plot.kind === "bars") return stretchesOf(plot).map((part) => ({ ...part, x: (part.start + part.end) / 2 }));
  const clear = plot.series.filter((one) => !one.is_faint);
  return (clear.length ? clear : plot.series).flatMap((one) => one.points).filter((point) => point.text);
}

function stopAfter(key, at, count) {
  const now = at ?? -1;
  return {
    ArrowRight: (now + 1) % count,
    ArrowDown: (now + 1) % count,
    ArrowLeft: (Math.max(now, 0) - 1 + count) % count,
    ArrowUp: (Math.max(now, 0) - 1 + count) % count,
    Home: 0,
    End: count - 1,
    Escape: null,
  }[key];
}

function color(index) {
  return `var(--series-${index})`;
}

function drawChart(plot, width, money, stop) {
  const series = plot.series.map((one) => ({ ...one, hue: color(one.color) }));
  const points = series.flatMap((one) => one.points);
  const x = axisOf(plot.x, points.flatMap((point) => [point.x, point.x_low ?? point.x, point.x_high ?? point.x]), width / 75, money);
  const y = axisOf(plot.y, points.flatMap((point) => [point.y, point.y_low ?? point.y, point.y_high ?? point.y]), 7, money);
  const height = Math.min(440, Math.max(300, width * 0.5));
  return Plot.plot({
    width,
    height,
    marginLeft: 64,
    marginRight: 24,
    marginBottom: 44,
    marginTop: 28,
    style: FONT,
    x: scaleOf(x),
    y: scaleOf(y),
    marks: [
      ...axisMarks(Plot.gridX, Plot.axisX, x),
      ...axisMarks(Plot.gridY, Plot.axisY, y),
      ...series.flatMap(seriesMarks),
      ...ruleMarks(plot.rules),
      Plot.tip(points.filter((point) => point.text), Plot.pointer({ x: "x", y: "y", title: "text", ...TIP, maxRadius: 30 })),
      ...(stop ? [Plot.dot([stop], { x: "x", y: "y", r: 9, stroke: "currentColor", strokeWidth: 2 }), Plot.tip([stop], { x: "x", y: "y", title: "text", ...TIP })] : []),
    ],
  });
}

/** Draw bands behind lines, bars for intervals in both directions, then the points and their names. */
function seriesMarks(one) {
  const places = { x: "x", y: "y" };
  const hasBars = one.points.some((point) => point.x_low !== null);
  const marks = [];
  if (one.has_line && !hasBars && one.points.some((point) => point.y_low !== null)) {
    marks.push(Plot.areaY(one.points, { x: "x", y1: "y_low", y2: "y_high", fill: one.hue, fillOpacity: 0.15 }));
  }
  if (hasBars) {
    const thin = { stroke: one.hue, strokeOpacity: 0.5 };
    marks.push(Plot.link(one.points, { x1: "x_low", x2: "x_high", y1: "y", y2: "y", ...thin }));
    marks.push(Plot.link(one.points, { x1: "x", x2: "x", y1: "y_low", y2: "y_high", ...thin }));
  }
  if (one.has_line) marks.push(Plot.line(one.points, { ...places, stroke: one.hue, strokeWidth: 1.8 }));
  if (one.symbol) {
    marks.push(
      Plot.dot(one.points, {
        ...places,
        symbol: one.symbol,
        fill: one.hue,
        fillOpacity: one.is_faint ? 0.45 : 1,
        stroke: "var(--surface)",
        strokeWidth: 0.7,
        r: one.is_faint ? 3.5 : 5,
      }),
    );
  }
  const beside = one.symbol ? { dx: 9, textAnchor: "start" } : { dy: -9, textAnchor: "end" };
  marks.push(Plot.text(one.points.filter((point) => point.name), { ...places, text: "name", ...beside, ...HALO }));
  return marks;
}

const HALO = { fill: "currentColor", stroke: "var(--surface)", strokeWidth: 4 };

function ruleMarks(rules) {
  return [
    Plot.ruleX(rules, { x: "x", stroke: "currentColor", strokeDasharray: "4 3" }),
    Plot.text(rules, { x: "x", text: "name", frameAnchor: "top", dy: -12, fill: "currentColor" }),
  ];
}

/** Choose the ends, ticks and tick labels of an axis. */
function axisOf({ unit, is_log: isLog, label }, values, count, money) {
  const pad = isLog ? 1.15 : 1.02;
  const low = isLog ? Math.min(...values) / pad : 0;
  const high = Math.max(...values) * pad;
  const axis = { unit, is_log: isLog };
  return { low, high, isLog, label, ticks: ticksOf(axis, low, high, count), text: (value) => tickText(axis, value, money) };
}

function scaleOf({ low, high, isLog }) {
  return { type: isLog ? "log" : "linear", domain: [low, high], axis: null };
}

function axisMarks(grid, axis, { ticks, text, label }) {
  return [grid(ticks), axis(ticks, { text, label, tickSize: 0 })];
}

/** The parts of the bars with their ends, and with the key of their bar. */
function stretchesOf(plot) {
  return plot.bars.flatMap((bar, index) => {
    let end = 0;
    return bar.parts.map((part) => ({ ...part, key: String(index), start: end, end: (end += part.value) }));
  });
}

function drawBars(plot, width, money, stop) {
  const bars = plot.bars.map((bar, index) => ({ ...bar, key: String(index) }));
  const stretches = stretchesOf(plot);
  const limits = bars.filter((bar) => bar.limit !== null);
  const ends = [...stretches.map((part) => part.end), ...limits.map((bar) => bar.limit)];
  const x = axisOf(plot.x, ends, width / 75, money);
  return Plot.plot({
    width,
    height: bars.length * BAR_HEIGHT + 50,
    marginLeft: 4,
    marginRight: 24,
    marginBottom: 40,
    marginTop: 8,
    style: FONT,
    x: scaleOf(x),
    y: { type: "band", domain: bars.map((bar) => bar.key), axis: null, padding: 0 },
    marks: [
      ...axisMarks(Plot.gridX, Plot.axisX, x),
      Plot.barX(stretches, { y: "key", x1: "start", x2: "end", fill: (part) => color(part.color), insetTop: 24, insetBottom: 4, stroke: "var(--surface)", strokeWidth: 1 }),
      Plot.tickX(limits, { y: "key", x: "limit", insetTop: 20, insetBottom: 1, stroke: "currentColor", strokeWidth: 2.5 }),
      Plot.text(bars, { y: "key", text: (bar) => labelOf(bar, width), frameAnchor: "left", lineAnchor: "bottom", dy: -3, textAnchor: "start", ...HALO }),
      Plot.tip(stretches, Plot.pointerY({ y: "key", x: (part) => (part.start + part.end) / 2, title: "text", ...TIP, maxRadius: 400 })),
      Plot.tip(limits, Plot.pointer({ y: "key", x: "limit", title: "limit_text", ...TIP, maxRadius: 12 })),
      ...(stop ? [Plot.tip([stop], { y: "key", x: "x", title: "text", ...TIP })] : []),
    ],
  });
}

/** Put the bar's name and note on one line; a long name keeps its end, which says most. */
function labelOf(bar, width) {
  const room = Math.floor(width / 6.6) - bar.note.length - 3;
  const name = bar.name.length > room ? `…${bar.name.slice(1 - Math.max(room, 8))}` : bar.name;
  return `${name}   ${bar.note}`;
}

function legendOf(plot) {
  const entries =
    plot.kind === "chart"
      ? plot.series.filter((one) => one.symbol).map((one) => ({ ...one, line: one.has_line }))
      : distinct(plot.bars.flatMap((bar) => bar.parts)).map((part) => ({ ...part, symbol: "square" }));
  if (entries.length < 2) return null;
  const items = entries.map((one) => {
    const line = one.line ? Plot.ruleY([0], { stroke: color(one.color), strokeWidth: 1.8 }) : null;
    const marks = [line, Plot.dot([0], { x: 0, y: 0, symbol: one.symbol, fill: color(one.color), r: 5 })];
    const scale = { domain: [-1, 1], axis: null };
    const sign = Plot.plot({ width: 24, height: 14, margin: 0, x: scale, y: scale, marks });
    sign.setAttribute("aria-hidden", "true");
    return element("li", {}, sign, one.name);
  });
  return element("ul", { class: "legend" }, ...items);
}

function distinct(parts) {
  const byName = new Map(parts.map((part) => [part.name, part]));
  return [...byName.values()].sort((one, other) => one.color - other.color);
}
