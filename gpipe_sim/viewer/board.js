// The empty board: one picks the next action of a device, and what cannot go says why. `Board` is the game without a
// page, `mountBoard` shows it. A puzzle is a record of puzzles.json, or what `freePuzzle` makes of a choice.

import { TABLES } from "./tables.js";
import { KINDS, countTo, durationsOf, lower, must, simulate } from "./clock.js";
import { number, why } from "./why.js";
import { roundAbove } from "./paint.js";
import { UNIT, orderFrom, percent } from "./runs.js";

const FREE = { name: "free", title: "A board of your own", idea: "Nobody has proven its par.", par: null };
const sumOf = (numbers) => numbers.reduce((sum, each) => sum + each, 0);
const textsOf = (actions) => actions.map(({ text }) => text).join(" ");
const workOf = (actions) => sumOf(actions.map(({ takes }) => takes));

/** All actions that a puzzle has to place, and those that are placed: `sequence`, in the order of the picks. */
export class Board {
  find = (kind, stage, microbatch = 0) => this.byText.get(stage + kind + microbatch);
  isLeft = (action) => !this.placed.has(action);
  fits = ({ home, holds }, { room } = this.puzzle) => !room || holds <= 0 || this.held[home] + holds <= room[home];
  needsOf = ({ needs }) => needs.map((need) => this.actions[need]);
  missing = (action) => this.needsOf(action).filter(this.isLeft);

  constructor(puzzle) {
    const { placement, microbatches, kinds, costs } = puzzle;
    const all = (s) => [...kinds].flatMap((kind) => countTo(microbatches).map((m) => ({ text: s + kind + m })));
    this.puzzle = puzzle;
    const work = lower(orderFrom(this.record(placement.map((stages) => stages.flatMap(all)))));
    const { needs, needsFrom, home } = work, takes = durationsOf(work, costs);
    this.actions = work.entries.map(([stage, k, microbatch], e) => {
      const kind = KINDS[k], holds = sumOf(Object.values(TABLES.holds[kind])); // 1 more, 0 or -1
      const found = { needs: [...needs.slice(needsFrom[e], needsFrom[e + 1])], home: home[e], takes: takes[e], holds };
      return { text: stage + kind + microbatch, stage, kind, microbatch, ...found };
    });
    this.byText = new Map(this.actions.map((action) => [action.text, action]));
    [this.history, this.at] = [[[]], 0]; // the sequence after each change, and which of these it is now
    this.restart([]);
  }

  /** The schedule of these rows, as charts record it. */
  record(rows) {
    const { title: name, placement, microbatches } = this.puzzle;
    return { name, family: null, options: {}, placement, microbatches, rows: rows.map(textsOf) };
  }

  /** Place these actions, in this order, and no others. */
  restart(sequence) {
    [this.rows, this.held, this.peaks] = [() => [], () => 0, () => 0].map((none) => this.puzzle.placement.map(none));
    [this.sequence, this.placed, this.known] = [[], new Set(), null];
    sequence.forEach((action) => this.put(action));
  }

  put(action) {
    const { home, holds } = action;
    for (const list of [this.sequence, this.rows[home]]) list.push(action);
    this.placed.add(action);
    this.held[home] += holds;
    this.peaks[home] = Math.max(this.peaks[home], this.held[home]);
    this.known = null;
  }

  get finished() { return this.placed.size === this.actions.length; }

  /** Of what is placed, none of which waits for what is not. */
  get timeline() {
    this.known ??= simulate(lower(orderFrom(this.record(this.rows))), this.puzzle.costs);
    return this.known;
  }

  /** By action, when what is placed starts and ends. */
  get times() {
    const { start, end } = this.timeline;
    return new Map(this.rows.flat().map((action, e) => [action, { start: start[e], end: end[e] }]));
  }

  /** Why an action cannot come next on its device, in the library's words; "" if it can. */
  refusal(action) {
    const { text, kind, home } = action;
    if (this.placed.has(action)) return `${text} stands 2 times; it must run once`;
    const where = (need) => (need.home === home ? "" : `, on device ${need.home}`);
    const reasons = this.missing(action).map((need) =>
      `${text} needs ${need.text} first${where(need)}: it ${TABLES.reasons[kind + need.kind]}`);
    return [...reasons, ...(this.fits(action) ? [] : [this.noRoom(action)])].join("; ");
  }

  noRoom({ text, home: device }) {
    const { kinds } = this.puzzle, frees = ({ stage, microbatch }) => this.find(kinds.at(-1), stage, microbatch);
    const kept = this.rows[device].filter((each) => each.kind === "F" && this.isLeft(frees(each)));
    const first = `${kept.length > 1 ? "one of " : ""}${textsOf(kept.map(frees))} has to come first`;
    return `${text} has no room: device ${device} holds ${textsOf(kept)}, as many as it may, so ${first}`;
  }

  /** Of each stage and kind that a device has left, the actions, lowest microbatch first. */
  left(device) {
    const { placement, kinds, microbatches } = this.puzzle, every = countTo(microbatches);
    const of = (kind, s) => every.map((m) => this.find(kind, s, m)).filter(this.isLeft);
    return placement[device].flatMap((s) => [...kinds].map((kind) => of(kind, s))).filter((some) => some.length);
  }

  /** Of each stage and kind that a device has left, the lowest microbatch, and the lowest that can go. */
  candidates(device) {
    const can = (some) => some.find((each) => !this.refusal(each)) ?? some[0];
    return this.left(device).flatMap((some) => [...new Set([some[0], can(some)])]);
  }

  /** What a choice would cost: when it runs, how long its device waits for that, how many it holds then. */
  preview(action) {
    const { sequence } = this, { home } = action, free = this.times.get(this.rows[home].at(-1))?.end ?? 0;
    this.restart([...sequence, action]);
    const { start, end } = this.times.get(action), holds = this.held[home];
    this.restart(sequence);
    return { start, end, wait: start - free, holds };
  }

  /** The actions that a text spells, such as "0F0 0B0"; Error for what the board does not have. */
  read(text) {
    return text.split(/\s+/).filter(Boolean).map((word) => {
      if (this.byText.has(word)) return this.byText.get(word);
      throw new Error(`there is no "${word.slice(0, 20)}" on this board; type actions such as 0F0`);
    });
  }

  /** Place what can go of lists of actions, each in its own order; what is left of them. */
  fill(lists) {
    const left = lists.map((actions) => [...actions]), goes = ([first]) => first && !this.refusal(first);
    for (let some; (some = left.find(goes)); ) this.put(some.shift());
    return left.filter((some) => some.length);
  }

  /** Place lists of actions, each in its own order, as one change; Error with the reason at what cannot go. */
  place(...lists) {
    const [blocked] = this.fill(lists);
    this.change(this.sequence);
    if (blocked) throw new Error(this.refusal(blocked[0]));
  }

  /** Have these and no others placed, as one change. */
  change(sequence) {
    this.restart(sequence);
    if (sequence.length !== this.history[this.at].length)
      this.history = [...this.history.slice(0, ++this.at), sequence];
  }

  /** Undo a change (-1), or do it again (1). */
  turn(by) {
    this.at = Math.max(0, Math.min(this.at + by, this.history.length - 1));
    this.restart(this.history[this.at]);
  }

  /** What may come next on a device, now or later: it has room, and needs nothing that is left there. */
  mayComeNext(device) {
    const needsDevice = (action) => this.missing(action).some((need) => need.home === device || needsDevice(need));
    return this.left(device).map(([first]) => first).filter((first) => this.fits(first) && !needsDevice(first));
  }

  /** Place what has no alternative, microbatches in turn, until every device has a choice; what was placed. */
  step() {
    const count = this.sequence.length, isForced = (some) => some.length === 1 && !this.refusal(some[0]);
    const forced = () => this.rows.map((_, device) => this.mayComeNext(device)).find(isForced);
    for (let some; (some = forced()); ) this.put(some[0]);
    this.change(this.sequence);
    return this.sequence.slice(count);
  }

  /** After what is placed, each device's row again and again, with the next microbatches, while it goes; how many. */
  stamp() {
    const { rows, puzzle: { microbatches } } = this, count = this.sequence.length;
    const next = (row, by) => row.map(({ kind, stage, microbatch }) => this.find(kind, stage, microbatch + by));
    const later = rows.map((row) => new Set(countTo(microbatches - 1, 1).flatMap((by) => next(row, by))));
    this.fill(later.map((some) => [...some].filter((each) => each && this.isLeft(each))));
    this.change(this.sequence);
    return this.sequence.length - count;
  }

  /** Below what no order is, by device: it waits for a forward, does its work, and a gradient goes back. */
  get bounds() {
    const { placement, costs, kinds, microbatches } = this.puzzle;
    const message = (s) => (this.find("F", s).home === this.find("F", s - 1).home ? 0 : costs.comm);
    const way = (kind, s) => (s ? way(kind, s - 1) + this.find(kind, s - 1).takes + message(s) : 0);
    return placement.map((stages, device) => {
      const first = Math.min(...stages), head = way("F", first);
      const tail = way(kinds[1], first) + (kinds[2] ? this.find("W", 0).takes : 0);
      const work = [...kinds].map((kind) => microbatches * workOf(stages.map((s) => this.find(kind, s))));
      return { device, head, value: head + Math.max(sumOf(work), work[0] + work[1] + tail) };
    });
  }

  /** Par, or where there is none, what no order is below. */
  get goal() { return this.puzzle.par ?? Math.max(...this.bounds.map(({ value }) => value)); }

  /** How much more than that it takes; a last digit of doubles is nothing. */
  get over() {
    const over = this.timeline.makespan - this.goal;
    return Math.abs(over) > 1e-9 * this.goal ? over : 0;
  }

  /** A finished board with one action a little sooner, or later for what is ready before it: all that can run. */
  * moves() {
    const { rows, times, puzzle: { room, costs } } = this;
    const there = (action) => (need) => times.get(need).end + (need.home === action.home ? 0 : costs.comm);
    const isReady = (action, time) => this.needsOf(action).every((need) => there(action)(need) < time);
    for (const row of rows) for (const [i, moved] of row.entries()) for (const to of row.keys()) {
      const sooner = to < i, next = row[i + 1], held = [0], again = row.toSpliced(i, 1).toSpliced(to, 0, moved);
      const helps = sooner ? isReady(moved, times.get(row[to]).end) : next && isReady(next, times.get(next).start);
      for (const { holds } of again) held.push(held.at(-1) + holds);
      if (to === i || Math.abs(to - i) > 8 || !helps || (room && Math.max(...held) > room[moved.home])) continue;
      const others = rows.map((each) => (each === row ? again : each));
      const { makespan, start, stuck } = simulate(lower(orderFrom(this.record(others))), costs);
      const starts = new Map(others.flat().map((action, e) => [action, start[e]]));
      if (!stuck.size) yield { moved, to, goes: sooner ? "sooner" : "later", makespan, sum: sumOf([...start]), starts };
    }
  }

  /** Where par was missed, the wait that becomes shorter by the best of such moves; null if none helps. */
  get lost() {
    if (!this.finished || this.over <= 0) return null;
    const { times, rows, timeline: { makespan, start } } = this, now = { makespan, sum: sumOf([...start]) };
    const better = (a, b) => a.makespan - b.makespan || a.sum - b.sum, endOf = (action) => times.get(action)?.end ?? 0;
    const [best] = [...this.moves()].filter((each) => better(each, now) < -1e-9).sort(better);
    const waitOf = (action, i, row) => ({ device: action.home, start: endOf(row[i - 1]), end: times.get(action).start,
      gain: times.get(action).start - best.starts.get(action) });
    const isWait = (each) => each.end > each.start, shorter = (a, b) => b.gain - a.gain;
    const [wait] = best ? rows.flatMap((row) => row.map(waitOf)).filter(isWait).sort(shorter) : [];
    return wait?.gain > 0 ? { ...best, ...wait, sentence: why(this.timeline, wait.device, wait.start).sentence } : null;
  }

  /**
   * The share of device time in which nobody works: at the goal, and of this order, or until it is whole what it has
   * of that already; and the most that a device holds, where room is least.
   */
  get score() {
    const { sequence, actions, rows, peaks, times, timeline: { makespan }, finished, goal } = this;
    const { room, placement, microbatches } = this.puzzle, until = (row) => times.get(row.at(-1))?.end ?? 0;
    const limits = room ?? placement.map((stages) => stages.length * microbatches);
    const [k] = countTo(rows.length).sort((a, b) => peaks[b] / limits[b] - peaks[a] / limits[a]);
    const spent = finished ? rows.length * makespan : sumOf(rows.map(until));
    const bubble = (spent - workOf(sequence)) / (rows.length * (finished ? makespan : goal));
    return { bubble, atGoal: 1 - workOf(actions) / (rows.length * goal), held: peaks[k], limit: limits[k], fullest: k };
  }

  /** What is to be said of a board that is finished, or on which nothing can go; else "". */
  get standing() {
    const { over, lost, puzzle: { par, gap, learnt } } = this, takes = `It takes ${number(this.timeline.makespan)}`;
    if (!this.finished) {
      const says = this.rows.flatMap((_, device) => this.candidates(device)).map((each) => this.refusal(each));
      return says.includes("") ? "" : `Nothing can go any more, so undo: ${says.join("; ")}.`;
    }
    const { sentence, moved, goes } = lost ?? {}, goal = par === null ? "the bound" : "par";
    const hint = lost ? ` A wait that costs time: ${sentence}; ${moved.text} could go ${goes}.`
      : " To move one action a little does not help.";
    if (over > 0) return `${takes}, ${number(over)} more than ${goal}.${hint}`;
    if (over < 0) return `${takes}, less than par: nobody had found that.`;
    return `${takes}: ${goal}, and ${gap ? "nobody knows whether an" : "no"} order takes less. ${learnt ?? ""}`.trim();
  }

  /** The rows as the library writes and reads them. */
  toText() {
    const { placement } = this.puzzle, devices = placement.length;
    const looped = placement.every((stages, k) => stages.every((s, i) => s === k + i * devices));
    const held = (stages) => (looped ? "" : `, stage${stages.length > 1 ? "s" : ""} ${stages.join(" ")}`);
    return this.rows.map((row, k) => `device ${k}${held(placement[k])}: ${textsOf(row)}`).join("\n");
  }
}

/** A board with these rows, such as ["0F0 0B0"], on it; Error if legal picks cannot make them. */
export function boardOf(puzzle, rows) {
  const board = new Board(puzzle), lists = rows.map((row) => board.read(row)), devices = puzzle.placement.length;
  must(rows.length === devices, `there are ${devices} devices, not ${rows.length}`);
  const [stray] = lists.flatMap((row, k) => row.filter(({ home }) => home !== k));
  if (stray) throw new Error(`${stray.text} belongs to device ${stray.home}`);
  board.place(...lists);
  return board;
}

/** The board of a saved state {puzzle: a name or "free", choice, rows}; Error in words if it is none. */
export function savedBoard({ puzzle: name, choice, rows }, puzzles) {
  const named = puzzles.find((each) => each.name === name);
  must(named || name === "free", `there is no puzzle "${String(name).slice(0, 40)}"`);
  const puzzle = named ?? freePuzzle(choice ?? {});
  return boardOf(puzzle, rows ?? puzzle.placement.map(() => ""));
}

/** The puzzle of a reader's choice, given as texts, without par; Error in words. */
export function freePuzzle(choice) {
  const plain = (word) => (/^\d{1,6}(\.\d{1,6})?$/.test(word) ? Number(word) : NaN);
  const read = (name) => String(choice[name] ?? "").split(/[\s,]+/).filter(Boolean).map(plain);
  const [[K], [M], limits, times] = ["devices", "microbatches", "room", "costs"].map(read), { stages, kinds } = choice;
  const needs = (right, says) => must(right, `a board needs ${says}`);
  needs(countTo(8).includes(K - 1), "1 to 8 devices");
  needs(countTo(16).includes(M - 1), "1 to 16 microbatches");
  needs(["1", "2", "V"].includes(stages) && ["FB", "FIW"].includes(kinds), "stages 1, 2 or V, and kinds FB or FIW");
  needs(times.length === 4 && times.every((each) => each >= 0) && times[0] > 0, "four times, such as 1 1 1 0");
  const placement = countTo(K).map((k) => ({ 1: [k], 2: [k, K + k], V: [k, 2 * K - 1 - k] })[stages]);
  const room = limits.length === 1 ? placement.map(() => limits[0]) : limits;
  needs([0, K].includes(room.length) && room.every(Number.isInteger), `room as one whole number, or ${K}, or none`);
  room.forEach((limit, k) => needs(limit >= placement[k].length, `room for ${placement[k].length} on device ${k}`));
  const [forward, input_grad, weight_grad, comm] = times, costs = { ...UNIT, forward, input_grad, weight_grad, comm };
  return { ...FREE, placement, microbatches: M, kinds, costs, room: room.length ? room : null, choice };
}

/**
 * Start the board that page.html has in a container. `load` shows a state in the page's charts, `make` makes elements.
 * What comes back has `state()`, {puzzle, choice, rows}, and `load(state)`: Error in words if it is none.
 */
export function mountBoard(container, { puzzles, load, make }) {
  const find = (name) => container.querySelector(`.board-${name}`);
  const [choose, own, tools, lanes, hint] = ["puzzle", "own", "tools", "lanes", "hint"].map(find);
  const choices = new WeakMap(); // by button, the box that it would add, or nothing
  const colourOf = (kind) => `--kind:${TABLES.kinds[kind].colour}`;
  const words = tools.elements.words, span = ({ start, end }) => `from ${number(start)} to ${number(end)}`;
  let board = new Board(puzzles[0]);
  const does = {
    u: () => board.turn(-1),
    r: () => board.turn(1),
    n: () => (board.finished ? "" : `Forced: ${textsOf(board.step()) || "nothing, you choose"}.`),
    p: () => `Each row again, with the next microbatches: ${board.stamp() || "nothing"} more placed.`,
    o: () => board.change([]),
  };

  /** What was saved, or what is chosen. */
  function begin(saved = { puzzle: choose.value }) {
    board = savedBoard({ ...saved, choice: saved.choice ?? Object.fromEntries(new FormData(own)) }, puzzles);
  }

  /** Place what is typed; what cannot go stays there. */
  function placeTyped() {
    attempt(() => board.place(board.read(words.value)));
    words.value = words.value.split(/\s+/).filter((word) => board.isLeft(board.byText.get(word))).join(" ");
    return false; // the form itself goes nowhere
  }

  /** Do something, and show what came of it, or why it cannot be. */
  function attempt(change) {
    try {
      draw(change());
    } catch (error) {
      draw(`${error.message}.`);
    }
  }

  const until = () => Math.max(board.timeline.makespan, 1.15 * board.goal); // every lane is a little longer than par
  const across = (time) => `${(100 * time) / until()}%`;

  function box(look, { start, end = start }, text = "", fill = "") {
    const style = `left:${across(start)};width:${across(end - start)};${fill}`;
    return make("i", { className: `board-box ${look}`, style }, make("span", {}, text));
  }

  function boxOf({ stage, kind, home, text }, times, more = "") {
    const later = stage > Math.min(...board.puzzle.placement[home]) ? "later" : "";
    return box(`${kind} ${later} ${more}`, times, text, colourOf(kind));
  }

  /** A line of the board: its name, a lane, a number, and what may come next. */
  function lineOf(name, boxes, says, label, ...next) {
    const lane = make("div", { className: "board-lane", role: "img", ariaLabel: `${name}: ${label}` }, ...boxes);
    return make("div", { className: "board-row" }, make("span", {}, name), lane, make("span", {}, says), ...next);
  }

  /** A device: what is placed, how much it holds, and what may come next, under where that can begin. */
  function deviceLine(row, k) {
    const { times, puzzle: { room }, held, goal } = board, name = `device ${k}`;
    const runs = row.map((each) => `${each.text} ${span(times.get(each))}`).join(", ") || "nothing yet";
    const boxes = [...row.map((each) => boxOf(each, times.get(each))), box("goal", { start: goal })];
    const buttons = board.candidates(k).map(choiceOf), free = times.get(row.at(-1))?.end ?? 0;
    const traits = { className: "board-next", role: "group", ariaLabel: `${name}, next` };
    const next = make("div", { ...traits, style: `--free:${across(free)};--count:${buttons.length}` }, ...buttons);
    return lineOf(name, boxes, `${held[k]}${room ? ` of ${room[k]}` : ""}`, runs, next);
  }

  /** A button that places an action; pointed at, it says what that would cost, or why it cannot be. */
  function choiceOf(action) {
    const refusal = board.refusal(action), { wait, holds, ...runs } = refusal ? {} : board.preview(action);
    const { text, kind, home } = action, waits = wait ? `, after a wait of ${number(wait)}` : "";
    const ariaLabel = refusal || `${text}: ${span(runs)}${waits}; then device ${home} holds ${holds}`;
    const onclick = () => refusal || attempt(() => board.place([action])); // what is refused has said why
    const traits = { type: "button", style: colourOf(kind), ariaLabel, ariaDisabled: Boolean(refusal), onclick };
    const button = make("button", traits, text);
    choices.set(button, refusal ? "" : boxOf(action, runs, "ghost"));
    return button;
  }

  /** Of what is pointed at, or has the focus: what it says, and where it would run. */
  function look({ target }) {
    const is = choices.has(target), lane = target.closest(".board-row")?.querySelector(".board-lane");
    lanes.querySelector(".ghost")?.remove();
    hint.textContent = is ? target.ariaLabel : "";
    if (is) lane.append(choices.get(target));
  }

  /** A share and the best known one, on the axis of time, of which par is the whole. */
  function barOf([name, share, best, says]) {
    const boxes = [box("bar", { start: 0, end: share * board.goal }), box("goal", { start: best * board.goal })];
    return lineOf(name, boxes, says, `${says}; best known: ${percent(best)}`);
  }

  function draw(says) {
    const { puzzle, goal, lost, finished, actions, timeline: { makespan } } = board;
    const { bubble, atGoal, held, limit, fullest } = board.score, known = actions.findLast(({ kind }) => kind === "F");
    const name = `${puzzle.par === null ? "bound" : "par"} ${number(goal)}`, step = roundAbove(until() / 8);
    const had = [lanes, find("done")].some((each) => each.contains(document.activeElement));
    const k = [...lanes.children].findIndex((row) => row.contains(document.activeElement));
    const head = lineOf("", [box("mark", { start: goal }, name)], "held now", name);
    const ticks = countTo(until() / step + 1).map((i) => box("mark", { start: i * step }, number(i * step)));
    lanes.replaceChildren(head, ...board.rows.map(deviceLine), lineOf("time", ticks, "", `0 to ${number(until())}`));
    if (lost) lanes.children[lost.device + 1].querySelector(".board-lane").append(box("lost", lost));
    [choose.value, own.hidden] = [puzzle.name, puzzle.name !== "free"];
    find("idea").textContent = [puzzle.idea, puzzle.facts].join(" ");
    hint.textContent = "";
    find("say").textContent = [says, board.standing].filter(Boolean).join(" ");
    find("legend").replaceChildren(...[...puzzle.kinds].map((kind) => make("span", { className: "board-key" },
      make("i", { className: `board-box ${kind}`, style: colourOf(kind) }), `${kind} ${TABLES.meanings[kind]}`)),
      `${known.text} is stage ${known.stage}, forward, microbatch ${known.microbatch}.`);
    const bars = [["waiting", bubble, atGoal, percent(bubble)]];
    bars.push([`device ${fullest} at most`, held / limit, 1, `${held} of ${limit}`]);
    bars.push(["time", makespan / goal, 1, number(makespan)]);
    find("score").replaceChildren(...bars.map(barOf));
    find("done").replaceChildren(...(finished ? ending() : []));
    const canGo = (each) => each?.querySelector("button:not([aria-disabled=true])");
    if (had) [lanes.children[k], lanes, find("done"), tools].map(canGo).find(Boolean).focus();
  }

  /** A finished board as text to be copied, and what to do with it. */
  function ending() {
    const { name, costs } = board.puzzle, order = `"""\n${board.toText()}\n"""`, isFree = name === "free";
    const value = isFree ? `gp.simulate(gp.Explicit.parse(${order}))` : `gp.course.puzzle("${name}", ${order})`;
    const traits = { value, readOnly: true, rows: board.rows.length + 2, onfocus: ({ target }) => target.select() };
    const says = `Run this in Python to ${isFree ? "simulate" : "train with"} your order:`;
    const button = (words, onclick) => make("button", { type: "button", onclick }, words);
    const show = () => load({ charts: [{ schedule: board.record(board.rows), costs }], at: 0, ask: null });
    const after = [...choose.options].slice(choose.selectedIndex + 1, choose.selectedIndex + 2);
    const on = after.map((next) => button(`Next: ${next.text}`, () => attempt(() => begin({ puzzle: next.value }))));
    return [make("p", {}, ...on, button("See it in a chart", show)), make("label", {}, says, make("textarea", traits))];
  }

  choose.append(...[...puzzles, FREE].map(({ name, title }) => make("option", { value: name }, title)));
  own.onsubmit = () => attempt(begin) ?? false;
  tools.onsubmit = placeTyped;
  choose.onchange = () => attempt(begin);
  for (const button of tools.querySelectorAll("[type=button]")) button.onclick = () => attempt(does[button.value]);
  for (const event of ["pointerover", "focusin", "pointerleave"]) lanes.addEventListener(event, look);
  container.onkeydown = ({ key, target, ctrlKey, metaKey, altKey }) => {
    const types = target.matches("input, select, textarea") || ctrlKey || metaKey || altKey;
    if (!types && Object.hasOwn(does, key)) attempt(does[key]);
  };
  draw();
  return {
    state: ({ puzzle: { name, choice = null }, rows } = board) => ({ puzzle: name, choice, rows: rows.map(textsOf) }),
    load(saved) {
      begin(saved);
      draw();
    },
  };
}
