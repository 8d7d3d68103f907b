// A chart on two canvases: what a run is stands on the lower one and is drawn once; the playhead, what is held
// there and what was pointed at stand on the upper one, which is drawn for every frame.
//
// A panel is {box, base, over, run} with the measures that `layout` adds; a run is what the page makes of a record.

import { TABLES } from "./tables.js";
import { KINDS } from "./clock.js";
import { heldAt } from "./memory.js";
import { number } from "./why.js";

const FONT = "12px system-ui, sans-serif", LETTER = 7, TOP = 5, AXIS = 26, COLUMN = 4;
const PEN = { dark: false, patterns: new Map(), fills: new Map() };

/** The page's colours as the browser has them now: by day, by night, or forced. */
export function readColours() {
  const probe = document.body.appendChild(document.createElement("span"));
  for (const name of ["paper", "ink", "faint", "lane", "over"]) {
    probe.style.color = `var(--${name})`;
    PEN[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  PEN.dark = luminance(PEN.paper.match(/[\d.]+/g).map(Number)) < 0.2;
  PEN.patterns.clear();
  PEN.fills.clear();
}

const bytesOfHex = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

function luminance(channels) {
  const [red, green, blue] = channels.map((each) => {
    const part = each / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The fill of a kind at a shade, and the colour for a number on it: white or black, whichever has more contrast. */
function fillOf(kind, shade) {
  const key = kind + 8 * shade;
  if (!PEN.fills.has(key)) {
    const channels = bytesOfHex(seen(TABLES.kinds[KINDS[kind]].colour)).map((c) => Math.round(c + (255 - c) * shade));
    const number = (luminance(channels) + 0.05) ** 2 < 0.05 * 1.05 ? "#fff" : "#000";
    PEN.fills.set(key, { fill: `rgb(${channels})`, number });
  }
  return PEN.fills.get(key);
}

const seen = (colour) => (PEN.dark && TABLES.dark[colour]) || colour;

/** White lines or dots, to lie on a fill. */
function patternOf(context, name) {
  if (!PEN.patterns.has(name)) {
    const tile = document.createElement("canvas"), g = tile.getContext("2d");
    tile.width = tile.height = 6;
    g.strokeStyle = g.fillStyle = "#fff";
    g.lineWidth = 1.5;
    for (const x of name === "lines" ? [-6, 0, 6] : []) {
      g.moveTo(x - 1, 7);
      g.lineTo(x + 7, -1);
    }
    g.stroke();
    if (name === "dots") for (const [x, y] of [[1, 1], [4, 4]]) g.fillRect(x, y, 2, 2);
    PEN.patterns.set(name, context.createPattern(tile, "repeat"));
  }
  return PEN.patterns.get(name);
}

/** A piece of the legend: a look of the tables on a canvas of 14 pixels. */
export function swatch(canvas, { colour, pattern, band, shade }) {
  const g = sized(canvas, 14, 14);
  g.fillStyle = colour === TABLES.colours.lane[0] ? PEN.lane : shade ? fillOf(0, shade).fill : seen(colour);
  g.fillRect(0, 0, 14, 14);
  if (pattern) paintPattern(g, pattern, band, 0, 0, 14, 14);
}

function paintPattern(g, pattern, band, x, y, wide, high) {
  g.fillStyle = patternOf(g, pattern);
  g.fillRect(x, y + high * (1 - band), wide, high * band);
}

function sized(canvas, wide, high) {
  const ratio = window.devicePixelRatio || 1, g = canvas.getContext("2d");
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  canvas.style.height = `${high}px`;
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return g;
}

/** Where lanes are, and how many pixels a unit of time takes: the same for all panels of a page that ends at `until`. */
export function layout(panel, run, { until, most, widest }) {
  const wide = panel.box.clientWidth, narrow = wide < 560, { devices } = run.program;
  const lane = Math.max(8, Math.min(26, Math.floor(460 / devices) - 7)) * (run.paired ? 1.4 : 1);
  const strip = Math.max(4, Math.round(lane * 0.42)), together = run.timeline.collectives.length ? strip : 0;
  const left = narrow ? 24 : 66, right = widest * LETTER + (narrow ? 14 : 70);
  const pitch = lane + together + strip + (lane > 14 ? 7 : 4), high = TOP + devices * pitch + AXIS;
  const scale = (wide - left - right) / (until || 1);
  Object.assign(panel, { run, wide, narrow, lane, strip, together, left, right, pitch, high, scale, until, most, widest });
  sized(panel.base, wide, high);
  sized(panel.over, wide, high);
}

const acrossTo = (p, time) => p.left + time * p.scale;
const downTo = (p, device) => TOP + device * p.pitch;

/** The {device, time} below a point of a panel, or null. */
export function placeAt(p, x, y) {
  const time = (x - p.left) / p.scale, device = Math.floor((y - TOP) / p.pitch);
  return time >= 0 && time < p.run.timeline.makespan && device >= 0 && device < p.run.program.devices ? { device, time } : null;
}

/** Everything that stays: `wanted` has `messages` to show, and the critical `path`, a Set of entries. */
export function paintRun(p, wanted) {
  const g = p.base.getContext("2d"), { program, timeline } = p.run;
  g.clearRect(0, 0, p.wide, p.high);
  g.font = FONT;
  g.textBaseline = "middle";
  g.fillStyle = PEN.lane;
  for (let d = 0; d < program.devices; d++) g.fillRect(p.left, downTo(p, d), timeline.makespan * p.scale, p.lane);
  p.coarse = isCoarse(p);
  p.column = p.coarse ? COLUMN : 1 / (window.devicePixelRatio || 1);
  if (p.coarse) paintShares(p, g);
  else paintParts(p, g, wanted.path);
  if (p.lane >= 14) paintWaits(p, g);
  for (let d = 0; d < program.devices; d++) paintHeld(p, g, d);
  paintTogether(p, g);
  for (const i of wanted.messages) paintMessage(p, g, i);
  if (wanted.path) for (const e of wanted.path) if (timeline.end[e] > timeline.start[e]) frame(p, g, e, { width: 1.5 });
  paintAxis(p, g);
}

/** The parts of a program by how they look: [{kind, fill, number, parts}]. */
function partsAlike({ program, shades }) {
  const alike = new Map();
  for (let part = 0; part < program.kind.length; part++) {
    const kind = program.kind[part], shade = shades[program.home[program.entry[part]]].get(program.stage[part]);
    const key = kind + KINDS.length * shade;
    if (!alike.has(key)) alike.set(key, { kind, shade, parts: [] });
    alike.get(key).parts.push(part);
  }
  return [...alike.values()];
}

/** Where the box of a part is. */
function boxOf(p, part) {
  const { program, timeline } = p.run, e = program.entry[part], high = p.lane / (program.parts[e + 1] - program.parts[e]);
  const y = downTo(p, program.home[e]) + (part - program.parts[e]) * high;
  return { x: acrossTo(p, timeline.start[e]), y, wide: (timeline.end[e] - timeline.start[e]) * p.scale, high };
}

/** Whether there are too many actions for a box each: a lane has less than so many pixels for one. */
const isCoarse = ({ run: { program, timeline }, scale }) => (timeline.makespan * scale * program.devices) / program.size < 1.5;

/** Instead of boxes: in columns, how much of its time a device spends in actions of each kind, and above them waits. */
function paintShares(p, g) {
  const { program, timeline } = p.run, columns = Math.ceil(timeline.makespan * p.scale / COLUMN), unit = COLUMN / p.scale;
  const floor = new Float64Array(program.devices * columns), shares = [...KINDS].map(() => new Float64Array(floor.length));
  for (let part = 0; part < program.kind.length; part++) {
    const e = program.entry[part], halves = program.parts[e + 1] - program.parts[e], [from, to] = [timeline.start[e], timeline.end[e]];
    for (let i = Math.floor(from / unit); i * unit < to; i++) {
      const time = Math.min(to, (i + 1) * unit) - Math.max(from, i * unit);
      shares[program.kind[part]][program.home[e] * columns + i] += time / unit / halves;
    }
  }
  shares.forEach((share, kind) => {
    g.beginPath();
    share.forEach((part, i) => {
      if (!part) return;
      g.rect(p.left + (i % columns) * COLUMN, downTo(p, Math.floor(i / columns)) + p.lane * (1 - floor[i] - part), COLUMN, p.lane * part);
      floor[i] += part;
    });
    g.fillStyle = fillOf(kind, 0).fill;
    g.fill();
  });
}

/** Boxes with their patterns, then their numbers: of a kind all that have a number, or none. */
function paintParts(p, g, path) {
  const { program } = p.run, groups = (p.run.groups ??= partsAlike(p.run)), narrowest = new Array(KINDS.length).fill(Infinity);
  const fades = (part) => path && !path.has(program.entry[part]);
  for (const { kind, shade, parts } of groups) {
    const { fill } = fillOf(kind, shade), { pattern, band } = TABLES.kinds[KINDS[kind]];
    g.fillStyle = fill;
    for (const part of parts) {
      const { x, y, wide, high } = boxOf(p, part);
      if (wide <= 0) continue;
      narrowest[kind] = Math.min(narrowest[kind], wide);
      g.globalAlpha = fades(part) ? TABLES.faded : 1;
      g.fillRect(x, y, wide > 4 ? wide - 1 : wide, high);
      if (!pattern || wide <= 4 || high <= 8) continue;
      paintPattern(g, pattern, band, x, y, wide - 1, high);
      g.fillStyle = fill;
    }
  }
  g.globalAlpha = 1;
  g.textAlign = "center";
  const digits = String(program.microbatches - 1).length * LETTER + 3;
  for (const { kind, shade, parts } of groups) {
    if (narrowest[kind] < digits) continue;
    const { pattern, band } = TABLES.kinds[KINDS[kind]], clear = pattern ? 1 - band / 2 : 1;
    for (const part of parts) {
      const { x, y, wide, high } = boxOf(p, part);
      g.fillStyle = fades(part) ? PEN.faint : fillOf(kind, shade).number;
      if (wide > 0 && high >= 13) g.fillText(program.microbatch[part], x + wide / 2 - 0.5, y + (high * clear) / 2 + 0.5);
    }
  }
}

/** How long a device waits, where that is long and has room. */
function paintWaits(p, g) {
  const { program, timeline } = p.run, { makespan } = timeline;
  g.fillStyle = PEN.ink;
  g.textAlign = "center";
  for (let d = 0; d < program.devices; d++) {
    let since = 0;
    for (let e = program.first[d]; e <= program.first[d + 1]; e++) {
      const last = e === program.first[d + 1], until = last ? makespan : timeline.start[e];
      const words = `${last ? "done, " : ""}waits ${number(until - since)}`, wide = (until - since) * p.scale;
      if (until - since >= makespan / TABLES.long_wait && g.measureText(words).width + 8 < wide && !inSum(p, d, since, until))
        g.fillText(words, acrossTo(p, since) + wide / 2, downTo(p, d) + p.lane / 2 + 0.5);
      if (!last) since = Math.max(since, timeline.end[e]);
    }
  }
}

const inSum = (p, d, from, to) => p.run.timeline.collectives.some((each) => each.devices.includes(d) && each.start < to && each.end > from);

/** The strip below a lane: what the device holds over time, on one scale for the page; in a column, the most. */
function paintHeld(p, g, d) {
  const { times, layers } = p.run.held[d], y = downTo(p, d) + p.lane + p.together + 2, floor = new Float64Array(times.length);
  const places = times.map((time) => Math.round(acrossTo(p, time) / p.column) * p.column);
  places.push(Math.round(acrossTo(p, p.run.timeline.makespan) / p.column) * p.column);
  const heightOf = (value) => y + p.strip * (1 - value / p.most);
  for (const { look, values } of layers) {
    const bars = []; // [x, its end, low, high], as few as there can be
    for (let i = 0; i < times.length; i++) {
      const last = bars.at(-1), low = floor[i], high = (floor[i] += values[i]);
      if (last && places[i] === last[0]) {
        if (high > last[3]) last.splice(2, 2, low, high);
        last[1] = places[i + 1];
      } else if (last && low === last[2] && high === last[3]) last[1] = places[i + 1];
      else bars.push([places[i], places[i + 1], low, high]);
    }
    for (const [from, to, low, high] of bars) {
      if (high <= low || to <= from) continue;
      g.fillStyle = seen(look.colour);
      g.fillRect(from, heightOf(high), to - from, heightOf(low) - heightOf(high));
      if (look.pattern) paintPattern(g, look.pattern, 1, from, heightOf(high), to - from, heightOf(low) - heightOf(high));
    }
  }
}

/** What devices send each other together: a bar below the lane of each. */
function paintTogether(p, g) {
  g.textAlign = "center";
  for (const each of p.run.timeline.collectives) {
    const x = acrossTo(p, each.start), wide = Math.max(1, (each.end - each.start) * p.scale);
    for (const d of each.devices) {
      const y = downTo(p, d) + p.lane + 1;
      g.fillStyle = TABLES.collective;
      g.fillRect(x, y, wide, p.together - 1);
      g.fillStyle = "#000";
      if (p.together > 11 && g.measureText(each.what).width + 6 < wide) g.fillText(each.what, x + wide / 2, y + p.together / 2);
    }
  }
}

function paintMessage(p, g, i) {
  const { program, timeline } = p.run, { part, source, target } = program.messages[i];
  const made = timeline.end[program.entry[part]], sent = timeline.sent ? timeline.sent[i] : made, down = target > source;
  const from = downTo(p, source) + p.lane * (down ? 0.85 : 0.15), to = downTo(p, target) + p.lane * (down ? 0.15 : 0.85);
  const arrived = timeline.arrived ? timeline.arrived[i] : sent;
  if (sent > made) line(g, [[acrossTo(p, made), from], [acrossTo(p, sent), from]], { dash: [2, 2] });
  arrow(g, acrossTo(p, sent), from, acrossTo(p, arrived), to, 1);
}

/** Round times, at most one every 50 pixels; the makespan itself stands in bold, and those too near to it give way. */
function paintAxis(p, g) {
  const { makespan } = p.run.timeline, y = p.high - AXIS + 3, words = number(makespan), end = acrossTo(p, makespan);
  const room = Math.max(1, Math.floor((makespan * p.scale) / 50)), power = 10 ** Math.floor(Math.log10(makespan / room || 1));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => makespan / each <= room);
  g.fillStyle = PEN.faint;
  g.textAlign = "center";
  g.font = FONT;
  for (let i = 0; i * step <= makespan; i++) {
    const x = acrossTo(p, i * step);
    g.fillRect(x - 0.5, y - 3, 1, 4);
    if (x + 24 + words.length * 4 < end || !makespan) g.fillText(number(i * step), x, y + 10);
  }
  g.fillRect(p.left, y - 3, makespan * p.scale, 1);
  g.fillStyle = PEN.ink;
  g.font = `bold ${FONT}`;
  if (p.narrow) g.textAlign = "right";
  g.fillText(words, p.narrow ? end + 4 : end, y + 10);
  g.font = FONT;
  g.textAlign = "right";
  const every = p.pitch >= 14 ? 1 : 4;
  for (let d = 0; d < p.run.program.devices; d += every) g.fillText(p.narrow ? d : `device ${d}`, p.left - 8, downTo(p, d) + p.lane / 2 + 0.5);
}

/** What changes: the playhead at `time`, what is held there, and what was pointed at, or the same action as in `twin`. */
export function paintOver(p, time, lit, twin) {
  const g = p.over.getContext("2d");
  g.clearRect(0, 0, p.wide, p.high);
  g.font = FONT;
  g.textBaseline = "middle";
  for (let d = 0; d < p.run.program.devices; d++) paintBar(p, g, d, time);
  if (lit) paintLit(p, g, lit);
  for (const e of twin ?? []) frame(p, g, e, { width: 2.5 });
  line(g, [[acrossTo(p, time), 0], [acrossTo(p, time), p.high - AXIS]], { width: 1.5 });
  triangle(g, acrossTo(p, time), 6, Math.PI / 2, 7);
  g.fillStyle = PEN.faint;
  g.textAlign = "right";
  g.fillText(p.narrow ? "held" : "held now", p.wide - 2, p.high - AXIS + 13);
}

/** What a device holds at the playhead; red, and with a frame, above its limit. */
function paintBar(p, g, d, time) {
  const { total, limit } = p.run.held[d], held = total[heldAt(p.run.held[d], time)], over = limit != null && held > limit;
  const x = p.wide - p.right + 12, wide = p.right - p.widest * LETTER - 18, y = downTo(p, d), high = p.lane;
  const part = (value) => Math.min(1, value / p.most) * wide;
  if (!p.narrow) {
    g.fillStyle = PEN.lane;
    g.fillRect(x, y, wide, high);
    g.fillStyle = over ? PEN.over : seen(TABLES.memory["saved activations"].colour);
    g.fillRect(x, y, part(held), high);
    g.fillStyle = PEN.ink;
    if (limit != null && limit <= p.most) g.fillRect(x + part(limit) - 1, y - 2, 2, high + 4);
  }
  if (p.pitch < 14 && d % 4) return;
  g.fillStyle = over ? PEN.over : PEN.ink;
  g.textAlign = "right";
  g.font = over ? `bold ${FONT}` : FONT;
  g.fillText(p.run.heldText(held), p.wide - 2, y + high / 2 + 0.5);
  g.font = FONT;
}

/** An action with what it needs, what needs it and how long it is held for; or a wait with the chain of its causes. */
function paintLit(p, g, { device, from, to, entry, needs, neededBy, kept, links }) {
  const { timeline } = p.run;
  if (kept) line(g, [0, 1].map((i) => [acrossTo(p, kept[i]), downTo(p, device) + p.lane + p.together + p.strip + 3.5]), { width: 3 });
  for (const need of needs) frame(p, g, need.entry, { width: 2, dash: [4, 3] });
  for (const each of neededBy) frame(p, g, each, { width: 2, dash: [1.5, 2.5] });
  for (const each of links) frame(p, g, each, { width: 2.5 });
  if (entry >= 0) frame(p, g, entry, { width: 3 });
  else box(p, g, device, from, to, { width: 2, dash: [5, 3] });
  for (const need of needs) follow(p, g, need.entry, device, from);
  links.forEach((each, i) => follow(p, g, each, i ? p.run.program.home[links[i - 1]] : device, i ? timeline.start[links[i - 1]] : to));
}

/** An arrow from the end of an entry to where what it made lets something begin: on its own lane, around what is between. */
function follow(p, g, entry, device, time) {
  const home = p.run.program.home[entry], [from, to] = [acrossTo(p, p.run.timeline.end[entry]), acrossTo(p, time)];
  const [y, toY] = [downTo(p, home), downTo(p, device)], below = y + p.lane;
  if (home !== device) return arrow(g, from, device > home ? below : y, to, device > home ? toY : toY + p.lane, 2);
  if (to - from < 8) return;
  line(g, [[from - 3, below], [from - 3, below + 7], [to + 3, below + 7]], { width: 2 });
  arrow(g, to + 3, below + 7, to + 3, below, 2);
}

function frame(p, g, entry, look) {
  const { program, timeline } = p.run;
  box(p, g, program.home[entry], timeline.start[entry], timeline.end[entry], look);
}

function box(p, g, device, from, to, look) {
  const x = acrossTo(p, from), wide = Math.max(3, (to - from) * p.scale - 1), y = downTo(p, device);
  line(g, [[x, y], [x + wide, y], [x + wide, y + p.lane], [x, y + p.lane], [x, y - 1]], look);
}

/** A line of ink with a rim of paper, so that it is seen on every colour. */
function line(g, points, { width = 1.5, dash = [] }) {
  g.beginPath();
  points.forEach(([x, y]) => g.lineTo(x, y));
  for (const [colour, wide, gaps] of [[PEN.paper, width + 2, []], [PEN.ink, width, dash]]) {
    g.strokeStyle = colour;
    g.lineWidth = wide;
    g.setLineDash(gaps);
    g.stroke();
  }
  g.setLineDash([]);
}

function arrow(g, x, y, toX, toY, width) {
  const angle = Math.atan2(toY - y, toX - x), size = 4 + 2 * width;
  line(g, [[x, y], [toX - size * 0.6 * Math.cos(angle), toY - size * 0.6 * Math.sin(angle)]], { width });
  triangle(g, toX, toY, angle, size);
}

function triangle(g, x, y, angle, size) {
  g.beginPath();
  g.moveTo(x, y);
  for (const turn of [-0.42, 0.42]) g.lineTo(x - size * Math.cos(angle + turn), y - size * Math.sin(angle + turn));
  g.closePath();
  [g.fillStyle, g.strokeStyle, g.lineWidth] = [PEN.ink, PEN.paper, 1];
  g.stroke();
  g.fill();
}
