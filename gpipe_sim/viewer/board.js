// The empty board: one picks the next action of a device, and what cannot go says why. `Board` is the game without a page,
// `mountBoard` shows it. A puzzle is a record of puzzles.json, or what `freePuzzle` makes of a reader's own choice.

import { TABLES } from "./tables.js";
import { F, KINDS, durationsOf, lower, readEntry, simulate, writeEntry } from "./clock.js";
import { number, why } from "./why.js";

const countTo = (count) => [...Array(count).keys()];
const sumOf = (numbers) => numbers.reduce((sum, each) => sum + each, 0);
const withMost = (items, value) => items.filter((each) => value(each) === Math.max(...items.map(value)));
/** How many more stage-activations a device holds after an action of a kind: +1, 0 or -1. */
const HELD_MORE = [...KINDS].map((kind) => sumOf(Object.values(TABLES.holds[kind])));

/** What a puzzle has to place, some of it placed. Actions are numbers: their places in `work`, whose rows are no order. */
export class Board {
  constructor(puzzle) {
    const { placement, microbatches, kinds, title } = puzzle;
    const ofStage = (s) => [...kinds].flatMap((kind) => countTo(microbatches).map((m) => [s, KINDS.indexOf(kind), m]));
    const rows = placement.map((stages) => stages.flatMap(ofStage));
    this.puzzle = puzzle;
    this.work = lower({ name: title, family: null, options: {}, placement, microbatches, rows });
    this.takes = durationsOf(this.work, puzzle.costs);
    this.reset([]);
  }

  /** Place lists of actions, each of them at once: an undo takes one back. */
  reset(done, undone = []) {
    [this.done, this.undone] = [done, undone];
    this.rows = this.puzzle.placement.map(() => []);
    this.held = this.rows.map(() => 0);
    this.peaks = this.rows.map(() => 0);
    this.placed = new Uint8Array(this.work.size);
    this.known = null;
    for (const id of done.flat()) this.put(id);
  }

  put(id) {
    const device = this.work.home[id];
    this.rows[device].push(id);
    this.placed[id] = 1;
    this.held[device] += HELD_MORE[this.work.kind[id]];
    this.peaks[device] = Math.max(this.peaks[device], this.held[device]);
    this.known = null;
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
    return needs.slice(needsFrom[id], needsFrom[id + 1]).filter((need) => !this.placed[need]);
  }

  /** Why an action cannot come next on its device, in the library's words; "" if it can. */
  refusal(id) {
    const { home, kind } = this.work, device = home[id], action = this.text(id);
    if (this.placed[id]) return `${action} stands 2 times; it must run once`;
    const reasons = this.missing(id).map((need) => {
      const reason = TABLES.reasons[KINDS[kind[id]] + KINDS[kind[need]]];
      if (home[need] !== device) return `device ${device} is stuck at ${action}: it needs ${this.text(need)} (queued on device ${home[need]})`;
      return `${action} stands before ${this.text(need)} on device ${device}, but ${reason}`;
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
    const first = `${kept.length > 1 ? "one of " : ""}${this.texts(kept.map(frees))} has to come first`;
    return `device ${device} may hold ${room[device]} stage-activations, and holds those of ${this.texts(kept)}: ${first}`;
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
    return this.left(device).flatMap((ids) => [...new Set([ids[0], ids.find((id) => !this.refusal(id)) ?? ids[0]])]);
  }

  /** What a choice would cost: when it runs, how long its device waits for that, how many it holds then. */
  preview(id) {
    const device = this.work.home[id], { start, end, program } = simulate(
      lower(this.order(this.rows.map((row, k) => (k === device ? [...row, id] : row)))), this.puzzle.costs);
    const e = program.first[device + 1] - 1, free = e > program.first[device] ? end[e - 1] : 0;
    return { start: start[e], end: end[e], wait: start[e] - free, holds: this.held[device] + HELD_MORE[this.work.kind[id]] };
  }

  /** Place actions one after the other, as one change; Error with the reason if one cannot go. */
  place(ids) {
    for (const [i, id] of ids.entries()) {
      const reason = this.refusal(id);
      if (reason) {
        this.reset(i ? [...this.done, ids.slice(0, i)] : this.done);
        throw new Error(reason);
      }
      this.put(id);
    }
    this.remember(ids);
  }

  remember(ids) {
    if (ids.length) [this.done, this.undone] = [[...this.done, ids], []];
    return ids;
  }

  undo() {
    this.reset(this.done.slice(0, -1), [...this.undone, ...this.done.slice(-1)]);
  }

  redo() {
    this.reset([...this.done, ...this.undone.slice(-1)], this.undone.slice(0, -1));
  }

  /** The actions that a text spells, such as "0F0 0B0"; Error for what the board does not have. */
  read(text) {
    const { stages, microbatches, find } = this.work, { kinds } = this.puzzle;
    return text.split(/\s+/).filter(Boolean).map((word) => {
      const [stage, kind, microbatch, ...more] = readEntry(word) ?? [0];
      if (kind === undefined || more.length) throw new Error(`"${word.slice(0, 20)}" is no action, such as 0F0`);
      if (stage >= stages || microbatch >= microbatches) {
        throw new Error(`${word} is out of range: stages are 0 to ${stages - 1}, microbatches 0 to ${microbatches - 1}`);
      }
      if (!kinds.includes(KINDS[kind])) throw new Error(`${word} is of another kind than ${[...kinds].join(" and ")}`);
      return find(kind, stage, microbatch);
    });
  }

  /** Place what can go of lists of actions, each in its own order, as one change; what is left of them. */
  fill(lists) {
    const left = lists.map((ids) => ids.filter((id) => !this.placed[id])), placed = [];
    const takes = (ids) => ids.length && !this.refusal(ids[0]);
    for (let ids; (ids = left.find(takes)); ) {
      placed.push(ids.shift());
      this.put(placed.at(-1));
    }
    this.remember(placed);
    return left;
  }

  /** What may come next on a device, now or later: there is room for it, and it needs nothing that is left there. */
  mayComeNext(device) {
    const needsDevice = (id) => this.missing(id).some((need) => this.work.home[need] === device || needsDevice(need));
    return this.left(device).map(([lowest]) => lowest).filter((id) => this.fits(id) && !needsDevice(id));
  }

  /** Place what has no alternative, microbatches in turn, until every device has a choice; what was placed. */
  step() {
    const placed = [], devices = countTo(this.rows.length), only = (ids) => (ids.length === 1 && !this.refusal(ids[0]) ? ids : []);
    for (let ids; (ids = devices.flatMap((device) => only(this.mayComeNext(device)))).length; ) {
      placed.push(ids[0]);
      this.put(ids[0]);
    }
    return this.remember(placed);
  }

  /** Repeat the last microbatch that is complete, for all later ones: each so much later, whatever ends soonest. */
  stamp() {
    const { size, microbatch, home, stage, kind, find, microbatches } = this.work, { times } = this;
    const of = (m) => countTo(size).filter((id) => microbatch[id] === m), before = this.done;
    const model = countTo(microbatches).findLast((m) => of(m).every((id) => this.placed[id]));
    if (model === undefined) throw new Error(`no microbatch is complete; of 0, ${this.texts(of(0).filter((id) => !this.placed[id]))} is missing`);
    const later = countTo(size).filter((id) => microbatch[id] > model && !this.placed[id]), shifts = new Set();
    for (const a of of(model)) for (const b of of(model)) if (home[a] === home[b]) shifts.add(times.get(b).end - times.get(a).start);
    const repeated = (by) => {
      const time = (id) => times.get(find(kind[id], stage[id], model)).start + (microbatch[id] - model) * by;
      const lists = this.rows.map((_, k) => later.filter((id) => home[id] === k).sort((a, b) => time(a) - time(b) || a - b));
      this.reset(before);
      const left = this.fill(lists).flat().length;
      return { left, ends: this.timeline.makespan, done: this.done };
    };
    const found = [...shifts].filter((by) => by > 0).sort((a, b) => a - b).map(repeated);
    const best = found.sort((a, b) => a.left - b.left || a.ends - b.ends)[0];
    this.reset(best?.done ?? before);
    return later.length - (best?.left ?? 0);
  }

  /** Below what no order is, by device: it waits for a forward (head), does its work, and a gradient goes back (tail). */
  get bounds() {
    const { placement, costs, kinds, microbatches } = this.puzzle, { find, home } = this.work;
    const id = (kind, s) => find(KINDS.indexOf(kind), s, 0), takes = (kind, s) => this.takes[id(kind, s)];
    const crosses = (s) => home[id("F", s)] !== home[id("F", s - 1)];
    const way = (kind, s) => (s ? way(kind, s - 1) + takes(kind, s - 1) + (crosses(s) ? costs.comm : 0) : 0);
    return placement.map((stages, device) => {
      const first = Math.min(...stages), head = way("F", first), tail = way(kinds[1], first) + (kinds[2] ? takes("W", 0) : 0);
      const work = [...kinds].map((kind) => microbatches * sumOf(stages.map((s) => takes(kind, s))));
      return { device, head, value: head + Math.max(sumOf(work), work[0] + work[1] + tail) };
    });
  }

  /** Par, or where there is none, what no order is below. */
  get goal() {
    return this.puzzle.par ?? Math.max(...this.bounds.map(({ value }) => value));
  }

  /** The longest wait that need not be, on a device that has the least time to spare if there is one; or null. */
  get lost() {
    const { times, bounds } = this;
    const waits = ({ device, head }) => this.rows[device].map((id, i, row) => {
      const start = i ? times.get(row[i - 1]).end : 0, end = times.get(id).start;
      return { device, start, end, long: end - Math.max(start, head) };
    }).filter(({ long }) => long > 0);
    const all = [withMost(bounds, ({ value }) => value), bounds].map((some) => some.flatMap(waits)).find((some) => some.length);
    const [longest] = withMost(all ?? [], ({ long }) => long);
    return longest ? { ...longest, sentence: why(this.timeline, longest.device, longest.start).sentence } : null;
  }

  /** So far: the makespan, the share of device time that nobody works, and how full the fullest device was. */
  get score() {
    const { puzzle, rows, peaks, timeline: { makespan } } = this, time = rows.length * makespan;
    const limits = puzzle.room ?? puzzle.placement.map((stages) => stages.length * puzzle.microbatches);
    const [device] = withMost(countTo(rows.length), (k) => peaks[k] / limits[k]);
    const busy = sumOf(rows.flat().map((id) => this.takes[id]));
    return { makespan, bubble: time ? (time - busy) / time : 0, held: peaks[device], limit: limits[device], device };
  }

  /** The same of the best order known; null if none is. */
  get best() {
    this.bestScore ??= this.puzzle.rows ? boardOf(this.puzzle, this.puzzle.rows).score : null;
    return this.bestScore;
  }

  /** What is to be said of a board that is finished, or on which nothing can go; else "". */
  get standing() {
    const { goal, puzzle, lost, score: { makespan } } = this, over = makespan - goal;
    const next = this.rows.flatMap((_, device) => this.candidates(device));
    if (!this.finished) {
      if (next.some((id) => !this.refusal(id))) return "";
      return `Nothing can go any more, so undo: ${next.map((id) => this.refusal(id)).join("; ")}.`;
    }
    const name = puzzle.par === null ? "the bound" : "par", cost = lost ? ` What cost most: ${lost.sentence}.` : "";
    if (over > 0) return `It takes ${number(makespan)}, ${number(over)} more than ${name}.${cost}`;
    const open = puzzle.gap ? ` Whether ${number(puzzle.bound.value)} can be done, nobody has proven.` : "";
    return `It takes ${number(makespan)}: ${over < 0 ? "less than" : ""} ${name}.${open}`.replace("  ", " ");
  }

  /** The rows as the library writes and reads them. */
  toText() {
    const { placement } = this.puzzle, looped = placement.every((stages, k) => stages.every((s, i) => s === k + i * placement.length));
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
export function freePuzzle({ devices = "4", microbatches = "6", stages = "1", kinds = "FB", room = "", costs = "1 1 1 0" }) {
  const choice = { devices, microbatches, stages, kinds, room, costs };
  const read = (text) => String(text).split(/[\s,]+/).filter(Boolean).map((word) => (/^\d{1,6}(\.\d{1,6})?$/.test(word) ? Number(word) : NaN));
  const [[K], [M], limits, times] = [devices, microbatches, room, costs].map(read);
  const needs = (says, right) => { if (!right) throw new Error(`a board needs ${says}`); };
  needs("1 to 8 devices", countTo(9).slice(1).includes(K));
  needs("1 to 16 microbatches", countTo(17).slice(1).includes(M));
  needs("stages 1, 2 or V, and kinds FB or FIW", ["1", "2", "V"].includes(stages) && ["FB", "FIW"].includes(kinds));
  needs("the times of F, I, W and a message: 1 1 1 0", times.length === 4 && times.every((each) => each >= 0) && times[0] > 0);
  const placement = countTo(K).map((k) => [k, stages === "V" ? 2 * K - 1 - k : K + k].slice(0, stages === "1" ? 1 : 2));
  const each = limits.length === 1 ? placement.map(() => limits[0]) : limits;
  needs(`room as one whole number, or ${K}, or none`, [0, K].includes(each.length) && each.every(Number.isInteger));
  each.forEach((limit, k) => needs(`room for ${placement[k].length} on device ${k}`, limit >= placement[k].length));
  const [forward, input_grad, weight_grad, comm] = times, others = { recompute: null, update: 0, overlap: null, speed: 1, overhead: 0 };
  return { name: "free", title: "A board of your own", idea: "Nobody has proven a par for it.", placement, microbatches: M, kinds,
    costs: { forward, input_grad, weight_grad, comm, ...others }, room: each.length ? each : null, par: null, choice };
}

/** The board of a saved state {puzzle: a name or "free", choice, rows}; Error in words if it is none. */
export function savedBoard(saved, puzzles) {
  const found = saved?.puzzle === "free" ? freePuzzle(saved.choice ?? {}) : puzzles.find(({ name }) => name === saved?.puzzle);
  if (!found) throw new Error(`there is no puzzle "${String(saved?.puzzle).slice(0, 40)}"`);
  return boardOf(found, saved.rows?.length ? saved.rows : found.placement.map(() => ""));
}

const BOARD = `<section class="board" aria-label="board">
  <p><label>puzzle <select></select></label> <span class="board-idea"></span></p>
  <form class="board-free">
    <label>devices <input name="devices" value="4" size="2"></label>
    <label>microbatches <input name="microbatches" value="6" size="2"></label>
    <label>stages <select name="stages"><option>1<option>2<option>V</select></label>
    <label>kinds <select name="kinds"><option>FB<option>FIW</select></label>
    <label>room <input name="room" size="7" placeholder="4 3 2 1"></label>
    <label>F, I, W, message <input name="costs" value="1 1 1 0" size="7"></label> <button>Begin</button>
  </form>
  <form class="board-tools"><button type="button" value="u">Undo</button> <button type="button" value="r">Redo</button>
    <button type="button" value="n">Step to a choice</button> <button type="button" value="p">Repeat the pattern</button>
    <button type="button" value="o">Start over</button>
    <label>type <input name="words" size="9" placeholder="0F0 1F0"></label> <button>Place</button></form>
  <p class="board-say" role="status"></p><div class="board-lanes"></div><p class="board-hint"></p>
  <div class="board-score"></div><div class="board-done"></div></section>`;

/** An element; texts among its children become text, never markup. */
function boardNode(tag, traits, ...children) {
  const made = Object.assign(document.createElement(tag), traits);
  made.append(...children);
  return made;
}

/** Put a board into a container; `load` shows a state in the page's charts, `onChange` hears of every change.
 * What comes back has `state()`, {puzzle, choice, rows}, and `load(state)`, which throws Error in words and changes nothing. */
export function mountBoard(container, { puzzles, load, onChange = () => {} }) {
  container.innerHTML = BOARD;
  const node = boardNode, find = (what) => container.querySelector(what), percent = (share) => `${+(100 * share).toFixed(1)}%`;
  const [choose, free, tools, say, lanes, hint, score, done] = ["select", ".board-free", ".board-tools", ".board-say",
    ".board-lanes", ".board-hint", ".board-score", ".board-done"].map(find);
  let board = new Board(puzzles[0]);
  const state = () => ({ puzzle: board.puzzle.name, choice: board.puzzle.choice, rows: board.rows.map((row) => board.texts(row)) });
  const begin = () => { board = savedBoard({ puzzle: choose.value, choice: Object.fromEntries(new FormData(free)) }, puzzles); };
  const typed = () => {
    board.place(board.read(tools.elements.words.value));
    tools.elements.words.value = "";
  };
  const does = {
    u: () => board.undo(),
    r: () => board.redo(),
    n: () => `Placed what had no alternative: ${board.texts(board.step()) || "nothing"}.`,
    p: () => `Placed ${board.stamp()} actions, as the last complete microbatch has them.`,
    o: () => board.reset([]),
  };

  /** Do something, show what came of it, and say so; or say why not. */
  function attempt(change) {
    let says;
    try {
      says = change();
    } catch (error) {
      says = error.message;
    }
    draw();
    say.textContent = [says, board.standing].filter(Boolean).join(" ");
    onChange(state());
  }

  /** What a choice would cost, or why it is none. */
  function words(id) {
    const { start, end, wait, holds } = board.preview(id);
    return board.refusal(id) || `${number(start)} to ${number(end)}, after a wait of ${number(wait)}; then device ${board.work.home[id]} holds ${holds}`;
  }

  function box(className, start, end, text = "") {
    const until = Math.max(board.timeline.makespan, 1.15 * board.goal) || 1;
    return node("i", { className: `board-box ${className}`, style: `left:${percent(start / until)};width:${percent((end - start) / until)}` }, text);
  }

  function boxOf(id, times, more = "") {
    const { kind, stage, home } = board.work, later = board.puzzle.placement[home[id]].indexOf(stage[id]) > 0;
    return box(`${KINDS[kind[id]]}${later ? " later" : ""} ${more}`, times.start, times.end, board.text(id));
  }

  /** A device: what is placed, what it holds, and what may come next. */
  function deviceRow(row, k) {
    const { times, puzzle, held, lost, finished } = board, room = puzzle.room ? ` of ${puzzle.room[k]}` : "";
    const says = row.map((id) => `${board.text(id)} from ${number(times.get(id).start)} to ${number(times.get(id).end)}`);
    const lane = node("div", { className: "board-lane", role: "img", ariaLabel: `device ${k}: ${says.join(", ") || "nothing yet"}` },
      ...row.map((id) => boxOf(id, times.get(id))), box("goal", board.goal, board.goal));
    if (finished && board.timeline.makespan > board.goal && lost?.device === k) lane.append(box("lost", lost.start, lost.end));
    const away = () => { lane.querySelector(".ghost")?.remove(); hint.textContent = ""; };
    const next = board.candidates(k).map((id) => {
      const can = !board.refusal(id), costs = `${board.text(id)}: ${words(id)}`;
      const button = node("button", { type: "button", className: `board-pick ${KINDS[board.work.kind[id]]}`, ariaLabel: costs,
        ariaDisabled: !can, onclick: () => attempt(() => board.place([id])), onpointerleave: away, onblur: away }, board.text(id));
      button.onpointerenter = button.onfocus = () => {
        away();
        hint.textContent = costs;
        if (can) lane.append(boxOf(id, board.preview(id), "ghost"));
      };
      return button;
    });
    return node("div", { className: "board-row" }, node("span", {}, `device ${k}`), lane, node("span", {}, `${held[k]}${room}`),
      node("div", { className: "board-next", role: "group", ariaLabel: `device ${k}, next` }, ...next));
  }

  /** One axis for time, waiting and memory, in percent; a mark is where the best known order is. */
  function meter(name, share, best, says) {
    const [filled, mark] = [share, best].map((each) => `${Math.min(100, each / 0.015)}%`);
    return node("div", { className: "board-meter" }, node("span", {}, name), node("div", { className: "board-bar" },
      node("i", { style: `width:${filled}` }), best === null ? "" : node("b", { style: `left:${mark}` })), node("span", {}, says));
  }

  function draw() {
    const { puzzle, goal, best, score: { makespan, bubble, held, limit, device } } = board, focused = document.activeElement;
    const was = [...lanes.children].findIndex((row) => row.contains(focused));
    [choose.value, free.hidden] = [puzzle.name, puzzle.name !== "free"];
    find(".board-idea").textContent = puzzle.idea;
    lanes.replaceChildren(...board.rows.map(deviceRow));
    if (was >= 0) (lanes.children[was]?.querySelector("button:not([aria-disabled=true]), button") ?? choose).focus();
    const [waits, holds] = best ? [best.bubble, best.held / best.limit] : [null, null];
    score.replaceChildren(
      meter("time", makespan / goal, 1, `${number(makespan)}, ${puzzle.par === null ? "bound" : "par"} ${number(goal)}`),
      meter("waiting", bubble, waits, percent(bubble) + (best ? `, at par ${percent(waits)}` : "")),
      meter("held", held / limit, holds, `${held} of ${limit} on device ${device}${best ? `, at par ${best.held} of ${best.limit}` : ""}`));
    done.replaceChildren(...(board.finished ? ending() : []));
  }

  /** A finished board as text to be copied, and what to do with it. */
  function ending() {
    const { name, costs } = board.puzzle, text = `"""\n${board.toText()}\n"""`, schedule = { ...board.order(), rows: state().rows };
    const call = name === "free" ? `gp.simulate(gp.Explicit.parse(${text}))` : `gp.course.puzzle("${name}", ${text})`;
    const area = node("textarea", { value: call, readOnly: true, rows: board.rows.length + 2, ariaLabel: "this order in Python" });
    const copy = () => { area.select(); navigator.clipboard?.writeText(call); };
    const chart = { schedule, costs, links: null, message_bytes: null, sizes: null, limit: null, times: null };
    return [area, ...[["Copy", copy], ["See it in the chart", () => load({ charts: [chart], at: 0, ask: null, board: state() })]].map(
      ([says, onclick]) => node("button", { type: "button", onclick }, says))];
  }

  /** Keys of the tools, and arrows from choice to choice. */
  function pressed(event) {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...lanes.children].map((row) => [...row.querySelectorAll("button")]), k = rows.findIndex((row) => row.includes(event.target));
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    if (event.key in does) attempt(does[event.key]);
    else if (k >= 0 && (down || right)) {
      const row = rows[(k + down + rows.length) % rows.length], place = rows[k].indexOf(event.target) + right;
      row[Math.min(Math.max(place, 0), row.length - 1)]?.focus();
    } else return;
    event.preventDefault();
  }

  choose.append(...puzzles.map(({ name, title }) => node("option", { value: name }, title)), node("option", { value: "free" }, "A board of your own"));
  choose.onchange = () => attempt(begin);
  for (const [form, does] of [[free, begin], [tools, typed]]) {
    form.onsubmit = (event) => { event.preventDefault(); attempt(does); };
  }
  tools.onclick = ({ target }) => target.value in does && attempt(does[target.value]);
  find(".board").onkeydown = pressed;
  draw();
  return { state, load: (saved) => { board = savedBoard(saved, puzzles); draw(); } };
}
