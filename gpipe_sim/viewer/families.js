// The rows of every family of schedules, as the library orders them, and the sizes that a family refuses.
//
// Most rows are made from (size, device, held): `size` has devices, microbatches and the family's own options, and
// `held` lists the device's stages. Names, options and their defaults are the library's, and so is every refusal.

import { TABLES } from "./tables.js";
import { B, F, I, R, U, W } from "./clock.js";

const upTo = (count) => Array.from({ length: Math.max(0, count) }, (_, i) => i);
/** What makes the next action of this kind on a stage each time that it is called. */
const nextOf = (stage, kind, m = 0) => () => [stage, kind, m++];

/** A row out of runs [times, ...makers]. */
function rowOf(...runs) {
  const row = [];
  for (const [times, ...makers] of runs) for (let i = 0; i < times; i++) for (const make of makers) row.push(make());
  return row;
}

const looped = ({ devices, stages_per_device: V = 1 }) => upTo(devices).map((k) => upTo(V).map((v) => k + v * devices));
const vShaped = ({ devices }) => upTo(devices).map((k) => [k, 2 * devices - 1 - k]);
const bidirectional = ({ devices }) => upTo(devices).map((k) => [k, devices - 1 - k]);

/** GPipe and looped BFS: all forwards, stage by stage, then all backwards. */
function fillAndDrain({ microbatches, drain }, _, held) {
  const all = (kind) => held.flatMap((stage) => upTo(microbatches).map((m) => [stage, kind, m]));
  return [...all(F), ...(drain === "in_order" ? all(B) : all(B).reverse())];
}

/** Some forwards ahead; then one forward and one backward, which may be several actions, in turn; then what is left. */
function alternate(count, warmup, forward, ...backward) {
  const ahead = Math.min(warmup, count);
  return rowOf([ahead, forward], [count - ahead, forward, ...backward], [ahead, ...backward]);
}

/** 1F1B, with `times` = 2 the eager one, and with 0 the naive one. */
const oneFOneB = (times) => ({ devices, microbatches }, k) =>
  alternate(microbatches, times * (devices - k - 1), nextOf(k, F), nextOf(k, B));

/** ZB-H1, and with `times` = 2 ZB-H2: a weight gradient comes some microbatches after its input gradient. */
const zeroBubble = (times) => ({ devices, microbatches }, k) => {
  const delay = Math.min(times * k, microbatches), weights = nextOf(k, W, -delay); // those before 0 are left out
  const row = alternate(microbatches, times * (devices - k - 1), nextOf(k, F), nextOf(k, I), weights);
  return [...row, ...rowOf([delay, weights])].filter(([, , m]) => m >= 0);
};

/** 1F1B with an update once every so many gradients are in, and after the last. */
function stream({ devices, microbatches, every = 1 }, k) {
  const row = alternate(microbatches, devices - k - 1, nextOf(k, F), nextOf(k, B), nextOf(k, U));
  return row.filter(([, kind, m]) => kind !== U || (m + 1) % every === 0 || m + 1 === microbatches);
}

const groupsOf = (K, M) => Math.max(1, Math.floor(M / K));

/** Group by group, each through every stage that the device holds. */
function interleaved({ devices, microbatches }, k, held) {
  const group = microbatches / groupsOf(devices, microbatches), through = group * held.length;
  const turns = (kind, stages, i = -1) => () => {
    const place = ++i % through; // in its group
    return [stages[Math.floor(place / group)], kind, Math.floor(i / through) * group + (place % group)];
  };
  const warmup = 2 * (devices - k - 1) + (held.length - 1) * group;
  return alternate(held.length * microbatches, warmup, turns(F, held), turns(B, [...held].reverse()));
}

/** Every action in a slot of its own; the next unit of K microbatches begins 2K slots later. */
function chimera({ devices: K, microbatches }, k) {
  const slots = [];
  for (let m = 0; m < microbatches; m++) {
    const within = m % K, stage = within < K / 2 ? k : K - 1 - k, start = 2 * (m - within + (within % (K / 2)));
    slots[start + stage] = [stage, F, m];
    slots[start + 2 * K - 1 - stage] = [stage, B, m];
  }
  return slots.filter(Boolean);
}

/** For fewer than 2K-1 microbatches, the order of 2K-1 without the extra ones. */
function zbV({ devices: K, microbatches }, k, held) {
  const [[F0, I0, W0], [F1, I1, W1]] = held.map((stage) => [F, I, W].map((kind) => nextOf(stage, kind)));
  const all = Math.max(microbatches, 2 * K - 1), late = K - k - 1; // late: forwards that came before all of these
  const steady = [[all - K - late, F0, I0, W0, F1, I1, W1], [late, I0, W0, F1, I1, W1]];
  const warmup = [[2 * (K - k) - 1, F0], [k, F1, F0], [K - k, F1, I1, W1]];
  const row = rowOf(...warmup, ...steady, [k, I0, I1], [K - k, I0, W0], [k, W1], [k, W0]);
  return row.filter(([, , m]) => m < microbatches);
}

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
  const turns = upTo(2 * (place + 1)).map((i) => [1, (i > place ? [I1, I0] : [B1, B0])[i % 2]]);
  const apart = below ? [] : [[1, F0, B1, other]]; // as in the authors' program
  return rowOf(
    ...[[2 * below, F0], [place + 1, F0, F1], [below, I1, weights, F1]],
    ...[...apart, [steady - apart.length, pair, other], [below, B1, other]],
    ...[...turns, [below, weights, I0], [place + 1, weights]],
  );
}

const dualPipeV = ({ devices, microbatches }, k, held) => eightSteps(devices, k, microbatches, held, [0, 0]);

function dualPipe({ devices, microbatches }, k) {
  const half = microbatches / 2, mirrored = k >= devices / 2, place = mirrored ? devices - 1 - k : k;
  return eightSteps(devices / 2, place, half, [place, devices - 1 - place], mirrored ? [half, 0] : [0, half]);
}

/**
 * V-Min and V-Half: a device runs its first F or I that can run, in unit time; if none can, the oldest W that is due.
 * First is by slot in a block, which is repeated every six: `slotsOf` gives a device's F down, F back, I down, I back.
 * It holds at most `limit` stage-activations, and an F that overtakes others leaves room for them.
 */
const filled = (slotsOf, limit) => ({ devices, microbatches }, placement) => {
  const last = 2 * devices - 1, never = () => new Float64Array(2 * devices * microbatches).fill(Infinity);
  const done = { [F]: never(), [I]: never(), [W]: never() };
  const orders = placement.map(([down, back], k) => {
    const ways = [[down, F], [back, F], [back, I], [down, I]], slots = slotsOf(k, devices - 1);
    const repeated = (way, i) => upTo(microbatches).map((m) => [slots[i] + 6 * m, [...way, m]]);
    const all = ways.flatMap(repeated).sort(([slot], [other]) => slot - other); // of two in a slot, the earlier way
    return all.map(([, action]) => action).reverse(); // what comes first is last, where it is quick to take out
  });
  const lanes = orders.map((coming) => ({ coming, due: [], room: limit(devices), row: [] }));
  const hasRun = (kind, stage, m, clock) => done[kind][stage * microbatches + m] <= clock;
  const ready = ([stage, kind, m], clock) =>
    kind === F
      ? stage === 0 || hasRun(F, stage - 1, m, clock)
      : hasRun(F, stage, m, clock) && (stage === last || hasRun(I, stage + 1, m, clock));
  for (let clock = 0; lanes.some(({ coming, due }) => coming.length || due.length); clock++) {
    for (const lane of lanes) {
      const { coming } = lane;
      let { room } = lane, i = coming.length - 1;
      while (i >= 0 && (coming[i][1] !== F || --room >= 0) && !ready(coming[i], clock)) i--;
      const action = i >= 0 && room >= 0 ? coming.splice(i, 1)[0] : lane.due.shift();
      if (!action) continue;
      const [stage, kind, m] = action;
      if (kind === I) lane.due.push([stage, W, m]);
      else lane.room += kind === F ? -1 : 1;
      done[kind][stage * microbatches + m] = clock + 1;
      lane.row.push(action);
    }
  }
  return lanes.map(({ row }) => row);
};

/** For device k, where L is the last: one slot from device to device, in V-Half two on the ways back. */
const slotsOfVMin = (k, L) => [k, 2 * L + 1 - k, 2 * L + 4 + k, 4 * L + 5 - k];
const slotsOfVHalf = (k, L, turn = L % 2 ? 7 : 4) => [k, 3 * L + 1 - 2 * k, 3 * L + turn + k, 6 * L + turn + 1 - 2 * k];

/** [a row's maker, where the stages are unless looped, the maker of all rows at once instead]. */
const MADE = {
  Naive: [oneFOneB(0)], GPipe: [fillAndDrain], OneFOneB: [oneFOneB(1)], Eager1F1B: [oneFOneB(2)],
  Interleaved1F1B: [interleaved], LoopedBFS: [fillAndDrain], ZBH1: [zeroBubble(1)], ZBH2: [zeroBubble(2)],
  ZBV: [zbV, vShaped],
  VHalf: [null, vShaped, filled(slotsOfVHalf, (K) => 2 * Math.floor((K + 2) / 2))],
  VMin: [null, vShaped, filled(slotsOfVMin, (K) => 2 * Math.floor((K + 4) / 3))],
  DualPipe: [dualPipe, bidirectional], DualPipeV: [dualPipeV, vShaped], Chimera: [chimera, bidirectional],
  PipeDream: [stream], PipeDream2BW: [stream], PipelinedBackprop: [stream],
};
/** By the name of its class: {name, options: {option: default}, stages_per_device, flush}. */
export const FAMILIES = TABLES.about_families;

function insist(fine, sentence) {
  if (!fine) throw new Error(sentence);
}

function insistOnOneOf(owner, name, value, choices) {
  const said = `('${choices.join("', '")}') (got '${value}')`;
  insist(choices.includes(value), `${owner} needs ${name} to be one of ${said}`);
}

/** Throws the library's sentence if a family refuses a size. */
function insistOnSize(family, { devices: K, microbatches: M, stages_per_device: V, drain, every }) {
  const needs = (fine, what, value, more = "") => insist(fine, `${family} needs ${what} (got ${value})${more}`);
  const whole = (name, value) => {
    needs(Number.isInteger(value), `${name} to be a whole number`, value);
    needs(value >= 1, `${name} >= 1`, value);
  };
  const even = (name, n) => needs(n % 2 === 0, `an even number of ${name}`, n, `; ${n + 1} would work`);
  Object.entries({ devices: K, microbatches: M, stages_per_device: V }).forEach((each) => whole(...each));
  needs(K * M * V <= TABLES.most, `at most ${TABLES.most_written} pairs of stage and microbatch`, K * M * V);
  if (drain !== undefined) insistOnOneOf(family, "drain", drain, TABLES.drains);
  if (every !== undefined) whole("every", every);
  if (family === "PipeDream2BW")
    needs(every >= K, `every >= devices, here ${K}, as in its paper`, every, "; PipeDream takes any");
  if (MADE[family][1] === bidirectional) even("devices", K);
  if (family === "DualPipe") even("microbatches", M);
  if (family.startsWith("DualPipe")) needs(M >= 2 * K, `microbatches >= ${2 * K}, twice its devices`, M);
  if (family === "Interleaved1F1B") insistOnGroups(family, K, M);
}

function insistOnGroups(family, K, M) {
  const cuts = (m) => m % groupsOf(K, m) === 0, works = [M, M];
  while (!cuts(works[0])) works[0]--;
  while (!cuts(works[1])) works[1]++;
  const cannot = `${M} do not cut into ${Math.floor(M / K)} (devices=${K}); microbatches=${works.join(" or ")}`;
  insist(cuts(M), `${family} takes microbatches in max(1, M // K) equal groups, and ${cannot} would work`);
}

/** A family's order, or an Error in the library's words; options that it does not take are left out. */
export function orderOf(family, given) {
  insist(Object.hasOwn(MADE, family), `there is no family ${family}`);
  const { name, options, stages_per_device } = FAMILIES[family], [row, placed = looped, all] = MADE[family];
  const { devices, microbatches } = given, size = { devices, microbatches };
  for (const [option, usual] of Object.entries(options)) size[option] = given[option] ?? usual ?? devices;
  insistOnSize(family, { stages_per_device, ...size });
  const placement = placed(size), rows = all?.(size, placement) ?? placement.map((held, k) => row(size, k, held));
  const said = Object.entries(size).filter(([, value]) => value !== options.drain); // nobody says "reversed"
  const repr = said.map(([each, value]) => `${each}=${each === "drain" ? `'${value}'` : value}`).join(", ");
  return { name, family, options: size, placement, microbatches, rows, repr: `${family}(${repr})` };
}

/** How the library writes a schedule, as its sentences begin with it. */
export const reprOf = ({ repr, rows, microbatches }) =>
  repr ?? `Explicit(devices=${rows.length}, microbatches=${microbatches})`;

/** An order with an R before each backward that recomputes, as gp.remat; `only` lists stages, null is all of them. */
export function withRecompute(order, mode, only = null) {
  const last = Math.max(...order.placement.flat()), stages = only && [...new Set(only)].sort((a, b) => a - b);
  insistOnOneOf("remat", "mode", mode, TABLES.modes);
  insist(!order.rows.flat().some((entry) => entry[1] === R), `${reprOf(order)} recomputes already`);
  insist(!(stages?.at(-1) > last), `${reprOf(order)} has stages 0 to ${last} (got ${stages?.at(-1)})`);
  if (mode === "never" || stages?.length === 0) return order;
  const later = (latest, [stage, kind, m]) => (stage === 0 && kind === F && m > latest ? m : latest);
  const kept = new Set(mode === "always" ? [] : order.rows.map((row) => row.reduce(later, -1))); // one a direction
  const chosen = ([stage, kind, m]) => (kind === B || kind === I) && !kept.has(m) && (stages?.includes(stage) ?? true);
  const restored = (entry) => [entry.slice(0, 3), entry.slice(3)].filter(chosen).map(([stage, , m]) => [stage, R, m]);
  const rows = order.rows.map((row) => row.flatMap((entry) => [...restored(entry), entry]));
  const repr = `remat(${reprOf(order)}, '${mode}'${stages ? `, stages=[${stages.join(", ")}]` : ""})`;
  return { ...order, family: null, name: `${order.name} with recompute`, rows, repr };
}
