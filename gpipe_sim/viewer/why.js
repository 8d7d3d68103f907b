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
    const source = this.source(need), message = this.message(need), made = this.end[source];
    const on = `which device ${this.home[source]} runs from ${number(this.start[source])} to ${number(made)}`;
    const says = `${partText(this, this.needs[need])}, ${on}`;
    if (message < 0 || this.arrived[message] <= made) return says;
    const ahead = this.ahead(message), arrives = `arrives at ${number(this.arrived[message])}`;
    if (ahead < 0) return `${says} and which ${arrives}`;
    const [own, other] = [message, ahead].map((i) => this.messages[i]), first = partText(this, other.part);
    const same = own.source === other.source && own.target === other.target;
    const where = same ? `for the link, where ${first} is` : `while what ${first} made is sent`;
    return `${says} and which waits until ${number(this.sent[message])} ${where}, and ${arrives}`;
  }

  /** Pairs [entry, words]: what one waited for, and what held that back in turn if it came after the gap began. */
  chain(e, since) {
    const links = [];
    for (let head = "", need; links.length < 2 && (need = this.need(e)) !== undefined; ) {
      e = this.source(need);
      links.push([e, head + this.runs(need)]);
      const busy = this.couldStart(e) > since ? this.by({ entry: e })?.entry : e;
      if (busy === e) break;
      if (this.home[busy] === this.home[e]) return [...links, this.isBusy(this.tookTime(busy))];
      head = `${partText(this, this.needs[need])} itself waits for `;
    }
    return links;
  }

  isBusy(e) {
    return [e, `device ${this.home[e]} is busy with ${writeEntry(this.entries[e])} until ${number(this.end[e])}`];
  }
}

const heldBackBy = (timeline) => new HeldBack(timeline);

/** What a device does at a time, or waits for: {device, start, end, links, sentence}, where links are entries. */
export function why(timeline, device, time) {
  const { start, end, makespan, stuck, arrived, program } = timeline, { first, entries, needs, home } = program;
  let now = -1, after = -1, since = 0;
  for (let e = first[device + 1] - 1; e >= first[device]; e--) {
    if (start[e] <= time && time < end[e]) now = e;
    if (start[e] > time) after = e;
    if (end[e] <= time && end[e] > since) since = end[e];
  }
  const [from, to] = now >= 0 ? [start[now], end[now]] : [since, after < 0 ? makespan : start[after]];
  const between = `from ${number(from)} to ${number(to)}`;
  const said = (words, links = []) => ({ device, start: from, end: to, links, sentence: `device ${device} ${words}` });
  if (now >= 0) return said(`is busy with ${writeEntry(entries[now])} ${between}`, [now]);
  if (first[device] === first[device + 1]) return said("has no actions");
  if (after < 0 && stuck.has(device)) return said(stuckAt(timeline, device));
  const ends = since === makespan ? "with it the step ends" : `the step ends at ${number(makespan)}`;
  if (after < 0) return said(`is done at ${number(since)}; ${ends}`);
  const heldBack = oncePer(timeline, heldBackBy), ready = heldBack.couldStart(after);
  const waits = `waits ${between}${after === first[device] ? ", before its first action," : ""} for`;
  const summed = ready < to ? heldBack.together(device, to) : undefined;
  if (summed !== undefined) return said(`${waits} the ${collectiveText(timeline.collectives[summed])}`);
  if (ready <= since && arrived) return said(`sends or receives ${between}`);
  const could = `${writeEntry(entries[after])} could start at ${number(since)}`;
  if (ready <= since) return said(`${waits} nothing that the schedule knows of: ${could}`);
  const chain = heldBack.chain(after, since), links = chain.map(([e]) => e), made = needs[heldBack.need(after)];
  const assumed = !arrived && home[links[0]] !== device ? TABLES.assumed : "";
  const receives = `; device ${device} receives what ${partText(program, made)} made until ${number(to)}`;
  const reasons = chain.map(([, words]) => words).join("; ");
  return said(`${waits} ${reasons}${assumed}${ready < to && arrived ? receives : ""}`, links);
}

/** Of a device that never gets on, the action that it is stuck at, and the first that this waits for. */
function stuckAt({ program, end, stuck }, device) {
  const { needs, needsFrom, entry, home, entries } = program, e = stuck.get(device);
  const part = needs.subarray(needsFrom[e], needsFrom[e + 1]).find((each) => !(end[entry[each]] >= 0));
  const needed = `${partText(program, part)} (queued on device ${home[entry[part]]})`;
  return `is stuck at ${writeEntry(entries[e])}: it needs ${needed}`;
}

function collectiveText({ what, stage, devices, start, end }) {
  const ring = TABLES.rings.includes(what), few = `on devices ${devices.join(" ")}`;
  const where = devices.length > 4 ? `on ${devices.length} devices` : few;
  const on = ring ? where : `from device ${devices[0]} to ${devices[1]}`;
  return `${what}${stage === null ? "" : ` of stage ${stage}`} ${on}, ${number(start)}\u2013${number(end)}`;
}

/** One chain of causes from time 0 to the makespan, each starting when the one before allows. */
export function criticalPath(timeline) {
  const { start, end, sent, collectives } = timeline, heldBack = oncePer(timeline, heldBackBy), path = [];
  const causes = oncePer(timeline, inOrder).map((entry) => ({ entry }));
  collectives.forEach((_, collective) => causes.push({ collective }));
  const ends = ({ entry, collective }) => (entry === undefined ? collectives[collective].end : end[entry]);
  const starts = ({ entry, message, collective }) => start[entry] ?? sent?.[message] ?? collectives[collective].start;
  let cause = firstMost(causes, ends);
  for (; cause; cause = starts(cause) > 0 ? heldBack.by(cause) : undefined) path.push(cause);
  return path.reverse();
}
