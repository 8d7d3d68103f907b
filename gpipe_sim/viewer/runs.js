// From records, which files and links hold, to runs: what the clock makes of a record, and what can be said of a place.

import { TABLES } from "./tables.js";
import { F, KINDS, R, lower, messageBytesOf, readEntry, simulate, writeEntry } from "./clock.js";
import { orderOf, withRecompute } from "./families.js";
import { givenTimeline, number, why } from "./why.js";
import { bytesHeld, heldAt, inFlight, messageBytes, whyNoBytes } from "./memory.js";

/** What the library simulates with unless it is told. */
export const UNIT = { forward: 1, input_grad: 1, weight_grad: 1, recompute: null, update: 0, overlap: null, comm: 0, speed: 1, overhead: 0 };
export const rangeOf = (count) => Array.from({ length: count }, (_, i) => i);
export const percent = (part) => `${(100 * part).toFixed(1)}%`;
export const INPUTS = { colour: TABLES.colours.paler[0], pattern: "" };
const OF_DEVICES = ["speed", "overhead"];
const most = (values) => values.reduce((sum, each) => Math.max(sum, each), 0);

/** The order that a record of a schedule stands for. */
export function orderFrom({ family, options, recompute, placement, microbatches, name, rows }) {
  if (rows) return { name, family, options, placement, microbatches, rows: rows.map((row) => row.split(" ").filter(Boolean).map(readEntry)) };
  const order = orderOf(family, options);
  return recompute && recompute !== "never" ? withRecompute(order, recompute) : order;
}

/** The record with lists as long as its schedule has stages or devices; what is unknown of a new one is as of most others. */
function fitted(record, program) {
  const { devices, stages, messages } = program;
  const common = (values) => values.toSorted((a, b) => values.filter((v) => v === b).length - values.filter((v) => v === a).length)[0];
  const fit = (list, count) => (Array.isArray(list) && list.length !== count ? rangeOf(count).map((i) => list[i] ?? common(list)) : list);
  const costs = record.costs && Object.fromEntries(Object.entries(record.costs).map(([name, cost]) => [name, fit(cost, OF_DEVICES.includes(name) ? devices : stages)]));
  const knows = (each) => record.links.pairs.some(([source, target]) => source === each.source && target === each.target);
  const links = record.links?.pairs && !messages.every(knows) ? null : record.links;
  const fits = record.sizes?.stages.length === stages && record.sizes.samples >= program.microbatches;
  const sizes = fits ? record.sizes : null; // messages have bytes even where devices' bytes are not counted
  const limit = record.sizes && whyNoBytes(program, record.sizes) ? null : fit(record.limit, devices);
  return { ...record, costs, links, sizes, limit, message_bytes: fit(record.message_bytes, stages - 1) };
}

/** Everything that a chart shows of a record; what the run before has of the same schedule is used again. */
export function runOf(record, before) {
  const again = before && before.schedule === record.schedule, order = again ? before.order : orderFrom(record.schedule);
  const program = again ? before.program : lower(order);
  record = fitted(record, program);
  const bytesOf = record.sizes ? messageBytes(record.sizes, program) : messageBytesOf(program, record.message_bytes ?? 0);
  const timeline = record.times ? givenTimeline(program, record.times) : simulate(program, record.costs, record.links, bytesOf);
  const stuck = [...timeline.stuck].map(([device, e]) => `device ${device} is stuck at ${writeEntry(program.entries[e])}`);
  if (stuck.length) throw new Error(`${order.name} cannot finish: ${stuck.join("; ")}`);
  const { devices, entries, kind } = program;
  const counts = inFlight(timeline), bytes = record.sizes ? bytesHeld(timeline, record.sizes) : null;
  const limits = rangeOf(devices).map((d) => (Array.isArray(record.limit) ? record.limit[d] : record.limit));
  const held = rangeOf(devices).map((d) => (bytes ? heldBytes(bytes[d], limits[d]) : heldCounts(timeline, d, counts[d], limits[d])));
  const busy = timeline.end.reduce((sum, end, e) => sum + (end - timeline.start[e]), 0), all = devices * timeline.makespan;
  const shades = order.placement.map((own) => new Map([...own].sort((a, b) => a - b).map((s, i) => [s, (TABLES.later * i) / own.length])));
  return { schedule: record.schedule, record, order, program, timeline, held, counts, bytes, bytesOf, shades, waiting: all ? (all - busy) / all : 0,
    paired: entries.some((each) => each.length > 3), kinds: [...KINDS].filter((_, k) => kind.includes(k)),
    heldText: bytes ? bytesText : number, most: Math.max(...held.map((each) => most(each.total))), name: order.name };
}

/** Microbatches, each counted by the share that a stage is of a device: whole ones, and those with only the input kept. */
function heldCounts(timeline, d, whole, limit) {
  const { devices, stages } = timeline.program, share = devices / stages, inputs = inputsOf(timeline, d);
  const times = inputs.times.length > 1 ? [...whole.times, ...inputs.times].sort((a, b) => a - b) : whole.times;
  const [total, pale] = [whole, inputs].map((steps) => times.map((time) => steps.counts[heldAt(steps, time)] * share));
  const saved = { look: TABLES.memory["saved activations"], values: total.map((each, i) => each - pale[i]) };
  return { times, total, limit, layers: inputs.times.length > 1 ? [saved, { look: INPUTS, values: pale }] : [saved] };
}

/** Steps {times, counts}: of so many microbatches a device has the input and nothing else, until it recomputes. */
function inputsOf({ program: { first, parts, kind, stage, microbatch, find, entry }, start, end }, d) {
  const changes = [];
  for (let e = first[d]; e < first[d + 1]; e++) {
    const p = parts[e], forward = kind[p] === R ? find(F, stage[p], microbatch[p]) : -1;
    if (forward >= 0) changes.push([end[entry[forward]], 1], [start[e], -1]);
  }
  let count = 0;
  changes.sort((a, b) => a[0] - b[0]);
  return { times: [0, ...changes.map(([time]) => time)], counts: [0, ...changes.map(([, more]) => (count += more))] };
}

function heldBytes({ times, bytes, total }, limit) {
  return { times, total, limit, layers: Object.entries(TABLES.memory).map(([name, look]) => ({ look, values: bytes[name] ?? total.map(() => 0) })) };
}

/** As charts of the library have it: in whole kB (1,000 bytes), from 10 MB on MB, and so on. */
function bytesText(count) {
  const [unit, name] = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([each, what]) => count >= 10 * each || what === "kB");
  return count >= unit ? `${Math.round(count / unit).toLocaleString("en")} ${name}` : `${count} B`;
}

// What was asked: a device at a time, in words and as what is to be lit

/** The entry that runs on a device at a time, or -1. */
export function entryAt({ program, timeline }, device, time) {
  const low = program.first[device], row = timeline.start.subarray(low, program.first[device + 1]);
  if (!row.length || row[0] > time) return -1;
  let e = low + heldAt({ times: row }, time);
  while (e > low && timeline.end[e] <= timeline.start[e]) e--; // an update that takes no time
  return timeline.end[e] > time ? e : -1;
}

/** What the entries need, by part: [{part, message}], and the entries that need this one. */
function needsOfEntry({ program }, e) {
  return rangeOf(program.needsFrom[e + 1] - program.needsFrom[e]).map((i) => ({ part: program.needs[program.needsFrom[e] + i], message: program.messageOf[program.needsFrom[e] + i] }));
}

function neededByEntry({ program }, e) {
  if (!program.users) {
    program.users = program.entries.map(() => []);
    for (let user = 0; user < program.size; user++) for (const { part } of needsOfEntry({ program }, user)) program.users[program.entry[part]].push(user);
  }
  return program.users[e];
}

/** [F, what frees what it saved] of the stage and microbatch of a part, if both are there. */
function keptBy({ program }, part) {
  const [kinds, s, m] = ["WB", program.stage[part], program.microbatch[part]];
  const frees = [...kinds].map((kind) => program.find(KINDS.indexOf(kind), s, m)).find((each) => each >= 0) ?? -1;
  return [program.find(F, s, m), frees];
}

/** What to light for a place of a chart: see paintLit. */
export function litAt(run, device, time) {
  const found = why(run.timeline, device, time), { program, timeline } = run, entry = entryAt(run, device, time);
  if (entry < 0) return { device, from: found.start, to: found.end, entry, needs: [], neededBy: [], links: found.links, kept: null, sentence: found.sentence };
  const needs = needsOfEntry(run, entry).map(({ part, message }) => ({ part, message, entry: program.entry[part] }));
  const [saved, freed] = keptBy(run, program.parts[entry]).map((part) => (part < 0 ? -1 : program.entry[part]));
  const kept = saved >= 0 && freed >= 0 && (entry === saved || entry === freed) ? [timeline.end[saved], timeline.end[freed]] : null;
  const lit = { device, from: timeline.start[entry], to: timeline.end[entry], entry, needs, neededBy: neededByEntry(run, entry), links: [], kept };
  return { ...lit, sentence: `${found.sentence}: ${aboutEntry(run, lit).join(". ")}` };
}

function aboutEntry(run, { entry, needs, neededBy, kept, device }) {
  const { program, timeline } = run, { stage, kind, microbatch, parts } = program, text = (e) => writeEntry(program.entries[e]);
  const of = (part) => `${stage[part]}${KINDS[kind[part]]}${microbatch[part]}`, on = (e) => (program.home[e] === device ? "here" : `on device ${program.home[e]}`);
  const own = rangeOf(parts[entry + 1] - parts[entry]).map((i) => parts[entry] + i);
  const says = [own.map((p) => `${TABLES.meanings[KINDS[kind[p]]]} of microbatch ${microbatch[p]} at stage ${stage[p]}`).join(", with ")];
  const reasons = (part) => own.map((p) => TABLES.reasons[KINDS[kind[p]] + KINDS[kind[part]]]).find(Boolean);
  const needed = needs.map(({ part, message, entry: e }) => {
    const arrives = message >= 0 && timeline.arrived && timeline.arrived[message] > timeline.end[e] ? `, there at ${number(timeline.arrived[message])}` : "";
    return `${of(part)} ${on(e)} (${reasons(part)}), which ends at ${number(timeline.end[e])}${arrives}`;
  });
  says.push(needed.length ? `It needs ${needed.join(", and ")}` : "It needs nothing");
  if (neededBy.length) says.push(`${listed(neededBy.map((e) => `${text(e)} ${on(e)}`))} need${neededBy.length > 1 ? "" : "s"} it`);
  const [saved] = keptBy(run, parts[entry]);
  if (kept) says.push(program.entry[saved] === entry ? `What it saves is held until ${number(kept[1])}` : `It frees what ${of(saved)} saved, held for ${number(kept[1] - kept[0])}`);
  for (const i of program.sends[entry] ?? []) {
    const { target } = program.messages[i], size = run.bytesOf(program.messages[i]);
    if (timeline.arrived && (size || timeline.arrived[i] > timeline.sent[i])) says.push(`Its message${size ? ` of ${bytesText(size)}` : ""} is on its way to device ${target} from ${number(timeline.sent[i])} to ${number(timeline.arrived[i])}`);
  }
  const { total } = run.held[device];
  if (run.bytes) says.push(`At its end device ${device} holds ${bytesText(total[heldAt(run.held[device], timeline.end[entry])])}`);
  return says;
}

const listed = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0]);

