// From records, which files and links hold, to runs: what the clock makes of a record, and what can be said of a place.

import { TABLES } from "./tables.js";
import { B, F, KINDS, R, W, countTo, lower, messageBytesOf, readEntry, simulate, within, writeEntry } from "./clock.js";
import { orderOf, withRecompute } from "./families.js";
import { givenTimeline, number, why } from "./why.js";
import { bytesHeld, heldAt, inFlight, messageBytes, stepsOf, whyNoBytes } from "./memory.js";

/** What the library simulates with unless it is told. */
export const UNIT = { forward: 1, input_grad: 1, weight_grad: 1, recompute: null, update: 0, overlap: null,
  comm: 0, speed: 1, overhead: 0 };
export const OF_DEVICES = ["speed", "overhead"];
export const INPUTS = { colour: TABLES.colours.paler[0], pattern: "" };
export const percent = (part) => `${(100 * part).toFixed(1)}%`;
export const entriesOf = (row) => row.split(" ").filter(Boolean).map(readEntry);

/** The order that a record of a schedule stands for. */
export function orderFrom({ family, options, recompute = "never", placement, microbatches, name, rows }) {
  if (rows) return { name, family, options, placement, microbatches, rows: rows.map(entriesOf) };
  return withRecompute(orderOf(family, options), recompute);
}

function programOf(order) {
  const shadeOf = (stage, i, { length }) => [stage, (TABLES.later * i) / length]; // later stages are paler
  const shades = order.placement.map((own) => new Map(own.toSorted((a, b) => a - b).map(shadeOf)));
  return { order, program: { ...lower(order), shades } };
}

/** The record with lists as long as its schedule has stages or devices; what is new is as the middle one of a list. */
function fitted(record, program) {
  const { devices, stages, microbatches } = program, { costs, sizes, limit, message_bytes } = record;
  const middle = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
  const fit = (list, count) => (Array.isArray(list) ? countTo(count).map((i) => list[i] ?? middle(list)) : list);
  const fitCost = ([name, cost]) => [name, fit(cost, OF_DEVICES.includes(name) ? devices : stages)];
  return {
    ...record, message_bytes: fit(message_bytes, stages - 1),
    costs: costs && Object.fromEntries(Object.entries(costs).map(fitCost)),
    sizes: sizes?.stages.length === stages && sizes.samples >= microbatches ? sizes : null, // then no bytes at all
    limit: sizes && whyNoBytes(program, sizes) ? null : fit(limit, devices),
  };
}

/** Everything that a chart shows of a record; what the run before has of the same schedule is used again. */
export function runOf(given, before) {
  const { order, program } = before?.record.schedule === given.schedule ? before : programOf(orderFrom(given.schedule));
  const record = fitted(given, program), { sizes, times, costs, links, limit, message_bytes } = record;
  const bytesOf = sizes ? messageBytes(sizes, program) : messageBytesOf(program, message_bytes ?? null);
  const timeline = times ? givenTimeline(program, times) : simulate(program, costs, links, bytesOf);
  const stuck = [...timeline.stuck.keys()].map((device) => why(timeline, device, Infinity).sentence);
  if (stuck.length) throw new Error(`${order.name} cannot finish: ${stuck.join("; ")}`);
  const counts = inFlight(timeline), bytes = sizes && bytesHeld(timeline, sizes);
  const held = counts.map((steps, d) => ({
    ...(bytes ? { ...bytes[d], layers: layersOf(bytes[d].bytes) } : heldCounts(timeline, d, steps)),
    limit: (Array.isArray(limit) ? limit[d] : limit) ?? Infinity,
  }));
  const waits = held.map((_, d) => waitsOf(timeline, d)), peaks = held.map(({ total }) => Math.max(...total));
  const waited = waits.flat().reduce((sum, [from, to]) => sum + (to - from), 0);
  return {
    record, order, program, timeline, held, counts, bytes, bytesOf, waits, peaks, name: order.name,
    waiting: waited / (program.devices * timeline.makespan) || 0,
    heldText: bytes ? bytesText : number,
    most: Math.max(...peaks),
  };
}

/** [from, to, whether it is done] of each time at which a device waits. */
function waitsOf({ program: { first }, start, end, makespan }, device) {
  const waits = [...within(first, device), -1].map((e, i, row) => [end[row[i - 1]] ?? 0, start[e] ?? makespan, e < 0]);
  return waits.filter(([from, to]) => to > from);
}

/** Microbatches, each counted by a stage's share of a device: whole ones, and those with only the input kept. */
function heldCounts({ program, start, end }, d, steps) {
  const { devices, stages, first, parts, kind, stage, microbatch, find, entry } = program, share = devices / stages;
  const changes = within(first, d).flatMap((e) => {
    const p = parts[e], forward = kind[p] === R ? find(F, stage[p], microbatch[p]) : -1;
    return forward < 0 ? [] : [[end[entry[forward]], 1], [start[e], -1]]; // until it recomputes
  });
  const inputs = stepsOf(changes), times = [...new Set([...steps.times, ...inputs.times])].sort((a, b) => a - b);
  const [held, pale] = [steps, inputs].map((each) => times.map((time) => each.counts[heldAt(each, time)]));
  const saved = { look: TABLES.memory["saved activations"], values: held.map((count, i) => share * (count - pale[i])) };
  const layers = [saved, { look: INPUTS, values: pale.map((count) => share * count) }];
  return { times, total: held.map((count) => share * count), layers };
}

const layersOf = (bytes) => Object.entries(TABLES.memory).map(([name, look]) => ({ look, values: bytes[name] }));

/** As charts of the library have it: in whole kB (1,000 bytes), from 10 MB on MB, and so on. */
function bytesText(count) {
  const [unit, name] = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"]].find(([unit]) => count >= 10 * unit) ?? [1e3, "kB"];
  return count >= unit ? `${Math.round(count / unit).toLocaleString("en")} ${name}` : `${count} B`;
}

// What can be said of a place

/** What to light for a device at a time, as `paintLit` takes it, with the sentence for it. */
export function litAt(run, device, time) {
  const { program, timeline } = run, { home, needs, entry: entryOf } = program;
  const { start, end, links, sentence } = why(timeline, device, time);
  const runs = (e) => home[e] === device && timeline.start[e] <= time && time < timeline.end[e];
  const entry = links.find(runs) ?? -1, lit = { device, from: start, to: end, entry, sentence };
  const chained = (e, i) => (i ? [e, home[links[i - 1]], timeline.start[links[i - 1]]] : [e, device, end]);
  if (entry < 0) return { ...lit, causes: links.map(chained), neededBy: [], kept: null };
  const causes = within(program.needsFrom, entry).map((i) => [entryOf[needs[i]], device, start]);
  const found = { ...lit, causes, neededBy: usersOf(program, entry), kept: keptBy(run, entry) };
  return { ...found, sentence: `${sentence}: ${aboutEntry(run, found).join(". ")}` };
}

/** The entries that need one. */
const usersOf = ({ needs, needsFrom, entry }, e) =>
  needs.flatMap((part, i) => (entry[part] === e ? needsFrom.findIndex((from) => from > i) - 1 : []));

/** From when to when is held what a forward saved, if an entry is that, or what frees it: its W, or else its B. */
function keptBy({ program: { parts, find, stage, microbatch, entry }, timeline: { end } }, e) {
  const ofKind = (kind) => entry[find(kind, stage[parts[e]], microbatch[parts[e]])];
  const both = [ofKind(F), ofKind(W) ?? ofKind(B)];
  return both.includes(e) && !both.includes(undefined) ? both.map((each) => end[each]) : null;
}

/** An action in sentences: what it is, needs, is needed by, frees and sends. */
function aboutEntry({ program, timeline, held, bytes, bytesOf }, { entry: e, neededBy, kept, device }) {
  const { stage, kind, microbatch, parts, home, needs, messageOf, sends, messages, entry, entries } = program;
  const nameOf = (part, k = kind[part]) => writeEntry([stage[part], k, microbatch[part]]);
  const on = (other) => (home[other] === device ? "here" : `on device ${home[other]}`);
  const own = within(parts, e), letter = (part) => KINDS[kind[part]];
  const meaning = (part) => `${TABLES.meanings[letter(part)]} of microbatch ${microbatch[part]}, stage ${stage[part]}`;
  const there = (i, made) => (timeline.arrived?.[i] > made ? `, there at ${number(timeline.arrived[i])}` : "");
  const needed = within(program.needsFrom, e).map((i) => {
    const part = needs[i], made = timeline.end[entry[part]];
    const reason = own.map((each) => TABLES.reasons[letter(each) + letter(part)]).find(Boolean);
    return `${nameOf(part)} ${on(entry[part])} (${reason}), which ends at ${number(made)}${there(messageOf[i], made)}`;
  });
  const what = (message) => (bytesOf(message) ? bytesText(bytesOf(message)) : "a message");
  const sent = (i) => `It sends ${what(messages[i])} to device ${messages[i].target}${there(i, timeline.end[e])}`;
  const users = neededBy.map((each) => `${writeEntry(entries[each])} ${on(each)}`).join(", ");
  const saves = kind[parts[e]] === F, { total } = held[device], after = total[heldAt(held[device], timeline.end[e])];
  return [
    own.map(meaning).join(", with "),
    `It needs ${needed.join(", and ") || "nothing"}`,
    users && `Needed by ${users}`,
    kept && saves && `What it saves is held until ${number(kept[1])}`,
    kept && !saves && `It frees what ${nameOf(parts[e], F)} saved, held for ${number(kept[1] - kept[0])}`,
    ...(sends[e] ?? []).map(sent),
    bytes && `Then device ${device} holds ${bytesText(after)}`,
  ].filter(Boolean);
}
