// What devices hold: microbatches in flight, and bytes, as the library's meter counts them.
//
// `sizes` is what viewer/sizes.py makes of a profile. An array is there once on a device, however many hold it, and
// counts in the first category that does, in the order of TABLES.categories; a message to another device is a copy.

import { TABLES } from "./tables.js";
import { B, F, I, KINDS, R, U, W, countTo } from "./clock.js";
import { inOrder } from "./why.js";

/** Steps {times, counts} of each device: forwards that have run and whose B or W has not. */
export function inFlight({ program: { rows, home, parts, kind, entry }, start, end }) {
  const changes = rows.map(() => []);
  const timeOf = (part) => (part + 1 === parts[entry[part] + 1] ? end : start)[entry[part]]; // a pair runs at once
  kind.forEach((k, part) => changes[home[entry[part]]].push([timeOf(part), TABLES.in_flight[KINDS[k]]]));
  return changes.map(stepsOf);
}

/** Changes [time, more or less] as steps {times, counts}, from 0 on. */
export function stepsOf(changes) {
  let count = 0;
  changes.sort(([one], [other]) => one - other);
  return { times: [0, ...changes.map(([time]) => time)], counts: [0, ...changes.map(([, by]) => (count += by))] };
}

/** The place among a device's steps of the one that holds at a time. */
export function heldAt(steps, time, low = 0, high = steps.times.length) {
  const middle = (low + high) >> 1, half = steps.times[middle] <= time ? [middle, high] : [low, middle];
  return high - low > 1 ? heldAt(steps, time, ...half) : low;
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
  return countTo(count).map((m) => (evenly ? until(m + 1) - until(m) : until(1) + (m < larger ? 1 : 0)));
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

/** What one device holds: bytes by category, now and where actions ended; some it has from the beginning. */
function newMeter(own) {
  const each = (value) => Object.fromEntries(TABLES.categories.map((name) => [name, value()]));
  const times = [], total = [], bytes = each(() => []), now = { ...each(() => 0), ...own }, held = new Map();
  const first = (names) => TABLES.categories.find((name) => names.includes(name));

  /** An array is held in a category once more (by = 1), or once less. */
  function count(array, name, by, size) {
    const before = held.get(array) ?? [];
    const after = by > 0 ? [...before, name] : before.toSpliced(before.indexOf(name), 1);
    if (before.length) now[first(before)] -= size;
    if (after.length) now[first(after)] += size;
    if (after.length) held.set(array, after);
    else held.delete(array);
  }

  /** The last sample of each moment counts; an action that takes no time has its own. */
  function sample(time, instant) {
    const i = times.at(-1) === time && !instant ? times.length - 1 : times.length;
    [times[i], total[i]] = [time, 0];
    for (const name of TABLES.categories) total[i] += bytes[name][i] = now[name];
  }
  sample(0);
  return { times, bytes, total, now, held, count, sample };
}

/** Steps {times, bytes: {category: [...]}, total} of each device, where actions end; null if `whyNoBytes` says why. */
export function bytesHeld(timeline, sizes) {
  const { program, start, end } = timeline, { stages, arrays } = sizes;
  if (whyNoBytes(program, sizes)) return null;
  const { placement, home, parts, stage, kind, microbatch, entry, find } = program, samples = samplesOf(program, sizes);
  const homeOf = (s, m) => home[entry[find(F, s, m)]]; // undefined if there is no such stage
  const sum = (own, name) => ({ [name]: own.reduce((all, s) => all + stages[s][name], 0) });
  const meters = placement.map((own) => newMeter({ ...sum(own, "parameters"), ...sum(own, "optimizer state") }));

  /** The stage that made an array: on one device, the stages before (way 1) or after it hand theirs over. */
  function makerOf(i, s, m, way) {
    const handed = reaching(stages[s], way).includes(i) && homeOf(s - way, m) === homeOf(s, m);
    return handed ? makerOf(i, s - way, m, way) : s;
  }

  /** These arrays of a stage and microbatch are held once more, or once less. */
  function change(meter, s, m, name, by, numbers = stages[s].keeps[name]) {
    numbers.forEach((i, place) => {
      const came = reaching(stages[s], 1).includes(i), maker = makerOf(i, s, m, came ? 1 : -1);
      const forward = !came && find(R, maker, m) >= 0 ? R : F; // R makes all but the inputs again
      const copied = maker === s && numbers.indexOf(i) < place; // an array of two names is two on another device
      const array = find(forward, maker, m) * arrays.length + i;
      const counts = came && name !== "messages" ? "boundary inputs" : name;
      meter.count(copied ? `${array} as ${place}` : array, counts, by, bytesFor(arrays[i], samples[m]));
    });
  }

  /** An action ends: it holds and frees as TABLES.holds says, has used up a message, and sends one. */
  function run(part, meter, time) {
    const [s, k, m] = [stage[part], kind[part], microbatch[part]], way = WAYS[k], gradients = -1 - s;
    const holds = TABLES.holds[k === F && find(R, s, m) >= 0 ? "recomputed" : KINDS[k]];
    for (const [name, by] of Object.entries(holds)) change(meter, s, m, name, by);
    if (way && stages[s - way]) change(meter, s, m, "messages", -1, reaching(stages[s], way));
    const target = way && meters[homeOf(s + way, m)];
    if (target) change(target, s + way, m, "messages", 1, reaching(stages[s + way], way));
    if (target !== meter) target?.sample(time);
    if ((k === B || k === W) && !meter.held.has(gradients))
      meter.count(gradients, "gradients", 1, bytesFor(stages[s].gradients, samples[m]));
  }
  for (const e of inOrder(timeline)) {
    for (let part = parts[e]; part < parts[e + 1]; part++) run(part, meters[home[e]], end[e]);
    meters[home[e]].sample(end[e], start[e] === end[e]);
  }
  return meters;
}
