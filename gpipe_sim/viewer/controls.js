// What a reader moves: sliders and choices, and how a record follows them. Records are replaced, not changed, so that
// what stays the same need not run again.

import { TABLES } from "./tables.js";
import { countTo } from "./clock.js";
import { FAMILIES } from "./families.js";
import { UNIT } from "./runs.js";

/** A cost with another value at one of `count` places: a list, unless all are equal. */
function withValue(cost, count, place, value) {
  const list = countTo(count).map((i) => (i === place ? value : (cost[i] ?? cost)));
  return list.every((each) => each === list[0]) ? list[0] : list;
}

/**
 * The controls that page.html has: {id, now: its value, set, of: the charts that it moves, choices of a select}.
 * `page.size` is what the page's families share, `page.stage` the one whose costs move, or null; `changed` is called
 * after a change.
 */
export function controlsOf(page, changed) {
  const live = () => page.charts.filter(({ record }) => !record.times);
  const plain = () => live().filter(({ record }) => !record.schedule.rows);
  const looped = () => plain().filter(({ record }) => "stages_per_device" in FAMILIES[record.schedule.family].options);
  const costs = () => live()[0]?.record.costs ?? UNIT;

  function change(charts, how) {
    for (const chart of charts) chart.record = { ...chart.record, ...how(chart) };
    changed();
  }

  /**
   * What a chart's record gets of a family with the page's sizes: options that follow from these unless given follow
   * again, and what did not fit the sizes before may fit these.
   */
  function ofFamily({ record: { schedule }, given: { links, sizes, limit, message_bytes } }, family) {
    const { devices, microbatches } = page.size, options = { devices, microbatches };
    const set = { ...schedule.options, ...page.size }, { recompute = "never" } = schedule;
    for (const [name, usual] of Object.entries(FAMILIES[family].options)) options[name] = usual && (set[name] ?? usual);
    return { schedule: { family, options, recompute }, links, sizes, limit, message_bytes };
  }

  const family = (n) => ({
    id: `family${n}`, of: () => page.charts,
    choices() {
      const chart = page.charts[n], families = Object.entries(FAMILIES).map(([id, { name }]) => [id, name]);
      if (chart && !chart.given.schedule.rows) return families;
      return [[null, chart ? `${chart.given.schedule.name} (given)` : "none"], ...families];
    },
    now: () => page.charts[n]?.record.schedule.rows ? null : page.charts[n]?.record.schedule.family,
    set(chosen) {
      page.charts[n] ??= { record: page.charts[0].record, given: page.charts[0].given };
      const run = (chart) => ({ times: null, costs: chart.record.costs ?? costs(), ...ofFamily(chart, chosen) });
      change([page.charts[n]], chosen ? run : ({ given }) => given);
    },
  });

  const size = (id, name, of) => ({
    id, of, now: () => page.size[name],
    set(value) {
      page.size[name] = value;
      change(plain(), (chart) => ofFamily(chart, chart.record.schedule.family));
    },
  });

  const setCost = (name, valueOf) => change(live(), ({ record: { costs: old }, run }) =>
    ({ costs: { ...old, [name]: valueOf(old[name], run?.program) } }));
  const cost = (id, name) => ({
    id, of: live, now: () => [costs()[name]].flat().findLast((_, stage) => stage <= (page.stage ?? 0)),
    set: (value) => setCost(name, (old, program) => (
      name === "comm" || page.stage === null || !program ? value : withValue(old, program.stages, page.stage, value)
    )),
  });

  /** The slowest device, or null if all are as fast, and how many times as long as on the fastest it takes there. */
  function slowest() {
    const speeds = [costs().speed].flat(), most = Math.max(...speeds), least = Math.min(...speeds);
    return most > least ? [speeds.indexOf(least), most / least] : [null, 1];
  }
  const slowed = () => (slowest()[0] === null ? [] : live());
  const slow = (device, times) =>
    setCost("speed", (_, program) => withValue(1, program?.devices ?? page.size.devices, device, 1 / times));

  const stages = () => Math.max(...page.charts.map(({ run }) => run?.program.stages ?? 1));
  const oneOf = (what, count) => countTo(count).map((each) => [each, `${what} ${each}`]);
  return [
    family(0), family(1), size("K", "devices", plain),
    { ...size("V", "stages_per_device", looped), now: () => Math.ceil(stages() / page.size.devices) },
    size("M", "microbatches", plain), size("typed", "microbatches", plain),
    {
      id: "recompute", of: plain, now: () => plain()[0]?.record.schedule.recompute ?? "never",
      choices: () => TABLES.modes.toReversed().map((mode) => [mode, mode.replace("_", " ")]),
      set: (recompute) => change(plain(), ({ record }) => ({ schedule: { ...record.schedule, recompute } })),
    },
    {
      id: "stage", of: live, now: () => page.stage,
      choices: () => [[null, "every stage"], ...oneOf("stage", stages())],
      set(stage) {
        page.stage = stage;
        changed();
      },
    },
    cost("F", "forward"), cost("I", "input_grad"), cost("W", "weight_grad"), cost("comm", "comm"),
    {
      id: "slow", of: live, now: () => slowest()[0],
      choices: () => [[null, "none"], ...oneOf("device", page.size.devices)],
      set: (device) => slow(device, Math.max(2, slowest()[1])),
    },
    { id: "times", of: slowed, now: () => slowest()[1], set: (times) => slow(slowest()[0], times) },
  ];
}
