// The rows of every family of schedules, as the library orders them, and the sizes that a family refuses.
//
// Most rows are made from (size, device, held): `size` has devices, microbatches and the family's own options, and
// `held` lists the device's stages. Names, options and defaults are the library's tables; so is each refusal its own.

import { TABLES } from "./tables.js";
import { B, F, I, R, U, W } from "./clock.js";

const upTo = (count) => Array.from({ length: Math.max(0, count) }, (_, i) => i);

const looped = ({ devices, stages_per_device: V = 1 }) => upTo(devices).map((k) => upTo(V).map((v) => k + v * devices));
const vShaped = ({ devices }) => upTo(devices).map((k) => [k, 2 * devices - 1 - k]);
const bidirectional = ({ devices }) => upTo(devices).map((k) => [k, devices - 1 - k]);

const naive = ({ microbatches }, k) => upTo(microbatches).flatMap((m) => [[k, F, m], [k, B, m]]);

/** GPipe and looped BFS: all forwards, stage by stage, then all backwards. */
function fillAndDrain({ microbatches, drain }, _, held) {
  const all = (kind) => held.flatMap((stage) => upTo(microbatches).map((m) => [stage, kind, m]));
  return [...all(F), ...(drain === "in_order" ? all(B) : all(B).reverse())];
}

/** Some forwards ahead; then one forward and what `backward(m)` lists, in turn; then the backwards that are left. */
function alternate({ microbatches }, k, warmup, backward) {
  const ahead = Math.min(warmup, microbatches), row = upTo(ahead).map((m) => [k, F, m]);
  for (let m = 0; m < microbatches; m++) {
    if (ahead + m < microbatches) row.push([k, F, ahead + m]);
    row.push(...backward(m));
  }
  return row;
}

/** 1F1B, and with `times` = 2 the eager one. */
const oneFOneB = (times) => (size, k) => alternate(size, k, times * (size.devices - k - 1), (m) => [[k, B, m]]);

/** ZB-H1, and with `times` = 2 ZB-H2: a weight gradient comes some microbatches after its input gradient. */
const zeroBubble = (times) => (size, k) => {
  const delay = Math.min(times * k, size.microbatches), late = (m) => [k, W, m - delay];
  const backward = (m) => (m < delay ? [[k, I, m]] : [[k, I, m], late(m)]);
  const row = alternate(size, k, times * (size.devices - k - 1), backward);
  return [...row, ...upTo(delay).map((i) => late(size.microbatches + i))];
};

/** 1F1B with an update once every so many gradients are in, and after the last. */
function stream(size, k) {
  const { devices, microbatches, every = 1 } = size;
  const updates = (m) => (m + 1) % every === 0 || m + 1 === microbatches;
  return alternate(size, k, devices - k - 1, (m) => (updates(m) ? [[k, B, m], [k, U, m]] : [[k, B, m]]));
}

const groupsOf = ({ devices, microbatches }) => Math.max(1, Math.floor(microbatches / devices));

/** Group by group, each through every stage that the device holds. */
function interleaved(size, k, held) {
  const groups = groupsOf(size), group = size.microbatches / groups;
  const turns = (kind, stages) =>
    upTo(groups).flatMap((g) => stages.flatMap((stage) => upTo(group).map((i) => [stage, kind, g * group + i])));
  const forwards = turns(F, held), backwards = turns(B, [...held].reverse());
  const warmup = Math.min(2 * (size.devices - k - 1) + (held.length - 1) * group, forwards.length);
  const steady = forwards.slice(warmup).flatMap((forward, i) => [forward, backwards[i]]);
  return [...forwards.slice(0, warmup), ...steady, ...backwards.slice(backwards.length - warmup)];
}

/** Every action in a slot of its own; the next unit of K microbatches begins 2K slots later. */
function chimera({ devices, microbatches }, k) {
  const slots = [];
  for (let m = 0; m < microbatches; m++) {
    const unit = Math.floor(m / devices), within = m % devices, half = devices / 2;
    const stage = within < half ? k : devices - 1 - k, start = 2 * (devices * unit + (within % half));
    slots[start + stage] = [stage, F, m];
    slots[start + 2 * devices - 1 - stage] = [stage, B, m];
  }
  return slots.filter(Boolean);
}

/** For fewer than 2K-1 microbatches, the order of 2K-1 without the extra ones. */
function zbV({ devices, microbatches }, k, held) {
  const row = [], below = devices - k, total = Math.max(microbatches, 2 * devices - 1);
  const [F0, I0, W0, F1, I1, W1] = held.flatMap((stage) => [F, I, W].map((kind) => [stage, kind, 0])); // what is next
  const run = (times, ...turns) =>
    upTo(times).forEach(() => turns.forEach((next) => row.push([next[0], next[1], next[2]++])));
  run(2 * below - 1, F0);
  run(k, F1, F0);
  run(below, F1, I1, W1);
  for (let m = 0; m < total - devices; m++) {
    if (m < total - 2 * below + 1 - k) run(1, F0);
    run(1, I0, W0, F1, I1, W1);
  }
  run(k, I0, I1);
  run(below, I0, W0);
  run(k, W1);
  run(k, W0);
  return row.filter(([, , m]) => m < microbatches);
}

/** DualPipe's order for number `place` of the `depth` devices from its end to the middle; held is its [near, far]. */
function eightSteps(depth, place, microbatches, held, first) {
  const row = [], due = [], below = depth - place - 1, next = { [F]: [...first], [B]: [...first] };
  const make = (kind, side) => [held[side], kind, next[kind][side]++];
  const run = (kind) => (side) => () => row.push(make(kind, side));
  const [forward, backward] = [run(F), run(B)], weights = () => row.push(due.shift());
  const pair = (one, other) => () => row.push([...make(F, one), ...make(B, other)]);
  const split = (side) => () => {
    const [stage, , m] = make(B, side);
    row.push([stage, I, m]);
    due.push([stage, W, m]);
  };
  const repeat = (times, ...steps) => upTo(times).forEach(() => steps.forEach((step) => step()));
  const [NEAR, FAR] = [0, 1], steady = microbatches - 2 * depth + place + 1;
  repeat(2 * below, forward(NEAR));
  repeat(place + 1, forward(NEAR), forward(FAR));
  repeat(below, split(FAR), weights, forward(FAR));
  if (below === 0) repeat(1, forward(NEAR), backward(FAR), pair(FAR, NEAR)); // as in the authors' program
  repeat(below === 0 ? steady - 1 : steady, pair(NEAR, FAR), pair(FAR, NEAR));
  repeat(below, backward(FAR), pair(FAR, NEAR));
  for (let i = 0; i < 2 * (place + 1); i++) (i > place ? split : backward)(i % 2 ? NEAR : FAR)();
  repeat(below, weights, split(NEAR));
  repeat(place + 1, weights);
  return row;
}

function dualPipe({ devices, microbatches }, k) {
  const half = microbatches / 2, mirrored = k >= devices / 2, place = mirrored ? devices - 1 - k : k;
  return eightSteps(devices / 2, place, half, [place, devices - 1 - place], mirrored ? [half, 0] : [0, half]);
}

const dualPipeV = ({ devices, microbatches }, k, held) => eightSteps(devices, k, microbatches, held, [0, 0]);

/** F and I of a device by their slots in a block of V-Min or V-Half, which is repeated every six slots. */
function inSlotOrder({ devices, microbatches }, k, [down, back], hops, gaps) {
  const legs = [[down, F], [back, F], [back, I], [down, I]], placed = [];
  let begins = 0; // the slot of a leg on its first device
  legs.forEach(([stage, kind], leg) => {
    const slot = begins + hops[leg] * (leg % 2 ? devices - 1 - k : k);
    upTo(microbatches).forEach((m) => placed.push({ slot: slot + 6 * m, action: [stage, kind, m] }));
    begins += hops[leg] * (devices - 1) + gaps[leg];
  });
  return placed.sort((a, b) => a.slot - b.slot).map(({ action }) => action); // of two in a slot, the earlier leg
}

/**
 * V-Min and V-Half: a device runs its first F or I that can run, in unit time; if none can, the oldest W that is due.
 * It holds at most `limit` stage-activations, and an F that overtakes others leaves room for them.
 */
const filled = (hops, gaps, limit) => (size, placement) => {
  const { devices, microbatches } = size;
  const orders = placement.map((held, k) => inSlotOrder(size, k, held, hops, gaps(devices)));
  const lanes = orders.map((coming) => ({ coming, due: [], room: limit(devices), row: [] }));
  const [forward, backward] = upTo(2).map(() => upTo(2 * devices).map(() => [])); // by stage, when they have run
  const ready = ([stage, kind, m], clock) =>
    kind === F
      ? stage === 0 || forward[stage - 1][m] <= clock
      : forward[stage][m] <= clock && (stage === 2 * devices - 1 || backward[stage + 1][m] <= clock);
  const choose = ({ coming, room }, clock) => {
    for (let i = 0; i < coming.length; i++) {
      if (coming[i][1] === F && --room < 0) return -1;
      if (ready(coming[i], clock)) return i;
    }
    return -1;
  };
  for (let clock = 0; lanes.some(({ coming, due }) => coming.length || due.length); clock++) {
    for (const lane of lanes) {
      const chosen = choose(lane, clock), action = chosen < 0 ? lane.due.shift() : lane.coming.splice(chosen, 1)[0];
      if (!action) continue;
      const [stage, kind, m] = action;
      if (kind !== I) lane.room += kind === F ? -1 : 1;
      if (kind === I) lane.due.push([stage, W, m]);
      if (kind !== W) (kind === F ? forward : backward)[stage][m] = clock + 1;
      lane.row.push(action);
    }
  }
  return lanes.map(({ row }) => row);
};

// Each of these gives the sentence that refuses a value, or nothing.
const notWhole = (owner, name, value) =>
  (!Number.isInteger(value) && `${owner} needs ${name} to be a whole number (got ${value})`) ||
  (value < 1 && `${owner} needs ${name} >= 1 (got ${value})`);
const notOneOf = (owner, name, value, choices) =>
  !choices.includes(value) && `${owner} needs ${name} to be one of ('${choices.join("', '")}') (got '${value}')`;
const odd = (owner, name, value) =>
  value % 2 && `${owner} needs an even number of ${name} (got ${value}); ${value + 1} would work`;
const tooFew = (owner, { devices, microbatches: M }) =>
  M < 2 * devices && `${owner} needs microbatches >= ${2 * devices}, twice its devices (got ${M})`;

function unequalGroups({ devices, microbatches }) {
  const cuts = (m) => m % groupsOf({ devices, microbatches: m }) === 0;
  let [below, above] = [microbatches, microbatches];
  while (!cuts(below)) below--;
  while (!cuts(above)) above++;
  const says = `Interleaved1F1B takes microbatches in max(1, M // K) equal groups, and ${microbatches} do not cut into`;
  const works = `microbatches=${below} or ${above} would work`;
  return below < above && `${says} ${Math.floor(microbatches / devices)} (devices=${devices}); ${works}`;
}

function everyOf2BW({ devices, every }) {
  const says = `PipeDream2BW needs every >= devices, here ${devices}, as in its paper (got ${every})`;
  return notWhole("PipeDream2BW", "every", every) || (every < devices && `${says}; PipeDream takes any`);
}

function refuse(sentence) {
  if (sentence) throw new Error(sentence);
}

const byDevice = (row) => (size, placement) => placement.map((held, k) => row(size, k, held));

/** [rows, placement, what it refuses] of each family. */
const MADE = {
  Naive: [byDevice(naive)],
  GPipe: [byDevice(fillAndDrain), looped, ({ drain }) => notOneOf("GPipe", "drain", drain, TABLES.drains)],
  OneFOneB: [byDevice(oneFOneB(1))],
  Eager1F1B: [byDevice(oneFOneB(2))],
  Interleaved1F1B: [byDevice(interleaved), looped, unequalGroups],
  LoopedBFS: [byDevice(fillAndDrain)],
  ZBH1: [byDevice(zeroBubble(1))],
  ZBH2: [byDevice(zeroBubble(2))],
  ZBV: [byDevice(zbV), vShaped],
  VHalf: [filled([1, 2, 1, 2], (K) => [1, K % 2 ? 3 : 6, 1], (K) => 2 * Math.floor((K + 2) / 2)), vShaped],
  VMin: [filled([1, 1, 1, 1], () => [1, 3, 1], (K) => 2 * Math.floor((K + 4) / 3)), vShaped],
  DualPipe: [byDevice(dualPipe), bidirectional, (size) =>
    odd("DualPipe", "devices", size.devices) || odd("DualPipe", "microbatches", size.microbatches) || tooFew("DualPipe", size)],
  DualPipeV: [byDevice(dualPipeV), vShaped, (size) => tooFew("DualPipeV", size)],
  Chimera: [byDevice(chimera), bidirectional, ({ devices }) => odd("Chimera", "devices", devices)],
  PipeDream: [byDevice(stream), looped, ({ every }) => notWhole("PipeDream", "every", every)],
  PipeDream2BW: [byDevice(stream), looped, everyOf2BW],
  PipelinedBackprop: [byDevice(stream)],
};

/** By the library's name for its class: {name, options: {each: its default}, flush, perDevice: stages of a device}. */
export const FAMILIES = TABLES.about_families;

/** A family's order, or an Error in the library's words; options that it does not take are left out. */
export function orderOf(family, given) {
  refuse(!Object.hasOwn(MADE, family) && `there is no family ${family}`);
  const { name, options, stages_per_device } = FAMILIES[family], [rows, placed = looped, refused] = MADE[family];
  const size = { devices: given.devices, microbatches: given.microbatches };
  for (const [option, usual] of Object.entries(options)) size[option] = given[option] ?? usual ?? given.devices;
  const counts = { devices: size.devices, microbatches: size.microbatches, stages_per_device, ...size };
  const counted = ["devices", "microbatches", "stages_per_device"].map((each) => [each, counts[each]]);
  refuse(counted.map(([each, value]) => notWhole(family, each, value)).find(Boolean));
  const pairs = counted.reduce((product, [, value]) => product * value, 1);
  refuse(pairs > TABLES.most && `${family} needs at most 10,000,000 pairs of stage and microbatch (got ${pairs})`);
  refuse(refused?.(size));
  const placement = placed(size);
  return { name, family, options: size, placement, microbatches: size.microbatches, rows: rows(size, placement) };
}

/** How the library writes a schedule, as its sentences begin with it. */
export function reprOf({ family, options, rows, microbatches, remat }) {
  if (remat) return `remat(${reprOf(remat.order)}, '${remat.mode}'${remat.only ? `, stages=[${remat.only.join(", ")}]` : ""})`;
  if (!family) return `Explicit(devices=${rows.length}, microbatches=${microbatches})`;
  const said = Object.entries(options).filter(([, value]) => value !== "reversed");
  return `${family}(${said.map(([name, value]) => `${name}=${typeof value === "string" ? `'${value}'` : value}`).join(", ")})`;
}

/** An order with an R before each backward that is to recompute, as gp.remat; `only` lists stages, null is all of them. */
export function withRecompute(order, mode, only = null) {
  refuse(notOneOf("remat", "mode", mode, TABLES.modes));
  refuse(order.rows.some((row) => row.some((entry) => entry[1] === R)) && `${reprOf(order)} recomputes already`);
  const last = Math.max(...order.placement.flat()), high = Math.max(...(only ?? []), 0);
  refuse(high > last && `${reprOf(order)} has stages 0 to ${last} (got ${high})`);
  if (mode === "never" || only?.length === 0) return order;
  const lastOf = order.rows.map((row) => Math.max(-1, ...row.filter(([s, kind]) => s === 0 && kind === F).map((e) => e[2])));
  const again = ([stage, kind, m]) =>
    (kind === B || kind === I) && (mode === "always" || !lastOf.includes(m)) && (only?.includes(stage) ?? true);
  const restored = (entry) => [entry.slice(0, 3), entry.slice(3)].filter(again).map(([stage, , m]) => [stage, R, m]);
  const rows = order.rows.map((row) => row.flatMap((entry) => [...restored(entry), entry]));
  const remat = { order, mode, only: only && [...new Set(only)].sort((a, b) => a - b) };
  return { ...order, family: null, name: `${order.name} with recompute`, rows, remat };
}
