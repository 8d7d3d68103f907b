// The rows of every family of schedules, as the library orders them, and the sizes that a family refuses.
//
// What makes a family's rows takes its size (devices, microbatches, its own options) and its placement, and then, for
// each device, the stages that it holds and its number. Names, defaults and refusals are the library's.

import { TABLES } from "./tables.js";
import { B, F, I, NEEDS, R, U, W, countTo } from "./clock.js";

const looped = ({ devices: K, stages_per_device: V = 1 }) => countTo(K).map((k) => countTo(V).map((v) => k + v * K));
const vShaped = ({ devices }) => countTo(devices).map((k) => [k, 2 * devices - 1 - k]);
const bidirectional = ({ devices }) => countTo(devices).map((k) => [k, devices - 1 - k]);

/** GPipe and looped BFS: all forwards, stage by stage, then all backwards. */
const fillAndDrain = ({ microbatches, drain }) => (held) => {
  const all = (kind) => held.flatMap((stage) => countTo(microbatches).map((m) => [stage, kind, m]));
  return [...all(F), ...(drain === "in_order" ? all(B) : all(B).reverse())];
};

/** A row out of ways [slot in time, maker], each repeated so often, every `period` slots; in one slot as listed. */
function repeated(times, period, ways) {
  const slots = {};
  for (const [slot, make] of ways) for (let i = 0; i < times; i++) (slots[slot + period * i] ??= []).push(make(i));
  return Object.values(slots).flat();
}

/**
 * 1F1B and its kin: a device runs `ahead` forwards more for each device after it, and with a split backward puts
 * weight gradients off by `ahead` microbatches for each device before it. Updates come once in so many gradients.
 */
const oneFOneB = (ahead, ...kinds) => ({ devices, microbatches, every = 1 }) => (_, k) => {
  const late = (kind) => ahead * (kind === F ? 0 : kind === W ? devices - 1 : devices - 1 - k);
  const row = repeated(microbatches, 1, kinds.map((kind) => [late(kind), (m) => [k, kind, m]]));
  return row.filter(([, kind, m]) => kind !== U || (m + 1) % every === 0 || m + 1 === microbatches);
};

const groupsOf = (K, M) => Math.max(1, Math.floor(M / K));

/** 1F1B, group by group, each through every stage that the device holds. */
const interleaved = ({ devices, microbatches }) => (held, k) => {
  const groups = groupsOf(devices, microbatches), group = microbatches / groups;
  const through = (kind, stages, from) => stages.flatMap((stage) => countTo(group, from).map((m) => [stage, kind, m]));
  const turns = (kind, stages) => countTo(groups).flatMap((i) => through(kind, stages, i * group));
  const forwards = turns(F, held), backwards = turns(B, held.toReversed());
  const warmup = 2 * (devices - k - 1) + (held.length - 1) * group;
  return repeated(forwards.length, 1, [[0, (i) => forwards[i]], [warmup, (i) => backwards[i]]]);
};

/** Two 1F1B in opposite directions, in units of K microbatches; no two actions are in one slot. */
const chimera = ({ devices: K, microbatches }) => (_, k) => {
  const ways = countTo(K).flatMap((i) => {
    const stage = i < K / 2 ? k : K - 1 - k, slot = 2 * (i % (K / 2));
    const way = (kind) => (unit) => [stage, kind, K * unit + i];
    return [[slot + stage, way(F)], [slot + 2 * K - 1 - stage, way(B)]];
  });
  return repeated(Math.ceil(microbatches / K), 2 * K, ways).filter(([, , m]) => m < microbatches);
};

/** What makes the next action of this kind on a stage each time that it is called. */
const nextOf = (stage, kind, m = 0) => () => [stage, kind, m++];

/** A row out of runs: n times what these make. */
const rowOf = (...runs) => runs.flatMap(([n, ...makers]) => countTo(n).flatMap(() => makers.map((make) => make())));

/** For fewer than 2K-1 microbatches, the order of 2K-1 without the extra ones. */
const zbV = ({ devices: K, microbatches }) => (held, k) => {
  const [[F0, I0, W0], [F1, I1, W1]] = held.map((stage) => [F, I, W].map((kind) => nextOf(stage, kind)));
  const all = Math.max(microbatches, 2 * K - 1), late = K - k - 1; // late: forwards that came before all of these
  const steady = [[all - K - late, F0, I0, W0, F1, I1, W1], [late, I0, W0, F1, I1, W1]];
  const warmup = [[2 * (K - k) - 1, F0], [k, F1, F0], [K - k, F1, I1, W1]];
  const row = rowOf(...warmup, ...steady, [k, I0, I1], [K - k, I0, W0], [k, W1], [k, W0]);
  return row.filter(([, , m]) => m < microbatches);
};

/** DualPipe's order for number `place` of the `depth` devices from its end to the middle, by near and far stage. */
function eightSteps(depth, place, microbatches, [near, far], [m, n]) {
  const below = depth - place - 1, steady = microbatches - 2 * depth + place + 1, due = [];
  const [F0, F1, B0, B1] = [nextOf(near, F, m), nextOf(far, F, n), nextOf(near, B, m), nextOf(far, B, n)];
  const [I0, I1] = [B0, B1].map((backward) => () => {
    const [stage, , microbatch] = backward();
    due.push([stage, W, microbatch]);
    return [stage, I, microbatch];
  });
  const weights = () => due.shift(), pair = () => [...F0(), ...B1()], other = () => [...F1(), ...B0()];
  const turns = countTo(2 * (place + 1)).map((i) => [1, (i > place ? [I1, I0] : [B1, B0])[i % 2]]);
  const apart = below ? 0 : 1; // as in the authors' program
  const warmup = [[2 * below, F0], [place + 1, F0, F1], [below, I1, weights, F1], [apart, F0, B1, other]];
  const cooldown = [[below, B1, other], ...turns, [below, weights, I0], [place + 1, weights]];
  return rowOf(...warmup, [steady - apart, pair, other], ...cooldown);
}

const dualPipeV = ({ devices, microbatches }) => (held, k) => eightSteps(devices, k, microbatches, held, [0, 0]);

const dualPipe = ({ devices, microbatches }) => ([k, opposite]) => {
  const half = microbatches / 2, place = Math.min(k, opposite);
  return eightSteps(devices / 2, place, half, [place, devices - 1 - place], k > opposite ? [half, 0] : [0, half]);
};

/**
 * V-Min and V-Half: a device runs its first F or I that can run, in unit time; if none can, the oldest W that is due.
 * First is by slot: `hop` of them from device to device on the ways back, and `gap` more between F and I. A device
 * holds at most `limit` stage-activations, and an F that overtakes others leaves room for them.
 */
const filled = (hop, sizesOf) => ({ devices, microbatches }, placement) => {
  const [gap, limit] = sizesOf(devices), turn = devices + hop * (devices - 1) + gap;
  const never = () => placement.flat().map(() => new Float64Array(microbatches).fill(Infinity));
  const ended = { [F]: never(), [I]: never(), [W]: never() };
  const isReady = ([stage, kind, m], clock) =>
    NEEDS[kind].every(([source, step]) => (ended[source]?.[stage + step]?.[m] ?? 0) <= clock);
  const lanes = placement.map(([down, up], k) => {
    const back = devices + hop * (devices - 1 - k), way = (stage, kind) => (m) => [stage, kind, m];
    const ways = [[k, way(down, F)], [back, way(up, F)], [turn + k, way(up, I)], [turn + back, way(down, I)]];
    return { coming: repeated(microbatches, 6, ways).reverse(), due: [], room: limit, row: [] }; // its last is first
  });
  for (let clock = 0; lanes.some(({ coming, due }) => coming.length || due.length); clock++)
    for (const lane of lanes) {
      const { coming, due } = lane;
      let { room } = lane;
      const i = coming.findLastIndex((each) => (each[1] === F && --room < 0) || isReady(each, clock));
      const action = i >= 0 && room >= 0 ? coming.splice(i, 1)[0] : due.shift();
      if (!action) continue;
      const [stage, kind, m] = action;
      if (kind === I) due.push([stage, W, m]);
      else lane.room += kind === F ? -1 : 1;
      ended[kind][stage][m] = clock + 1;
      lane.row.push(action);
    }
  return (_, k) => lanes[k].row;
};

/** What makes each family's rows, and where its stages are unless looped. */
const MADE = {
  Naive: [oneFOneB(0, F, B)], GPipe: [fillAndDrain], OneFOneB: [oneFOneB(1, F, B)], Eager1F1B: [oneFOneB(2, F, B)],
  Interleaved1F1B: [interleaved], LoopedBFS: [fillAndDrain],
  ZBH1: [oneFOneB(1, F, I, W)], ZBH2: [oneFOneB(2, F, I, W)], ZBV: [zbV, vShaped],
  VHalf: [filled(2, (K) => [K % 2 ? 3 : 6, 2 * Math.floor((K + 2) / 2)]), vShaped],
  VMin: [filled(1, (K) => [3, 2 * Math.floor((K + 4) / 3)]), vShaped],
  DualPipe: [dualPipe, bidirectional], DualPipeV: [dualPipeV, vShaped], Chimera: [chimera, bidirectional],
  PipeDream: [oneFOneB(1, F, B, U)], PipeDream2BW: [oneFOneB(1, F, B, U)], PipelinedBackprop: [oneFOneB(1, F, B, U)],
};
/** By the name of its class: {name, options: {option: default}, stages_per_device, flush}. */
export const FAMILIES = TABLES.about_families;

/** Throws what the library says if one of the rules [whether it is kept, what is said if not] is broken. */
function insistOn(owner, ...rules) {
  const broken = rules.find(([kept]) => !kept);
  if (broken) throw new Error(`${owner} ${broken[1]}`);
}

const need = (kept, what, got, more = "") => [kept, `needs ${what} (got ${got})${more}`];
const whole = ([name, n]) =>
  [need(Number.isInteger(n), `${name} to be a whole number`, n), need(n >= 1, `${name} >= 1`, n)];
const even = (name, n) => need(n % 2 === 0, `an even number of ${name}`, n, `; ${n + 1} would work`);
const oneOf = (choices, name, value) =>
  need(choices.includes(value), `${name} to be one of ('${choices.join("', '")}')`, `'${value}'`);
const filling = (K, M) => need(M >= 2 * K, `microbatches >= ${2 * K}, twice its devices`, M);

function equalGroups(K, M) {
  const cuts = (m) => m % groupsOf(K, m) === 0;
  const works = [-1, 1].map((step) => countTo(K).map((i) => M + step * i).find(cuts)).join(" or ");
  const cannot = `${M} do not cut into ${Math.floor(M / K)} (devices=${K}); microbatches=${works} would work`;
  return [cuts(M), `takes microbatches in max(1, M // K) equal groups, and ${cannot}`];
}

/** The rules of one family alone, for sizes that are whole numbers. */
const RULES = {
  Interleaved1F1B: (K, M) => [equalGroups(K, M)],
  DualPipe: (K, M) => [even("devices", K), even("microbatches", M), filling(K, M)],
  DualPipeV: (K, M) => [filling(K, M)],
  Chimera: (K) => [even("devices", K)],
  PipeDream2BW: (K, _, every) =>
    [need(every >= K, `every >= devices, here ${K}, as in its paper`, every, "; PipeDream takes any")],
};

/** Throws the library's sentence if a family refuses a size. */
function insistOnSize(family, { devices: K, microbatches: M, stages_per_device: V, drain = "reversed", every = 1 }) {
  const counts = Object.entries({ devices: K, microbatches: M, stages_per_device: V }), pairs = K * M * V;
  const few = need(pairs <= TABLES.most, `at most ${TABLES.most_written} pairs of stage and microbatch`, pairs);
  insistOn(family, ...counts.flatMap(whole), few, oneOf(TABLES.drains, "drain", drain), ...whole(["every", every]));
  insistOn(family, ...(RULES[family]?.(K, M, every) ?? []));
}

/** A family's order, or an Error in the library's words; options that it does not take are left out. */
export function orderOf(family, { devices, microbatches, ...given }) {
  if (!Object.hasOwn(MADE, family)) throw new Error(`there is no family ${family}`);
  const { name, options, stages_per_device } = FAMILIES[family], [rowsOf, placed = looped] = MADE[family];
  const size = { devices, microbatches };
  for (const [option, usual] of Object.entries(options)) size[option] = given[option] ?? usual ?? devices;
  insistOnSize(family, { stages_per_device, ...size });
  const placement = placed(size), rows = placement.map(rowsOf(size, placement));
  return { name, family, options: size, placement, microbatches, rows };
}

/** A family's order with an R before each backward that recomputes, as gp.remat. */
export function withRecompute(order, mode) {
  insistOn("remat", oneOf(TABLES.modes, "mode", mode));
  if (mode === "never") return order;
  const entered = (row) => row.findLast(([stage, kind]) => stage === 0 && kind === F)?.[2];
  const kept = new Set(mode === "always" ? [] : order.rows.map(entered)); // one a direction
  const chosen = ([, kind, m]) => (kind === B || kind === I) && !kept.has(m);
  const restored = (entry) => [entry.slice(0, 3), entry.slice(3)].filter(chosen).map(([stage, , m]) => [stage, R, m]);
  const rows = order.rows.map((row) => row.flatMap((entry) => [...restored(entry), entry]));
  return { ...order, family: null, name: `${order.name} with recompute`, rows };
}
