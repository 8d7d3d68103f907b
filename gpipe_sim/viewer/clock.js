// An order in, times out: the clock that a browser needs. Its one table, what an action waits for, is the library's.
//
// An entry is one action, or a pair that runs as one block: [stage, kind, microbatch] or six numbers, where a kind is
// its place in KINDS. A row lists the entries of a device; everything below is columns of numbers over all entries.

import { TABLES } from "./tables.js";

/** Throws the sentence unless something is fine. */
export function must(fine, sentence) {
  if (!fine) throw new Error(sentence);
}

/** So many whole numbers. */
export const countTo = (count, from = 0) => Array.from({ length: count }, (_, i) => from + i);
/** The places that a column of beginnings gives to its item i. */
export const within = (column, i) => countTo(column[i + 1] - column[i], column[i]);
const columnOf = (length) => new Int32Array(length);
export const KINDS = "FBIWRU";
export const [F, B, I, W, R, U] = [0, 1, 2, 3, 4, 5];
/** By kind, what an action waits for: [kind, how many stages further on]. */
export const NEEDS = [...KINDS].map((kind) => TABLES.needs[kind].map(([need, step]) => [KINDS.indexOf(need), step]));
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
  const { rows, placement, microbatches } = order, stages = 1 + Math.max(...placement.flat());
  const devices = rows.length, entries = [].concat(...rows), size = entries.length, parts = columnOf(size + 1);
  entries.forEach((labels, e) => (parts[e + 1] = parts[e] + labels.length / 3));
  const [stage, kind, microbatch, entry] = countTo(4).map(() => columnOf(parts[size]));
  for (let e = 0; e < size; e++)
    for (let i = 0, p = parts[e]; p < parts[e + 1]; i += 3, p++)
      [stage[p], kind[p], microbatch[p], entry[p]] = [entries[e][i], entries[e][i + 1], entries[e][i + 2], e];
  const first = columnOf(devices + 1), home = columnOf(size);
  rows.forEach((row, device) => home.fill(device, first[device], first[device + 1] = first[device] + row.length));
  const where = columnOf(KINDS.length * stages * microbatches).fill(-1);
  const isLabel = (s, m) => s >= 0 && s < stages && m >= 0 && m < microbatches;
  const placeOf = (k, s, m) => (isLabel(s, m) ? (k * stages + s) * microbatches + m : -1); // where nothing is kept
  const find = (k, s, m) => where[placeOf(k, s, m)] ?? -1;
  for (let p = kind.length - 1; p >= 0; p--) where[placeOf(kind[p], stage[p], microbatch[p])] = p; // the first counts
  const columns = { first, home, parts, stage, kind, microbatch, entry };
  const program = { ...order, devices, stages, size, entries, ...columns, find, there: new Set(kind) };
  return { ...program, ...needsOf(program) };
}

/** What each entry waits for: the parts needs[needsFrom[e]] up to needs[needsFrom[e + 1]], and which are messages. */
function needsOf(program) {
  const { devices, size, stage, kind, microbatch, home, entry, find, there } = program;
  const others = gradientsOfOthers(program), needsFrom = new Int32Array(size + 1), needs = [], messageOf = [];
  const asked = NEEDS.map((ways) => ways.filter(([source]) => there.has(source)));
  const messages = [], sends = Array(size).fill(null); // what an entry sends, in the order of its parts
  const messageTo = (target, part) => {
    const source = home[entry[part]], sent = sends[entry[part]];
    const known = sent?.find((i) => messages[i].part === part && messages[i].target === target);
    if (known >= 0) return known;
    sends[entry[part]] = sent ? [...sent, messages.length] : [messages.length];
    return messages.push({ part, source, target, link: source * devices + target }) - 1;
  };
  const add = (need, p) => {
    if (need < 0) return;
    const target = home[entry[p]], crosses = kind[p] !== U && home[entry[need]] !== target;
    messageOf.push(crosses ? messageTo(target, need) : -1);
    needs.push(need);
  };
  for (let p = 0; p < kind.length; p++) {
    if (find(kind[p], stage[p], microbatch[p]) >= 0) { // or a label is out of range
      for (const [source, step] of asked[kind[p]]) add(find(source, stage[p] + step, microbatch[p]), p);
      others[p]?.forEach((need) => add(need, p));
    }
    needsFrom[entry[p] + 1] = needs.length;
  }
  const order = (a, b) => messages[a].part - messages[b].part || messages[a].target - messages[b].target;
  sends.forEach((sent) => sent?.sort(order));
  return { needsFrom, needs, messageOf, messages, sends };
}

/** An update applies the sum of all copies of its stage: by part, the last gradient of each other copy before it. */
function gradientsOfOthers({ stage, kind, entry, home, there }) {
  const last = [], found = []; // by stage and device, the last gradient before each update: its nth is with others' nth
  if (there.has(U)) kind.forEach((k, p) => {
    const device = home[entry[p]], own = ((last[stage[p]] ??= [])[device] ??= [-1]);
    if (k === B || k === W) own[own.length - 1] = p;
    if (k === U) found[p] = [device, own.push(-1) - 2];
  });
  return found.map(([own, nth], p) => last[stage[p]].map((copy, device) => (device === own ? -1 : copy[nth] ?? -1)));
}

const at = (cost, i) => (Array.isArray(cost) ? cost[i] : cost);

/** How long each entry takes, by `costs` with the fields of the library's Costs. */
export function durationsOf({ entries, parts, stage, kind, home }, costs) {
  const { forward, input_grad, weight_grad, recompute, update } = costs, cost = (each) => (s) => at(each, s);
  const ofKind = [forward, 0, input_grad, weight_grad, recompute ?? forward, update].map(cost);
  ofKind[B] = (s) => at(input_grad, s) + at(weight_grad, s);
  return Float64Array.from(entries, (_, e) => {
    const count = parts[e + 1] - parts[e], p = parts[e], speed = at(costs.speed, home[e]);
    let work = ofKind[kind[p]](stage[p]);
    if (count > 1) work = at(costs.overlap, stage[p]) ?? work + ofKind[kind[p + 1]](stage[p + 1]);
    return (speed === 1 ? work : work / speed) + count * at(costs.overhead, home[e]);
  });
}

/**
 * The timeline of an order by costs and links: `busy` is how long a message keeps its link, and `late` how much later
 * it arrives. Where devices get stuck, `stuck` maps them to the entry that never starts, and times from there are NaN.
 */
export function simulate(program, costs, links, bytesOf = () => 0, durations = durationsOf(program, costs)) {
  const { size, first, home, entry, needs, needsFrom, messageOf, messages, sends } = program;
  const known = [], linkOf = (message) => (known[message.link] ??= linkBetween(links, message));
  const keeps = (message, { bandwidth }) => {
    if (bandwidth === null) return 0;
    const bytes = bytesOf(message), why = "because links have a bandwidth";
    if (bytes === null) throw new Error(`simulate needs to know how large messages are, ${why}`);
    return bytes / bandwidth;
  };
  const busy = Float64Array.from(messages, (message) => keeps(message, linkOf(message)));
  const late = Float64Array.from(messages, (message) => linkOf(message).latency + costs.comm);
  const start = new Float64Array(size).fill(NaN), end = start.slice();
  const sent = new Float64Array(messages.length), arrived = sent.slice();
  const queue = busy.some(Boolean) && mayQueue(program, durations, busy), linkFree = new Map();
  function starts(e) {
    let ready = e > first[home[e]] ? end[e - 1] : 0;
    for (let n = needsFrom[e]; n < needsFrom[e + 1]; n++) {
      const source = entry[needs[n]], there = messageOf[n] < 0 ? end[source] : arrived[messageOf[n]];
      if (Number.isNaN(end[source])) return false;
      if (there > ready) ready = there;
    }
    start[e] = ready;
    end[e] = ready + durations[e];
    sends[e]?.forEach(send);
    return true;
  }
  function send(i) {
    const { part, link } = messages[i], ended = end[entry[part]];
    sent[i] = queue ? Math.max(ended, linkFree.get(link) ?? 0) : ended;
    arrived[i] = queue ? sent[i] + busy[i] + late[i] : sent[i] + (busy[i] + late[i]); // rounded as the library's
    if (queue) linkFree.set(link, sent[i] + busy[i]);
  }
  const next = first.slice(0, -1), devices = [...next.keys()], left = (device) => next[device] < first[device + 1];
  for (let some = true; some; devices.reverse()) { // each goes on as far as it can, the first to the last and back
    some = false;
    for (const device of devices) for (; left(device) && starts(next[device]); next[device]++) some = true;
  }
  const stuck = new Map([...next.entries()].filter(([device]) => left(device)));
  const makespan = end.reduce((latest, each) => (each > latest ? each : latest), 0);
  return { program, start, end, sent, arrived, makespan, stuck, collectives: [] };
}

/** Whether a message may find the one before it on its link: what sends it takes less than that does. */
function mayQueue({ messages, sends, entry }, durations, busy) {
  const before = new Map(); // by link, the last message
  return sends.some((sent, e) => sent?.some((i) => {
    const { link } = messages[i], last = before.get(link);
    before.set(link, i);
    return last !== undefined && (entry[messages[last].part] === e ? 0 : durations[e]) < busy[last];
  }));
}

/** `links`: {latency, bandwidth} for all, {devices_per_node, inside, between}, or {pairs: [[source, target, link]]}. */
function linkBetween(links, { source, target }) {
  const node = (device) => Math.floor(device / links.devices_per_node);
  if (links?.inside) return node(source) === node(target) ? links.inside : links.between;
  if (!links?.pairs) return links ?? { latency: 0, bandwidth: null };
  const found = links.pairs.find(([a, b]) => a === source && b === target);
  if (found) return found[2];
  const others = links.pairs.slice(0, 8).map(([a, b]) => `${a} to ${b}`).join(", ") || "nowhere";
  throw new Error(`there is no link from device ${source} to device ${target}; there are links from ${others}`);
}

/** The bytes of a message as simulate's `message_bytes` says: one number, or one for each stage but the last. */
export function messageBytesOf({ stage, kind, stages }, bytes) {
  const each = "a number, or a list with one for each stage but the last";
  if (Array.isArray(bytes) && bytes.length !== stages - 1)
    throw new Error(`simulate needs message_bytes to be ${each}: ${stages - 1} of them (got ${bytes.length})`);
  return ({ part }) => at(bytes, stage[part] - (kind[part] === F ? 0 : 1));
}
