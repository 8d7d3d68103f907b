// An order in, times out: the clock that a browser needs. Its one table, what an action waits for, is the library's.
//
// An entry is one action, or a pair that runs as one block: [stage, kind, microbatch] or six numbers, where a kind is
// its place in KINDS. A row lists the entries of a device; everything below is columns of numbers over all entries.

import { TABLES } from "./tables.js";

export const KINDS = "FBIWRU";
export const [F, B, I, W, R, U] = [0, 1, 2, 3, 4, 5];
const NEEDS = [...KINDS].map((kind) => TABLES.needs[kind].map(([source, step]) => [KINDS.indexOf(source), step]));

/** "0F0" or "(0F3;7B1)OVERLAP_F_B" as an entry; null for anything else. */
export function readEntry(text) {
  const found = /^(\d{1,9})([FBIWRU])(\d{1,9})$/.exec(text) ?? /^\((\d{1,9})(F)(\d{1,9});(\d{1,9})(B)(\d{1,9})\)OVERLAP_F_B$/.exec(text);
  return found && found.slice(1).map((each, i) => (i % 3 === 1 ? KINDS.indexOf(each) : Number(each)));
}

/** An entry as the library writes it. */
export function writeEntry(entry) {
  const [one, other] = [entry.slice(0, 3), entry.slice(3)].map(([stage, kind, microbatch]) => `${stage}${KINDS[kind]}${microbatch}`);
  return entry.length > 3 ? `(${one};${other})OVERLAP_F_B` : one;
}

/** The order {placement, microbatches, rows, ...} with its columns; `rows` are lists of entries, one for each device. */
export function lower(order) {
  const { rows, placement, microbatches } = order;
  const devices = rows.length, stages = 1 + Math.max(...placement.flat());
  const entries = rows.flat(), size = entries.length;
  const count = entries.reduce((sum, entry) => sum + entry.length / 3, 0);
  const column = (length) => new Int32Array(length);
  const first = column(devices + 1), home = column(size), parts = column(size + 1);
  const [stage, kind, microbatch, entry] = [0, 0, 0, 0].map(() => column(count));
  const where = column(KINDS.length * stages * microbatches).fill(-1);
  const slot = (k, s, m) => (k * stages + s) * microbatches + m;
  const there = new Set();
  let e = 0, p = 0;
  rows.forEach((row, device) => {
    for (const each of row) {
      home[e] = device;
      for (let i = 0; i < each.length; i += 3, p++) {
        [stage[p], kind[p], microbatch[p]] = [each[i], each[i + 1], each[i + 2]];
        entry[p] = e;
        where[slot(kind[p], stage[p], microbatch[p])] = p;
        there.add(kind[p]);
      }
      parts[++e] = p;
    }
    first[device + 1] = e;
  });
  const find = (k, s, m) => (s < 0 || s >= stages || m < 0 || m >= microbatches ? -1 : where[slot(k, s, m)]);
  const program = { ...order, devices, stages, size, entries, first, home, parts, stage, kind, microbatch, entry, find, there };
  return Object.assign(program, needsOf(program), { entries });
}

/** What each entry waits for: the parts needs[needsFrom[e]] up to needs[needsFrom[e + 1]], and the messages among them. */
function needsOf(program) {
  const { size, parts, stage, kind, microbatch, home, entry, find, devices } = program;
  const needsFrom = new Int32Array(size + 1), needs = [], messageOf = [], messages = [], known = new Map();
  for (let e = 0; e < size; e++) {
    for (let p = parts[e]; p < parts[e + 1]; p++) {
      for (const [source, step] of NEEDS[kind[p]]) {
        const need = find(source, stage[p] + step, microbatch[p]);
        if (need < 0) continue;
        needs.push(need);
        const crosses = home[entry[need]] !== home[e] && kind[p] !== U;
        messageOf.push(crosses ? messageTo(need, home[e]) : -1);
      }
    }
    needsFrom[e + 1] = needs.length;
  }
  function messageTo(part, target) {
    const key = part * devices + target;
    if (!known.has(key)) known.set(key, messages.push({ part, source: home[entry[part]], target }) - 1);
    return known.get(key);
  }
  const sends = Array.from({ length: size }, () => null); // what an entry sends, in the order of its parts
  messages.forEach(({ part }, i) => (sends[entry[part]] ??= []).push(i));
  for (const each of sends) each?.sort((a, b) => messages[a].part - messages[b].part || messages[a].target - messages[b].target);
  return { needsFrom, needs, messageOf, messages, sends };
}

const at = (cost, i) => (Array.isArray(cost) ? cost[i] : cost);

/** How long each entry takes, by `costs` with the fields of the library's Costs. */
export function durationsOf(program, costs) {
  const { size, parts, stage, kind, home } = program;
  const ofKind = [
    (s) => at(costs.forward, s),
    (s) => at(costs.input_grad, s) + at(costs.weight_grad, s),
    (s) => at(costs.input_grad, s),
    (s) => at(costs.weight_grad, s),
    (s) => at(costs.recompute ?? costs.forward, s),
    (s) => at(costs.update, s),
  ];
  const found = new Float64Array(size);
  for (let e = 0; e < size; e++) {
    const count = parts[e + 1] - parts[e], p = parts[e], speed = at(costs.speed, home[e]);
    let work = ofKind[kind[p]](stage[p]);
    if (count > 1) work = costs.overlap == null ? work + ofKind[kind[p + 1]](stage[p + 1]) : at(costs.overlap, stage[p]);
    found[e] = (speed === 1 ? work : work / speed) + count * at(costs.overhead, home[e]);
  }
  return found;
}

/**
 * When everything happens. `busy` and `late` say, by message, how long it keeps its link busy and is on its way after that.
 * Where devices get stuck, `stuck` maps them to the entry that never starts, and times from there on are NaN.
 */
export function time(program, durations, busy, late) {
  const { devices, size, first, home, entry, needs, needsFrom, messageOf, messages, sends } = program;
  const start = new Float64Array(size).fill(NaN), end = new Float64Array(size).fill(NaN);
  const sent = new Float64Array(messages.length), arrived = new Float64Array(messages.length);
  const queue = mayQueue(program, durations, busy), linkFree = new Map();
  const next = first.slice(0, devices), waiters = new Map(), running = [...Array(devices).keys()].reverse();
  while (running.length) {
    const device = running.pop();
    for (; next[device] < first[device + 1]; next[device]++) {
      const e = next[device], blocked = missing(e);
      if (blocked >= 0) {
        if (!waiters.has(blocked)) waiters.set(blocked, []);
        waiters.get(blocked).push(device);
        break;
      }
      let ready = e > first[device] ? end[e - 1] : 0;
      for (let n = needsFrom[e]; n < needsFrom[e + 1]; n++) {
        const there = messageOf[n] < 0 ? end[entry[needs[n]]] : arrived[messageOf[n]];
        if (there > ready) ready = there;
      }
      start[e] = ready;
      end[e] = ready + durations[e];
      if (sends[e]) send(e);
      if (waiters.has(e)) {
        running.push(...waiters.get(e));
        waiters.delete(e);
      }
    }
  }
  function missing(e) {
    for (let n = needsFrom[e]; n < needsFrom[e + 1]; n++) if (!(end[entry[needs[n]]] >= 0)) return entry[needs[n]];
    return -1;
  }
  function send(e) {
    for (const i of sends[e]) {
      sent[i] = end[e];
      arrived[i] = sent[i] + (busy[i] + late[i]);
      if (!queue) continue;
      const link = messages[i].source * devices + messages[i].target;
      sent[i] = Math.max(end[e], linkFree.get(link) ?? 0);
      linkFree.set(link, sent[i] + busy[i]);
      arrived[i] = sent[i] + busy[i] + late[i];
    }
  }
  const stuck = new Map();
  for (let d = 0; d < devices; d++) if (next[d] < first[d + 1]) stuck.set(d, next[d]);
  let makespan = 0;
  for (let e = 0; e < size; e++) if (end[e] > makespan) makespan = end[e];
  return { program, start, end, sent, arrived, makespan, stuck, collectives: [], measured: false, home };
}

/** Whether a message may find the one before it on its link: what sends it takes less than that does. */
function mayQueue({ messages, sends, size, devices }, durations, busy) {
  if (!busy.some((each) => each > 0)) return false;
  const before = new Map();
  for (let e = 0; e < size; e++) {
    const seen = new Set();
    for (const i of sends[e] ?? []) {
      const link = messages[i].source * devices + messages[i].target;
      const between = seen.has(link) ? 0 : durations[e];
      if (before.has(link) && between < before.get(link)) return true;
      before.set(link, busy[i]);
      seen.add(link);
    }
  }
  return false;
}

/** {busy, late} by message: `comm` for each, and what `links` say, with a size in bytes for each message. */
export function travel(program, comm, links, bytesOf) {
  const busy = new Float64Array(program.messages.length), late = new Float64Array(busy.length);
  program.messages.forEach((message, i) => {
    const link = links ? linkBetween(links, message.source, message.target) : null;
    busy[i] = link && link.bandwidth != null ? bytesOf(message) / link.bandwidth : 0;
    late[i] = link ? link.latency + comm : comm;
  });
  return { busy, late };
}

/** Links are {latency, bandwidth} for all, {devices_per_node, inside, between}, or {pairs: [[source, target, link], ...]}. */
function linkBetween(links, source, target) {
  if (links.pairs) return links.pairs.find(([a, b]) => a === source && b === target)[2];
  if (!links.inside) return links;
  const node = (device) => Math.floor(device / links.devices_per_node);
  return node(source) === node(target) ? links.inside : links.between;
}

/** Of an order, by costs and links: its timeline. */
export function simulate(program, costs, links = null, bytesOf = () => 0) {
  const { busy, late } = travel(program, costs.comm, links, bytesOf);
  return time(program, durationsOf(program, costs), busy, late);
}
