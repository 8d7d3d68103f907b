// What devices hold: microbatches in flight, and bytes, as the library's meter counts them.
//
// `sizes` is what viewer/sizes.py makes of a profile. An array is there once on a device, however many hold it, and
// counts in the first category that does, in the order of TABLES.categories; a message to another device is a copy.

import { TABLES } from "./tables.js";
import { B, F, I, KINDS, R, U, W } from "./clock.js";
import { inOrder } from "./why.js";

/** Steps {times, counts} of each device: forwards that have run and whose B or W has not. */
export function inFlight({ program: { rows, first, parts, kind, entry }, start, end }) {
  return rows.map((_, device) => {
    const changes = [];
    for (let part = parts[first[device]]; part < parts[first[device + 1]]; part++) {
      const e = entry[part], ends = part === parts[e + 1] - 1; // both halves of a pair run at once
      changes.push([ends ? end[e] : start[e], TABLES.in_flight[KINDS[kind[part]]]]);
    }
    return stepsOf(changes);
  });
}

/** Changes [time, more or less] as steps {times, counts}, from 0 on. */
export function stepsOf(changes) {
  let count = 0;
  changes.sort(([one], [other]) => one - other);
  return { times: [0, ...changes.map(([time]) => time)], counts: [0, ...changes.map(([, by]) => (count += by))] };
}

/** The place among a device's steps of the one that holds at a time. */
export function heldAt({ times }, time) {
  let low = 0, high = times.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle;
    else high = middle;
  }
  return low;
}

/** Why the page cannot count bytes for this program; empty if it can. */
export function whyNoBytes(program, { stages: { length: cut }, samples }) {
  const { stages, microbatches } = program;
  if (stages !== cut) return `the schedule has ${stages} stages, but the model is cut into ${cut}`;
  if (samples < microbatches) return `${samples} samples cannot be cut into ${microbatches} microbatches`;
  const older = "weights change on the way, and this page does not count the older ones that devices keep";
  return updatesOnTheWay(program) ? `${older}; predict_memory does` : "";
}

function updatesOnTheWay({ kind, stage, home, entry, stages }) {
  const updated = new Set(), copy = (part) => home[entry[part]] * stages + stage[part];
  return kind.some((k, part) => (k === U ? !updated.add(copy(part)) : (k === B || k === W) && updated.has(copy(part))));
}

/** The samples of each microbatch, as the library cuts a batch. */
function samplesOf(program, { samples }) {
  const count = program.microbatches, until = (m) => Math.floor((samples * m) / count);
  const evenly = updatesOnTheWay(program), larger = samples % count;
  return Array.from({ length: count }, (_, m) => (evenly ? until(m + 1) - until(m) : until(1) + (m < larger ? 1 : 0)));
}

const bytesFor = ([fixed, perSample], samples) => fixed + perSample * samples;
const [INPUTS_KEPT, GRADIENTS, MESSAGES] = ["boundary inputs", "gradients", "messages"];

/** The numbers of the arrays that reach a stage from the one before it, or, a gradient, from the one after. */
const reaching = (of, forward) => (forward ? of?.keeps["boundary inputs"] : of?.["output gradient"]) ?? [];

/** The bytes of a message of this program: a function for `simulate`. */
export function messageBytes(sizes, program) {
  const samples = samplesOf(program, sizes), { kind, stage, microbatch } = program;
  return ({ part }) => {
    const forward = kind[part] === F, numbers = reaching(sizes.stages[stage[part] + (forward ? 1 : -1)], forward);
    return numbers.reduce((sum, i) => sum + bytesFor(sizes.arrays[i], samples[microbatch[part]]), 0);
  };
}

/** What one device holds: bytes by category, now and where actions ended. */
class Meter {
  held = new Map(); // by array, how often each category holds it
  now = TABLES.categories.map(() => 0);
  times = [];
  total = [];
  columns = TABLES.categories.map(() => []);

  /** An array is held in a category once more (by = 1), or once less. */
  count(array, place, by, bytes) {
    const holders = this.held.get(array) ?? TABLES.categories.map(() => 0), before = holders.findIndex(Boolean);
    holders[place] += by;
    const after = holders.findIndex(Boolean);
    if (before >= 0) this.now[before] -= bytes;
    if (after >= 0) this.now[after] += bytes;
    if (after >= 0) this.held.set(array, holders);
    else this.held.delete(array);
  }

  /** The last sample of each moment counts; an action that takes no time has its own. */
  sample(time, instant) {
    const { times, total, columns, now } = this, again = !instant && times.at(-1) === time;
    const i = times.length - (again ? 1 : 0);
    times[i] = time;
    total[i] = now.reduce((sum, each) => sum + each);
    columns.forEach((column, place) => (column[i] = now[place]));
  }
}

/** Steps {times, bytes: {category: [...]}, total} of each device, where actions end; null if `whyNoBytes` says why. */
export function bytesHeld(timeline, sizes) {
  if (whyNoBytes(timeline.program, sizes)) return null;
  const { program, start, end } = timeline, { stages, arrays } = sizes, samples = samplesOf(program, sizes);
  const { microbatches, placement, home, parts, stage, kind, microbatch, entry, find } = program;
  const placeOf = Object.fromEntries(TABLES.categories.map((name, place) => [name, place]));
  const meters = placement.map((own) => {
    const meter = new Meter(), sum = (name) => own.reduce((all, s) => all + stages[s][name], 0);
    for (const name of ["parameters", "optimizer state"]) meter.now[placeOf[name]] = sum(name);
    meter.sample(0);
    return meter;
  });
  const homeOf = (s, m) => home[entry[find(F, s, m)]], again = (s, m) => find(R, s, m) >= 0;

  /** The stage whose array this is on the device: a neighbour there hands it over as it is. */
  function makerOf(s, m, i) {
    for (const forward of [true, false]) {
      let at = s;
      const step = forward ? -1 : 1;
      while (reaching(stages[at], forward).includes(i) && homeOf(at + step, m) === homeOf(s, m)) at += step;
      if (at !== s) return at;
    }
    return s;
  }

  /** A device holds some arrays of a stage and microbatch once more, or once less. */
  function change(device, s, m, name, numbers, by) {
    numbers.forEach((i, n) => {
      const maker = makerOf(s, m, i), bytes = bytesFor(arrays[i], samples[m]);
      const came = reaching(stages[s], true).includes(i);
      const place = placeOf[came && name !== MESSAGES ? INPUTS_KEPT : name];
      const remade = maker >= s && !came && again(maker, m);
      const array = ((maker * 2 + (remade ? 1 : 0)) * microbatches + m) * arrays.length + i;
      if (maker === s && numbers.indexOf(i) < n) meters[device].now[place] += by * bytes; // copied under each name
      else meters[device].count(array, place, by, bytes);
    });
  }
  const summed = new Set();
  function run(part, device, time) {
    const [s, k, m] = [stage[part], kind[part], microbatch[part]], of = stages[s];
    const holds = TABLES.holds[k === F && again(s, m) ? "recomputed" : KINDS[k]];
    for (const [name, by] of Object.entries(holds)) change(device, s, m, name, of.keeps[name], by);
    const step = { [F]: 1, [B]: -1, [I]: -1 }[k], target = homeOf(s + step, m);
    if (homeOf(s - step, m) >= 0) change(device, s, m, MESSAGES, reaching(of, step > 0), -1);
    if (target >= 0) {
      change(target, s + step, m, MESSAGES, reaching(stages[s + step], step > 0), 1);
      if (target !== device) meters[target].sample(time);
    }
    const copy = device * stages.length + s;
    if ((k === B || k === W) && !summed.has(copy)) {
      summed.add(copy);
      meters[device].now[placeOf[GRADIENTS]] += bytesFor(of.gradients, samples[m]);
    }
  }
  for (const e of inOrder(timeline)) {
    for (let part = parts[e]; part < parts[e + 1]; part++) run(part, home[e], end[e]);
    meters[home[e]].sample(end[e], start[e] === end[e]);
  }
  return meters.map(({ times, total, columns }) => {
    const bytes = Object.fromEntries(TABLES.categories.map((name, place) => [name, columns[place]]));
    return { times, bytes, total };
  });
}
