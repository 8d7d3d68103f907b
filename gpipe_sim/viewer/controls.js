// What a reader moves: sliders and choices, and how a record follows them. Records are replaced, not changed, so that
// what stays the same need not run again.

import { TABLES } from "./tables.js";
import { FAMILIES } from "./families.js";
import { UNIT, countTo } from "./runs.js";

/**
 * The controls of a page: {id, label, more: whether it can hide, range or choices, now, set, enabled}. `page.size` is
 * what the page's families share, `page.stage` the one whose costs move, or null; `changed` is called after a change.
 */
export function controlsOf(page, changed) {
  const live = () => page.charts.filter(({ record }) => !record.times);
  const plain = () => live().filter(({ record }) => !record.schedule.rows);
  const looped = ({ record }) => "stages_per_device" in FAMILIES[record.schedule.family].options;
  const costs = () => live()[0]?.record.costs ?? UNIT;

  function change(charts, how) {
    for (const chart of charts) chart.record = { ...chart.record, ...how(chart.record, chart.run?.program) };
    changed();
  }

  /** A schedule of a family with the page's sizes; an option that follows from these unless given follows again. */
  function ofFamily(family, { options: old = {}, recompute = "never" }) {
    const { devices, microbatches, stages_per_device } = page.size, options = { devices, microbatches };
    for (const [name, usual] of Object.entries(FAMILIES[family].options)) options[name] = usual && (old[name] ?? usual);
    if ("stages_per_device" in options) options.stages_per_device = stages_per_device;
    return { family, options, recompute };
  }

  const oneOf = (cost, count, place, value) => {
    const list = countTo(count).map((i) => (i === place ? value : Array.isArray(cost) ? cost[i] : cost));
    return list.every((each) => each === list[0]) ? list[0] : list;
  };
  const costNow = (name) => {
    const cost = costs()[name];
    return Array.isArray(cost) ? cost[Math.min(page.stage ?? 0, cost.length - 1)] : cost;
  };
  const setCost = (name, value) => change(live(), ({ costs: old }, program) => {
    const all = name === "comm" || page.stage === null || !program;
    return { costs: { ...old, [name]: all ? value : oneOf(old[name], program.stages, page.stage, value) } };
  });
  const slowest = () => {
    const { speed } = costs(), most = Math.max(...[speed].flat()), least = Math.min(...[speed].flat());
    return most > least ? [speed.indexOf(least), most / least] : [null, 1];
  };
  const setSlow = (device, times) => change(live(), ({ costs: old }, program) => {
    const count = program?.devices ?? page.size.devices;
    return { costs: { ...old, speed: device === null ? 1 : oneOf(1, count, device, 1 / times) } };
  });

  const families = Object.entries(FAMILIES).map(([family, { name }]) => [family, name]);
  const family = (n, label) => ({
    id: `family${n}`, label, enabled: () => n <= page.charts.length,
    choices: () => {
      const chart = page.charts[n], given = chart ? chart.given && `${chart.given.schedule.name} (given)` : "none";
      return given ? [["", given], ...families] : families;
    },
    now: () => {
      const schedule = page.charts[n]?.record.schedule;
      return !schedule || schedule.rows ? "" : schedule.family;
    },
    set: (chosen) => {
      if (chosen === "" && !page.charts[n]?.given) return;
      page.charts[n] ??= { record: { ...page.charts[0].record, schedule: {} }, given: null };
      change([page.charts[n]], ({ costs: own, schedule }) => (chosen === "" ? page.charts[n].given : {
        times: null, costs: own ?? costs(), schedule: ofFamily(chosen, schedule.rows ? {} : schedule),
      }));
    },
  });
  const size = (id, label, name, to, enabled) => ({
    id, label, more: id === "V", range: [1, to, 1], enabled, now: () => page.size[name],
    set: (value) => {
      page.size[name] = value;
      change(plain(), ({ schedule }) => ({ schedule: ofFamily(schedule.family, schedule) }));
    },
  });
  const cost = (id, label, name) => ({
    id, label, more: true, range: [0, 4, 0.25], enabled: () => live().length,
    now: () => costNow(name), set: (value) => setCost(name, value),
  });
  const place = (text) => (text === "" ? null : Number(text)), many = () => plain().length;
  const stages = () => Math.max(1, ...live().map(({ run }) => run?.program.stages ?? 1));
  return [
    family(0, "above"),
    family(1, "below"),
    size("K", "devices K", "devices", 32, many),
    size("M", "microbatches M", "microbatches", 64, many),
    size("V", "stages each", "stages_per_device", 4, () => plain().some(looped)),
    {
      id: "recompute", label: "recompute", more: true, enabled: many,
      choices: () => TABLES.modes.toReversed().map((mode) => [mode, mode.replace("_", " ")]),
      now: () => plain()[0]?.record.schedule.recompute ?? "never",
      set: (recompute) => change(plain(), ({ schedule }) => ({ schedule: { ...schedule, recompute } })),
    },
    {
      id: "stage", label: "costs of", more: true, enabled: () => live().length, now: () => page.stage ?? "",
      choices: () => [["", "every stage"], ...countTo(stages()).map((s) => [s, `stage ${s}`])],
      set: (text) => {
        page.stage = place(text);
        changed();
      },
    },
    cost("F", "F forward", "forward"),
    cost("I", "I input gradient", "input_grad"),
    cost("W", "W weight gradient", "weight_grad"),
    cost("comm", "message", "comm"),
    {
      id: "slow", label: "slow device", more: true, enabled: () => live().length, now: () => slowest()[0] ?? "",
      choices: () => [["", "none"], ...countTo(page.size.devices).map((d) => [d, `device ${d}`])],
      set: (text) => setSlow(place(text), Math.max(2, slowest()[1])),
    },
    {
      id: "times", label: "how many times", more: true, range: [1, 4, 0.25], enabled: () => slowest()[0] !== null,
      now: () => slowest()[1], set: (times) => setSlow(slowest()[0], times),
    },
  ];
}
