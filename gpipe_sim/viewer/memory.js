// What devices hold: microbatches in flight, and bytes, as the library's meter counts them.
//
// `sizes` is what viewer/sizes.py makes of a profile. An array is there once on a device, however many hold it, and
// counts in the first category that does, in the order of TABLES.categories; a message to another device is a copy.

import { TABLES } from "./tables.js";
import { B, F, I, KINDS, R, U, W } from "./clock.js";
import { inOrder, oncePer } from "./why.js";

/** Steps {times, counts} of each device: forwards that have run and whose B or W has not. */
export function inFlight({ program, start, end }) {
  const { devices, first, parts, kind } = program;
  const more = [...KINDS].map((letter) => Object.values(TABLES.holds[letter]).reduce((a, b) => a + b, 0));
  return Array.from({ length: devices }, (_, device) => {
    const changes = [];
    for (let e = first[device]; e < first[device + 1] && end[e] >= 0; e++) {
      const last = parts[e + 1] - 1;
      if (last > parts[e]) changes.push([start[e], more[kind[parts[e]]]]); // both halves of a pair run at once
      changes.push([end[e], more[kind[last]]]);
    }
    changes.sort((a, b) => a[0] - b[0]);
    let count = 0;
    return { times: [0, ...changes.map(([time]) => time)], counts: [0, ...changes.map(([, by]) => (count += by))] };
  });
}

/** The place among a device's steps of the one that holds at a time. */
export function heldAt({ times }, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    [low, high] = times[middle] <= time ? [middle + 1, high] : [low, middle];
  }
  return Math.max(0, low - 1);
}

/** The most of a device's steps: microbatches in flight, or bytes of all categories. */
export const peak = ({ counts, total }) => (counts ?? total).reduce((a, b) => Math.max(a, b), 0);

/** Why the page cannot count bytes for this program; empty if it can. */
export function whyNoBytes(program, sizes) {
  const { stages, microbatches } = program, [there, samples] = [sizes.stages.length, sizes.samples];
  if (stages !== there) return `the schedule has ${stages} stages, but the model is cut into ${there}`;
  if (samples < microbatches) return `${samples} samples cannot be cut into ${microbatches} microbatches`;
  if (!updatesOnTheWay(program)) return "";
  return "weights change on the way, and this page does not count the older ones that devices keep; predict_memory does";
}

function updatesOnTheWay({ kind, stage, home, entry }) {
  const updated = new Set();
  return kind.some((k, part) => {
    const copy = `${home[entry[part]]} ${stage[part]}`;
    if (k === U) updated.add(copy);
    return (k === B || k === W) && updated.has(copy);
  });
}

/** The samples of each microbatch, as the library cuts a batch; `sizes` must fit. */
function samplesOf(program, { samples }) {
  const count = program.microbatches, onTheWay = updatesOnTheWay(program);
  const until = (m) => (onTheWay ? Math.floor((samples * m) / count) : m * Math.floor(samples / count) + Math.min(m, samples % count));
  return Array.from({ length: count }, (_, m) => until(m + 1) - until(m));
}

const bytesOf = ([fixed, perSample], samples) => fixed + perSample * samples;

/** The bytes of a message of this program: a function for `simulate`. */
export function messageBytes(sizes, program) {
  const samples = samplesOf(program, sizes);
  return ({ part }) => {
    const of = sizes.stages[program.stage[part]], arrays = program.kind[part] === F ? of.output : of["input gradient"];
    return arrays.reduce((sum, number) => sum + bytesOf(sizes.arrays[number], samples[program.microbatch[part]]), 0);
  };
}

/** What one device holds, by key, with the bytes of each category now and at every sample. */
class Meter {
  held = new Map();
  now = TABLES.categories.map(() => 0);
  samples = [];

  /** An array is {bytes, holders}: how many hold it in each category. */
  count({ bytes, holders }, place, by) {
    if (holders.some(Boolean)) this.now[holders.findIndex(Boolean)] -= bytes;
    holders[place] += by;
    if (holders.some(Boolean)) this.now[holders.findIndex(Boolean)] += bytes;
  }

  keep(key, arrays, places) {
    this.held.set(key, [arrays, places]);
    arrays.forEach((array, i) => arrays.indexOf(array) === i && this.count(array, places[i], 1));
  }

  take(key) {
    const [arrays, places] = this.held.get(key) ?? [[], []];
    this.held.delete(key);
    arrays.forEach((array, i) => arrays.indexOf(array) === i && this.count(array, places[i], -1));
    return arrays;
  }

  /** The last sample of each moment counts; an action that takes no time has its own. */
  sample(time, instant) {
    if (!instant && this.samples.at(-1)?.[0] === time) this.samples.pop();
    this.samples.push([time, ...this.now]);
  }

  steps() {
    const column = (i) => this.samples.map((sample) => sample[i]);
    const bytes = Object.fromEntries(TABLES.categories.map((name, i) => [name, column(i + 1)]));
    return { times: column(0), bytes, total: this.samples.map(([, ...held]) => held.reduce((a, b) => a + b, 0)) };
  }
}

/** Steps {times, bytes: {category: [...]}, total} of each device, where actions end; null if `whyNoBytes` says why. */
export function bytesHeld(timeline, sizes) {
  if (!sizes || whyNoBytes(timeline.program, sizes)) return null;
  const known = oncePer(timeline, bytesBySizes);
  if (!known.has(sizes)) known.set(sizes, metered(timeline, sizes));
  return known.get(sizes);
}

const bytesBySizes = () => new Map();

function metered(timeline, sizes) {
  const { placement, microbatches, home, parts, stage, kind, microbatch, entry, find } = timeline.program;
  const samples = samplesOf(timeline.program, sizes), made = new Map(), haveGradients = new Set();
  const [parameters, , gradients, state, cameIn, , , messages] = TABLES.categories;
  const place = (category) => TABLES.categories.indexOf(category);
  const fresh = (bytes) => ({ bytes, holders: TABLES.categories.map(() => 0) });
  const meters = placement.map((held) => {
    const meter = new Meter();
    for (const category of [parameters, state]) {
      meter.now[place(category)] = held.reduce((sum, s) => sum + sizes.stages[s][category], 0);
    }
    meter.sample(0);
    return meter;
  });
  const run = (part, device, time) => {
    const [s, k, m] = [stage[part], kind[part], microbatch[part]], of = sizes.stages[s], meter = meters[device];
    const key = s * microbatches + m, again = find(R, s, m) >= 0;
    if (k === F) made.set(key, new Map());
    const arrays = made.get(key); // of this stage and microbatch, by number
    const array = (number) => {
      if (!arrays.has(number)) arrays.set(number, fresh(bytesOf(sizes.arrays[number], samples[m])));
      return arrays.get(number);
    };
    const changes = Object.entries(TABLES.holds[again && k === F ? "recomputed" : KINDS[k]]);
    for (const [category, by] of changes) if (by < 0) meter.take(`${category} ${key}`);
    const way = { [F]: 1, [B]: -1, [I]: -1 }[k] ?? 0, to = find(F, s + way, m);
    const [comes, goes] = way > 0 ? [of.keeps[cameIn], of.output] : [of["output gradient"], of["input gradient"]];
    if (way) meter.take(`${way} ${key}`).forEach((each, i) => arrays.has(comes[i]) || arrays.set(comes[i], each));
    if (way && to >= 0) {
      const peer = meters[home[entry[to]]], sent = goes.map(array);
      const message = peer === meter ? sent : sent.map(({ bytes }) => fresh(bytes));
      peer.keep(`${way} ${(s + way) * microbatches + m}`, message, message.map(() => place(messages)));
      if (peer !== meter) peer.sample(time);
    }
    if ((k === B || k === W) && !haveGradients.has(`${device} ${s}`)) {
      haveGradients.add(`${device} ${s}`);
      meter.now[place(gradients)] += bytesOf(of[gradients], samples[m]);
    }
    for (const [category, by] of changes) {
      const places = by > 0 && of.keeps[category].map((number) => place(of.keeps[cameIn].includes(number) ? cameIn : category));
      if (by > 0) meter.keep(`${category} ${key}`, of.keeps[category].map(array), places);
    }
    if (again && k === F) for (const number of [...arrays.keys()]) if (!of.keeps[cameIn].includes(number)) arrays.delete(number);
  };
  for (const e of oncePer(timeline, inOrder)) {
    for (let part = parts[e]; part < parts[e + 1]; part++) run(part, home[e], timeline.end[e]);
    meters[home[e]].sample(timeline.end[e], timeline.start[e] === timeline.end[e]);
  }
  return meters.map((meter) => meter.steps());
}
