// What `window.pipeline.load` takes: the library's JSON of a schedule, costs or a timeline, a list of these, or the
// whole state of a page. Everything is looked at before anything changes, and refused in words.

import { F, KINDS, readEntry } from "./clock.js";
import { FAMILIES } from "./families.js";
import { UNIT, orderFrom, rangeOf } from "./runs.js";

const NAMES = ["family", "options", "placement", "rows"];
const MOST_ACTIONS = 1_000_000;

function must(fine, sentence) {
  if (!fine) throw new Error(sentence);
}

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

/** A number of JSON, or the double next to a fraction such as "1/3". */
function double(value, where) {
  const fraction = typeof value === "string" && /^(\d{1,15})\/([1-9]\d{0,14})$/.exec(value);
  const found = fraction ? Number(fraction[1]) / Number(fraction[2]) : value;
  must(typeof found === "number" && Number.isFinite(found) && found >= 0, `${where} needs to be a number >= 0`);
  return found;
}

function doubles(value, where, count) {
  if (!Array.isArray(value)) return double(value, where);
  must(count === undefined || value.length === count, `${where} needs ${count} numbers (got ${value.length})`);
  return value.map((each, i) => double(each, `${where}[${i}]`));
}

/** {charts, at, ask} of what is to be shown, where the records `now` are; or an Error. */
export function readLoaded(json, now) {
  const given = typeof json === "string" ? parsed(json) : json;
  if (isRecord(given) && Array.isArray(given.charts)) return wholeState(given);
  const things = [given].flat().map(thing);
  must(things.length, "an empty list shows nothing");
  const found = things.filter(({ kind }) => kind !== "costs").map(({ record }) => record), costs = things.findLast(({ kind }) => kind === "costs");
  let charts = found.length ? found : now;
  if (costs) charts = charts.map((record) => (record.times ? record : { ...record, costs: costs.costs }));
  return { charts: checked(charts) };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`this is no JSON: ${error.message}`);
  }
}

function wholeState({ charts, at = 0, ask = null, board = null }) {
  must(charts.every(isRecord), "a chart needs to be a record");
  must(typeof at === "number" && at >= 0, "the playhead needs to be at a time >= 0");
  must(ask === null || (Array.isArray(ask) && ask.length === 3 && isCount(ask[0]) && isCount(ask[1]) && ask[2] >= 0), "ask needs a chart, a device and a time");
  const plain = { costs: UNIT, links: null, message_bytes: null, sizes: null, limit: null, times: null };
  return { charts: checked(charts.map((each) => ({ ...plain, ...each }))), at, ask, board };
}

function thing(given) {
  const envelope = typeof given === "string" ? parsed(given) : given;
  must(isRecord(envelope) && envelope.format === "gpipe_sim" && envelope.version === 1, "this is no JSON that to_json of this library writes");
  const { kind, value } = envelope, record = { costs: UNIT, links: null, message_bytes: null, sizes: null, limit: null, times: null };
  must(isRecord(value), "it has no value");
  if (kind === "costs") return { kind, costs: value };
  if (kind === "schedule") return { kind, record: { ...record, schedule: schedule(value) } };
  must(kind === "timeline", `a page shows schedules, costs and timelines (got ${String(kind).slice(0, 40)})`);
  const { start, end, sent, arrived, collectives, took_turns } = value;
  must(isRecord(value.schedule), "a timeline needs a schedule");
  return { kind, record: { ...record, schedule: { ...schedule(value.schedule), rows: value.schedule.rows }, times: { start, end, sent, arrived, collectives, took_turns } } };
}

/** A schedule as the library writes it: of a family, whose rows it must have, or by its rows. */
function schedule(value) {
  for (const name of NAMES) must(name in value, `a schedule has no ${name}`);
  const { family, options, placement, rows } = value;
  must(isRecord(options) && Array.isArray(rows), "a schedule needs options and rows");
  const inner = family === "Remat" && options.only === null && isRecord(options.inner) ? options.inner : value;
  if (Object.hasOwn(FAMILIES, inner.family)) {
    const found = { family: inner.family, options: inner.options, recompute: inner === value ? "never" : options.mode }, order = orderFrom(found);
    const same = JSON.stringify(order.rows) === JSON.stringify(rows.map(entriesOf)) && JSON.stringify(order.placement) === JSON.stringify(placement);
    must(same, `it says that it is of ${family}, but that has other rows or another placement`);
    return { ...found, placement, microbatches: order.microbatches, name: order.name };
  }
  const seen = rows.flatMap(entriesOf).filter(Boolean).flatMap((entry) => entry.filter((_, i) => i % 3 === 2));
  const microbatches = options.microbatches ?? seen.reduce((least, m) => Math.max(least, m + 1), 1);
  return { family: null, options: {}, recompute: "never", placement, microbatches, name: String(options.name ?? family), rows };
}

const entriesOf = (text) => String(text).split(" ").filter(Boolean).map(readEntry);

/** The records, if each can be run and shown. */
function checked(charts) {
  must(charts.length === 1 || charts.length === 2, `a page shows one chart or two (got ${charts.length})`);
  return charts.map((record) => {
    must(isRecord(record.schedule), "a chart needs a schedule");
    const { family, rows } = record.schedule;
    if (rows) checkRows(record.schedule);
    else must(Object.hasOwn(FAMILIES, family), `there is no family ${String(family).slice(0, 40)}`);
    const { placement } = rows ? record.schedule : orderFrom(record.schedule), devices = placement.length, stages = 1 + Math.max(...placement.flat());
    const costs = { ...UNIT, ...(record.costs ?? {}) };
    for (const [name, cost] of Object.entries(costs)) {
      must(name in UNIT, `there is no cost ${name.slice(0, 40)}`);
      const count = name === "comm" ? 0 : ["speed", "overhead"].includes(name) ? devices : stages;
      if (cost !== null || UNIT[name] !== null) costs[name] = doubles(cost, name, count);
    }
    must([costs.speed].flat().every((each) => each > 0), "speed needs to be above 0");
    return { ...record, costs: record.costs || !record.times ? costs : null, times: record.times && checkTimes(record, devices) };
  });
}

function checkRows({ placement, rows, microbatches }) {
  must(Array.isArray(rows) && rows.length > 0 && rows.every((row) => typeof row === "string"), "rows need to be texts");
  must(Array.isArray(placement) && placement.length === rows.length && placement.every((held) => Array.isArray(held) && held.every((s) => isCount(s) && s < 10_000)), "placement needs a list of stages for each row");
  must(isCount(microbatches) && microbatches > 0 && microbatches <= MOST_ACTIONS, "microbatches needs to be a whole number >= 1");
  const seen = new Set();
  rows.forEach((row, device) => {
    for (const word of row.split(" ").filter(Boolean)) {
      const entry = readEntry(word);
      must(entry, `device ${device} has ${word.slice(0, 40)}, which is no action`);
      for (let i = 0; i < entry.length; i += 3) {
        const [stage, kind, m] = entry.slice(i, i + 3), action = `${stage}${KINDS[kind]}${m}`, key = kind === 5 ? `${action} ${device}` : action;
        must(placement[device].includes(stage) && m < microbatches, `device ${device} has ${action}, but no such stage or microbatch`);
        must(!seen.has(key), `${action} is there twice`);
        seen.add(key);
      }
    }
  });
  must(seen.size > 0 && seen.size <= MOST_ACTIONS, `a page shows 1 to ${MOST_ACTIONS} actions`);
}

function checkTimes({ schedule: { rows }, times }, devices) {
  must(isRecord(times) && Array.isArray(times.start) && Array.isArray(times.end), "times need a start and an end of each action");
  const size = rows.flatMap((row) => row.split(" ").filter(Boolean)).length, both = { ...times };
  for (const name of ["start", "end"]) both[name] = doubles(times[name], name, size);
  for (const name of ["sent", "arrived"]) both[name] = times[name] == null ? null : doubles(times[name], name);
  must(!both.sent === !both.arrived && both.sent?.length === both.arrived?.length, "times need both sent and arrived, or neither");
  must(both.start.every((start, i) => start <= both.end[i]), "an action ends before it starts");
  both.collectives = (times.collectives ?? []).map((each) => {
    must(isRecord(each) && Array.isArray(each.devices) && each.devices.every((d) => isCount(d) && d < devices), "a collective needs devices");
    return { ...each, what: String(each.what), start: double(each.start, "start"), end: double(each.end, "end") };
  });
  return both;
}
