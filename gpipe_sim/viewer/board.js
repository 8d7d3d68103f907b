// The empty board: one picks the next action of a device, and what cannot go says why. `Board` is the game without a
// page, `mountBoard` shows it. A puzzle is a record of puzzles.json, or what `freePuzzle` makes of a reader's choice.

import { TABLES } from "./tables.js";
import { F, KINDS, countTo, durationsOf, lower, readEntry, simulate, writeEntry } from "./clock.js";
import { number, why } from "./why.js";
import { percent } from "./runs.js";

const sumOf = (numbers) => numbers.reduce((sum, each) => sum + each, 0);
const withMost = (items, value) => items.filter((each) => value(each) === Math.max(...items.map(value)));
/** How many more stage-activations a device holds after an action of a kind: +1, 0 or -1. */
const HELD_MORE = [...KINDS].map((kind) => sumOf(Object.values(TABLES.holds[kind])));

/** All that a puzzle has to place, and what is placed. Actions are numbers: their places in `work`, in no order. */
export class Board {
  constructor(puzzle) {
    const { placement, microbatches, kinds, title } = puzzle, every = countTo(microbatches);
    const ofStage = (s) => [...kinds].flatMap((kind) => every.map((m) => [s, KINDS.indexOf(kind), m]));
    const rows = placement.map((stages) => stages.flatMap(ofStage));
    this.puzzle = puzzle;
    this.work = lower({ name: title, family: null, options: {}, placement, microbatches, rows });
    this.takes = durationsOf(this.work, puzzle.costs);
    [this.past, this.future] = [[], []]; // what was placed, before each change and before each undo
    this.restart([]);
  }

  /** Place these actions, in this order, and no others. */
  restart(ids) {
    this.sequence = [];
    this.rows = this.puzzle.placement.map(() => []);
    [this.held, this.peaks] = [this.rows.map(() => 0), this.rows.map(() => 0)];
    [this.placed, this.known] = [new Uint8Array(this.work.size), null];
    ids.forEach((id) => this.put(id));
  }

  put(id) {
    const device = this.work.home[id];
    this.rows[device].push(id);
    this.sequence.push(id);
    [this.placed[id], this.known] = [1, null];
    this.held[device] += HELD_MORE[this.work.kind[id]];
    this.peaks[device] = Math.max(this.peaks[device], this.held[device]);
  }

  /** Rows as an order. Others are not placed yet, so nothing that is placed waits for them. */
  order(rows = this.rows) {
    const { name, family, options, placement, microbatches, entries } = this.work;
    return { name, family, options, placement, microbatches, rows: rows.map((row) => row.map((id) => entries[id])) };
  }

  get timeline() {
    this.known ??= simulate(lower(this.order()), this.puzzle.costs);
    return this.known;
  }

  /** By action, when what is placed starts and ends. */
  get times() {
    const { start, end } = this.timeline;
    return new Map(this.rows.flat().map((id, e) => [id, { start: start[e], end: end[e] }]));
  }

  get finished() {
    return this.placed.every((each) => each);
  }

  text(id) {
    return writeEntry(this.work.entries[id]);
  }

  texts(ids) {
    return ids.map((id) => this.text(id)).join(" ");
  }

  missing(id) {
    const { needs, needsFrom } = this.work;
    return [...needs.slice(needsFrom[id], needsFrom[id + 1])].filter((need) => !this.placed[need]);
  }

  /** Why an action cannot come next on its device, in the library's words; "" if it can. */
  refusal(id) {
    const { home, kind } = this.work, device = home[id], action = this.text(id);
    if (this.placed[id]) return `${action} stands 2 times; it must run once`;
    const reasons = this.missing(id).map((need) => {
      const there = home[need], needed = this.text(need), reason = TABLES.reasons[KINDS[kind[id]] + KINDS[kind[need]]];
      if (there === device) return `${action} stands before ${needed} on device ${device}, but ${reason}`;
      return `device ${device} is stuck at ${action}: it needs ${needed} (queued on device ${there})`;
    });
    return [...reasons, ...(this.fits(id) ? [] : [this.noRoom(id)])].join("; ");
  }

  fits(id) {
    const device = this.work.home[id], more = HELD_MORE[this.work.kind[id]], { room } = this.puzzle;
    return !room || more <= 0 || this.held[device] + more <= room[device];
  }

  noRoom(id) {
    const { home, kind, stage, microbatch, find } = this.work, { room, kinds } = this.puzzle, device = home[id];
    const frees = (one) => find(KINDS.indexOf(kinds.at(-1)), stage[one], microbatch[one]);
    const kept = this.rows[device].filter((one) => kind[one] === F && !this.placed[frees(one)]);
    const [limit, one] = [`${room[device]} stage-activations`, kept.length > 1 ? "one of " : ""];
    const first = `${one}${this.texts(kept.map(frees))} has to come first`;
    return `device ${device} may hold ${limit}, and holds those of ${this.texts(kept)}: ${first}`;
  }

  /** Of each stage and kind that a device has left, the actions, lowest microbatch first. */
  left(device) {
    const { first, stage, kind } = this.work, sorts = {};
    const ids = countTo(first[device + 1]).filter((id) => id >= first[device] && !this.placed[id]);
    for (const id of ids) (sorts[`${stage[id]} ${kind[id]}`] ??= []).push(id);
    return Object.values(sorts);
  }

  /** Of each stage and kind that a device has left, the lowest microbatch, and the lowest that can go. */
  candidates(device) {
    const can = (ids) => ids.find((id) => !this.refusal(id)) ?? ids[0];
    return this.left(device).flatMap((ids) => [...new Set([ids[0], can(ids)])]);
  }

  /** What a choice would cost: when it runs, how long its device waits for that, how many it holds then. */
  preview(id) {
    const device = this.work.home[id], rows = this.rows.map((row, k) => (k === device ? [...row, id] : row));
    const { start, end, program } = simulate(lower(this.order(rows)), this.puzzle.costs);
    const e = program.first[device + 1] - 1, free = e > program.first[device] ? end[e - 1] : 0;
    const holds = this.held[device] + HELD_MORE[this.work.kind[id]];
    return { start: start[e], end: end[e], wait: start[e] - free, holds };
  }

  /** Place actions one after the other, as one change; Error with the reason at the first that cannot go. */
  place(ids) {
    const [[blocked]] = this.change(() => this.fill([ids]));
    if (blocked !== undefined) throw new Error(this.refusal(blocked));
  }

  /** Change what is placed, as one change for undo. */
  change(act) {
    const before = this.sequence.slice(), answer = act();
    if (before.join() !== this.sequence.join()) [this.past, this.future] = [[...this.past, before], []];
    return answer;
  }

  undo() {
    if (!this.past.length) return;
    this.future.push(this.sequence);
    this.restart(this.past.pop());
  }

  redo() {
    if (!this.future.length) return;
    this.past.push(this.sequence);
    this.restart(this.future.pop());
  }

  /** The actions that a text spells, such as "0F0 0B0"; Error for what the board does not have. */
  read(text) {
    return text.split(/\s+/).filter(Boolean).map((word) => {
      const [stage, kind, microbatch, ...more] = readEntry(word) ?? [], id = this.work.find(kind, stage, microbatch);
      if (more.length || !(id >= 0)) throw new Error(`"${word.slice(0, 20)}" is no action of this board, such as 0F0`);
      return id;
    });
  }

  /** Place what can go of lists of actions, each in its own order; what is left of them. */
  fill(lists) {
    const left = lists.map((ids) => [...ids]), goes = (ids) => ids.length && !this.refusal(ids[0]);
    for (let ids; (ids = left.find(goes)); ) this.put(ids.shift());
    return left;
  }

  /** What may come next on a device, now or later: it has room, and needs nothing that is left there. */
  mayComeNext(device) {
    const { home } = this.work, lowest = this.left(device).map(([id]) => id);
    const needsDevice = (id) => this.missing(id).some((need) => home[need] === device || needsDevice(need));
    return lowest.filter((id) => this.fits(id) && !needsDevice(id));
  }

  /** Place what has no alternative, microbatches in turn, until every device has a choice; what was placed. */
  step() {
    const count = this.sequence.length, only = (ids) => (ids.length === 1 && !this.refusal(ids[0]) ? ids : []);
    const forced = () => this.rows.flatMap((_, device) => only(this.mayComeNext(device)));
    this.change(() => {
      for (let ids; (ids = forced()).length; ) this.put(ids[0]);
    });
    return this.sequence.slice(count);
  }

  /** Put all later microbatches where the last complete one is, each so much later that all ends soonest; how many. */
  stamp() {
    const { size, microbatch, home, stage, kind, find, microbatches } = this.work, { times, sequence } = this;
    const all = countTo(size), isMissing = (id) => !this.placed[id];
    const of = (m) => all.filter((id) => microbatch[id] === m);
    const model = countTo(microbatches).findLast((m) => !of(m).some(isMissing)), lacks = of(0).filter(isMissing);
    if (model === undefined) throw new Error(`no microbatch is complete: 0 lacks ${this.texts(lacks)}`);
    const like = (id) => times.get(find(kind[id], stage[id], model));
    const wanted = [...sequence, ...all.filter((id) => microbatch[id] > model && isMissing(id))];
    const repeated = (by) => {
      const due = (id) => times.get(id)?.start ?? like(id).start + (microbatch[id] - model) * by;
      const inTurn = wanted.toSorted((a, b) => due(a) - due(b)); // at one time, what is placed comes first
      this.restart([]);
      this.fill(this.rows.map((_, k) => inTurn.filter((id) => home[id] === k)));
      return { placed: this.sequence, ends: this.timeline.makespan, keeps: sequence.every((id) => this.placed[id]) };
    };
    const beside = (id) => of(model).filter((other) => home[other] === home[id]);
    const ends = of(model).flatMap((id) => beside(id).map((other) => like(other).end - like(id).start));
    this.change(() => {
      const found = [...new Set([...ends, this.timeline.makespan])].filter((by) => by > 0).map(repeated);
      const good = withMost(found.filter(({ keeps }) => keeps), ({ placed }) => placed.length);
      this.restart(withMost(good, (each) => -each.ends)[0]?.placed ?? sequence);
    });
    return this.sequence.length - sequence.length;
  }

  /** Below what no order is, by device: it waits for a forward, does its work, and a gradient goes back. */
  get bounds() {
    const { placement, costs, kinds, microbatches } = this.puzzle, { find, home } = this.work;
    const id = (kind, s) => find(KINDS.indexOf(kind), s, 0), takes = (kind, s) => this.takes[id(kind, s)];
    const message = (s) => (home[id("F", s)] === home[id("F", s - 1)] ? 0 : costs.comm);
    const way = (kind, s) => (s ? way(kind, s - 1) + takes(kind, s - 1) + message(s) : 0);
    return placement.map((stages, device) => {
      const first = Math.min(...stages), head = way("F", first);
      const tail = way(kinds[1], first) + (kinds[2] ? takes("W", 0) : 0);
      const work = [...kinds].map((kind) => microbatches * sumOf(stages.map((s) => takes(kind, s))));
      return { device, head, value: head + Math.max(sumOf(work), work[0] + work[1] + tail) };
    });
  }

  /** Par, or where there is none, what no order is below. */
  get goal() {
    return this.puzzle.par ?? Math.max(...this.bounds.map(({ value }) => value));
  }

  /** How much more than that it takes; a last digit of doubles is nothing. */
  get over() {
    const over = this.timeline.makespan - this.goal;
    return Math.abs(over) > 1e-9 * this.goal ? over : 0;
  }

  /** The longest wait before an action that need not be, if possible where a device has least to spare; or null. */
  get lost() {
    const { times, bounds } = this;
    const waits = ({ device, head }) => this.rows[device].map((id, i, row) => {
      const start = i ? times.get(row[i - 1]).end : 0, end = times.get(id).start;
      return { device, start, end, long: end - Math.max(start, head) };
    }).filter(({ long }) => long > 0);
    const found = [withMost(bounds, ({ value }) => value), bounds].map((some) => some.flatMap(waits));
    const [longest] = withMost(found.find((some) => some.length) ?? [], ({ long }) => long);
    return longest ? { ...longest, sentence: why(this.timeline, longest.device, longest.start).sentence } : null;
  }

  /** So far: the makespan, the share of device time in which nobody works, and how full the fullest device was. */
  get score() {
    const { puzzle, rows, peaks, takes, goal, timeline: { makespan } } = this, devices = rows.length;
    const limits = puzzle.room ?? puzzle.placement.map((stages) => stages.length * puzzle.microbatches);
    const [device] = withMost(countTo(devices), (k) => peaks[k] / limits[k]);
    const busy = sumOf(this.sequence.map((id) => takes[id]));
    const bubble = (work, until) => (until ? (devices * until - work) / (devices * until) : 0);
    const all = { bubble: bubble(busy, makespan), atGoal: bubble(sumOf([...takes]), goal) };
    return { makespan, ...all, held: peaks[device], limit: limits[device], device };
  }

  /** What is to be said of a board that is finished, or on which nothing can go; else "". */
  get standing() {
    const { over, puzzle, lost, timeline: { makespan } } = this, takes = `It takes ${number(makespan)}`;
    if (!this.finished) {
      const says = this.rows.flatMap((_, device) => this.candidates(device)).map((id) => this.refusal(id));
      return says.includes("") ? "" : `Nothing can go any more, so undo: ${says.join("; ")}.`;
    }
    const name = puzzle.par === null ? "the bound" : "par", cost = lost ? ` What cost most: ${lost.sentence}.` : "";
    if (over > 0) return `${takes}, ${number(over)} more than ${name}.${cost}`;
    if (over < 0) return `${takes}, less than par: nobody had found that.`;
    return `${takes}: ${name}, and ${puzzle.gap ? "nobody knows whether an" : "no"} order takes less.`;
  }

  /** The rows as the library writes and reads them. */
  toText() {
    const { placement } = this.puzzle, devices = placement.length;
    const looped = placement.every((stages, k) => stages.every((s, i) => s === k + i * devices));
    const held = (stages) => (looped ? "" : `, stage${stages.length > 1 ? "s" : ""} ${stages.join(" ")}`);
    return this.rows.map((row, k) => `device ${k}${held(placement[k])}: ${this.texts(row)}`).join("\n");
  }
}

/** A board with these rows, such as ["0F0 0B0"], on it; Error if legal picks cannot make them. */
export function boardOf(puzzle, rows) {
  const board = new Board(puzzle), lists = rows.map((row) => board.read(row)), { home } = board.work;
  if (rows.length !== board.rows.length) throw new Error(`there are ${board.rows.length} devices, not ${rows.length}`);
  const elsewhere = lists.flatMap((row, k) => row.filter((id) => home[id] !== k));
  if (elsewhere.length) throw new Error(`${board.text(elsewhere[0])} belongs to device ${home[elsewhere[0]]}`);
  const [stuck] = board.fill(lists).filter((row) => row.length);
  if (stuck) throw new Error(board.refusal(stuck[0]));
  return board;
}

/** The puzzle of a reader's choice, given as texts, without par; Error in words. */
export function freePuzzle({ devices, microbatches, stages, kinds, room, costs }) {
  const plain = (word) => (/^\d{1,6}(\.\d{1,6})?$/.test(word) ? Number(word) : NaN);
  const read = (text) => String(text ?? "").split(/[\s,]+/).filter(Boolean).map(plain);
  const [[K], [M], limits, times] = [devices, microbatches, room, costs].map(read);
  const needs = (right, says) => {
    if (!right) throw new Error(`a board needs ${says}`);
  };
  needs(countTo(8).includes(K - 1), "1 to 8 devices");
  needs(countTo(16).includes(M - 1), "1 to 16 microbatches");
  needs(["1", "2", "V"].includes(stages) && ["FB", "FIW"].includes(kinds), "stages 1, 2 or V, and kinds FB or FIW");
  needs(times.length === 4 && times.every((each) => each >= 0) && times[0] > 0, "four times, such as 1 1 1 0");
  const second = (k) => (stages === "V" ? 2 * K - 1 - k : K + k);
  const placement = countTo(K).map((k) => (stages === "1" ? [k] : [k, second(k)]));
  const each = limits.length === 1 ? placement.map(() => limits[0]) : limits;
  needs([0, K].includes(each.length) && each.every(Number.isInteger), `room as one whole number, or ${K}, or none`);
  each.forEach((limit, k) => needs(limit >= placement[k].length, `room for ${placement[k].length} on device ${k}`));
  const [forward, input_grad, weight_grad, comm] = times;
  const others = { recompute: null, update: 0, overlap: null, speed: 1, overhead: 0 };
  return {
    ...{ name: "free", title: "A board of your own", idea: "Nobody has proven a par for it.", par: null },
    ...{ placement, microbatches: M, kinds, room: each.length ? each : null },
    costs: { forward, input_grad, weight_grad, comm, ...others },
    choice: { devices, microbatches, stages, kinds, room, costs },
  };
}

/** The board of a saved state {puzzle: a name or "free", choice, rows}; Error in words if it is none. */
export function savedBoard(saved, puzzles) {
  const named = puzzles.find(({ name }) => name === saved?.puzzle);
  if (!named && saved?.puzzle !== "free") throw new Error(`there is no puzzle "${String(saved?.puzzle).slice(0, 40)}"`);
  const puzzle = named ?? freePuzzle(saved.choice ?? {});
  return boardOf(puzzle, saved.rows ?? puzzle.placement.map(() => ""));
}

/** An element; texts among its children become text, never markup. */
function boardNode(tag, traits, ...children) {
  const made = Object.assign(document.createElement(tag), traits);
  made.append(...children);
  return made;
}

/**
 * Start the board that page.html has in a container. `load` shows a state in the page's charts, `onChange` hears of
 * changes. What comes back has `state()`, {puzzle, choice, rows}, and `load(state)`: Error in words if it is none.
 */
export function mountBoard(container, { puzzles, load, onChange = () => {} }) {
  const node = boardNode, find = (name) => container.querySelector(`.board-${name}`);
  const [choose, own, tools, lanes, hint] = ["puzzle", "own", "tools", "lanes", "hint"].map(find);
  const span = ({ start, end }) => `from ${number(start)} to ${number(end)}`;
  let board = new Board(puzzles[0]);
  const does = {
    u: () => board.undo(),
    r: () => board.redo(),
    n: () => `Placed what had no alternative: ${board.texts(board.step()) || "nothing"}.`,
    p: () => `Placed ${board.stamp()} actions, as the last complete microbatch has them.`,
    o: () => board.change(() => board.restart([])),
  };

  function state() {
    const { puzzle, rows } = board;
    return { puzzle: puzzle.name, choice: puzzle.choice ?? null, rows: rows.map((row) => board.texts(row)) };
  }

  /** What was saved, or what is chosen. */
  function begin(saved = { puzzle: choose.value }) {
    const chosen = Object.fromEntries([...own.elements].map(({ name, value }) => [name, value]));
    board = savedBoard({ ...saved, choice: saved.choice ?? chosen }, puzzles);
  }

  function placeTyped() {
    board.place(board.read(tools.elements.words.value));
    tools.elements.words.value = "";
  }

  /** Do something, show what came of it, and say so; or say why not. */
  function attempt(change) {
    let says;
    try {
      says = change();
    } catch (error) {
      says = `${error.message}.`;
    }
    draw();
    find("say").textContent = [says, board.standing].filter(Boolean).join(" ");
    onChange(state());
  }

  /** What a choice would cost, or why it is none. */
  function words(id) {
    const told = board.preview(id), waits = told.wait ? `, after a wait of ${number(told.wait)}` : "";
    const runs = `${span(told)}${waits}; then device ${board.work.home[id]} holds ${told.holds}`;
    return `${board.text(id)}: ${board.refusal(id) || runs}`;
  }

  /** A box in a lane; every lane is a little longer than par. */
  function box(look, { start, end }, text = "") {
    const until = Math.max(board.timeline.makespan, 1.15 * board.goal);
    const style = `left:${(100 * start) / until}%;width:${(100 * (end - start)) / until}%`;
    return node("i", { className: `board-box ${look}`, style }, node("span", {}, text));
  }

  function boxOf(id, times, more = "") {
    const { kind, stage, home } = board.work, later = stage[id] > Math.min(...board.puzzle.placement[home[id]]);
    return box(`${KINDS[kind[id]]} ${later ? "later" : ""} ${more}`, times, board.text(id));
  }

  /** A device: what is placed, how much it holds, and what may come next. */
  function deviceRow(row, k) {
    const { times, puzzle: { room }, held, lost, goal, finished, over } = board, name = `device ${k}`;
    const runs = row.map((id) => `${board.text(id)} ${span(times.get(id))}`).join(", ") || "nothing yet";
    const boxes = [...row.map((id) => boxOf(id, times.get(id))), box("goal", { start: goal, end: goal })];
    if (finished && over > 0 && lost?.device === k) boxes.push(box("lost", lost));
    const lane = node("div", { className: "board-lane", role: "img", ariaLabel: `${name}: ${runs}` }, ...boxes);
    const next = board.candidates(k).map((id) => choice(id, lane));
    return node("div", { className: "board-row" }, node("span", {}, name), lane,
      node("span", {}, `${held[k]}${room ? ` of ${room[k]}` : ""}`),
      node("div", { className: "board-next", role: "group", ariaLabel: `${name}, next` }, ...next));
  }

  function choice(id, lane) {
    const can = !board.refusal(id), ariaLabel = words(id), className = KINDS[board.work.kind[id]];
    const leave = () => {
      lane.querySelector(".ghost")?.remove();
      hint.textContent = "";
    };
    const look = () => {
      leave();
      hint.textContent = ariaLabel;
      if (can) lane.append(boxOf(id, board.preview(id), "ghost"));
    };
    const looks = { onpointerenter: look, onfocus: look, onpointerleave: leave, onblur: leave };
    const traits = { type: "button", className, ariaLabel, ariaDisabled: !can, ...looks };
    return node("button", { ...traits, onclick: () => attempt(() => board.place([id])) }, board.text(id));
  }

  /** Time, waiting and memory on one axis, of 150%; the mark is where the best known order is. */
  function meter(name, share, best, says) {
    const [width, left] = [share, best].map((each) => percent(Math.min(1, each / 1.5)));
    const bar = [node("i", { style: `width:${width}` }), node("b", { style: `left:${left}` })];
    return node("div", { className: "board-meter" }, node("span", {}, name),
      node("div", { className: "board-bar" }, ...bar), node("span", {}, says));
  }

  function draw() {
    const { puzzle, goal, score: { makespan, bubble, atGoal, held, limit, device } } = board;
    const k = [...lanes.children].findIndex((row) => row.contains(document.activeElement));
    const par = `${puzzle.par === null ? "bound" : "par"} ${number(goal)}`;
    [choose.value, own.hidden, find("idea").textContent] = [puzzle.name, puzzle.name !== "free", puzzle.idea];
    lanes.replaceChildren(...board.rows.map(deviceRow));
    if (k >= 0) (lanes.children[k]?.querySelector("button:not([aria-disabled=true]), button") ?? choose).focus();
    find("score").replaceChildren(
      meter("time", makespan / goal, 1, `${number(makespan)}, ${par}`),
      meter("waiting", bubble, atGoal, `${percent(bubble)}; ${percent(atGoal)} at ${par}`),
      meter("held", held / limit, 1, `${held} of ${limit} on device ${device}`));
    find("done").replaceChildren(...(board.finished ? ending() : []));
  }

  /** A finished board as text to be copied, and what to do with it. */
  function ending() {
    const { name, costs } = board.puzzle, text = `"""\n${board.toText()}\n"""`, { rows } = state();
    const value = name === "free" ? `gp.simulate(gp.Explicit.parse(${text}))` : `gp.course.puzzle("${name}", ${text})`;
    const area = node("textarea", { value, readOnly: true, rows: rows.length + 2, ariaLabel: "this order in Python" });
    const chart = { schedule: { ...board.order(), rows }, costs };
    const copy = () => {
      area.select();
      navigator.clipboard?.writeText(value);
    };
    const show = () => load({ charts: [chart], at: 0, ask: null });
    const button = (says, onclick) => node("button", { type: "button", onclick }, says);
    return [area, button("Copy", copy), button("See it in a chart", show)];
  }

  const free = { name: "free", title: "A board of your own" };
  choose.append(...[...puzzles, free].map(({ name, title }) => node("option", { value: name }, title)));
  for (const [kind, { colour }] of Object.entries(TABLES.kinds)) container.style.setProperty(`--${kind}`, colour);
  for (const [form, change] of [[own, begin], [tools, placeTyped]]) {
    form.onsubmit = (event) => {
      event.preventDefault();
      attempt(change);
    };
  }
  choose.onchange = () => attempt(begin);
  for (const button of tools.querySelectorAll("[type=button]")) button.onclick = () => attempt(does[button.value]);
  container.onkeydown = ({ key, target, ctrlKey, metaKey, altKey }) => {
    const typing = target.matches("input, select, textarea") || ctrlKey || metaKey || altKey;
    if (!typing && key in does) attempt(does[key]);
  };
  draw();
  return {
    state,
    load(saved) {
      begin(saved);
      draw();
    },
  };
}
