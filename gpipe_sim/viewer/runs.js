// From records, which files and links hold, to runs: what the clock makes of a record, and what can be said of a place.

import { TABLES } from "./tables.js";
import { B, F, KINDS, R, W, lower, messageBytesOf, readEntry, simulate, writeEntry } from "./clock.js";
import { orderOf, withRecompute } from "./families.js";
import { givenTimeline, number, why } from "./why.js";
import { bytesHeld, heldAt, inFlight, messageBytes, whyNoBytes } from "./memory.js";

/** What the library simulates with unless it is told. */
export const UNIT = {
  forward: 1, input_grad: 1, weight_grad: 1, recompute: null, update: 0, overlap: null, comm: 0, speed: 1, overhead: 0,
};
export const OF_DEVICES = ["speed", "overhead"];
export const INPUTS = { colour: TABLES.colours.paler[0], pattern: "" };
export const countTo = (count, from = 0) => Array.from({ length: count }, (_, i) => from + i);
export const percent = (part) => `${(100 * part).toFixed(1)}%`;
export const entriesOf = (row) => row.split(" ").filter(Boolean).map(readEntry);
const mostOf = (values) => values.reduce((most, each) => Math.max(most, each), 0);

/** The order that a record of a schedule stands for. */
export function orderFrom({ family, options, recompute = "never", placement, microbatches, name, rows }) {
  if (rows) return { name, family, options, placement, microbatches, rows: rows.map(entriesOf) };
  const order = orderOf(family, options);
  return recompute === "never" ? order : withRecompute(order, recompute);
}

/** The record with lists as long as its schedule has stages or devices; what is new is as most others are. */
function fitted(record, program) {
  const { devices, stages, messages } = program, { costs, links, sizes, limit, message_bytes } = record;
  const often = (list, one) => list.filter((each) => each === one).length;
  const common = (list) => list.reduce((best, each) => (often(list, each) > often(list, best) ? each : best));
  const fit = (list, count) =>
    Array.isArray(list) && list.length !== count ? countTo(count).map((i) => list[i] ?? common(list)) : list;
  const fitCost = ([name, cost]) => [name, fit(cost, OF_DEVICES.includes(name) ? devices : stages)];
  const linked = ({ source, target }) => links.pairs.some(([from, to]) => from === source && to === target);
  const known = sizes?.stages.length === stages && sizes.samples >= program.microbatches; // or no bytes at all
  return {
    ...record,
    costs: costs && Object.fromEntries(Object.entries(costs).map(fitCost)),
    links: links?.pairs && !messages.every(linked) ? null : links,
    sizes: known ? sizes : null,
    limit: sizes && whyNoBytes(program, sizes) ? null : fit(limit, devices),
    message_bytes: fit(message_bytes, stages - 1),
  };
}

/** Everything that a chart shows of a record; what the run before has of the same schedule is used again. */
export function runOf(given, before) {
  const { order, program } = before?.record.schedule === given.schedule ? before : programOf(orderFrom(given.schedule));
  const record = fitted(given, program), { sizes, times, costs, links, limit, message_bytes } = record;
  const bytesOf = sizes ? messageBytes(sizes, program) : messageBytesOf(program, message_bytes ?? 0);
  const timeline = times ? givenTimeline(program, times) : simulate(program, costs, links, bytesOf);
  const says = ([device, e]) => `device ${device} is stuck at ${writeEntry(program.entries[e])}`;
  const stuck = [...timeline.stuck].map(says);
  if (stuck.length) throw new Error(`${order.name} cannot finish: ${stuck.join("; ")}`);
  const { devices } = program, counts = inFlight(timeline), bytes = sizes ? bytesHeld(timeline, sizes) : null;
  const held = countTo(devices).map((d) => ({
    ...(bytes ? heldBytes(bytes[d]) : heldCounts(timeline, d, counts[d])),
    limit: Array.isArray(limit) ? limit[d] : limit,
  }));
  const busy = timeline.end.reduce((sum, end, e) => sum + (end - timeline.start[e]), 0);
  const all = devices * timeline.makespan;
  return {
    record, order, program, timeline, held, counts, bytes, bytesOf,
    name: order.name,
    waits: countTo(devices).map((d) => waitsOf(timeline, d)),
    waiting: all && (all - busy) / all,
    heldText: bytes ? bytesText : number,
    most: mostOf(held.map(({ total }) => mostOf(total))),
  };
}

function programOf(order) {
  const program = lower(order);
  program.shades = order.placement.map((own) => {
    const sorted = own.toSorted((a, b) => a - b);
    return new Map(sorted.map((stage, i) => [stage, (TABLES.later * i) / own.length]));
  });
  return { order, program };
}

/** [from, to, whether it is done] of each time at which a device waits. */
function waitsOf({ program: { first }, start, end, makespan }, device) {
  const found = [], last = first[device + 1];
  let since = 0;
  for (let e = first[device]; e <= last; e++) {
    const until = e < last ? start[e] : makespan;
    if (until > since) found.push([since, until, e === last]);
    if (e < last) since = Math.max(since, end[e]);
  }
  return found;
}

/** Microbatches, each counted by a stage's share of a device: whole ones, and those with only the input kept. */
function heldCounts(timeline, d, whole) {
  const { devices, stages } = timeline.program, share = devices / stages, inputs = inputsOf(timeline, d);
  const times = inputs.times.length > 1 ? [...whole.times, ...inputs.times].sort((a, b) => a - b) : whole.times;
  const [total, pale] = [whole, inputs].map((steps) => times.map((time) => steps.counts[heldAt(steps, time)] * share));
  const saved = { look: TABLES.memory["saved activations"], values: total.map((each, i) => each - pale[i]) };
  return { times, total, layers: [saved, { look: INPUTS, values: pale }] };
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

function heldBytes({ times, bytes, total }) {
  return { times, total, layers: Object.entries(TABLES.memory).map(([name, look]) => ({ look, values: bytes[name] })) };
}

/** As charts of the library have it: in whole kB (1,000 bytes), from 10 MB on MB, and so on. */
function bytesText(count) {
  const units = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  const [unit, name] = units.find(([unit, name]) => count >= 10 * unit || name === "kB");
  return count >= unit ? `${Math.round(count / unit).toLocaleString("en")} ${name}` : `${count} B`;
}

// What can be said of a place

/** What to light for a device at a time, as `paintLit` takes it, with the sentence for it. */
export function litAt(run, device, time) {
  const { program, timeline } = run, { start, end, links, sentence } = why(timeline, device, time);
  const lit = { device, from: start, to: end, entry: -1, needs: [], neededBy: [], kept: null, links, sentence };
  const runs = (e) => timeline.start[e] <= time && time < timeline.end[e];
  const entry = countTo(program.first[device + 1] - program.first[device], program.first[device]).find(runs);
  if (entry === undefined) return lit;
  const [saved, freed] = keptBy(program, program.parts[entry]).map((part) => (part < 0 ? -1 : program.entry[part]));
  const found = {
    ...lit, entry, links: [],
    from: timeline.start[entry],
    to: timeline.end[entry],
    needs: needsOfEntry(program, entry),
    neededBy: usersOf(program)[entry],
    kept: [saved, freed].includes(entry) && freed >= 0 ? [timeline.end[saved], timeline.end[freed]] : null,
  };
  return { ...found, sentence: `${sentence}: ${aboutEntry(run, found).join(". ")}` };
}

function needsOfEntry({ needsFrom, needs, messageOf, entry }, e) {
  const places = countTo(needsFrom[e + 1] - needsFrom[e], needsFrom[e]);
  return places.map((i) => ({ part: needs[i], entry: entry[needs[i]], message: messageOf[i] }));
}

/** By entry, those that need it. */
function usersOf(program) {
  if (program.users) return program.users;
  program.users = program.entries.map(() => []);
  countTo(program.size).forEach((e) => needsOfEntry(program, e).forEach((need) => program.users[need.entry].push(e)));
  return program.users;
}

/** The forward of a part's stage and microbatch, and what frees what that saved: W, or else B; -1 if not there. */
function keptBy({ find, stage, microbatch }, part) {
  const [forward, weights, backward] = [F, W, B].map((kind) => find(kind, stage[part], microbatch[part]));
  return [forward, weights >= 0 ? weights : backward];
}

/** An action in sentences: what it is, needs, is needed by, frees and sends. */
function aboutEntry(run, { entry, needs, neededBy, kept, device }) {
  const { program, timeline } = run, { stage, kind, microbatch, parts, home, sends, messages } = program;
  const nameOf = (part) => writeEntry([stage[part], kind[part], microbatch[part]]);
  const on = (e) => (home[e] === device ? "here" : `on device ${home[e]}`);
  const own = countTo(parts[entry + 1] - parts[entry], parts[entry]), letter = (part) => KINDS[kind[part]];
  const meaning = (part) => `${TABLES.meanings[letter(part)]} of microbatch ${microbatch[part]}, stage ${stage[part]}`;
  const needed = needs.map(({ part, message, entry: e }) => {
    const reason = own.map((each) => TABLES.reasons[letter(each) + letter(part)]).find(Boolean);
    const arrived = timeline.arrived?.[message];
    const there = arrived > timeline.end[e] ? `, there at ${number(arrived)}` : "";
    return `${nameOf(part)} ${on(e)} (${reason}), which ends at ${number(timeline.end[e])}${there}`;
  });
  const says = [own.map(meaning).join(", with "), `It needs ${needed.join(", and ") || "nothing"}`];
  const users = neededBy.map((e) => `${writeEntry(program.entries[e])} ${on(e)}`).join(", ");
  if (users) says.push(`Needed by ${users}`);
  const [saved] = keptBy(program, parts[entry]), first = program.entry[saved] === entry;
  if (kept && first) says.push(`What it saves is held until ${number(kept[1])}`);
  else if (kept) says.push(`It frees what ${nameOf(saved)} saved, held for ${number(kept[1] - kept[0])}`);
  for (const i of sends[entry] ?? []) {
    const bytes = run.bytesOf(messages[i]), [sent, arrived] = [timeline.sent?.[i], timeline.arrived?.[i]];
    const travels = arrived > sent ? `, on its way from ${number(sent)} to ${number(arrived)}` : "";
    const size = bytes ? ` has ${bytesText(bytes)}` : "";
    if (size || travels) says.push(`Its message to device ${messages[i].target}${size}${travels}`);
  }
  const { total } = run.held[device], after = heldAt(run.held[device], timeline.end[entry]);
  if (run.bytes) says.push(`Then device ${device} holds ${bytesText(total[after])}`);
  return says;
}
