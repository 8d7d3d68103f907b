// The page's state as the part of an address after #, and back: a=GPipe&b=OneFOneB&K=4&M=6&at=3. A key such as b.M is
// of one chart, M of all. board=NAME is a board, alone or beside charts; board=own is one of the reader's own.

import { UNIT } from "./runs.js";

const CHOICE = ["devices", "microbatches", "stages", "kinds", "room", "costs"];
const ONE = "(0|[1-9]\\d{0,14})(\\.\\d{1,20})?(e-\\d{1,2})?", LINK = `\\{latency:${ONE},bandwidth:(${ONE}|null)\\}`;
const ACTION = "(\\d{1,4}[FBIWRU]|\\d{1,4}F\\d{1,4}-\\d{1,4}B)\\d{1,4}";
const listOf = (one, mark = ",") => `(${one})(${mark}(${one}))*`;
const inRows = (one) => listOf(`(${listOf(one, "\\.")})?`, "_");
/** A list of one number ends with a comma. */
const readNumbers = (text) => (text.includes(",") ? text.match(/[^,]+/g).map(Number) : Number(text));
const writeNumbers = (value) => (value.length === 1 ? `${value},` : String(value));

/** What may stand in a link; nothing else gets in: a pattern, what it is, and how it is read and written. */
const FORMS = {
  count: ["[1-9]\\d{0,3}", "whole number from 1 to 9999", Number],
  number: [ONE, "number", Number],
  numbers: [`${listOf(ONE)},?`, "number, nor several", readNumbers, writeNumbers],
  speeds: [`${listOf(`(?=[^,e]*[1-9])${ONE}`)},?`, "number above 0, nor several", readNumbers, writeNumbers],
  ask: [`[01],\\d{1,4},${ONE}`, "chart, device and time", readNumbers],
  word: ["[A-Za-z][\\w\\-]{0,60}", "plain word"],
  name: ["[\\p{L}\\p{N} .,:;()'\\-]{1,80}", "plain name"],
  own: ["[\\w ,.]{0,30}(;[\\w ,.]{0,30}){5}", "board of one's own",
    (text) => Object.fromEntries(text.split(";").map((each, i) => [CHOICE[i], each])),
    (choice) => CHOICE.map((name) => choice[name]).join(";")],
  links: [`${LINK}|\\{devices_per_node:[1-9]\\d{0,3},inside:${LINK},between:${LINK}\\}`, "link, nor links of nodes",
    (text) => JSON.parse(text.replace(/\w+(?=:)/g, '"$&"')), (links) => JSON.stringify(links).replaceAll('"', "")],
  rows: [`(?=.*[A-Z])${inRows(ACTION)}`, "order in rows, such as 0F0.0B0_1F0.1B0",
    (text) => text.split("_").map((row) => row.replace(/(\w+)-(\w+)/g, "($1;$2)OVERLAP_F_B").replaceAll(".", " ")),
    (rows) => rows.join("_").replace(/\((\w+);(\w+)\)OVERLAP_F_B/g, "$1-$2").replaceAll(" ", ".")],
  stages: [inRows("\\d{1,4}"), "list of stages, such as 0.3_1.2",
    (text) => text.split("_").map((held) => held.split(".").filter(Boolean).map(Number)),
    (placement) => placement.map((held) => held.join(".")).join("_")],
};
/** Of each key its form, and in which part of a chart it is under which name. */
const OF_FAMILY = { K: ["count", "options", "devices"], M: ["count", "options", "microbatches"],
  V: ["count", "options", "stages_per_device"], every: ["count", "options", "every"],
  drain: ["word", "options", "drain"], weights: ["word", "options", "weights"],
  recompute: ["word", "schedule", "recompute"] };
const OF_ROWS = { name: ["name", "schedule", "name"], M: ["count", "schedule", "microbatches"],
  rows: ["rows", "schedule", "rows"], stages: ["stages", "schedule", "placement"] };
const OF_ALL = { F: ["numbers", "costs", "forward"], I: ["numbers", "costs", "input_grad"],
  W: ["numbers", "costs", "weight_grad"], R: ["numbers", "costs", "recompute"], U: ["numbers", "costs", "update"],
  FB: ["numbers", "costs", "overlap"], comm: ["number", "costs", "comm"], speed: ["speeds", "costs", "speed"],
  overhead: ["numbers", "costs", "overhead"], limit: ["numbers", "chart", "limit"],
  bytes: ["numbers", "chart", "message_bytes"], links: ["links", "chart", "links"] };
const fieldsOf = (rows) => Object.entries({ ...(rows ? OF_ROWS : OF_FAMILY), ...OF_ALL });
/** The stages of a row's actions, lowest first: what its device has unless a link says more. */
const stagesIn = (row) => [...new Set(row.match(/\d+(?=[A-Z])/g))].map(Number).sort((a, b) => a - b);
const noLink = (says) => {
  throw new Error(`no link says this: ${says}`);
};

/** The fragment of a state {charts, at, ask, board}; Error in words if it has none. */
export function toFragment({ charts, at, ask, board }) {
  if (charts.some(({ times }) => times)) noLink("measured times are too long; share the file");
  const all = charts.map(writeChart), { puzzle, choice, rows } = board ?? {}, found = {};
  charts.forEach(({ schedule }, i) => (found["ab"[i]] = schedule.rows ? "rows" : schedule.family));
  for (const key of new Set(all.flatMap(Object.keys))) {
    if (all.every((each) => each[key] === all[0][key])) found[key] = all[0][key];
    else all.forEach((each, i) => (found[`${"ab"[i]}.${key}`] = each[key]));
  }
  Object.assign(found, { at, ask, board: puzzle === "free" ? "own" : puzzle });
  Object.assign(found, { own: choice && FORMS.own[3](choice), picks: rows?.some(Boolean) && FORMS.rows[3](rows) });
  const text = encodeURI(Object.entries(found).filter(([, value]) => value).map((each) => each.join("=")).join("&"));
  fromFragment(text); // so that whatever is written can be read
  return text;
}

function writeChart(chart) {
  const { rows, options } = chart.schedule, parts = { ...chart, chart, options }, found = {};
  for (const [key, [form, part, name]] of fieldsOf(rows)) {
    const value = parts[part]?.[name] ?? null, [, , , write = String] = FORMS[form];
    if (value !== null && value !== UNIT[name]) found[key] = write(value);
  }
  if (found.name) found.name = found.name.match(/[\p{L}\p{N} .,:;()'-]/gu)?.slice(0, 80).join("");
  if (rows && found.stages === FORMS.stages[3](rows.map(stagesIn))) delete found.stages;
  return found;
}

/** The state that a fragment says, with no chart if it is a board alone; Error in words if it says none. */
export function fromFragment(text) {
  if (text.length > 2000) noLink("it is too long for a link; save the page instead");
  const pairs = [...new URLSearchParams(text)], given = new Map(pairs), left = new Set(given.keys());
  if (given.size < pairs.length) noLink("a key stands twice");
  const take = (form, ...keys) => {
    const key = keys.find((each) => left.delete(each) || given.has(each)), value = given.get(key) ?? null;
    const [pattern, what, read = String] = FORMS[form], whole = new RegExp(`^(${pattern})$`, "u");
    if (value !== null && !whole.test(value)) noLink(`"${value.slice(0, 24)}" is no ${what}`);
    return value === null ? null : read(value);
  };
  const charts = ["a", "b"].filter((letter) => given.has(letter)).map((letter) => readChart(letter, take));
  const at = take("number", "at") ?? 0, ask = take("ask", "ask"), named = take("word", "board");
  const puzzle = named === "own" ? "free" : named, choice = puzzle === "free" ? take("own", "own") : null;
  const board = puzzle && { puzzle, choice, rows: take("rows", "picks") };
  if (left.size) noLink(`nothing here is called ${[...left][0].slice(0, 24)}`);
  if ((at || ask || !board) && !charts[ask?.[0] ?? 0]) noLink("it has no chart");
  return { charts, at, ask, board };
}

function readChart(letter, take) {
  const family = take("word", letter), own = family === "rows";
  const options = {}, schedule = own ? { family: null, options, name: "rows" } : { family, options };
  const chart = { schedule, costs: {} }, parts = { ...chart, chart, options };
  for (const [key, [form, part, name]] of fieldsOf(own)) {
    const value = take(form, `${letter}.${key}`, key);
    if (value !== null) parts[part][name] = value;
  }
  if (own) schedule.placement ??= schedule.rows?.map(stagesIn);
  const { devices = schedule.rows?.length, microbatches = schedule.microbatches, stages_per_device = 1 } = options;
  if (!(devices * microbatches * stages_per_device <= 100_000)) noLink("a chart has no sizes, or too many boxes");
  return chart;
}
