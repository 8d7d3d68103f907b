// What devices hold: microbatches in flight, and bytes, as the library's meter counts them.
//
// `sizes` is what viewer/sizes.py makes of a profile. An array is there once on a device, however many hold it, and
// counts in the first category that does, in the order of TABLES.categories; a message to another device is a copy.

import { TABLES } from "./tables.js";
import { B, F, KINDS, R, U, W } from "./clock.js";
import { inOrder } from "./why.js";

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
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

/** Why the page cannot count bytes for this program; empty if it can. */
export function whyNoBytes(program, sizes) {
  const { stages, microbatches } = program, cut = sizes.stages.length;
  if (stages !== cut) return `the schedule has ${stages} stages, but the model is cut into ${cut}`;
  if (sizes.samples < microbatches) return `${sizes.samples} samples cannot be cut into ${microbatches} microbatches`;
  const older = "weights change on the way, and this page does not count the older ones that devices keep";
  return updatesOnTheWay(program) ? `${older}; predict_memory does` : "";
}

function updatesOnTheWay({ kind, stage, home, entry, stages }) {
  const updated = new Set(), copy = (part) => home[entry[part]] * stages + stage[part];
  return kind.some((k, part) => (k === U ? !updated.add(copy(part)) : (k === B || k === W) && updated.has(copy(part))));
}

/** The samples of each microbatch, as the library cuts a batch. */
function samplesOf(program, { samples }) {
  const count = program.microbatches, least = Math.floor(samples / count), larger = samples % count;
  const alternating = updatesOnTheWay(program);
  const until = (m) => (alternating ? Math.floor((samples * m) / count) : m * least + Math.min(m, larger));
  return Array.from({ length: count }, (_, m) => until(m + 1) - until(m));
}

const bytesFor = ([fixed, perSample], samples) => fixed + perSample * samples;

/** The bytes of a message of this program: a function for `simulate`. */
export function messageBytes(sizes, program) {
  const samples = samplesOf(program, sizes);
  return ({ part }) => {
    const of = sizes.stages[program.stage[part]], numbers = program.kind[part] === F ? of.output : of["input gradient"];
    return numbers.reduce((sum, i) => sum + bytesFor(sizes.arrays[i], samples[program.microbatch[part]]), 0);
  };
}

function firstHeld(holders) {
  let first = 0;
  while (first < holders.length && !holders[first]) first++;
  return first;
}

/** What one device holds: bytes by category, now and where actions ended. An array is {bytes, holders by category}. */
class Meter {
  held = new Map();
  now = TABLES.categories.map(() => 0);
  times = [];
  columns = TABLES.categories.map(() => []);

  /** By key, arrays and the category of each. */
  keep(key, arrays, places) {
    this.held.set(key, [arrays, places]);
    this.count(arrays, places, 1);
  }

  take(key) {
    const [arrays, places] = this.held.get(key) ?? [[], []];
    this.held.delete(key);
    this.count(arrays, places, -1);
    return arrays;
  }

  count(arrays, places, by) {
    for (let i = 0; i < arrays.length; i++) {
      const { bytes, holders } = arrays[i], before = firstHeld(holders);
      holders[places[i]] += by;
      if (before < holders.length) this.now[before] -= bytes;
      if (firstHeld(holders) < holders.length) this.now[firstHeld(holders)] += bytes;
    }
  }

  /** The last sample of each moment counts; an action that takes no time has its own. */
  sample(time, instant) {
    const again = !instant && this.times.at(-1) === time, i = this.times.length - (again ? 1 : 0);
    this.times[i] = time;
    for (let place = 0; place < this.now.length; place++) this.columns[place][i] = this.now[place];
  }

  get steps() {
    const bytes = Object.fromEntries(TABLES.categories.map((name, place) => [name, this.columns[place]]));
    const total = this.times.map((_, i) => this.columns.reduce((sum, column) => sum + column[i], 0));
    return { times: this.times, bytes, total };
  }
}

/** Steps {times, bytes: {category: [...]}, total} of each device, where actions end; null if `whyNoBytes` says why. */
export function bytesHeld(timeline, sizes) {
  if (whyNoBytes(timeline.program, sizes)) return null;
  return metered(timeline, sizes);
}

const placeOf = (category) => TABLES.categories.indexOf(category);
const freshArray = (bytes) => ({ bytes, holders: TABLES.categories.map(() => 0) });

/** What a kind of action does at a stage: frees and makes, as [category, arrays, where each counts], and sends. */
function planOf(of, kind) {
  const inputs = of.keeps["boundary inputs"], way = { F: 1, recomputed: 1, B: -1, I: -1 }[kind] ?? 0;
  const changes = Object.entries(TABLES.holds[kind]).map(([name, by]) => {
    const places = of.keeps[name].map((i) => placeOf(inputs.includes(i) ? "boundary inputs" : name));
    return { by, change: [placeOf(name), of.keeps[name], places] };
  });
  const [frees, makes] = [-1, 1].map((sign) => changes.filter(({ by }) => by === sign).map(({ change }) => change));
  const [comes, goes] = way > 0 ? [inputs, of.output] : [of["output gradient"], of["input gradient"]];
  return { frees, makes, way, comes, goes, inputs, sent: goes.map(() => placeOf("messages")) };
}

/** All actions as they end: each frees, receives, sends and keeps what its plan says; then its device is metered. */
function metered(timeline, sizes) {
  const { program, start, end } = timeline;
  const { microbatches, home, parts, stage, kind, microbatch, entry, find } = program;
  const samples = samplesOf(program, sizes), made = [], pairs = sizes.stages.length * microbatches;
  const plans = sizes.stages.map((of) => [...KINDS, "recomputed"].map((name) => planOf(of, name)));
  const meters = program.placement.map((held) => {
    const meter = Object.assign(new Meter(), { haveGradients: new Set() });
    for (const name of ["parameters", "optimizer state"])
      meter.now[placeOf(name)] = held.reduce((sum, s) => sum + sizes.stages[s][name], 0);
    meter.sample(0);
    return meter;
  });
  function run(part, meter, time) {
    const [s, k, m] = [stage[part], kind[part], microbatch[part]], key = s * microbatches + m;
    const again = k === F && find(R, s, m) >= 0, plan = plans[s][again ? KINDS.length : k];
    if (k === F) made[key] = new Map(); // the arrays of this stage and microbatch, by number
    const arrays = made[key];
    const array = (i) => {
      if (!arrays.has(i)) arrays.set(i, freshArray(bytesFor(sizes.arrays[i], samples[m])));
      return arrays.get(i);
    };
    for (const [place] of plan.frees) meter.take(place * pairs + key);
    if (plan.way) {
      const { way, comes, goes, sent } = plan, to = find(F, s + way, m), peer = meters[home[entry[to]]];
      meter.take(-way * (key + 1)).forEach((each, i) => arrays.has(comes[i]) || arrays.set(comes[i], each));
      const copied = (i) => (peer === meter ? array(i) : freshArray(array(i).bytes));
      peer?.keep(-way * (key + way * microbatches + 1), goes.map(copied), sent);
      if (peer !== meter) peer?.sample(time);
    }
    if ((k === B || k === W) && !meter.haveGradients.has(s)) {
      meter.haveGradients.add(s);
      meter.now[placeOf("gradients")] += bytesFor(sizes.stages[s].gradients, samples[m]);
    }
    for (const [place, numbers, places] of plan.makes) meter.keep(place * pairs + key, numbers.map(array), places);
    if (again) made[key] = new Map(plan.inputs.map((i) => [i, array(i)]));
    if (k === B || k === W) made[key] = null;
  }
  for (const e of inOrder(timeline)) {
    for (let part = parts[e]; part < parts[e + 1]; part++) run(part, meters[home[e]], end[e]);
    meters[home[e]].sample(end[e], start[e] === end[e]);
  }
  return meters.map((meter) => meter.steps);
}
