// Why a device waits, and what sets the length of a step: the sentences and chains of the library's `why` chapter.
//
// An action starts when its device is free and all that it needs has arrived; whichever came last held it back.
// Entries, parts and messages are numbers, as in the program, and a need is a place in program.needs. A cause is
// {entry}, {message} or {collective}. Of a timeline whose messages nobody measured, `sent` and `arrived` are null.

import { TABLES } from "./tables.js";
import { U, writeEntry } from "./clock.js";

/** A time as text, as Python writes it: whole numbers in full, others to four digits, from 1000 on without decimals. */
export function number(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (Number.isInteger(value)) return String(BigInt(value));
  const below = Math.floor(value), more = value - below;
  if (Math.abs(value) >= 1000) return String(below + (more > 0.5 || (more === 0.5 && below % 2) ? 1 : 0));
  const halfWay = /^(-?\d\.\d\d[02468])50+(e.+)$/.exec(value.toExponential(40)); // Python takes the even digit too
  const [digits, power] = (halfWay ? halfWay[1] + halfWay[2] : value.toExponential(3)).split("e").map(Number);
  return power < -4 ? `${digits}e-${String(-power).padStart(2, "0")}` : String(Number(`${digits}e${power}`));
}

/** A timeline as Python gives it: start and end by entry, sent and arrived (or null) by need that crosses. */
export function givenTimeline(program, times) {
  const crossing = program.messageOf.filter((message) => message >= 0), collectives = times.collectives ?? [];
  const byMessage = (column) => {
    const found = new Float64Array(program.messages.length);
    column.forEach((time, i) => (found[crossing[i]] = time));
    return found;
  };
  const [start, end] = [times.start, times.end].map((column) => Float64Array.from(column));
  const [sent, arrived] = [times.sent, times.arrived].map((column) => (column ? byMessage(column) : null));
  const makespan = [...end, ...collectives.map((each) => each.end)].reduce((a, b) => Math.max(a, b), 0);
  return { program, start, end, sent, arrived, makespan, stuck: new Map(), collectives, measured: true };
}

const madeOnce = new WeakMap();

/** What `make` makes of a timeline: made when first asked for, and kept as long as the timeline is. */
export function oncePer(timeline, make) {
  if (!madeOnce.has(timeline)) madeOnce.set(timeline, new Map());
  const made = madeOnce.get(timeline);
  if (!made.has(make)) made.set(make, make(timeline));
  return made.get(make);
}

/** Entries in the order in which they end. Of some that start and end together, what needs another one is later. */
export function inOrder({ program, start, end }) {
  const level = levelsOf(program), ended = [...level.keys()].filter((e) => end[e] >= 0);
  return ended.sort((a, b) => end[a] - end[b] || start[a] - start[b] || level[a] - level[b] || a - b);
}

/** By entry, the round in which it runs if in each round every device goes on that can. */
function levelsOf({ size, devices, first, needs, needsFrom, entry }) {
  const level = new Int32Array(size).fill(size), next = first.slice(0, devices);
  const canRun = (e, round) => {
    for (let n = needsFrom[e]; n < needsFrom[e + 1]; n++) if (level[entry[needs[n]]] >= round) return false;
    return true;
  };
  for (let round = 0, ran = true; ran; round++) {
    ran = false;
    for (let d = 0; d < devices; d++) {
      if (next[d] === first[d + 1] || !canRun(next[d], round)) continue;
      level[next[d]++] = round;
      ran = true;
    }
  }
  return level;
}

const partText = ({ stage, kind, microbatch }, part) => writeEntry([stage[part], kind[part], microbatch[part]]);

/** The first of the items for which `key` is largest, or undefined. */
function firstMost(items, key) {
  const keys = items.map(key);
  return items[keys.indexOf(keys.reduce((a, b) => Math.max(a, b), -Infinity))];
}

/** For each cause, the one that held it back. Where there is no entry or message, its number is -1. */
class HeldBack {
  constructor(timeline) {
    Object.assign(this, timeline.program, timeline);
    const { messages, sent, arrived, collectives } = this, last = new Map();
    this.byArrival = arrived ? [...messages.keys()].sort((a, b) => arrived[a] - arrived[b] || a - b) : [];
    this.aheadOnLink = new Map();
    for (const i of [...this.byArrival].sort((a, b) => sent[a] - sent[b])) {
      const link = `${messages[i].source} ${messages[i].target}`;
      this.aheadOnLink.set(i, last.get(link) ?? -1);
      last.set(link, i);
    }
    this.ending = new Map(); // collectives by their end
    collectives.forEach(({ end }, i) => this.ending.set(end, [...(this.ending.get(end) ?? []), i]));
  }

  source = (need) => this.entry[this.needs[need]];
  sender = (message) => this.entry[this.messages[message].part];
  before = (e) => (e > this.first[this.home[e]] ? e - 1 : -1); // on its device
  message = (need) => (this.arrived ? this.messageOf[need] : -1);
  arrival = (need) => (this.message(need) < 0 ? this.end[this.source(need)] : this.arrived[this.message(need)]);

  /** Of all that an entry needs, what arrives last, or undefined. */
  need(e) {
    const from = this.needsFrom[e], count = this.needsFrom[e + 1] - from;
    return firstMost(Array.from({ length: count }, (_, i) => from + i), this.arrival);
  }

  /** When its device is free and all that it needs has arrived. */
  couldStart(e) {
    const need = this.need(e);
    return Math.max(this.end[this.before(e)] ?? 0, need === undefined ? 0 : this.arrival(need));
  }

  /** The cause of a cause, or undefined. The device's own previous action wins if a message came as it ended. */
  by({ entry: e, message, collective }) {
    if (collective !== undefined) return this.beforeTogether(collective);
    if (message !== undefined) {
      const ahead = this.ahead(message);
      return ahead < 0 ? { entry: this.sender(message) } : { message: ahead };
    }
    const late = this.start[e] > this.couldStart(e), before = this.before(e), need = this.need(e);
    const summed = late ? this.together(this.home[e], this.start[e]) : undefined;
    if (summed !== undefined) return { collective: summed };
    if (need === undefined || this.end[before] >= this.arrival(need)) return before < 0 ? undefined : { entry: before };
    const brings = this.message(need), source = this.source(need);
    return brings >= 0 && this.arrived[brings] > this.end[source] ? { message: brings } : { entry: source };
  }

  /** The entry, or if updates took no time, the last one before it that kept the device busy. */
  tookTime(e) {
    const instant = this.start[e] === this.end[e] && this.end[this.before(e)] === this.end[e];
    return instant ? this.tookTime(this.before(e)) : e;
  }

  /** A collective of this device that ends just then; of those before `until`. */
  together(device, end, until = Infinity) {
    return this.ending.get(end)?.find((i) => i < until && this.collectives[i].devices.includes(device));
  }

  /** What a collective waited for: another one on a device of its own, or what it sums or passes on. */
  beforeTogether(collective) {
    const { first, parts, kind, start, end } = this, its = this.collectives[collective];
    const earlier = its.devices.map((device) => this.together(device, its.start, collective));
    const found = earlier.filter((i) => i !== undefined).map((i) => [{ collective: i }, this.collectives[i].end]);
    for (const device of its.devices) {
      for (let e = first[device]; e < first[device + 1]; e++) {
        const here = its.stage === null || this.stage.subarray(parts[e], parts[e + 1]).includes(its.stage);
        if (here && start[e] < its.start && kind[parts[e + 1] - 1] !== U) found.push([{ entry: e }, end[e]]);
      }
    }
    return firstMost(found, ([, ends]) => Math.min(ends, its.start))?.[0];
  }

  /** The message that one waits for after its action has ended: on its link, or on a wire that links share; or -1. */
  ahead(message) {
    const { sent, arrived } = this, leaves = sent[message], ahead = this.aheadOnLink.get(message);
    if (leaves <= this.end[this.sender(message)]) return -1;
    if (arrived[ahead] >= leaves) return ahead;
    return firstMost(this.byArrival.filter((i) => sent[i] < leaves && leaves <= arrived[i]), (i) => sent[i]) ?? -1;
  }

  /** When what is needed runs; and if that takes a while, when it arrives, and which link was not free. */
  runs(need) {
    const { messages, end, home } = this, source = this.source(need), message = this.message(need);
    const from = `from ${number(this.start[source])} to ${number(end[source])}`;
    const says = `${partText(this, this.needs[need])}, which device ${home[source]} runs ${from}`;
    if (message < 0 || this.arrived[message] <= end[source]) return says;
    const ahead = this.ahead(message), arrives = `arrives at ${number(this.arrived[message])}`;
    if (ahead < 0) return `${says} and which ${arrives}`;
    const same = ["source", "target"].every((side) => messages[ahead][side] === messages[message][side]);
    const on = partText(this, messages[ahead].part), where = same ? `for the link, where ${on} is` : `while what ${on} made is sent`;
    return `${says} and which waits until ${number(this.sent[message])} ${where}, and ${arrives}`;
  }

  /** What an entry waited for, then what held that back, if it could not start before the gap: three links at most. */
  chain(e, since) {
    const links = [], reasons = [];
    for (let head = ""; links.length < 2; ) {
      const need = this.need(e);
      if (need === undefined) break;
      e = this.source(need);
      links.push(e);
      reasons.push(head + this.runs(need));
      if (this.couldStart(e) <= since) break;
      const cause = this.by({ entry: e })?.entry;
      if (this.home[cause] === this.home[e]) {
        const busy = this.tookTime(cause);
        links.push(busy);
        reasons.push(`device ${this.home[busy]} is busy with ${writeEntry(this.entries[busy])} until ${number(this.end[busy])}`);
        break;
      }
      head = `${partText(this, this.needs[need])} itself waits for `;
    }
    return { links, reasons };
  }
}

const heldBackIn = (timeline) => oncePer(timeline, (each) => new HeldBack(each));

/** What a device does at a time, or waits for: {device, start, end, links, sentence}, where links are entries. */
export function why(timeline, device, time) {
  const { start, end, makespan, stuck, program } = timeline, { first, entries, needs, entry, home } = program;
  const row = Array.from({ length: first[device + 1] - first[device] }, (_, i) => first[device] + i);
  const said = (from, until, links, sentence) => ({ device, start: from, end: until, links, sentence: `device ${device} ${sentence}` });
  const now = row.find((e) => start[e] <= time && time < end[e]), since = row.reduce((a, e) => (end[e] <= time ? Math.max(a, end[e]) : a), 0);
  if (now !== undefined) return said(start[now], end[now], [now], `is busy with ${writeEntry(entries[now])} from ${number(start[now])} to ${number(end[now])}`);
  const after = row.find((e) => start[e] > time);
  if (after === undefined) {
    if (stuck.has(device)) return said(since, makespan, [], stuckAt(timeline, device));
    const ends = since === makespan ? "with it the step ends" : `the step ends at ${number(makespan)}`;
    return said(since, makespan, [], row.length ? `is done at ${number(since)}; ${ends}` : "has no actions");
  }
  const heldBack = heldBackIn(timeline), until = start[after], ready = heldBack.couldStart(after);
  const waits = `waits from ${number(since)} to ${number(until)}${after === row[0] ? ", before its first action," : ""} for`;
  const summed = ready < until ? heldBack.together(device, until) : undefined;
  if (summed !== undefined) return said(since, until, [], `${waits} the ${inWords(timeline.collectives[summed])}`);
  if (ready <= since) {
    const nothing = `${waits} nothing that the schedule knows of: ${writeEntry(entries[after])} could start at ${number(since)}`;
    return said(since, until, [], timeline.arrived ? `sends or receives from ${number(since)} to ${number(until)}` : nothing);
  }
  const { links, reasons } = heldBack.chain(after, since);
  const assumed = !timeline.arrived && home[links[0]] !== device ? TABLES.assumed : "";
  const made = partText(program, needs[heldBack.need(after)]);
  const receives = ready < until && timeline.arrived ? `; device ${device} receives what ${made} made until ${number(until)}` : "";
  return said(since, until, links, `${waits} ${reasons.join("; ")}${assumed}${receives}`);
}

/** Of a device that never gets on, the action that it is stuck at, and the first that this waits for. */
function stuckAt({ program, end, stuck }, device) {
  const { needs, needsFrom, entry, home, entries } = program, e = stuck.get(device);
  const missing = [...needs].slice(needsFrom[e], needsFrom[e + 1]).find((part) => !(end[entry[part]] >= 0));
  const needed = `${partText(program, missing)} (queued on device ${home[entry[missing]]})`;
  return `is stuck at ${writeEntry(entries[e])}: it needs ${needed}`;
}

/** A collective as the library writes it. */
function inWords({ what, stage, devices, start, end }) {
  const ring = what === "all-reduce" || what === "norm";
  const on = !ring ? `from device ${devices[0]} to ${devices[1]}` : devices.length > 4 ? `on ${devices.length} devices` : `on devices ${devices.join(" ")}`;
  return `${what}${stage === null ? "" : ` of stage ${stage}`} ${on}, ${number(start)}\u2013${number(end)}`;
}

/** One chain of causes from time 0 to the makespan, each starting when the one before allows. */
export function criticalPath(timeline) {
  const heldBack = heldBackIn(timeline), every = oncePer(timeline, inOrder).map((entry) => [{ entry }, timeline.end[entry]]);
  const last = firstMost([...every, ...timeline.collectives.map(({ end }, collective) => [{ collective }, end])], ([, end]) => end);
  const path = [];
  for (let cause = last?.[0]; cause; cause = begins(timeline, cause) > 0 ? heldBack.by(cause) : undefined) path.push(cause);
  return path.reverse();
}

function begins({ start, sent, collectives }, { entry, message, collective }) {
  return entry !== undefined ? start[entry] : message !== undefined ? sent[message] : collectives[collective].start;
}
