// A chart on two canvases: what a run is stands on the lower one and is drawn once; the playhead, what is held there
// and what was pointed at stand on the upper one, which is drawn for every frame.
//
// A panel is {box, base, over} with the run and the measures that `layout` adds.

import { TABLES } from "./tables.js";
import { KINDS } from "./clock.js";
import { heldAt } from "./memory.js";
import { number } from "./why.js";

const FONT = "12px system-ui, sans-serif", LETTER = 7, TOP = 5, AXIS = 26;
const COLUMN = 4; // pixels of a chart whose actions are too many for a box each
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
  PEN.dark = luminance(PEN.paper.match(/[\d.]+/g).slice(0, 3)) < 0.2;
  PEN.fills.clear();
}

function luminance(channels) {
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = channels.map((channel) => linear(channel / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

const seen = (colour) => (PEN.dark && TABLES.dark[colour]) || colour;

/** The fill of a kind at a shade, and the colour for a number on it: white or black, whichever has more contrast. */
function fillOf(kind, shade) {
  const key = kind + KINDS.length * shade, colour = seen(LOOKS[kind].colour);
  if (!PEN.fills.has(key)) {
    const plain = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const channels = plain.map((c) => Math.round(c + (255 - c) * shade));
    const onDark = (luminance(channels) + 0.05) ** 2 < 0.05 * 1.05;
    PEN.fills.set(key, { fill: `rgb(${channels})`, ink: onDark ? "#fff" : "#000" });
  }
  return PEN.fills.get(key);
}

/** White lines or dots over the lower part of a box. */
function paintPattern(g, { pattern, band }, x, y, wide, high) {
  if (!PEN.patterns.has(pattern)) {
    const tile = document.createElement("canvas"), on = tile.getContext("2d");
    tile.width = tile.height = 6;
    [on.fillStyle, on.strokeStyle, on.lineWidth] = ["#fff", "#fff", 1.5];
    const lines = new Path2D("M-7 7 L1 -1 M-1 7 L7 -1 M5 7 L13 -1");
    if (pattern === "lines") on.stroke(lines);
    else for (const [left, top] of [[1, 1], [4, 4]]) on.fillRect(left, top, 2, 2);
    PEN.patterns.set(pattern, g.createPattern(tile, "repeat"));
  }
  g.fillStyle = PEN.patterns.get(pattern);
  g.fillRect(x, y + high * (1 - band), wide, high * band);
}

/** A piece of the legend: a look of the tables on a canvas of 14 pixels. */
export function swatch(canvas, look) {
  const g = sized(canvas, 14, 14), shaded = look.shade && fillOf(0, look.shade).fill;
  g.fillStyle = look.colour === TABLES.colours.lane[0] ? PEN.lane : shaded || seen(look.colour);
  g.fillRect(0, 0, 14, 14);
  if (look.pattern) paintPattern(g, look, 0, 0, 14, 14);
}

function sized(canvas, wide, high) {
  const ratio = window.devicePixelRatio || 1, g = canvas.getContext("2d");
  [canvas.width, canvas.height, canvas.style.height] = [wide * ratio, high * ratio, `${high}px`];
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  [g.font, g.textBaseline] = [FONT, "middle"];
  return g;
}

/** Where lanes are, and the pixels of a unit of time: the same for all panels of a page that ends at `until`. */
export function layout(panel, run, { until, most, widest }) {
  const wide = Math.max(240, panel.box.clientWidth), narrow = wide < 560, { devices, size, entries } = run.program;
  const paired = entries.some((entry) => entry.length > 3), together = run.timeline.collectives.length ? 10 : 0;
  const lane = Math.max(8, Math.min(26, Math.floor(460 / devices) - 7)) * (paired ? 1.4 : 1);
  const strip = Math.max(4, Math.round(lane * (run.bytes ? 1.2 : 0.42)));
  const pitch = lane + together + strip + (lane > 14 ? 7 : 4);
  const left = narrow ? 24 : 66, right = widest * LETTER + (narrow ? 14 : 70), high = TOP + devices * pitch + AXIS;
  const scale = (wide - left - right) / (until || 1), coarse = run.timeline.makespan * scale * devices < 1.5 * size;
  const column = coarse ? COLUMN : 1 / (window.devicePixelRatio || 1);
  Object.assign(panel, { run, wide, narrow, high, lane, strip, together, left, right, pitch });
  Object.assign(panel, { scale, coarse, column, most, widest });
  for (const canvas of [panel.base, panel.over]) sized(canvas, wide, high);
}

const acrossTo = (p, time) => p.left + time * p.scale;
const downTo = (p, device) => TOP + device * p.pitch;
const devicesOf = (p) => p.run.program.placement.keys();

/** The {device, time} below a point of a panel, or null. */
export function placeAt(p, x, y) {
  const time = (x - p.left) / p.scale, device = Math.floor((y - TOP) / p.pitch);
  const there = time >= 0 && time < p.run.timeline.makespan && device >= 0 && device < p.run.program.devices;
  return there ? { device, time } : null;
}

/** Everything that stays: `messages` to show, and the critical `path`, a Set of entries, or null. */
export function paintRun(p, { messages, path }) {
  const g = p.base.getContext("2d"), { timeline } = p.run;
  g.clearRect(0, 0, p.wide, p.high);
  g.fillStyle = PEN.lane;
  for (const d of devicesOf(p)) g.fillRect(p.left, downTo(p, d), timeline.makespan * p.scale, p.lane);
  if (p.coarse) paintShares(p, g);
  else paintParts(p, g, path);
  for (const d of devicesOf(p)) paintHeld(p, g, d);
  paintTogether(p, g);
  paintWaits(p, g);
  for (const i of messages) paintMessage(p, g, i);
  for (const e of path ?? []) if (timeline.end[e] > timeline.start[e]) frame(p, g, e, { width: 1.5 });
  paintAxis(p, g);
}

/** Boxes with their patterns, then their numbers: of a kind all that have a number, or none. */
function paintParts(p, g, path) {
  const { kind, stage, microbatch, microbatches, entry, parts, home, shades } = p.run.program;
  const { start, end } = p.run.timeline;
  const narrowest = LOOKS.map(() => Infinity), digits = String(microbatches - 1).length * LETTER + 3, boxes = [];
  for (let part = 0; part < kind.length; part++) {
    const e = entry[part], high = p.lane / (parts[e + 1] - parts[e]), wide = (end[e] - start[e]) * p.scale;
    if (!wide) continue;
    const x = acrossTo(p, start[e]), y = downTo(p, home[e]) + (part - parts[e]) * high, faded = path && !path.has(e);
    const { fill, ink } = fillOf(kind[part], shades[home[e]].get(stage[part])), look = LOOKS[kind[part]];
    const clear = look.pattern ? 1 - look.band / 2 : 1;
    narrowest[kind[part]] = Math.min(narrowest[kind[part]], wide);
    if (high >= 13) boxes.push([part, x + wide / 2 - 0.5, y + (high * clear) / 2 + 0.5, faded ? PEN.faint : ink]);
    [g.fillStyle, g.globalAlpha] = [fill, faded ? TABLES.faded : 1];
    g.fillRect(x, y, wide > 4 ? wide - 1 : wide, high);
    if (look.pattern && wide > 4 && high > 8) paintPattern(g, look, x, y, wide - 1, high);
  }
  [g.globalAlpha, g.textAlign] = [1, "center"];
  for (const [part, x, y, ink] of boxes) {
    g.fillStyle = ink;
    if (narrowest[kind[part]] >= digits) g.fillText(microbatch[part], x, y);
  }
}

/** Instead of boxes: in columns, how much of its time a device spends in actions of each kind, and above them waits. */
function paintShares(p, g) {
  const { kind, entry, parts, home, devices } = p.run.program, { start, end, makespan } = p.run.timeline;
  const columns = Math.ceil((makespan * p.scale) / COLUMN), unit = COLUMN / p.scale;
  const [floor, ...shares] = [null, ...LOOKS].map(() => new Float64Array(devices * columns));
  for (let part = 0; part < kind.length; part++) {
    const e = entry[part], whole = unit * (parts[e + 1] - parts[e]);
    for (let i = Math.floor(start[e] / unit); i * unit < end[e]; i++) {
      const time = Math.min(end[e], (i + 1) * unit) - Math.max(start[e], i * unit);
      shares[kind[part]][home[e] * columns + i] += time / whole;
    }
  }
  for (const [k, share] of shares.entries()) {
    g.beginPath();
    share.forEach((part, i) => {
      const y = downTo(p, Math.floor(i / columns)) + p.lane * (1 - floor[i] - part);
      if (part) g.rect(p.left + (i % columns) * COLUMN, y, COLUMN, p.lane * part);
      floor[i] += part;
    });
    g.fillStyle = fillOf(k, 0).fill;
    g.fill();
  }
}

/** How long a device waits, where that is long and has room. */
function paintWaits(p, g) {
  const { makespan, collectives } = p.run.timeline;
  [g.fillStyle, g.textAlign] = [PEN.ink, "center"];
  for (const [d, waits] of p.run.waits.entries()) for (const [from, to, last] of waits) {
    const words = `${last ? "done, " : ""}waits ${number(to - from)}`, wide = (to - from) * p.scale;
    const inSum = collectives.some((each) => each.devices.includes(d) && each.start < to && each.end > from);
    const long = to - from >= makespan / TABLES.long_wait && p.lane >= 14 && !inSum;
    if (long && g.measureText(words).width + 8 < wide)
      g.fillText(words, acrossTo(p, from) + wide / 2, downTo(p, d) + p.lane / 2 + 0.5);
  }
}

/** The strip below a lane: what the device holds over time, on one scale for the page; in a column, the most. */
function paintHeld(p, g, d) {
  const { times, layers } = p.run.held[d], y = downTo(p, d) + p.lane + p.together + 2;
  const heightOf = (value) => y + p.strip * (1 - value / p.most), floor = new Float64Array(times.length);
  const column = (time) => Math.round(acrossTo(p, time) / p.column) * p.column;
  const places = [...times, p.run.timeline.makespan].map(column);
  for (const { look, values } of layers) {
    const bars = []; // [x, its end, low, high], as few as there can be
    for (let i = 0; i < times.length; i++) {
      const last = bars.at(-1), low = floor[i], high = (floor[i] += values[i]);
      const same = low === last?.[2] && high === last?.[3];
      if (last?.[0] === places[i] && high > last[3]) last.splice(1, 3, places[i + 1], low, high);
      else if (last?.[0] === places[i] || same) last[1] = places[i + 1];
      else bars.push([places[i], places[i + 1], low, high]);
    }
    for (const [from, to, low, high] of bars.filter(([, , low, high]) => high > low)) {
      g.fillStyle = seen(look.colour);
      g.fillRect(from, heightOf(high), to - from, heightOf(low) - heightOf(high));
      if (look.pattern) paintPattern(g, look, from, heightOf(high), to - from, heightOf(low) - heightOf(high));
    }
  }
}

/** What devices send each other together: a bar below the lane of each. */
function paintTogether(p, g) {
  g.fillStyle = TABLES.collective;
  for (const { start, end, devices } of p.run.timeline.collectives) for (const d of devices)
    g.fillRect(acrossTo(p, start), downTo(p, d) + p.lane + 1, Math.max(1, (end - start) * p.scale), p.together - 2);
}

/** An arrow between the sides of two lanes that face each other; before it, how long a message waits for its link. */
function paintMessage(p, g, i) {
  const { messages, entry } = p.run.program, { end, sent, arrived } = p.run.timeline;
  const { part, source, target } = messages[i], made = end[entry[part]];
  const edge = (device, other) => downTo(p, device) + p.lane * (other > device ? 0.85 : 0.15);
  const [from, to] = [edge(source, target), edge(target, source)], leaves = sent?.[i] ?? made;
  if (leaves > made) line(g, [[acrossTo(p, made), from], [acrossTo(p, leaves), from]], { dash: [2, 2] });
  arrow(g, [acrossTo(p, leaves), from], [acrossTo(p, arrived?.[i] ?? made), to], 1);
}

/** Round times, at most one every 50 pixels and unit; the makespan in bold, where times too near to it give way. */
function paintAxis(p, g) {
  const { makespan } = p.run.timeline, y = p.high - AXIS + 3, end = acrossTo(p, makespan), words = number(makespan);
  const whole = makespan < 5 ? Infinity : Math.floor(makespan);
  const room = Math.max(1, Math.min(whole, Math.floor((makespan * p.scale) / 50)));
  const power = 10 ** Math.floor(Math.log10(makespan / room || 1));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => makespan / each <= room);
  [g.fillStyle, g.textAlign] = [PEN.faint, "center"];
  g.fillRect(p.left, y - 3, makespan * p.scale, 1);
  for (let x = p.left, i = 0; i * step <= makespan; x = acrossTo(p, ++i * step)) {
    g.fillRect(x - 0.5, y - 3, 1, 4);
    if (x + 24 + words.length * 4 < end) g.fillText(number(i * step), x, y + 10);
  }
  [g.fillStyle, g.font, g.textAlign] = [PEN.ink, `bold ${FONT}`, p.narrow ? "right" : "center"];
  g.fillText(words, p.narrow ? end + 4 : end, y + 10);
  [g.font, g.textAlign] = [FONT, "right"];
  for (const d of devicesOf(p)) if (p.pitch >= 14 || d % 4 === 0)
    g.fillText(p.narrow ? d : `device ${d}`, p.left - 8, downTo(p, d) + p.lane / 2 + 0.5);
}

/** What changes: the playhead at `time`, what is held there, what was pointed at, and the same action as in `twins`. */
export function paintOver(p, time, lit, twins) {
  const g = p.over.getContext("2d"), x = acrossTo(p, time);
  g.clearRect(0, 0, p.wide, p.high);
  for (const d of devicesOf(p)) paintBar(p, g, d, time);
  if (lit) paintLit(p, g, lit);
  for (const e of twins ?? []) frame(p, g, e, { width: 2.5 });
  line(g, [[x, 0], [x, p.high - AXIS]]);
  triangle(g, x, 6, Math.PI / 2, 7);
  [g.fillStyle, g.textAlign] = [PEN.faint, "right"];
  g.fillText(p.narrow ? "held" : "held now", p.wide - 2, p.high - AXIS + 13);
}

/** What a device holds at the playhead; red, and its number bold, above its limit. */
function paintBar(p, g, d, time) {
  const { total, limit } = p.run.held[d], held = total[heldAt(p.run.held[d], time)];
  const over = limit != null && held > limit;
  const x = p.wide - p.right + 12, wide = p.right - p.widest * LETTER - 24, y = downTo(p, d);
  const bar = (colour, part) => {
    g.fillStyle = colour;
    g.fillRect(x, y, Math.min(1, part) * wide, p.lane);
  };
  if (!p.narrow) {
    bar(PEN.lane, 1);
    bar(over ? PEN.over : seen(TABLES.memory["saved activations"].colour), held / p.most);
    g.fillStyle = PEN.ink;
    if (limit != null && limit <= p.most) g.fillRect(x + (limit / p.most) * wide - 1, y - 2, 2, p.lane + 4);
  }
  if (p.pitch < 14 && d % 4) return;
  [g.fillStyle, g.font, g.textAlign] = [over ? PEN.over : PEN.ink, over ? `bold ${FONT}` : FONT, "right"];
  g.fillText(p.run.heldText(held), p.wide - 2, y + p.lane / 2 + 0.5);
  g.font = FONT;
}

/** An action with what it needs, what needs it and how long it is kept; or a wait with the chain of its causes. */
function paintLit(p, g, { device, from, to, entry, needs, neededBy, kept, links }) {
  const { program: { home }, timeline: { start } } = p.run, below = downTo(p, device) + p.pitch - 4;
  if (kept) line(g, kept.map((time) => [acrossTo(p, time), below]), { width: 3 });
  for (const need of needs) frame(p, g, need.entry, { width: 2, dash: [4, 3] });
  for (const each of neededBy) frame(p, g, each, { width: 2, dash: [1.5, 2.5] });
  for (const each of links) frame(p, g, each, { width: 2.5 });
  if (entry >= 0) frame(p, g, entry, { width: 3 });
  else outline(p, g, device, from, to, { width: 2, dash: [5, 3] });
  for (const need of needs) follow(p, g, need.entry, device, from);
  links.forEach((each, i) => follow(p, g, each, i ? home[links[i - 1]] : device, i ? start[links[i - 1]] : to));
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

function frame(p, g, e, look) {
  outline(p, g, p.run.program.home[e], p.run.timeline.start[e], p.run.timeline.end[e], look);
}

function outline(p, g, device, from, to, look) {
  const x = acrossTo(p, from), right = x + Math.max(3, (to - from) * p.scale - 1);
  const y = downTo(p, device), low = y + p.lane;
  line(g, [[x, y], [right, y], [right, low], [x, low], [x, y - 1]], look);
}

/** A line of ink with a rim of paper, so that it is seen on every colour. */
function line(g, points, { width = 1.5, dash = [] } = {}) {
  g.beginPath();
  for (const [x, y] of points) g.lineTo(x, y);
  for (const [colour, wide, gaps] of [[PEN.paper, width + 2, []], [PEN.ink, width, dash]]) {
    [g.strokeStyle, g.lineWidth] = [colour, wide];
    g.setLineDash(gaps);
    g.stroke();
  }
  g.setLineDash([]);
}

function arrow(g, [x, y], [toX, toY], width) {
  const angle = Math.atan2(toY - y, toX - x), size = 4 + 2 * width, short = 0.6 * size;
  line(g, [[x, y], [toX - short * Math.cos(angle), toY - short * Math.sin(angle)]], { width });
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
