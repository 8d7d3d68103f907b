// Boards played without a page, for test_page_board.py: jobs as JSON on standard input, what came of them on standard
// output. The first argument is where the page's modules are.

import { readFileSync } from "node:fs";

const [, , modules] = process.argv;
const { Board, boardOf, freePuzzle, savedBoard } = await import(`${modules}/board.js`);
const { fromFragment, toFragment } = await import(`${modules}/share.js`);

/** Numbers from 0 to 1, the same for a seed. */
function numbersFrom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const textsOf = (actions) => actions.map(({ text }) => text).join(" ");

function snapshot(board) {
  const { times, peaks, held, score, goal, finished, lost, standing, bounds } = board;
  const spans = [...times].map(([action, { start, end }]) => [action.text, start, end]);
  const rows = board.rows.map(textsOf), { makespan } = board.timeline, text = board.toText();
  const missed = finished && makespan > goal ? lost : null;
  return { rows, spans, makespan, peaks, held, score, goal, finished, lost: missed, standing, bounds, text };
}

const refused = (act) => {
  try {
    return { gives: act() };
  } catch (error) {
    if (error.constructor !== Error) throw error;
    return { says: error.message };
  }
};

/** Whether all that is in it is finite, or text without anything that markup is made of. */
function isPlain(value) {
  if (value !== null && typeof value === "object") return Object.values(value).every(isPlain);
  return typeof value === "string" ? !/[<>"&=\0\u202e]/.test(value) : value === null || Number.isFinite(value);
}

const jobs = {
  /** A puzzle, filled by picks at random: of these rows, or of what can go. */
  play({ puzzle, rows, seed }) {
    const random = numbersFrom(seed), any = (list) => list[Math.floor(random() * list.length)];
    const board = new Board(puzzle), lists = rows?.map((row) => board.read(row)), seen = [], blocked = [];
    for (;;) {
      const devices = puzzle.placement.map((_, k) => k);
      const nextOf = (k) => (lists ? lists[k].slice(board.rows[k].length).slice(0, 1) : board.candidates(k));
      const open = devices.flatMap(nextOf);
      const can = open.filter((id) => !board.refusal(id)), all = devices.flatMap((k) => board.candidates(k));
      const cannot = all.filter((id) => board.refusal(id));
      if (random() < 0.3) seen.push(snapshot(board));
      if (random() < 0.3 && cannot.length) {
        const id = any(cannot);
        const { rows } = snapshot(board), says = board.refusal(id), held = board.held[id.home];
        blocked.push({ rows, action: id.text, says, fits: board.fits(id), held });
      }
      if (!can.length) break;
      const id = any(can), told = board.preview(id), device = id.home, last = board.rows[device].at(-1);
      const free = board.times.get(last)?.end ?? 0;
      board.place([id]);
      const { start, end } = board.times.get(id), is = { start, end, wait: start - free, holds: board.held[device] };
      if (JSON.stringify(told) !== JSON.stringify(is)) throw new Error(`${id.text} is not as told`);
    }
    return { last: snapshot(board), seen, blocked };
  },
  step({ puzzle, rows }) {
    const board = boardOf(puzzle, rows);
    return { placed: textsOf(board.step()), rows: snapshot(board).rows };
  },
  stamp({ puzzle, rows }) {
    const board = boardOf(puzzle, rows);
    return refused(() => ({ count: board.stamp(), ...snapshot(board) }));
  },
  /** Random picks, undone and done again; Error if anything differs. */
  undo({ puzzle, seed }) {
    const random = numbersFrom(seed), board = new Board(puzzle), states = [JSON.stringify(snapshot(board))];
    for (let i = 0; i < 40; i++) {
      const all = board.rows.flatMap((_, k) => board.candidates(k)), can = all.filter((id) => !board.refusal(id));
      const before = board.at;
      if (random() < 0.2) board.step();
      else if (can.length) board.place([can[Math.floor(random() * can.length)]]);
      if (board.at > before) states.push(JSON.stringify(snapshot(board)));
    }
    const same = (i) => JSON.stringify(snapshot(board)) === states[i];
    const back = states.map((_, i) => (i && board.turn(-1), same(states.length - 1 - i)));
    const again = states.map((_, i) => (i && board.turn(1), same(i)));
    return { count: states.length, all: [...back, ...again].every(Boolean) };
  },
  type: ({ puzzle, rows, text }) => {
    const board = boardOf(puzzle, rows);
    return { ...refused(() => board.place(board.read(text))), rows: snapshot(board).rows };
  },
  saved: ({ saved, puzzles }) => refused(() => snapshot(savedBoard(saved, puzzles)).rows),
  free: ({ choice }) => refused(() => freePuzzle(choice)),
  share: ({ state }) => refused(() => {
    const text = toFragment(state);
    return { text, state: fromFragment(text) };
  }),
  read: ({ text }) => refused(() => fromFragment(text)),
  /** Spoil fragments, so often: what was refused, what was not and is not what it then says, and other errors. */
  fuzz({ texts, count, seed }) {
    const random = numbersFrom(seed), any = (list) => list[Math.floor(random() * list.length)];
    const words = ["%00", "%3Cscript%3E", "<img onerror=x>", "&K=", "__proto__", "inf", "1e999", "NaN", "-1"];
    const bits = [..."abKMFIW=&%.,:/()-_0123456789<>\"'; \u202e\0é", ...words];
    const spoil = (text) => {
      const at = Math.floor(random() * (text.length + 1)), to = at + Math.floor(random() * 4);
      const [left, right] = [text.slice(0, at), text.slice(to)];
      const shuffled = () => text.split("&").sort(() => random() - 0.5).join("&");
      return any([() => left + any(bits) + text.slice(at), () => left + right, () => left,
        () => left + any(bits) + right, shuffled])();
    };
    const found = { refused: 0, read: 0, wrong: [], says: new Set() };
    for (let i = 0; i < count; i++) {
      let text = any(texts);
      for (let n = 1 + Math.floor(3 * random()); n; n--) text = spoil(text);
      try {
        const state = fromFragment(text), again = fromFragment(toFragment(state));
        if (JSON.stringify(again) !== JSON.stringify(state) || !isPlain(state)) found.wrong.push(text);
        found.read++;
      } catch (error) {
        if (error.constructor !== Error || error.message.length > 300) found.wrong.push(`${text}: ${error}`);
        found.says.add(error.message.replace(/".*"/s, ""));
        found.refused++;
      }
    }
    return { ...found, says: found.says.size };
  },
};

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(([name, given]) => jobs[name](given))));
