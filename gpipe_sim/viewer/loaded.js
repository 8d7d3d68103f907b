// What `window.pipeline.load` takes: the library's JSON of a schedule, costs or a timeline, a list of these, or the
// whole state of a page. Everything is looked at before anything changes, and refused in words.

import { U, must, writeEntry } from "./clock.js";
import { FAMILIES } from "./families.js";
import { OF_DEVICES, UNIT, entriesOf, orderFrom } from "./runs.js";

const LOADABLE = 1e6, PLAIN = { costs: UNIT, links: null, message_bytes: null, sizes: null, limit: null, times: null };

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isTime = (value) => Number.isFinite(value) && value >= 0;
const isListOf = (value, fits) => Array.isArray(value) && value.every(fits);
const isText = (value) => typeof value === "string";
const parsed = (json) => (isText(json) ? JSON.parse(json) : json);

/** A number of JSON, or the double next to a fraction such as "1/3". */
function double(value, where) {
  const fraction = /^(\d{1,15})\/([1-9]\d{0,14})$/.exec(value), found = fraction ? fraction[1] / fraction[2] : value;
  must(isTime(found), `${where} needs to be a number >= 0`);
  return found;
}

function column(list, where, count = list?.length) {
  must(Array.isArray(list) && list.length === count, `${where} needs a list of ${count} numbers`);
  return list.map((each) => double(each, where));
}

/** {charts, at, ask, board} of what is to be shown, where the records `now` are; or an Error. */
export function readLoaded(json, now) {
  const given = parsed(json);
  if (Array.isArray(given?.charts)) return wholeState(given);
  const things = [given].flat().map(readThing);
  must(things.length, "an empty list shows nothing");
  const shown = things.filter(({ schedule }) => schedule), costs = things.findLast(({ schedule }) => !schedule);
  return { charts: checked((shown.length ? shown : now).map((each) => (each.times ? each : { ...each, ...costs }))) };
}

function wholeState({ charts, at = 0, ask = null, board = null }) {
  const isAsk = isListOf(ask, isTime) && ask.length === 3 && ask.slice(0, 2).every(isCount);
  must(ask === null || isAsk, "ask needs a chart, a device and a time");
  return { charts: checked(charts.map((each) => ({ ...PLAIN, ...each }))), at: double(at, "the playhead"), ask, board };
}

/** A record of a schedule or timeline, or {costs}. */
function readThing(given) {
  const { format, version, kind, value } = parsed(given) ?? {}, known = format === "gpipe_sim" && version === 1;
  must(known && isRecord(value), "this is no JSON that to_json of this library writes");
  must(["schedule", "costs", "timeline"].includes(kind), "a page shows schedules, costs and timelines");
  if (kind === "costs") return { costs: value };
  if (kind === "schedule") return { ...PLAIN, schedule: readSchedule(value) };
  return { ...PLAIN, schedule: { ...readSchedule(value.schedule ?? {}), rows: value.schedule.rows }, times: value };
}

/** A schedule as the library writes it: of a family, whose rows it must have, or by its rows. */
function readSchedule({ family, options, placement, rows }) {
  must(isRecord(options) && isListOf(rows, isText), "a schedule needs a family, options, placement and rows");
  const again = family === "Remat" && options.only === null && isRecord(options.inner);
  const inner = again ? options.inner : { family, options }, { microbatches, name = family } = options;
  if (!Object.hasOwn(FAMILIES, inner.family))
    return { family: null, options: {}, placement, microbatches, name: String(name), rows };
  const found = { family: inner.family, options: inner.options, recompute: again ? options.mode : "never" };
  const order = orderFrom(found), same = JSON.stringify([order.rows, order.placement]);
  must(same === JSON.stringify([rows.map(entriesOf), placement]), `${family} has other rows, or another placement`);
  return { ...found, placement, microbatches: order.microbatches, name: order.name };
}

/** The records, if each can be run and shown. */
function checked(charts) {
  must(charts.length === 1 || charts.length === 2, `a page shows one chart or two (got ${charts.length})`);
  return charts.map((record) => {
    const { schedule, times } = record, { rows, family } = schedule ?? {};
    must(rows || (isText(family) && Object.hasOwn(FAMILIES, family)), "a chart needs rows, or a family of the library");
    const { placement } = rows ? checkedRows(schedule) : orderFrom(schedule);
    const stages = 1 + Math.max(...placement.flat()), costs = { ...UNIT, ...record.costs };
    for (const [name, cost] of Object.entries(costs)) {
      must(Object.hasOwn(UNIT, name), `there is no cost ${name.slice(0, 40)}`);
      const list = Array.isArray(cost) && name !== "comm", size = OF_DEVICES.includes(name) ? placement.length : stages;
      if (cost !== null || UNIT[name] !== null) costs[name] = list ? column(cost, name, size) : double(cost, name);
    }
    must([costs.speed].flat().every(Boolean), "speed needs to be above 0");
    return { ...record, costs: times && !record.costs ? null : costs, times: times && checkedTimes(record) };
  });
}

const partsOf = (entry) => (entry?.length > 3 ? [entry.slice(0, 3), entry.slice(3)] : [entry]);

function checkedRows(schedule) {
  const { placement, rows, microbatches } = schedule, seen = new Set(), isStage = (each) => isCount(each) && each < 1e4;
  const placed = isListOf(placement, (held) => isListOf(held, isStage)) && placement.length === rows.length;
  must(placed && isListOf(rows, isText), "a schedule needs rows as texts, and the stages of each row");
  must(isCount(microbatches) && microbatches <= LOADABLE, "microbatches needs to be a whole number");
  for (const [device, row] of rows.entries()) for (const part of entriesOf(row).flatMap(partsOf)) {
    must(part, `device ${device} has a word that is no action`);
    const [stage, kind, m] = part, action = writeEntry(part), key = kind === U ? `${action} ${device}` : action;
    must(placement[device].includes(stage) && m < microbatches, `device ${device} has no room for ${action}`);
    must(seen.size < seen.add(key).size, `${action} is there twice`);
  }
  must(seen.size > 0 && seen.size <= LOADABLE, `a page shows 1 to ${LOADABLE} actions`);
  return schedule;
}

function checkedTimes({ schedule: { rows }, times }) {
  const { sent = null, arrived = null, collectives = [], notes = [], took_turns } = times;
  const size = rows.flatMap(entriesOf).length;
  const [start, end] = [column(times.start, "start", size), column(times.end, "end", size)];
  must(start.every((from, i) => from <= end[i]), "an action ends before it starts");
  must(sent?.length === arrived?.length, "times need both sent and arrived, or neither");
  must(isListOf(collectives, (c) => isListOf(c?.devices, (d) => isCount(d) && d in rows)) && isListOf(notes, isText),
    "collectives need devices, and notes are texts");
  const timed = (each) => ({ ...each, start: double(each.start, "start"), end: double(each.end, "end") });
  return { start, end, sent: sent && column(sent, "sent"), arrived: arrived && column(arrived, "arrived"),
    collectives: collectives.map(timed), notes, took_turns: took_turns === true };
}
