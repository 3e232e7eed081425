// Places and labels the ticks of an axis; all other numbers arrive as text.

const KIBI = 1024;
const TIMES = [
  ["us", 1e-6, [1, 2, 5, 10, 20, 50, 100, 200, 500]],
  ["ms", 1e-3, [1, 2, 5, 10, 20, 50, 100, 200, 500]],
  ["s", 1, [1, 2, 5, 10, 20, 30]],
  ["min", 60, [1, 2, 5, 10, 20, 30]],
  ["h", 3600, [1, 2, 5, 10]],
  ["days", 86400, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]],
];
const MAJOR = new Set([1, 10, 100, 1000, 10000]);
const SI = ["", "k", "M", "G", "T", "P", "E"];
const COUNTS = ["", "k", "M", "B", "T"];
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/** Return the ticks between `low` and `high`, about `count` at most. */
export function ticksOf(axis, low, high, count) {
  if (!axis.is_log) return linearTicks(axis, high, count);
  const all = axis.unit === "s" ? timeTicks() : decimalTicks(low, high);
  const inside = all.filter(([value]) => value >= low && value <= high);
  if (inside.length <= count) return inside.map(([value]) => value);
  const major = inside.filter(([, isMajor]) => isMajor).map(([value]) => value);
  const every = Math.ceil(major.length / count);
  return major.filter((_, index) => index % every === 0);
}

/** Return the label of a tick. */
export function tickText(axis, value, money) {
  if (value === 0) return "0";
  if (axis.unit === "s") return timeText(value);
  if (axis.unit === "bytes") return `${withPrefix(value, BINARY, KIBI)}B`;
  if (axis.unit === "money") return money + countText(value);
  if (axis.unit === "count" || axis.unit === "per_s") return countText(value);
  if (axis.unit === "kg") return value >= 1000 ? `${plain(value / 1000)} t` : value >= 1 ? `${plain(value)} kg` : `${plain(value * 1000)} g`;
  return value >= 1000 ? withPrefix(value, SI, 1000) : plain(value);
}

function timeTicks() {
  return TIMES.flatMap(([, unit, multiples]) => multiples.map((multiple) => [unit * multiple, MAJOR.has(multiple)]));
}

function decimalTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const digit of [1, 2, 5]) found.push([Number(`${digit}e${power}`), digit === 1]);
  }
  return found;
}

function linearTicks(axis, high, count) {
  const unit = axis.unit === "bytes" ? KIBI ** Math.floor(Math.log(high) / Math.log(KIBI)) : timeUnit(axis, high);
  const least = high / unit / count;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= least);
  const found = [];
  for (let index = 0; index * step * unit <= high; index += 1) found.push(index * step * unit);
  return found;
}

function timeUnit(axis, high) {
  if (axis.unit !== "s") return 1;
  return (TIMES.findLast(([, unit]) => high >= unit) ?? TIMES[0])[1];
}

function timeText(seconds) {
  const [name, unit] = TIMES.findLast(([, size]) => seconds >= size * 0.999) ?? TIMES[0];
  const number = plain(seconds / unit);
  return `${number} ${name === "days" && number === "1" ? "day" : name}`;
}

function withPrefix(value, prefixes, base) {
  const power = Math.min(Math.floor(Math.log(value * 1.0001) / Math.log(base)), prefixes.length - 1);
  return `${plain(value / base ** Math.max(power, 0))} ${prefixes[Math.max(power, 0)]}`.trimEnd();
}

function countText(value) {
  return value >= 1000 ? withPrefix(value, COUNTS, 1000).replace(" ", "") : plain(value);
}

function plain(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}
