// An order in, times out: the clock that a browser needs. Its one table, what an action waits for, is the library's.
//
// An entry is one action, or a pair that runs as one block: [stage, kind, microbatch] or six numbers, where a kind is
// its place in KINDS. A row lists the entries of a device; everything below is columns of numbers over all entries.

import { TABLES } from "./tables.js";

export const upTo = (count) => Array.from({ length: count }, (_, i) => i);
export const KINDS = "FBIWRU";
export const [F, B, I, W, R, U] = [0, 1, 2, 3, 4, 5];
export const NEEDS = [...KINDS].map((kind) => TABLES.needs[kind].map(([source, step]) => [KINDS.indexOf(source), step]));
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
  const entries = [].concat(...rows), size = entries.length, column = (length) => new Int32Array(length);
  const first = column(devices + 1), home = column(size), parts = column(size + 1);
  rows.forEach((row, device) => {
    first[device + 1] = first[device] + row.length;
    home.fill(device, first[device], first[device + 1]);
  });
  for (let e = 0; e < size; e++) parts[e + 1] = parts[e] + entries[e].length / 3;
  const [stage, kind, microbatch, entry] = [0, 0, 0, 0].map(() => column(parts[size]));
  const where = column(KINDS.length * stages * microbatches).fill(-1);
  const find = (k, s, m) =>
    s < 0 || s >= stages || m < 0 || m >= microbatches ? -1 : where[(k * stages + s) * microbatches + m];
  for (let e = 0, p = 0; e < size; e++) {
    for (let i = 0; i < entries[e].length; i += 3, p++) {
      const s = (stage[p] = entries[e][i]), k = (kind[p] = entries[e][i + 1]), m = (microbatch[p] = entries[e][i + 2]);
      entry[p] = e;
      if (s < stages && m < microbatches && find(k, s, m) < 0) where[(k * stages + s) * microbatches + m] = p;
    }
  }
  const columns = { devices, stages, size, entries, first, home, parts, stage, kind, microbatch, entry, find };
  const program = { ...order, ...columns, there: new Set(kind) };
  return { ...program, ...needsOf(program) };
}

/** What each entry waits for: the parts needs[needsFrom[e]] up to needs[needsFrom[e + 1]], and which are messages. */
function needsOf(program) {
  const { size, parts, stage, kind, microbatch, home, entry, find, there } = program;
  const asked = NEEDS.map((sources) => sources.filter(([source]) => there.has(source)));
  const others = gradientsOfOthers(program), most = 4 * stage.length + others.flat().length;
  const needsFrom = new Int32Array(size + 1), needs = new Int32Array(most), messageOf = new Int32Array(most).fill(-1);
  const messages = [], newest = new Int32Array(stage.length).fill(-1), older = []; // of the messages of one part
  let n = 0;
  for (let e = 0; e < size; e++) {
    for (let p = parts[e]; p < parts[e + 1]; p++) {
      if (find(kind[p], stage[p], microbatch[p]) < 0) continue; // a label beyond the stages or the microbatches
      for (const way of asked[kind[p]]) {
        const need = find(way[0], stage[p] + way[1], microbatch[p]);
        if (need < 0) continue;
        if (home[entry[need]] !== home[e] && kind[p] !== U) messageOf[n] = messageTo(need, home[e]);
        needs[n++] = need;
      }
      others[p]?.forEach((need) => (needs[n++] = need));
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
  const earlier = (a, b) => messages[a].part - messages[b].part || messages[a].target - messages[b].target;
  messages.forEach(({ part }, i) => (sends[entry[part]] = sends[entry[part]]?.concat(i).sort(earlier) ?? [i]));
  return { needsFrom, needs: needs.subarray(0, n), messageOf: messageOf.subarray(0, n), messages, sends };
}

/** An update applies the sum of all copies of its stage: by part, the last gradient of each other copy before it. */
function gradientsOfOthers({ placement, stages, devices, stage, kind, entry, home, there }) {
  if (!there.has(U) || placement.flat().length === stages) return [];
  const last = new Map(), found = [], passed = new Int32Array(stages * devices); // its nth goes with the others' nth
  kind.forEach((k, p) => {
    const device = home[entry[p]], copy = stage[p] * devices + device, round = passed[copy] * stages + stage[p];
    if (k === U) found[p] = [device, round, passed[copy]++];
    else if (k === B || k === W) last.set(round, (last.get(round) ?? new Map()).set(device, p));
  });
  const others = ([own, round]) => [...(last.get(round) ?? [])].filter(([device]) => device !== own);
  return found.map((update) => others(update).map(([, part]) => part));
}

const at = (cost, i) => (Array.isArray(cost) ? cost[i] : cost);

/** How long each entry takes, by `costs` with the fields of the library's Costs. */
export function durationsOf(program, costs) {
  const { size, parts, stage, kind, home } = program;
  const { forward, input_grad, weight_grad, recompute, update } = costs, cost = (each) => (s) => at(each, s);
  const ofKind = [forward, 0, input_grad, weight_grad, recompute ?? forward, update].map(cost);
  ofKind[B] = (s) => at(input_grad, s) + at(weight_grad, s);
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
  const queue = busy.some((each) => each > 0) && mayQueue(program, durations, busy), linkFree = new Map();
  const next = first.slice(0, devices), waiters = new Map(), running = [...Array(devices).keys()].reverse();
  while (running.length) {
    const device = running.pop();
    for (; next[device] < first[device + 1]; next[device]++) {
      const e = next[device];
      let ready = e > first[device] ? end[e - 1] : 0, blocked = -1;
      for (let n = needsFrom[e]; n < needsFrom[e + 1] && blocked < 0; n++) {
        const need = entry[needs[n]], there = messageOf[n] < 0 ? end[need] : arrived[messageOf[n]];
        if (Number.isNaN(end[need])) blocked = need;
        else if (there > ready) ready = there;
      }
      if (blocked >= 0) {
        waiters.set(blocked, [...(waiters.get(blocked) ?? []), device]);
        break;
      }
      start[e] = ready;
      end[e] = ready + durations[e];
      if (sends[e]) send(e);
      running.push(...(waiters.get(e) ?? []));
    }
  }
  function send(e) {
    for (const i of sends[e]) {
      const link = messages[i].source * devices + messages[i].target;
      sent[i] = queue ? Math.max(end[e], linkFree.get(link) ?? 0) : end[e];
      arrived[i] = queue ? sent[i] + busy[i] + late[i] : sent[i] + (busy[i] + late[i]); // rounded as the library's
      if (queue) linkFree.set(link, sent[i] + busy[i]);
    }
  }
  const stuck = new Map([...next].map((e, device) => [device, e]).filter(([device, e]) => e < first[device + 1]));
  const makespan = end.reduce((latest, each) => (each > latest ? each : latest), 0);
  return { program, start, end, sent, arrived, makespan, stuck, collectives: [], measured: false, home };
}

/** Whether a message may find the one before it on its link: what sends it takes less than that does. */
function mayQueue({ messages, sends, size, devices }, durations, busy) {
  const before = new Map(); // by link, the last message and what sent it
  for (let e = 0; e < size; e++) {
    for (const i of sends[e] ?? []) {
      const link = messages[i].source * devices + messages[i].target, last = before.get(link);
      if (last && (last.e === e ? 0 : durations[e]) < busy[last.i]) return true;
      before.set(link, { e, i });
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
  if (found) return found[2];
  throw new Error(`there is no link from device ${source} to device ${target}; there are links from ${others}`);
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
