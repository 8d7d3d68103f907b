// What a reader moves: sliders and choices, and how a record follows them. Records are replaced, not changed, so that
// what stays the same need not run again.

import { TABLES } from "./tables.js";
import { FAMILIES } from "./families.js";
import { UNIT, rangeOf } from "./runs.js";

/** The controls of a page with these charts; `size` has what its families share, `changed` is called after a change. */
export function controlsOf(page, changed) {
  const live = () => page.charts.filter(({ record }) => !record.times);
  const plain = () => live().filter(({ record }) => !record.schedule.rows);
  const options = (record) => FAMILIES[record.schedule.family].options;
  const each = (charts, change) => {
    for (const chart of charts) chart.record = { ...chart.record, ...change(chart.record, chart.run?.program) };
    changed();
  };

  /** A schedule of a family with the page's sizes; an option that follows from these unless it is given follows again. */
  function ofFamily(family, { options: old = {}, recompute = "never" }) {
    const { devices, microbatches } = page.size, own = { devices, microbatches };
    for (const [name, usual] of Object.entries(FAMILIES[family].options)) own[name] = usual === null ? null : (old[name] ?? usual);
    if ("stages_per_device" in own) own.stages_per_device = page.size.stages_per_device;
    return { family, options: own, recompute };
  }
  const resize = (name) => (value) => {
    page.size[name] = value;
    each(plain(), ({ schedule }) => ({ schedule: ofFamily(schedule.family, schedule) }));
  };

  const even = (list) => (list.every((value) => value === list[0]) ? list[0] : list);
  const oneOf = (cost, count, place, value) => even(rangeOf(count).map((i) => (i === place ? value : Array.isArray(cost) ? cost[i] : cost)));
  const costNow = (name) => {
    const cost = live()[0]?.record.costs[name] ?? UNIT[name];
    return Array.isArray(cost) ? cost[Math.min(page.stage ?? 0, cost.length - 1)] : cost;
  };
  const setCost = (name) => (value) =>
    each(live(), ({ costs }, program) => ({
      costs: { ...costs, [name]: name === "comm" || page.stage === null || !program ? value : oneOf(costs[name], program.stages, page.stage, value) },
    }));
  function slowest() {
    const speed = live()[0]?.record.costs.speed;
    if (!Array.isArray(speed)) return [null, 1];
    return [speed.indexOf(Math.min(...speed)), Math.max(...speed) / Math.min(...speed)];
  }
  const setSlow = (device, times) =>
    each(live(), ({ costs }, program) => ({
      costs: { ...costs, speed: device === null ? 1 : oneOf(1, program?.devices ?? page.size.devices, device, 1 / times) },
    }));

  const families = Object.entries(FAMILIES).map(([family, { name }]) => [family, name]);
  const family = (label, n) => ({
    id: `family${n}`, label, enabled: () => n < page.charts.length,
    choices: () => (page.charts[n]?.given ? [["", `${page.charts[n].given.schedule.name} (given)`], ...families] : families),
    now: () => (page.charts[n] && !page.charts[n].record.schedule.rows ? page.charts[n].record.schedule.family : ""),
    set: (chosen) => each([page.charts[n]], (record) => chosen === "" ? page.charts[n].given : {
      times: null, costs: record.costs ?? live()[0]?.record.costs ?? UNIT, schedule: ofFamily(chosen, record.schedule.rows ? {} : record.schedule),
    }),
  });
  const size = (id, label, name, to, enabled) => ({ id, label, range: [1, to, 1], now: () => page.size[name], set: resize(name), enabled, more: id === "V" });
  const cost = (id, label, name) => ({ id, more: true, label, range: [0, 4, 0.25], now: () => costNow(name), set: setCost(name), enabled: () => live().length });
  const place = (text) => (text === "" ? null : Number(text));
  return [
    family("above", 0),
    family("below", 1),
    size("K", "devices K", "devices", 32, () => plain().length),
    size("M", "microbatches M", "microbatches", 64, () => plain().length),
    size("V", "stages each", "stages_per_device", 4, () => plain().some(({ record }) => "stages_per_device" in options(record))),
    {
      id: "recompute", more: true, label: "recompute", enabled: () => plain().length,
      choices: () => TABLES.modes.map((mode) => [mode, mode.replace("_", " ")]).reverse(),
      now: () => plain()[0]?.record.schedule.recompute ?? "never",
      set: (recompute) => each(plain(), ({ schedule }) => ({ schedule: { ...schedule, recompute } })),
    },
    {
      id: "stage", more: true, label: "costs of", enabled: () => live().length,
      choices: () => [["", "every stage"], ...rangeOf(Math.max(1, ...live().map(({ run }) => run?.program.stages ?? 1))).map((s) => [s, `stage ${s}`])],
      now: () => page.stage ?? "",
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
      id: "slow", more: true, label: "slow device", enabled: () => live().length,
      choices: () => [["", "none"], ...rangeOf(page.size.devices).map((d) => [d, `device ${d}`])],
      now: () => slowest()[0] ?? "", set: (text) => setSlow(place(text), Math.max(2, slowest()[1])),
    },
    {
      id: "times", more: true, label: "how many times", range: [1, 4, 0.25], enabled: () => slowest()[0] !== null,
      now: () => slowest()[1], set: (times) => setSlow(slowest()[0], times),
    },
  ];
}
