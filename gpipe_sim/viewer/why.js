// Why a device waits, and what sets the length of a step: the sentences and chains of the library's `why` chapter.
//
// An action starts when its device is free and all that it needs has arrived; whichever came last held it back.
// Entries, parts and messages are numbers, as in the program, and a need is a place in program.needs. A cause is
// {entry}, {message} or {collective}. Of a timeline whose messages nobody measured, `sent` and `arrived` are null.

import { TABLES } from "./tables.js";
import { U, simulate, within, writeEntry } from "./clock.js";

/** A time as text, as Python writes it: whole numbers in full, others to four digits, from 1000 on without decimals. */
export function number(value) {
  if (Number.isInteger(value)) return String(BigInt(value));
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf");
  const digits = Math.max(4, String(Math.trunc(Math.abs(value))).length);
  const halfWay = /^(.*[02468]\.?)50{49}$/.exec(value.toPrecision(digits + 50)); // Python takes the even digit then
  const rounded = halfWay ? halfWay[1] : value.toPrecision(digits);
  if (Math.abs(rounded) >= 1e-4) return String(Number(rounded));
  return value.toExponential(3).replace(/\.?0+e/, "e").replace(/-(\d)$/, "-0$1");
}

/** A timeline as Python gives it: start and end by entry, sent and arrived (or null) by need that crosses. */
export function givenTimeline(program, { start, end, sent, arrived, collectives, notes }) {
  const crossing = program.messageOf.filter((message) => message >= 0); // each message is there at its place, or later
  const byMessage = (times) => times && program.messages.map((_, i) => times[crossing.indexOf(i, i)]);
  const makespan = [...end, ...collectives.map((each) => each.end)].reduce((most, each) => Math.max(most, each), 0);
  const both = { sent: byMessage(sent), arrived: byMessage(arrived) }, doubles = (times) => Float64Array.from(times);
  return { program, start: doubles(start), end: doubles(end), ...both, makespan, stuck: new Map(), collectives, notes };
}

/** Entries in the order in which they end. Of some that start and end together, what needs another one is later. */
export function inOrder({ program, start, end }) {
  const { start: level } = simulate(program, { comm: 0 }, null, () => 0, new Float64Array(program.size).fill(1));
  const later = (a, b) => end[a] - end[b] || start[a] - start[b] || level[a] - level[b] || a - b;
  return [...level.keys()].sort(later);
}

const fromTo = (from, to) => `from ${number(from)} to ${number(to)}`;

/** The first of the items for which `key` is largest, or undefined. */
const firstMost = (items, key) =>
  items.reduce((most, each) => (most === undefined || key(each) > key(most) ? each : most), undefined);

/** What held back each cause of a timeline, as functions; of what is not there, they say undefined. */
function causesOf({ program, start, end, sent, arrived, collectives }) {
  const { entries, entry, first, home, needs, needsFrom, messages, messageOf, stage, kind, microbatch } = program;
  const text = (p) => writeEntry([stage[p], kind[p], microbatch[p]]), action = (e) => writeEntry(entries[e]);
  const leaving = (a, b) => sent[a] - sent[b] || arrived[a] - arrived[b] || a - b;
  const byLeaving = sent ? [...messages.keys()].sort(leaving) : [];
  const source = (need) => entry[needs[need]], sender = (message) => entry[messages[message].part];
  const arrival = (need) => arrived?.[messageOf[need]] ?? end[source(need)];
  const latest = (e) => firstMost(within(needsFrom, e), arrival); // of all that an entry needs
  const before = (e) => (e > first[home[e]] ? e - 1 : undefined); // on its device
  const couldStart = (e) => Math.max(end[before(e)] ?? 0, arrival(latest(e)) ?? 0);
  const onOneLink = (a, b) => messages[a].source === messages[b].source && messages[a].target === messages[b].target;
  const starts = (cause) => start[cause.entry] ?? sent?.[cause.message] ?? collectives[cause.collective].start;
  const ends = (cause) => end[cause.entry] ?? collectives[cause.collective].end;

  /** The cause of a cause. The device's own previous action wins if a message came as it ended. */
  function by({ entry: e, message, collective }) {
    if (collective >= 0) return beforeTogether(collective);
    if (message >= 0) return ahead(message) ?? { entry: sender(message) };
    const summed = start[e] > couldStart(e) && together(home[e], start[e]), need = latest(e), own = before(e);
    if (summed) return summed;
    if (need === undefined || end[own] >= arrival(need)) return own >= 0 ? { entry: own } : undefined;
    return arrival(need) > end[source(need)] ? { message: messageOf[need] } : { entry: source(need) };
  }

  /** A collective of this device that ends at a time; of those before `until`. */
  function together(device, time, until = collectives.length) {
    const collective = collectives.findIndex((its, i) => i < until && its.end === time && its.devices.includes(device));
    return collective < 0 ? undefined : { collective };
  }

  /** What a collective waited for: another one on a device of its own, or what it sums or passes on. */
  function beforeTogether(collective) {
    const { stage, devices, start: from } = collectives[collective];
    const sums = ([s, , , other]) => stage === null || s === stage || other === stage;
    const made = (e) => start[e] < from && entries[e].at(-2) !== U && sums(entries[e]);
    const earlier = devices.map((device) => together(device, from, collective)).filter(Boolean);
    const actions = devices.flatMap((device) => within(first, device)).filter(made).map((e) => ({ entry: e }));
    return firstMost([...earlier, ...actions], (cause) => Math.min(ends(cause), from));
  }

  /** The message that one waits for after its action has ended: on its link, or on a wire that links share. */
  function ahead(own) {
    const leaves = sent[own];
    if (leaves <= end[sender(own)]) return undefined;
    const earlier = byLeaving.slice(0, byLeaving.indexOf(own)), last = earlier.findLast((i) => onOneLink(i, own));
    const onWire = earlier.filter((i) => sent[i] < leaves && leaves <= arrived[i]);
    const message = arrived[last] >= leaves ? last : firstMost(onWire, (i) => sent[i]);
    return message === undefined ? undefined : { message };
  }

  /** What an entry that never starts waits for first. */
  function stuckAt(e) {
    const part = needs.slice(needsFrom[e], needsFrom[e + 1]).find((each) => !(end[entry[each]] >= 0));
    return `is stuck at ${action(e)}: it needs ${text(part)} (queued on device ${home[entry[part]]})`;
  }

  /** When what is needed runs; and if that takes a while, when it arrives, and which link was not free. */
  function runs(need) {
    const e = source(need), own = messageOf[need];
    const says = `${text(needs[need])}, which device ${home[e]} runs ${fromTo(start[e], end[e])}`;
    if (arrival(need) <= end[e]) return says;
    const other = ahead(own)?.message, arrives = `arrives at ${number(arrived[own])}`;
    if (other === undefined) return `${says} and which ${arrives}`;
    const made = text(messages[other].part);
    const where = onOneLink(own, other) ? `for the link, where ${made} is` : `while what ${made} made is sent`;
    return `${says} and which waits until ${number(sent[own])} ${where}, and ${arrives}`;
  }

  /** Pairs [entry, words]: what one waited for, and what held that back in turn if it came after the gap began. */
  function chain(e, since, head = "") {
    const need = latest(e), made = source(need), link = [made, head + runs(need)];
    let busy = couldStart(made) > since ? by({ entry: made })?.entry : undefined;
    if (home[busy] === home[made]) {
      while (start[busy] === end[busy] && end[before(busy)] === end[busy]) busy = before(busy); // updates took no time
      return [link, [busy, `device ${home[made]} is busy with ${action(busy)} until ${number(end[busy])}`]];
    }
    const more = !head && couldStart(made) > since && latest(made) !== undefined;
    return more ? [link, ...chain(made, since, `${text(needs[need])} itself waits for `)] : [link];
  }

  return { text, action, by, starts, ends, couldStart, latest, together, stuckAt, chain };
}

/** One chain of causes from time 0 to the makespan, each starting when the one before allows. */
export function criticalPath(timeline) {
  const { by, starts, ends } = (timeline.causes ??= causesOf(timeline)), path = [];
  const together = timeline.collectives.map((_, collective) => ({ collective }));
  const causes = [...inOrder(timeline).map((entry) => ({ entry })), ...together];
  for (let cause = firstMost(causes, ends); cause; cause = starts(cause) > 0 && by(cause)) path.push(cause);
  return path.reverse();
}

/** What a device does at a time, or waits for: {device, start, end, links, sentence}, where links are entries. */
export function why(timeline, device, time) {
  const { program, start, end, makespan, stuck, arrived, collectives } = timeline, { home, needs } = program;
  const row = within(program.first, device), now = row.find((e) => start[e] <= time && time < end[e]);
  const after = row.find((e) => start[e] > time);
  const since = row.reduce((last, e) => (end[e] <= time ? Math.max(last, end[e]) : last), 0);
  const from = start[now] ?? since, to = end[now] ?? start[after] ?? makespan, between = fromTo(from, to);
  const said = (words, links = []) => ({ device, start: from, end: to, links, sentence: `device ${device} ${words}` });
  const { text, action, couldStart, latest, together, stuckAt, chain } = (timeline.causes ??= causesOf(timeline));
  if (now >= 0) return said(`is busy with ${action(now)} ${between}`, [now]);
  if (!row.length) return said("has no actions");
  if (after === undefined && stuck.has(device)) return said(stuckAt(stuck.get(device)));
  const ends = since === makespan ? "with it the step ends" : `the step ends at ${number(makespan)}`;
  if (after === undefined) return said(`is done at ${number(since)}; ${ends}`);
  const ready = couldStart(after), summed = ready < to && together(device, to);
  const waits = `waits ${between}${after === row[0] ? ", before its first action," : ""} for`;
  if (summed) return said(`${waits} the ${collectiveText(collectives[summed.collective])}`);
  const free = `nothing that the schedule knows of: ${action(after)} could start at ${number(since)}`;
  const notes = timeline.notes ?? [], measured = !arrived || notes.length > 0;
  if (ready <= since) return said(measured ? `${waits} ${free}` : `sends or receives ${between}`);
  const pairs = chain(after, since), links = pairs.map(([e]) => e), reasons = pairs.map(([, words]) => words);
  const made = text(needs[latest(after)]), receives = `receives what ${made} made until ${number(to)}`;
  const maker = home[links[0]], way = ` messages from device ${maker} to device ${device} are assumed`;
  const some = notes.find((note) => note.includes(way))?.match(/^\d+ of \d+/);
  const late = `most of that is later: ${action(after)} could start at ${number(ready)}`;
  const assumed = maker === device ? "" : arrived ? some && `; ${some}${way}` : TABLES.assumed;
  const more = ready < to && !measured ? `device ${device} ${receives}` : arrived && ready - since < to - ready && late;
  return said(`${waits} ${reasons.join("; ")}${assumed || ""}${more ? `; ${more}` : ""}`, links);
}

function collectiveText({ what, stage, devices, start, end }) {
  const some = devices.length > 4 ? `${devices.length} devices` : `devices ${devices.join(" ")}`;
  const where = TABLES.rings.includes(what) ? `on ${some}` : `from device ${devices[0]} to ${devices[1]}`;
  return `${what}${stage === null ? "" : ` of stage ${stage}`} ${where}, ${number(start)}\u2013${number(end)}`;
}
