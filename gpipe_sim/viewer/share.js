// The page's state as the part of an address after #, and back: a=GPipe&b=OneFOneB&K=4&M=6&at=3. A key such as b.M is
// of one chart, M of all charts. What was measured, as times and a model's bytes, is too long for a link.

import { readEntry } from "./clock.js";

const MOST = 20000, MOST_BOXES = 100000, CHARTS = "abcdefgh";
const ONE = String.raw`\d{1,15}(\.\d{1,20})?(e-\d{1,2})?`;
const severalOf = (one) => new RegExp(`^(${one})(,(${one}))*,?$`);
/** What may stand in a link; nothing else gets in. */
const FORMS = {
  number: [new RegExp(`^${ONE}$`), "number"],
  numbers: [severalOf(ONE), "number, nor several"],
  speeds: [severalOf(`(?=[^,e]*[1-9])${ONE}`), "number above 0, nor several"],
  links: [severalOf(`${ONE}|inf`), "list of latencies and bandwidths"],
  count: [/^[1-9]\d{0,3}$/, "whole number from 1 to 9999"],
  word: [/^[A-Za-z]\w{0,40}$/, "plain word"],
  name: [/^[\p{L}\p{N} .,:;()'+-]{1,80}$/u, "plain name"],
  puzzle: [/^[\w-]{1,60}$/, "name of a puzzle"],
  own: [/^[\w ,.]{0,30}(;[\w ,.]{0,30}){5}$/, "board of one's own"],
  rows: [/^[\d,]*:[\w.()]*(\/[\d,]*:[\w.()]*)*$/, "order in rows, such as 0:FB"],
};
/** Of each key: its form, where it is in a chart, and what it is unless said. */
const OF_FAMILY = {
  K: ["count", "schedule.options.devices"], M: ["count", "schedule.options.microbatches"],
  V: ["count", "schedule.options.stages_per_device"], every: ["count", "schedule.options.every"],
  drain: ["word", "schedule.options.drain"], weights: ["word", "schedule.options.weights"],
  recompute: ["word", "schedule.recompute"],
};
const OF_ROWS = { name: ["name", "schedule.name", "rows"], M: ["count", "schedule.microbatches"] };
const OF_ALL = {
  F: ["numbers", "costs.forward", 1], I: ["numbers", "costs.input_grad", 1], W: ["numbers", "costs.weight_grad", 1],
  R: ["numbers", "costs.recompute", null], U: ["numbers", "costs.update", 0], FB: ["numbers", "costs.overlap", null],
  comm: ["number", "costs.comm", 0], speed: ["speeds", "costs.speed", 1], overhead: ["numbers", "costs.overhead", 0],
  limit: ["numbers", "limit", null], bytes: ["numbers", "message_bytes", null],
};
const fieldsOf = (rows) => Object.entries({ ...(rows ? OF_ROWS : OF_FAMILY), ...OF_ALL });
const CHOICE = ["devices", "microbatches", "stages", "kinds", "room", "costs"];

function noLink(says) {
  throw new Error(`no link says this: ${says}`);
}

function readAs(form, text) {
  const [pattern, what] = FORMS[form], number = (each) => (each === "inf" ? null : Number(each));
  if (!pattern.test(text)) noLink(`"${text.slice(0, 24)}" is no ${what}`);
  if (!["number", "numbers", "speeds", "links", "count"].includes(form)) return text;
  return text.includes(",") ? text.replace(/,$/, "").split(",").map(number) : number(text);
}

function writtenAs(value) {
  const comma = Array.isArray(value) && value.length === 1 ? "," : "";
  return [value].flat().map((each) => each ?? "inf").join(",") + comma;
}

/** A row as 0,4:FfF2B. A letter is a kind, of the first stage named or if it is small of the second (.2F: of the
 * third), and of the next microbatch unless it says which. Brackets are round two that overlap. */
function writtenRow(row, stages = [...new Set(row.match(/\d+(?=[A-Z])/g))]) {
  const next = {}, places = stages.map(String);
  const letters = row.replace(/(\d+)([A-Z])(\d+)[ ;]?/g, (_, stage, kind, microbatch) => {
    const place = places.indexOf(stage), told = Number(microbatch) === (next[kind + place] ?? 0) ? "" : microbatch;
    next[kind + place] = Number(microbatch) + 1;
    return (place > 1 ? `.${place}` : "") + (place === 1 ? kind.toLowerCase() : kind) + told;
  });
  return `${places.join(",")}:${letters.replace(/OVERLAP_F_B ?/g, "")}`;
}

function readRow(text) {
  const [head, letters] = text.split(":"), stages = head.split(",").filter(Boolean).map(Number), next = {};
  const words = letters.replace(/(?:\.(\d{1,3}))?([FBIWRU])(\d*)/gi, (_, place, letter, told) => {
    const kind = letter.toUpperCase(), i = Number(place ?? letter !== kind), m = Number(told || (next[kind + i] ?? 0));
    next[kind + i] = m + 1;
    return `${stages[i]}${kind}${m} `;
  });
  const row = words.replace(/\((\d+F\d+) (\d+B\d+) \)/g, "($1;$2)OVERLAP_F_B ").trim();
  const isRow = /^(\(?(\.\d{1,3})?[FBIWRU]\d{0,5}\)?)*$/i.test(letters) && (!row || row.split(" ").every(readEntry));
  if (!isRow) noLink(`"${text.slice(0, 24)}" is no row, such as 0:FB`);
  return { stages, row };
}

/** Links as two numbers for all, five for nodes (devices in one, inside, between), or four for each pair of devices. */
function writtenLinks(links) {
  const two = ({ latency, bandwidth }) => [latency, bandwidth], { pairs, inside, between } = links;
  if (pairs) return writtenAs(pairs.flatMap(([source, target, link]) => [source, target, ...two(link)]));
  return writtenAs(inside ? [links.devices_per_node, ...two(inside), ...two(between)] : two(links));
}

function readLinks(given) {
  const { length } = given, finite = (i) => given[i] ?? noLink("a latency or a device is not finite");
  const link = (i) => ({ latency: finite(i), bandwidth: given[i + 1] });
  if (length === 2) return link(0);
  if (length === 5) return { devices_per_node: finite(0), inside: link(1), between: link(3) };
  if (length % 4) noLink("links are 2 numbers, 5, or 4 for each pair of devices");
  return { pairs: Array.from({ length: length / 4 }, (_, i) => [finite(4 * i), finite(4 * i + 1), link(4 * i + 2)]) };
}

/** The fragment of a state {charts, at, ask, board}; Error in words if it has none. */
export function toFragment({ charts, at, ask, board }) {
  if (charts.length > CHARTS.length) noLink(`there are more than ${CHARTS.length} charts`);
  if (charts.some(({ times }) => times)) noLink("measured times are too long; share the file");
  const all = charts.map(writtenChart);
  const found = charts.map(({ schedule: { rows, family } }, i) => [CHARTS[i], rows ? "rows" : family]);
  for (const key of new Set(all.flatMap(Object.keys))) {
    if (all.every((each) => each[key] === all[0][key])) found.push([key, all[0][key]]);
    else all.forEach((each, i) => key in each && found.push([`${CHARTS[i]}.${key}`, each[key]]));
  }
  if (at) found.push(["at", writtenAs(at)]);
  if (ask) found.push(["ask", writtenAs(ask)]);
  if (board) found.push(["board", board.puzzle], ["picks", board.rows.map((row) => writtenRow(row)).join("/")]);
  if (board?.choice) found.push(["own", CHOICE.map((name) => board.choice[name]).join(";")]);
  const plain = (value) => encodeURIComponent(value).replace(/%(2C|2F|3A|3B)/g, decodeURIComponent);
  const text = found.map(([key, value]) => `${key}=${plain(value)}`).join("&");
  fromFragment(text); // so that whatever is written can be read
  return text;
}

function writtenChart(chart) {
  const { schedule, links } = chart, found = {};
  for (const [key, [, path, usual = null]] of fieldsOf(schedule.rows)) {
    const value = path.split(".").reduce((inner, name) => inner?.[name], chart) ?? null;
    if (writtenAs(value) !== writtenAs(usual)) found[key] = writtenAs(value);
  }
  if (found.name) found.name = found.name.replace(/[^\p{L}\p{N} .,:;()'+-]/gu, "").slice(0, 80) || "rows";
  if (schedule.rows) found.rows = schedule.rows.map((row, k) => writtenRow(row, schedule.placement[k])).join("/");
  if (links) found.links = writtenLinks(links);
  return found;
}

/** The state that a fragment says; Error in words if it says none. */
export function fromFragment(text) {
  if (text.length > MOST) noLink(`it has more than ${MOST} characters`);
  const given = new Map();
  for (const each of text.split("&")) {
    const pair = /^((?:[a-h]\.)?[A-Za-z]+)=(.*)$/s.exec(each) ?? noLink(`"${each.slice(0, 24)}" is not key=value`);
    const [, key, value] = pair;
    if (given.has(key)) noLink(`${key.slice(0, 24)} stands twice`);
    given.set(key, value);
  }
  const left = new Set(given.keys());
  const take = (form, ...keys) => {
    const key = keys.find((each) => given.has(each));
    left.delete(key);
    return key && readAs(form, decodedText(given.get(key)));
  };
  const chartOf = (letter) => readChart(take("word", letter), (form, key) => take(form, `${letter}.${key}`, key));
  const charts = [...CHARTS].filter((letter) => given.has(letter)).map(chartOf);
  const at = take("number", "at") ?? 0, ask = take("numbers", "ask") ?? null;
  const asked = ask?.length === 3 && charts[ask[0]] && Number.isInteger(ask[1]);
  if (ask !== null && !asked) noLink("ask is a chart, a device and a time");
  const puzzle = take("puzzle", "board"), rows = take("rows", "picks")?.split("/").map((row) => readRow(row).row);
  const own = take("own", "own")?.split(";").map((each, i) => [CHOICE[i], each]);
  const choice = own ? Object.fromEntries(own) : null;
  if (!puzzle !== !rows || (own && !puzzle)) noLink("a board is a puzzle and what is picked");
  const board = puzzle ? { puzzle, choice, rows } : null;
  if (left.size) noLink(`nothing here is called ${[...left][0].slice(0, 24)}`);
  if (!charts.length) noLink("it has no chart");
  return { charts, at, ask, board };
}

function decodedText(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return noLink("it has half a letter");
  }
}

function readChart(family, take) {
  const own = family === "rows", schedule = { family: own ? null : family, options: {} };
  const chart = { schedule, costs: {}, links: null, message_bytes: null, sizes: null, limit: null, times: null };
  for (const [key, [form, path, usual]] of fieldsOf(own)) {
    const names = path.split("."), last = names.pop(), value = take(form, key) ?? usual;
    if (value !== undefined) names.reduce((inner, name) => inner[name], chart)[last] = value;
  }
  if (own) {
    const rows = (take("rows", "rows") ?? noLink("an order has no rows")).split("/").map(readRow);
    Object.assign(schedule, { placement: rows.map(({ stages }) => stages), rows: rows.map(({ row }) => row) });
  }
  const { devices = schedule.rows?.length, microbatches = schedule.microbatches, ...others } = schedule.options;
  if (!devices || !microbatches) noLink("a chart has no K or no M");
  if (devices * microbatches * (others.stages_per_device ?? 1) > MOST_BOXES) noLink("a chart has too many boxes");
  const links = take("links", "links");
  if (links !== undefined) chart.links = readLinks([links].flat());
  return chart;
}
