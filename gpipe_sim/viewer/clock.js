// An order in, times out: the clock that a browser needs. Its one table, what an action waits for, is the library's.
//
// An entry is one action, or a pair that runs as one block: [stage, kind, microbatch] or six numbers, where a kind is
// its place in KINDS. A row lists the entries of a device; everything below is columns of numbers over all entries.

import { TABLES } from "./tables.js";

export const KINDS = "FBIWRU";
export const [F, B, I, W, R, U] = [0, 1, 2, 3, 4, 5];
const NEEDS = [...KINDS].map((kind) => TABLES.needs[kind].map(([source, step]) => [KINDS.indexOf(source), step]));

const SINGLE = /^(\d{1,9})([FBIWRU])(\d{1,9})$/, PAIR = /^\((\d{1,9})(F)(\d{1,9});(\d{1,9})(B)(\d{1,9})\)OVERLAP_F_B$/;

/** "0F0" or "(0F3;7B1)OVERLAP_F_B" as an entry; null for anything else. */
export function readEntry(text) {
  const found = SINGLE.exec(text) ?? PAIR.exec(text);
  return found && found.slice(1).map((each, i) => (i % 3 === 1 ? KINDS.indexOf(each) : Number(each)));
}

/** An entry as the library writes it. */
export function writeEntry(entry) {
  const written = (i) => `${entry[i]}${KINDS[entry[i + 1]]}${entry[i + 2]}`;
  return entry.length > 3 ? `(${written(0)};${written(3)})OVERLAP_F_B` : written(0);
}

/** The order {placement, microbatches, rows, ...} with its columns; `rows` has a list of entries for each device. */
export function lower(order) {
  const { rows, placement, microbatches } = order, devices = rows.length, stages = 1 + Math.max(...placement.flat());
  const entries = rows.flat(), size = entries.length, column = (length) => new Int32Array(length);
  const first = column(devices + 1), home = column(size), parts = column(size + 1);
  rows.forEach((row, device) => {
    first[device + 1] = first[device] + row.length;
    home.fill(device, first[device], first[device + 1]);
  });
  for (let e = 0; e < size; e++) parts[e + 1] = parts[e] + entries[e].length / 3;
  const [stage, kind, microbatch, entry] = [0, 0, 0, 0].map(() => column(parts[size]));
  const where = column(KINDS.length * stages * microbatches).fill(-1), there = new Set();
  const find = (k, s, m) =>
    s < 0 || s >= stages || m < 0 || m >= microbatches ? -1 : where[(k * stages + s) * microbatches + m];
  for (let e = 0, p = 0; e < size; e++) {
    for (let i = 0; i < entries[e].length; i += 3, p++) {
      const s = (stage[p] = entries[e][i]), k = (kind[p] = entries[e][i + 1]), m = (microbatch[p] = entries[e][i + 2]);
      entry[p] = e;
      if (s < stages && m < microbatches && find(k, s, m) < 0) where[(k * stages + s) * microbatches + m] = p;
      there.add(k);
    }
  }
  const columns = { devices, stages, size, entries, first, home, parts, stage, kind, microbatch, entry, find, there };
  return { ...order, ...columns, ...needsOf(columns) };
}

/** What each entry waits for: the parts needs[needsFrom[e]] up to needs[needsFrom[e + 1]], and which are messages. */
function needsOf(program) {
  const { size, parts, stage, kind, microbatch, home, entry, find, there } = program;
  const asked = NEEDS.map((sources) => sources.filter(([source]) => there.has(source)));
  const others = gradientsOfOthers(program), widest = Math.max(...asked.map((sources) => sources.length));
  const most = widest * stage.length + others.reduce((sum, each) => sum + each.length, 0);
  const [needs, messageOf] = [new Int32Array(most), new Int32Array(most).fill(-1)], needsFrom = new Int32Array(size + 1);
  const messages = [], newest = new Int32Array(stage.length).fill(-1), older = []; // of the messages of one part
  let n = 0;
  for (let e = 0; e < size; e++) {
    for (let p = parts[e]; p < parts[e + 1]; p++) {
      if (find(kind[p], stage[p], microbatch[p]) < 0) continue; // a label beyond the stages or the microbatches
      const sources = asked[kind[p]];
      for (let i = 0; i < sources.length; i++) {
        const need = find(sources[i][0], stage[p] + sources[i][1], microbatch[p]);
        if (need < 0) continue;
        if (home[entry[need]] !== home[e] && kind[p] !== U) messageOf[n] = messageTo(need, home[e]);
        needs[n++] = need;
      }
      if (kind[p] === U) for (const need of others[p] ?? []) needs[n++] = need;
    }
    needsFrom[e + 1] = n;
  }
  function messageTo(part, target) {
    let i = newest[part];
    while (i >= 0 && messages[i].target !== target) i = older[i];
    if (i >= 0) return i;
    older.push(newest[part]);
    return (newest[part] = messages.push({ part, source: home[entry[part]], target }) - 1);
  }
  const sends = new Array(size).fill(null); // what an entry sends, in the order of its parts
  messages.forEach(({ part }, i) => (sends[entry[part]] ??= []).push(i));
  const earlier = (a, b) => messages[a].part - messages[b].part || messages[a].target - messages[b].target;
  for (const each of sends) if (each?.length > 1) each.sort(earlier);
  return { needsFrom, needs: needs.subarray(0, n), messageOf: messageOf.subarray(0, n), messages, sends };
}

/** An update applies the sum of all copies of its stage: by its part, the last gradient of each other copy before it. */
function gradientsOfOthers({ there, stages, devices, stage, kind, entry, home }) {
  const last = new Map(), found = [], passed = new Int32Array(stages * devices); // its nth goes with another copy's nth
  for (let p = 0; there.has(U) && p < stage.length; p++) {
    const device = home[entry[p]], copy = stage[p] * devices + device, round = passed[copy] * stages + stage[p];
    if (kind[p] === U) found[p] = [device, round, passed[copy]++];
    else if (kind[p] === B || kind[p] === W) last.set(round, (last.get(round) ?? new Map()).set(device, p));
  }
  const others = ([own, round]) => [...(last.get(round) ?? [])].filter(([device]) => device !== own);
  return found.map((update) => others(update).map(([, part]) => part));
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
    if (count > 1) work = at(costs.overlap, stage[p]) ?? work + ofKind[kind[p + 1]](stage[p + 1]);
    found[e] = (speed === 1 ? work : work / speed) + count * at(costs.overhead, home[e]);
  }
  return found;
}

/**
 * When everything happens: by message, `busy` says how long its link is, and `late` how long it travels after that.
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
  const busy = new Float64Array(program.messages.length), late = new Float64Array(busy.length).fill(comm), known = [];
  if (!links) return { busy, late };
  program.messages.forEach((message, i) => {
    const way = message.source * program.devices + message.target;
    const link = (known[way] ??= linkBetween(links, message.source, message.target));
    if (link.bandwidth !== null) busy[i] = bytesOf(message) / link.bandwidth;
    late[i] = link.latency + comm;
  });
  return { busy, late };
}

/** `links`: {latency, bandwidth} for all, {devices_per_node, inside, between}, or {pairs: [[source, target, link]]}. */
function linkBetween(links, source, target) {
  if (links.inside) {
    const node = (device) => Math.floor(device / links.devices_per_node);
    return node(source) === node(target) ? links.inside : links.between;
  }
  if (!links.pairs) return links;
  const found = links.pairs.find(([a, b]) => a === source && b === target);
  const others = links.pairs.slice(0, 8).map(([a, b]) => `${a} to ${b}`).join(", ") || "nowhere";
  const says = `there is no link from device ${source} to device ${target}; there are links from ${others}`;
  if (!found) throw new Error(says);
  return found[2];
}

/** The bytes of a message as simulate's `message_bytes` says: one number, or one for each stage but the last. */
export function messageBytesOf({ stage, kind, stages }, bytes) {
  const each = "a number, or a list with one for each stage but the last";
  if (Array.isArray(bytes) && bytes.length !== stages - 1)
    throw new Error(`simulate needs message_bytes to be ${each}: ${stages - 1} of them (got ${bytes.length})`);
  return ({ part }) => at(bytes, stage[part] - (kind[part] === F ? 0 : 1)) ?? 0;
}

/** Of an order, by costs and links: its timeline. */
export function simulate(program, costs, links = null, bytesOf = () => 0) {
  const { busy, late } = travel(program, costs.comm, links, bytesOf);
  return time(program, durationsOf(program, costs), busy, late);
}
