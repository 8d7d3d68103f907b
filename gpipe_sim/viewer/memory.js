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

const WAYS = { [F]: 1, [B]: -1, [I]: -1 }; // to later stages, or to earlier ones
const bytesFor = ([fixed, perSample], samples) => fixed + perSample * samples;

/** The arrays that reach a stage from the one before it (way 1), or, as a gradient, from the one after it (way -1). */
const reaching = (of, way) => (way > 0 ? of?.keeps["boundary inputs"] : of?.["output gradient"]) ?? [];

/** The bytes of a message of this program: a function for `simulate`. */
export function messageBytes(sizes, program) {
  const samples = samplesOf(program, sizes), { kind, stage, microbatch } = program;
  return ({ part }) => {
    const way = WAYS[kind[part]], bytes = (i) => bytesFor(sizes.arrays[i], samples[microbatch[part]]);
    return reaching(sizes.stages[stage[part] + way], way).reduce((sum, i) => sum + bytes(i), 0);
  };
}

const eachCategory = (value) => Object.fromEntries(TABLES.categories.map((name) => [name, value()]));

/** What one device holds: bytes by category, now and where actions ended. */
class Meter {
  times = [];
  total = [];
  bytes = eachCategory(() => []);
  now = eachCategory(() => 0);
  held = new Map(); // by array, the categories that hold it

  /** An array is held in a category once more (by = 1), or once less. */
  count(array, name, by, bytes) {
    const before = this.held.get(array) ?? [];
    const after = by > 0 ? [...before, name] : before.toSpliced(before.indexOf(name), 1);
    const first = (names) => TABLES.categories.find((each) => names.includes(each));
    if (before.length) this.now[first(before)] -= bytes;
    if (after.length) this.now[first(after)] += bytes;
    if (after.length) this.held.set(array, after);
    else this.held.delete(array);
  }

  /** The last sample of each moment counts; an action that takes no time has its own. */
  sample(time, instant) {
    const again = !instant && this.times.at(-1) === time, i = this.times.length - (again ? 1 : 0);
    this.times[i] = time;
    this.total[i] = 0;
    for (const name of TABLES.categories) this.total[i] += this.bytes[name][i] = this.now[name];
  }
}

/** Steps {times, bytes: {category: [...]}, total} of each device, where actions end; null if `whyNoBytes` says why. */
export function bytesHeld(timeline, sizes) {
  const { program, start, end } = timeline, { stages, arrays } = sizes;
  if (whyNoBytes(program, sizes)) return null;
  const { placement, home, parts, stage, kind, microbatch, entry, find } = program, samples = samplesOf(program, sizes);
  const homeOf = (s, m) => home[entry[find(F, s, m)]], meters = placement.map(() => new Meter());
  meters.forEach((meter, device) => {
    for (const s of placement[device])
      for (const name of ["parameters", "optimizer state"]) meter.now[name] += stages[s][name];
    meter.sample(0);
  });

  /** The stage that made an array which it may have from the stages before (way 1) or after it, on its device. */
  function makerOf(i, s, m, way) {
    const handed = reaching(stages[s], way).includes(i) && homeOf(s - way, m) === homeOf(s, m);
    return handed ? makerOf(i, s - way, m, way) : s;
  }

  /** A device holds these arrays of a stage and microbatch once more, or once less. */
  function change(meter, s, m, name, by, numbers = stages[s].keeps[name]) {
    const inputs = reaching(stages[s], 1);
    numbers.forEach((i, place) => {
      const came = inputs.includes(i), maker = makerOf(i, s, m, came ? 1 : -1), bytes = bytesFor(arrays[i], samples[m]);
      const counts = came && name !== "messages" ? "boundary inputs" : name, again = came ? -1 : find(R, maker, m);
      const array = (again < 0 ? find(F, maker, m) : again) * arrays.length + i;
      if (maker === s && numbers.indexOf(i) < place) meter.now[counts] += by * bytes; // one copy under each name
      else meter.count(array, counts, by, bytes);
    });
  }

  /** An action ends: it takes the message that it needs, sends one, and makes and frees what TABLES.holds says. */
  function run(part, time) {
    const [s, k, m, device] = [stage[part], kind[part], microbatch[part], home[entry[part]]], meter = meters[device];
    const way = WAYS[k], gradients = -1 - s;
    const holds = TABLES.holds[k === F && find(R, s, m) >= 0 ? "recomputed" : KINDS[k]];
    for (const [name, by] of Object.entries(holds)) change(meter, s, m, name, by);
    if (way && homeOf(s - way, m) >= 0) change(meter, s, m, "messages", -1, reaching(stages[s], way));
    const target = way && meters[homeOf(s + way, m)];
    if (target) change(target, s + way, m, "messages", 1, reaching(stages[s + way], way));
    if (target !== meter) target?.sample(time);
    if ((k === B || k === W) && !meter.held.has(gradients))
      meter.count(gradients, "gradients", 1, bytesFor(stages[s].gradients, samples[m]));
  }
  for (const e of inOrder(timeline)) {
    for (let part = parts[e]; part < parts[e + 1]; part++) run(part, end[e]);
    meters[home[e]].sample(end[e], start[e] === end[e]);
  }
  return meters;
}
