// A chart on two canvases: what a run is stands on the lower one and is drawn once; the playhead, what is held there
// and what was pointed at stand on the upper one, which is drawn for every frame.
//
// A panel is {box, base, over} with the run and the measures that `layout` adds.

import { TABLES } from "./tables.js";
import { KINDS } from "./clock.js";
import { heldAt } from "./memory.js";
import { number } from "./why.js";

const FONT = "12px system-ui, sans-serif", LETTER = 7, TOP = 5, AXIS = 26;
const LOOKS = [...KINDS].map((kind) => TABLES.kinds[kind]);
const PEN = { dark: false, patterns: new Map(), fills: new Map() };

/** The page's colours as the browser has them now: by day, by night, or forced. */
export function readColours() {
  const probe = document.body.appendChild(document.createElement("span"));
  for (const name of ["paper", "ink", "faint", "lane", "over"]) {
    probe.style = `forced-color-adjust: none; color: var(--${name})`;
    PEN[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  PEN.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  PEN.fills.clear();
}

const seen = (colour) => (PEN.dark && TABLES.dark[colour]) || colour;
const patternOf = ({ pattern }) => (pattern ? madeFor(PEN.patterns, pattern, makePattern) : null);
const madeFor = (known, key, make) => known.get(key) ?? known.set(key, make(key)).get(key);

/** The fill of a kind at a shade, and for a number on it white or black, whichever has more contrast. */
function fillOf(kind, shade) {
  return madeFor(PEN.fills, kind + KINDS.length * shade, () => {
    const colour = seen(LOOKS[kind].colour), plain = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const channels = plain.map((c) => Math.round(c + (255 - c) * shade));
    const luminance = [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => sum + part * (channels[i] / 255) ** 2.2, 0);
    return { fill: `rgb(${channels})`, ink: luminance < 0.18 ? "#fff" : "#000" };
  });
}

/** White lines or dots. */
function makePattern(name) {
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
  const on = tile.getContext("2d"), lines = name === "lines";
  [on.strokeStyle, on.lineWidth] = ["#fff", lines ? 1.5 : 2];
  on.stroke(new Path2D(lines ? "M-7 7 L1 -1 M-1 7 L7 -1 M5 7 L13 -1" : "M1 2 h2 M4 5 h2"));
  return on.createPattern(tile, "repeat");
}

/** A box in a colour, with the pattern of a look, if it has one, over its lower part. */
function paintBox(g, colour, x, y, wide, high, look = {}) {
  g.fillStyle = colour;
  g.fillRect(x, y, wide, high);
  if (!look.pattern) return;
  g.fillStyle = patternOf(look);
  g.fillRect(x, y + high * (1 - look.band), wide, high * look.band);
}

/** A box from one time to another. */
const paintSpan = (p, g, colour, [from, to], y, high) =>
  paintBox(g, colour, acrossTo(p, from), y, Math.max(1, (to - from) * p.scale), high);

function paintWords(g, words, x, y, { colour = PEN.ink, align = "center", bold = false } = {}) {
  [g.fillStyle, g.textAlign, g.font] = [colour, align, bold ? `bold ${FONT}` : FONT];
  g.fillText(words, x, y);
}

/** A piece of the legend: a look of the tables on a canvas of 14 pixels. */
export function swatch(canvas, look) {
  const shaded = look.shade ? fillOf(0, look.shade).fill : seen(look.colour);
  const colour = look.colour === TABLES.colours.lane[0] ? PEN.lane : shaded;
  paintBox(sized(canvas, 14, 14), colour, 0, 0, 14, 14, look);
  return canvas;
}

function sized(canvas, wide, high) {
  const ratio = window.devicePixelRatio || 1, g = canvas.getContext("2d");
  [canvas.width, canvas.height, canvas.style.height] = [wide * ratio, high * ratio, `${high}px`];
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.textBaseline = "middle";
  return g;
}

/** Where lanes are, and the pixels of a unit of time: the same for `all` panels of a page: {until, most, widest}. */
export function layout(p, run, all) {
  const wide = Math.max(240, p.box.clientWidth), narrow = wide < 560, { devices, size, entries } = run.program;
  const paired = entries.some((entry) => entry.length > 3), together = run.timeline.collectives.length ? 10 : 0;
  const lane = Math.max(8, Math.min(26, Math.floor(460 / devices) - 7)) * (paired ? 1.4 : 1);
  const strip = Math.max(4, Math.round(lane * (run.bytes ? 1.2 : 0.42)));
  const pitch = lane + together + strip + (lane > 14 ? 7 : 4);
  const left = narrow ? 24 : 66, right = all.widest * LETTER + (narrow ? 14 : 70), high = TOP + devices * pitch + AXIS;
  const scale = (wide - left - right) / (all.until || 1), coarse = run.timeline.makespan * scale * devices < 1.5 * size;
  const column = coarse ? 4 : 1 / (window.devicePixelRatio || 1); // coarse: too many actions for a box each
  Object.assign(p, all, { run, wide, narrow, high, lane, strip, together, left, right, pitch, scale, coarse, column });
  for (const canvas of [p.base, p.over]) sized(canvas, wide, high);
}

const acrossTo = (p, time) => p.left + time * p.scale;
const downTo = (p, device) => TOP + device * p.pitch;
const middleOf = (p, device) => downTo(p, device) + p.lane / 2 + 0.5;
const hasWords = (p, device) => p.pitch >= 14 || device % 4 === 0;

/** The {device, time} below a point of a panel, or null. */
export function placeAt(p, x, y) {
  const time = (x - p.left) / p.scale, device = Math.floor((y - TOP) / p.pitch);
  const there = time >= 0 && time < p.run.timeline.makespan && device >= 0 && device < p.run.program.devices;
  return there ? { device, time } : null;
}

/** Everything that stays, on a fresh panel: `messages`, and the critical `path`, a Set of entries, or null. */
export function paintRun(p, { messages, path }) {
  const g = p.base.getContext("2d"), { held, waits, timeline: { start, end, makespan, collectives } } = p.run;
  for (const [d, own] of waits.entries()) {
    paintSpan(p, g, PEN.lane, [0, makespan], downTo(p, d), p.lane);
    if (p.coarse) paintShares(p, g, d);
    paintLayers(p, g, held[d], downTo(p, d) + p.lane + p.together + 2, p.strip, p.most);
    for (const { start: from, end: to } of collectives.filter(({ devices }) => devices.includes(d)))
      paintSpan(p, g, TABLES.collective, [from, to], downTo(p, d) + p.lane + 1, p.together - 2);
    if (hasWords(p, d)) paintWords(g, p.narrow ? d : `device ${d}`, p.left - 8, middleOf(p, d), { align: "right" });
    for (const wait of own) paintWait(p, g, d, wait);
  }
  if (!p.coarse) paintParts(p, g, path);
  for (const i of messages) paintMessage(p, g, i);
  for (const e of path ?? []) if (end[e] > start[e]) frame(p, g, e, { width: 1.5 });
  paintAxis(p, g);
}

/** Boxes with their patterns, then their numbers: of a kind all that have room for one, or none. */
function paintParts(p, g, path) {
  const { kind, stage, microbatch, microbatches, entry, parts, home, shades } = p.run.program;
  const { start, end } = p.run.timeline, digits = String(microbatches - 1).length * LETTER + 3;
  const numbers = LOOKS.map(() => []);
  for (let part = 0; part < kind.length; part++) {
    const e = entry[part], high = p.lane / (parts[e + 1] - parts[e]), wide = (end[e] - start[e]) * p.scale;
    if (!wide) continue;
    const x = acrossTo(p, start[e]), y = downTo(p, home[e]) + (part - parts[e]) * high, faded = path && !path.has(e);
    const { fill, ink } = fillOf(kind[part], shades[home[e]].get(stage[part])), look = LOOKS[kind[part]];
    const middle = [x + wide / 2 - 0.5, y + (high / 2) * (look.pattern ? 1 - look.band / 2 : 1) + 0.5];
    const words = [microbatch[part], ...middle, { colour: faded ? PEN.faint : ink }];
    if (high >= 13) numbers[kind[part]].push({ wide, words });
    g.globalAlpha = faded ? TABLES.faded : 1;
    paintBox(g, fill, x, y, wide > 4 ? wide - 1 : wide, high, wide > 4 && high > 8 ? look : {});
  }
  g.globalAlpha = 1;
  for (const all of numbers.filter((each) => each.every(({ wide }) => wide >= digits)))
    for (const { words } of all) paintWords(g, ...words);
}

/** Instead of boxes: in columns, how much of its time a device spends in actions of each kind. */
function paintShares(p, g, d) {
  const { kind, entry, parts, first } = p.run.program, { start, end, makespan } = p.run.timeline;
  const unit = p.column / p.scale, times = Array.from({ length: Math.round(makespan / unit) }, (_, i) => i * unit);
  const layers = LOOKS.map(({ colour }) => ({ look: { colour }, values: new Float64Array(times.length) }));
  for (let part = parts[first[d]]; part < parts[first[d + 1]]; part++) {
    const e = entry[part], whole = unit * (parts[e + 1] - parts[e]);
    for (let i = Math.floor(start[e] / unit); i * unit < end[e]; i++)
      layers[kind[part]].values[i] += (Math.min(end[e], (i + 1) * unit) - Math.max(start[e], i * unit)) / whole;
  }
  paintLayers(p, g, { times, layers }, downTo(p, d), p.lane, 1);
}

/** Layers on each other over time, as high as `high` where they come to `most`; in a column of pixels, the most. */
function paintLayers(p, g, { times, layers }, y, high, most) {
  const { makespan } = p.run.timeline, unit = high / most, floor = new Float64Array(times.length);
  const places = [...times, makespan].map((time) => p.left + Math.round((time * p.scale) / p.column) * p.column);
  for (const { look, values } of layers) {
    g.beginPath();
    for (let i = 0; times[i] < makespan; i++) {
      const wide = Math.max(p.column, places[i + 1] - places[i]);
      floor[i] += values[i];
      if (values[i]) g.rect(places[i], y + high - floor[i] * unit, wide, values[i] * unit);
    }
    for (const fill of [seen(look.colour), patternOf(look)].filter(Boolean)) {
      g.fillStyle = fill;
      g.fill();
    }
  }
}

/** How long a device waits, where that is long and has room. */
function paintWait(p, g, d, [from, to, last]) {
  const { makespan, collectives } = p.run.timeline;
  if (to - from < makespan / TABLES.long_wait || p.lane < 14) return;
  const words = `${last ? "done, " : ""}waits ${number(to - from)}`, room = (to - from) * p.scale - 8;
  const inSum = collectives.some((each) => each.devices.includes(d) && each.start < to && each.end > from);
  if (!inSum && g.measureText(words).width < room) paintWords(g, words, acrossTo(p, (from + to) / 2), middleOf(p, d));
}

/** An arrow between the sides of two lanes that face each other; before it, how long a message waits for its link. */
function paintMessage(p, g, i) {
  const { messages, entry } = p.run.program, { end, sent, arrived } = p.run.timeline;
  const { part, source, target } = messages[i], made = end[entry[part]], leaves = sent?.[i] ?? made;
  const edge = (device, other) => downTo(p, device) + p.lane * (other > device ? 0.85 : 0.15);
  const y = edge(source, target), away = [acrossTo(p, leaves), y];
  if (leaves > made) line(g, [[acrossTo(p, made), y], away], { dash: [2, 2] });
  arrow(g, away, [acrossTo(p, arrived?.[i] ?? made), edge(target, source)], 1);
}

/** The least of 1, 2, 5, 10, 20, ..., or of 0.5, 0.2, ..., that is no less. */
export function roundAbove(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least);
}

/** Round times, at least 50 pixels and mostly a unit apart; where they are too near to the makespan they give way. */
function paintAxis(p, g) {
  const { makespan } = p.run.timeline, y = p.high - AXIS, end = acrossTo(p, makespan), words = number(makespan);
  const step = roundAbove(Math.max(50 / p.scale, makespan < 5 ? 0 : 1));
  paintSpan(p, g, PEN.faint, [0, makespan], y, 1);
  for (let i = 0; i * step <= makespan; i++) {
    const x = acrossTo(p, i * step);
    paintBox(g, PEN.faint, x - 0.5, y, 1, 4);
    if (x + 24 + words.length * 4 < end) paintWords(g, number(i * step), x, y + 13, { colour: PEN.faint });
  }
  paintWords(g, words, p.narrow ? end + 4 : end, y + 13, { align: p.narrow ? "right" : "center", bold: true });
}

/** What changes: the playhead at `time`, what is held there, what was pointed at, and the same action as in `twins`. */
export function paintOver(p, time, lit, twins) {
  const g = p.over.getContext("2d"), x = acrossTo(p, time);
  g.clearRect(0, 0, p.wide, p.high);
  for (const d of p.run.held.keys()) paintBar(p, g, d, time);
  if (lit) paintLit(p, g, lit);
  for (const e of twins ?? []) frame(p, g, e, { width: 2.5 });
  line(g, [[x, 0], [x, p.high - AXIS]]);
  triangle(g, x, 6, Math.PI / 2, 7);
  paintWords(g, p.narrow ? "held" : "held now", p.wide - 2, p.high - AXIS + 13, { colour: PEN.faint, align: "right" });
}

/** What a device holds at the playhead; red, and its number bold, above its limit. */
function paintBar(p, g, d, time) {
  const { total, limit } = p.run.held[d], held = total[heldAt(p.run.held[d], time)], bold = held > limit;
  const x = p.wide - p.right + 12, wide = p.right - p.widest * LETTER - 24, y = downTo(p, d);
  const fill = bold ? PEN.over : seen(TABLES.memory["saved activations"].colour), colour = bold ? PEN.over : PEN.ink;
  if (!p.narrow) {
    paintBox(g, PEN.lane, x, y, wide, p.lane);
    paintBox(g, fill, x, y, (held / p.most) * wide, p.lane);
    if (limit <= p.most) paintBox(g, PEN.ink, x + (limit / p.most) * wide - 1, y - 2, 2, p.lane + 4);
  }
  if (hasWords(p, d)) paintWords(g, p.run.heldText(held), p.wide - 2, middleOf(p, d), { colour, align: "right", bold });
}

/** An action with what it needs, what needs it and how long it is kept; or a wait with the chain of its causes. */
function paintLit(p, g, { device, from, to, entry, causes, neededBy, kept }) {
  const below = downTo(p, device) + p.pitch - 4;
  if (kept) line(g, kept.map((time) => [acrossTo(p, time), below]), { width: 3 });
  for (const [e] of causes) frame(p, g, e, entry < 0 ? { width: 2.5 } : { width: 2, dash: [4, 3] });
  for (const e of neededBy) frame(p, g, e, { width: 2, dash: [1.5, 2.5] });
  outline(p, g, device, from, to, entry < 0 ? { width: 2, dash: [5, 3] } : { width: 3 });
  for (const cause of causes) follow(p, g, ...cause);
}

/** An arrow from the end of an entry to what that lets begin: on its own lane, around what is between. */
function follow(p, g, entry, device, time) {
  const home = p.run.program.home[entry], from = acrossTo(p, p.run.timeline.end[entry]), to = acrossTo(p, time);
  const [y, toY] = [downTo(p, home), downTo(p, device)], below = y + p.lane;
  if (home !== device) return arrow(g, [from, device > home ? below : y], [to, device > home ? toY : toY + p.lane], 2);
  if (to - from < 8) return;
  line(g, [[from - 3, below], [from - 3, below + 7], [to + 3, below + 7]], { width: 2 });
  arrow(g, [to + 3, below + 7], [to + 3, below], 2);
}

const frame = (p, g, e, look) =>
  outline(p, g, p.run.program.home[e], p.run.timeline.start[e], p.run.timeline.end[e], look);

function outline(p, g, device, from, to, look) {
  const x = acrossTo(p, from), right = x + Math.max(3, (to - from) * p.scale - 1);
  const y = downTo(p, device), low = y + p.lane;
  line(g, [[x, y], [right, y], [right, low], [x, low], [x, y - 1]], look);
}

/** A line of ink with a rim of paper, so that it is seen on every colour. */
function line(g, points, { width = 1.5, dash = [], filled = false } = {}) {
  g.beginPath();
  for (const [x, y] of points) g.lineTo(x, y);
  for (const [colour, wide, gaps] of [[PEN.paper, width + 2, []], [PEN.ink, width, dash]]) {
    [g.strokeStyle, g.fillStyle, g.lineWidth] = [colour, colour, wide];
    g.setLineDash(gaps);
    g.stroke();
  }
  if (filled) g.fill();
}

function arrow(g, [x, y], [toX, toY], width) {
  const angle = Math.atan2(toY - y, toX - x), size = 4 + 2 * width, short = 0.6 * size;
  line(g, [[x, y], [toX - short * Math.cos(angle), toY - short * Math.sin(angle)]], { width });
  triangle(g, toX, toY, angle, size);
}

function triangle(g, x, y, angle, size) {
  const corner = (turn) => [x - size * Math.cos(angle + turn), y - size * Math.sin(angle + turn)];
  line(g, [[x, y], corner(0.42), corner(-0.42), [x, y]], { width: 0.1, filled: true });
}
