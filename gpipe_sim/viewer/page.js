// The page: what is shown, and what a reader does with it. Text from outside only becomes textContent.
//
// A chart is {record, given, run, refused, panel}: the record of what is shown, the one that it came with, what the
// clock makes of it, the sentence that refuses it, and where it is drawn.

import { TABLES } from "./tables.js";
import { B, I, KINDS, R, within, writeEntry } from "./clock.js";
import { FAMILIES } from "./families.js";
import { criticalPath, number } from "./why.js";
import { heldAt, whyNoBytes } from "./memory.js";
import { fromFragment, toFragment } from "./share.js";
import { layout, paintOver, paintRun, placeAt, readColours, swatch } from "./paint.js";
import { INPUTS, UNIT, litAt, percent, runOf } from "./runs.js";
import { readLoaded } from "./loaded.js";
import { controlsOf } from "./controls.js";
import { mountBoard } from "./board.js";

const page = { charts: [], size: {}, stage: null, at: 0, until: 0, ask: null, kept: false, hover: null, lit: null };
const still = matchMedia("(prefers-reduced-motion: reduce)"), $ = (id) => document.getElementById(id);
const waiting = { run: 0, over: 0, play: 0 }; // what the browser calls back: at most once for a frame
const runSoon = () => (waiting.run ||= requestAnimationFrame(runNow));
const overSoon = () => (waiting.over ||= requestAnimationFrame(overNow));
const controls = controlsOf(page, runSoon), sentence = [...$("title").childNodes];
const runsOf = () => page.charts.map(({ run }) => run).filter(Boolean);

/** A new element with its properties and its children: texts stay texts. */
function make(tag, given = {}, ...children) {
  const made = Object.assign(document.createElement(tag), given);
  made.append(...children);
  return made;
}

/** A number that stands out, and what it is of. */
const fact = (tag, value, words) => make(tag, {}, make("b", {}, value), ` ${words}`);

// Running

/** Run what changed, and draw everything. */
function runNow() {
  cancelAnimationFrame(waiting.run);
  waiting.run = 0;
  const waited = page.lit?.entry < 0;
  for (const [n, chart] of page.charts.entries()) {
    if (!chart.panel) addPanel(chart, n);
    if (chart.run?.record === chart.record) continue;
    try {
      chart.run = runOf(chart.record, chart.run);
      [chart.record, chart.refused] = [chart.run.record, null];
    } catch (error) {
      [chart.run, chart.refused] = [null, error.message];
    }
  }
  Object.assign(page, { hover: null, ask: page.ask && askAgain(page.ask, waited) });
  drawAll();
  controls.forEach(refresh);
  tell(true);
}

/** The same question of a new run; one about a wait that is not there any more is about the device's longest one. */
function askAgain([n, device, time], waited) {
  const run = page.charts[n]?.run, waits = run?.waits[device];
  if (!waits) return null;
  const same = waits.some(([from, to]) => from <= time && time < to);
  const [longest] = waits.toSorted((a, b) => b[1] - b[0] - (a[1] - a[0]));
  const asked = waited && !same && longest ? longest[0] : time;
  return asked <= run.timeline.makespan ? [n, device, asked] : null;
}

// Drawing

function drawAll() {
  readColours();
  const runs = runsOf(), most = Math.max(...runs.map((run) => run.most)) || 1;
  page.until = Math.max(0, ...runs.map(({ timeline }) => timeline.makespan));
  page.at = Math.min(page.at, page.until);
  const widest = Math.max(4, ...runs.map((run) => run.heldText(run.most).length));
  for (const chart of page.charts) {
    if (chart.run) layout(chart.panel, chart.run, { until: page.until, most, widest });
    if (chart.run) paintRun(chart.panel, wantedOf(chart.run));
    drawCaption(chart);
  }
  for (const draw of [drawLegend, drawNotes, drawTable, drawWelcome]) draw(runs);
  [page.wide, $("head").max] = [$("panels").clientWidth, page.until];
  light();
}

/** The messages and the critical path, if they are asked for. */
function wantedOf({ program: { messages }, timeline }) {
  const shown = $("messages").checked && messages.length <= TABLES.most_arrows;
  if (!$("path").checked) return { path: null, messages: shown ? messages.keys() : [] };
  const path = criticalPath(timeline), of = (what) => path.map((each) => each[what]).filter((each) => each >= 0);
  return { path: new Set(of("entry")), messages: shown ? messages.keys() : of("message") };
}

const counted = (count, what, more) => `${number(count)} ${what}${count === 1 ? "" : more}`;
const sizeOf = ({ program: { devices, microbatches } }) =>
  `${counted(devices, "device", "s")}, ${counted(microbatches, "microbatch", "es")}`;

function drawCaption({ record: { schedule, times }, run, refused, panel }) {
  const { name, says } = FAMILIES[schedule.family] ?? {};
  panel.title.textContent = run?.name ?? schedule.name ?? name;
  panel.says.textContent = says ?? "";
  panel.box.classList.toggle("gone", !run);
  if (!run) return panel.facts.replaceChildren(make("p", { className: "refused" }, refused));
  const { peaks, most, bytes, heldText, timeline: { makespan } } = run, each = peaks.length <= 8;
  panel.facts.replaceChildren(
    fact("span", number(makespan), "long"), fact("span", number(makespan / run.program.microbatches), "per microbatch"),
    fact("span", percent(run.waiting), "waiting"), fact("span", (each ? peaks : [most]).map(heldText).join(", "),
      `${bytes ? "" : "microbatches "}held at most${each ? ", by device" : ""}`),
  );
  if (times) panel.facts.append(make("span", {}, "These times are given: costs do not move them."));
  if (panel.coarse) panel.facts.append(make("span", {}, "Heights are shares of time."));
  panel.box.ariaLabel = `${run.name}, ${sizeOf(run)}. Arrow keys go from action to action`;
}

function drawLegend(runs) {
  const has = (k) => runs.some((run) => run.program.there.has(k)), both = has(B) && has(I);
  const bytes = runs.flatMap((run) => run.bytes ?? []), holds = (name) => (of) => of.bytes[name].some(Boolean);
  const later = runs.some(({ program }) => program.stages > program.devices);
  const together = new Set(runs.flatMap(({ timeline }) => timeline.collectives.map(({ what }) => what)));
  const looks = [
    ...[...KINDS].map((kind, k) => [has(k) && !(k === I && both), TABLES.kinds[kind],
      `${kind} ${TABLES.meanings[kind]}${k === B && both ? ", and I, the first half of a split one" : ""}`]),
    [later, { ...TABLES.kinds.F, shade: TABLES.later / 2 }, TABLES.later_stage],
    [true, { colour: TABLES.colours.lane[0] }, "waiting"],
    ...[...together].map((what) => [true, { colour: TABLES.collective }, what]),
    ...Object.entries(TABLES.memory).map(([name, look]) => [bytes.some(holds(name)), look, name]),
    [!bytes.length, TABLES.memory["saved activations"], "microbatches held"],
    [!bytes.length && has(R), INPUTS, "only their input"],
  ];
  $("legend").replaceChildren(...looks.filter(([there]) => there).map(([, look, words]) =>
    make("li", {}, swatch(make("canvas", { ariaHidden: "true" }), look), words)));
}

/** What a reader might look for and not find, and why. */
function drawNotes() {
  const says = [], { most_arrows: most } = TABLES;
  for (const { run: { name, program, bytes }, given: { sizes }, record } of page.charts.filter(({ run }) => run)) {
    const { length: count } = program.messages, lost = sizes && !bytes && !record.times;
    if (lost) says.push(`${name} shows no bytes and no limit: ${whyNoBytes(program, sizes)}.`);
    if ($("messages").checked && count > most)
      says.push(`${name} shows no arrows: it has ${count} messages, more than ${most}.`);
  }
  $("missing").replaceChildren(...says.map((note) => make("p", {}, note)));
}

function overNow() {
  waiting.over = 0;
  page.charts.forEach(({ run, panel }, n) => {
    if (run) paintOver(panel, page.at, page.lit?.chart === n ? page.lit : null, page.lit?.twins[n]);
  });
  $("head").value = page.at;
  $("now").textContent = `${number(Math.round(page.at * 1000) / 1000)} of ${number(page.until)}`;
  $("head").ariaValueText = `time ${$("now").textContent}`;
}

// Asking: a place is [chart, device, time]

/** Light what is asked, here and in the other chart. */
function light() {
  const [n, device, time] = page.hover ?? page.ask ?? [], run = page.charts[n]?.run;
  page.lit = run ? { chart: n, ...litAt(run, device, time) } : null;
  const twins = (other) => (other && other !== run ? twinsOf(run.program, page.lit.entry, other.program) : []);
  if (run) page.lit.twins = page.charts.map((chart) => twins(chart.run));
  overSoon();
}

/** The same actions in another program; a whole backward there is the same as its half here. A wait has none. */
function twinsOf({ parts, kind, stage, microbatch }, e, other) {
  return e < 0 ? [] : within(parts, e).flatMap((part) => {
    const letter = KINDS[kind[part]], alike = [...({ B: "BI", I: "IB" }[letter] ?? letter)];
    const found = alike.map((each) => other.find(KINDS.indexOf(each), stage[part], microbatch[part]));
    return found.filter((each) => each >= 0).slice(0, 1).map((each) => other.entry[each]);
  });
}

/** Say it where everybody reads it; aloud only if it was asked by key, click or slider: pointing would flood. */
function tell(aloud) {
  $("say").ariaLive = aloud ? "polite" : "off";
  $("say").textContent = page.lit ? page.lit.sentence : page.charts.map(summary).join(". ");
}

const summary = ({ run, refused }) => (run ? [
  `${run.name} takes ${number(run.timeline.makespan)}`, `its devices wait ${percent(run.waiting)} of the time`,
  `and each holds at most ${run.bytes ? run.heldText(run.most) : `${run.most} microbatches`}`].join(", ") : refused);

function ask(place, kept, at = place?.[2] ?? page.at) {
  Object.assign(page, { ask: place, kept, hover: null, at });
  light();
  tell(true);
}

function point(n, found) {
  const { hover, lit } = page, there = hover && lit?.chart === n && lit.device === found?.device;
  if ((!found && !hover) || (there && lit.from <= found.time && found.time < lit.to)) return;
  page.hover = found && [n, found.device, found.time];
  light();
  tell(false);
}

// A panel: two canvases that take the mouse and the keys

function addPanel(chart, n) {
  const section = $("chart").content.firstElementChild.cloneNode(true);
  const [title, facts, says, box, base, over] = section.querySelectorAll("h2, .facts, .says, .panel, canvas");
  chart.panel = { title, facts, says, base, over, box };
  $("panels").append(section);
  const place = (event) => chart.run && placeAt(chart.panel, event.offsetX, event.offsetY);
  const drags = (event) => Math.abs(event.clientX - page.pressed) > 3;
  box.onpointerdown = ({ clientX }) => (page.pressed = clientX);
  box.onpointermove = (event) => {
    if (event.buttons && drags(event)) scrub((event.offsetX - chart.panel.left) / chart.panel.scale);
    else if (!page.kept) point(n, place(event));
  };
  box.onpointerleave = () => point(n, null);
  box.onclick = (event) => {
    const found = drags(event) ? null : place(event);
    if (found) ask(page.kept ? null : [n, found.device, litAt(chart.run, found.device, found.time).from], !page.kept);
  };
  box.onkeydown = (event) => chart.run && press(event, keysOf(n, chart.run));
}

/** Do what a key is for, if it is for anything. */
function press(event, does) {
  if (!Object.hasOwn(does, event.key) || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  does[event.key]();
}

/** Arrows go from action to action and from device to device, w to the next wait; Escape lets go. */
function keysOf(n, { program: { first }, timeline, waits }) {
  const [, device, time] = page.ask?.[0] === n ? page.ask : [n, 0, -1];
  const starts = timeline.start.subarray(first[device], first[device + 1]), begun = waits[device].map(([from]) => from);
  const go = (to, found, at) => found !== undefined && waits[to] && ask([n, to, found], true, at);
  const after = (times) => () => go(device, times.find((each) => each > time));
  const before = (times) => () => go(device, times.findLast((each) => each < time));
  const across = (by) => () => go(device + by, Math.max(0, time), page.at);
  return {
    ArrowRight: after(starts), ArrowLeft: before(starts), ArrowUp: across(-1), ArrowDown: across(1),
    w: after(begun), W: before(begun), Escape: () => ask(null, false), " ": play,
  };
}

// The playhead

function scrub(time) {
  page.at = Math.max(0, Math.min(page.until, time));
  overSoon();
}

/** To the next time, or the last one, at which anything begins or ends. */
function step(forward) {
  const times = runsOf().flatMap(({ timeline: { start, end } }) => [...start, ...end]);
  const nearer = (best, time) => (forward ? page.at < time && time < best : best < time && time < page.at);
  scrub(times.reduce((best, time) => (nearer(best, time) ? time : best), forward ? page.until : 0));
}

function play() {
  const going = !waiting.play;
  [$("play").textContent, $("play").ariaPressed] = [going ? "Pause" : "Play", String(going)];
  clearInterval(waiting.play);
  waiting.play = going ? setInterval(playOn, still.matches ? 600 : 15) : 0;
  page.played = performance.now();
  if (going && page.at >= page.until) scrub(0);
}

/** All in twelve seconds; or, for who wants no motion, from one event to the next. */
function playOn() {
  const before = page.played;
  page.played = performance.now();
  if (still.matches) step(true);
  else scrub(page.at + ((page.played - before) / 12000) * page.until);
  if (page.at >= page.until) play();
}

// Controls, table, welcome

/** A control as its chart is now; a slider grows with what it is given. */
function refresh({ id, of, now, choices }) {
  const input = $(id), value = now();
  input.disabled = !of().length;
  if (choices) return offer(input, choices(), value);
  if (value > input.max) Object.assign(input, { max: 2 * value, step: input.step < 1 ? value / 8 : 1 });
  input.value = value;
  for (const output of input.parentNode.querySelectorAll("output")) output.textContent = number(value);
}

/** A select with these choices, [value, words]: new ones only if they changed, so that an open one stays open. */
function offer(select, choices, value) {
  const key = choices.join(), option = ([value, words]) => make("option", { value: value ?? "" }, words);
  if (select.dataset.key !== key) select.replaceChildren(...choices.map(option));
  [select.dataset.key, select.value] = [key, value ?? ""];
}

/** All actions of a chart's device; made when it is open. */
function drawTable() {
  if (!$("list").open) return;
  const select = $("which").querySelector("select");
  const placesOf = ({ run }, n) => (run?.waits ?? []).map((_, d) => [`${n} ${d}`, `${run.name}, device ${d}`]);
  offer(select, page.charts.flatMap(placesOf), select.value);
  if (select.selectedIndex < 0) select.selectedIndex = 0;
  if (!select.value) return;
  const [n, d] = select.value.split(" ").map(Number), { program, timeline, held, heldText } = page.charts[n].run;
  const { first, parts, kind, stage, microbatch, entries } = program, { start, end } = timeline;
  $("table").tBodies[0].replaceChildren(...within(first, d).map((e) => {
    const p = parts[e], what = TABLES.meanings[KINDS[kind[p]]], then = heldText(held[d].total[heldAt(held[d], end[e])]);
    const cells = [writeEntry(entries[e]), what, stage[p], microbatch[p], number(start[e]), number(end[e]), then];
    return make("tr", {}, ...cells.map((each) => make("td", {}, each)));
  }));
}

/** What is shown, in words. */
function titleOf(runs) {
  if (!$("board").hidden) return "Build an order by hand";
  const all = (what) => [...what].join(" above "), sizes = new Set(runs.map(sizeOf));
  return runs.length ? `${all(runs.map(({ name }) => name))}: ${all(sizes)}` : "No schedule can run like this";
}

/** A site's first screen: its sentence, as long as what that speaks of is shown, and two numbers. */
function drawWelcome(runs) {
  if (!$("welcome")) return;
  const [one, other] = runs, title = titleOf(runs), shows = [title, ...page.charts.map(summary)].join();
  const beside = (what) => (other ? `; ${what(other)} with ${other.name}` : "");
  $("title").replaceChildren(...(shows === (page.first ??= shows) ? sentence : [title]));
  const waits = ({ waiting }) => percent(waiting), all = (run) => run.heldText(run.peaks.reduce((a, b) => a + b));
  const full = "microbatches are held, with each device at its fullest,";
  const said = (what, words) => fact("li", what(one), `${words} with ${one.name}${beside(what)}`);
  $("numbers").replaceChildren(...(one ? [said(waits, "of the time devices wait"), said(all, full)] : []));
}

function showView(name) {
  for (const each of ["charts", "board"])
    [$(each).hidden, $(`show-${each}`).ariaPressed] = [each !== name, String(each === name)];
  drawWelcome(runsOf());
}

// In and out

/** Show what a state, or JSON of the library, says; an Error in words for anything else, and nothing changes. */
function load(json) {
  const found = readLoaded(json, page.charts.map(({ record }) => record));
  const charts = found.charts.map((given) => ({ given, run: runOf(given) }));
  for (const chart of charts) chart.record = chart.run.record;
  if (found.board) board.load(found.board);
  const { at = 0, ask = null } = found, { run } = charts.find(({ given }) => !given.schedule.rows) ?? charts[0];
  const { order: { options }, program: { devices, microbatches } } = run;
  Object.assign(page, { charts, at, ask, kept: false, hover: null, lit: null, stage: null });
  page.size = { devices, microbatches, stages_per_device: options?.stages_per_device ?? 2 };
  $("panels").replaceChildren();
  showView("charts");
  runNow();
}

function state() {
  if (waiting.run) runNow();
  const runs = runsOf(), highest = (list) => list.reduce((a, b) => Math.max(a, b), 0);
  const recorded = ({ record, order: { placement, microbatches, name, options } }) =>
    ({ ...record, schedule: { ...record.schedule, options, placement, microbatches, name } });
  const timesOf = ({ program: { entries, home }, timeline: { start, end } }) =>
    entries.map((each, e) => [home[e], writeEntry(each), start[e], end[e]]);
  const messagesOf = ({ program: { messages, stage, kind, microbatch }, timeline: { sent, arrived } }) =>
    messages.map(({ part, source, target }, i) => [writeEntry([stage[part], kind[part], microbatch[part]]),
      source, target, sent?.[i] ?? null, arrived?.[i] ?? null]);
  return {
    charts: runs.map(recorded), at: page.at, ask: page.ask, times: runs.map(timesOf), messages: runs.map(messagesOf),
    makespan: runs.map(({ timeline }) => timeline.makespan),
    peak: runs.map(({ counts }) => counts.map((each) => highest(each.counts))),
    bytes: runs.map(({ bytes }) => bytes && bytes.map(({ total }) => highest(total))),
    sentence: $("say").textContent, board: board.state(),
  };
}

/** Show what the address says after its #: charts, or a board alone. */
function fromLink() {
  const text = location.hash.slice(1);
  if (!text) return;
  showView("charts"); // what is hidden has no width to draw in
  try {
    const found = fromFragment(text);
    if (found.charts.length) return load(found);
    board.load(found.board);
    showView("board");
  } catch (error) {
    $("say").textContent = `this link shows nothing: ${error.message}`;
  }
}

async function copyLink() {
  try {
    history.replaceState(null, "", `#${toFragment(state())}`);
    $("copied").textContent = "It is in the address bar.";
    await navigator.clipboard.writeText(location.href);
    $("copied").textContent = "Copied.";
  } catch (error) {
    if (error.name === "Error") $("copied").textContent = `${error.message}.`;
  }
}

function listen() {
  for (const { id, choices, set } of controls)
    $(id).oninput = ({ target: { validity: { valid }, selectedIndex, valueAsNumber } }) =>
      valid && set(choices ? choices()[selectedIndex][0] : valueAsNumber);
  for (const name of ["charts", "board"]) $(`show-${name}`).onclick = () => showView(name);
  for (const id of ["path", "messages"]) $(id).onchange = drawAll;
  $("list").ontoggle = $("which").onchange = drawTable;
  const clicks = { play, copy: copyLink, back: () => step(false), forth: () => step(true) };
  for (const [id, does] of Object.entries(clicks)) $(id).onclick = does;
  $("head").oninput = () => scrub($("head").valueAsNumber);
  $("head").onkeydown = (event) => press(event, { ArrowLeft: clicks.back, ArrowRight: clicks.forth });
  window.addEventListener("hashchange", fromLink);
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
    matchMedia(query).addEventListener("change", drawAll);
  new ResizeObserver(([{ contentRect: { width } }]) => {
    if (width && Math.round(width) !== page.wide) requestAnimationFrame(drawAll);
  }).observe($("panels"));
}

const shown = JSON.parse($("shown").textContent);
const puzzles = shown.puzzles.map((each) => ({ ...each, costs: { ...UNIT, ...each.costs } }));
const board = mountBoard($("board"), { puzzles, load, make });
$("move")?.replaceWith($("M").closest(".control"));
$("more").open = !shown.welcome && window.innerWidth > 600;
listen();
load(shown);
window.pipeline = { load, state };
fromLink();
