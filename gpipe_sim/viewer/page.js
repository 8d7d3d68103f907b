// The page: what is shown, and what a reader does with it. Text from outside only becomes textContent.
//
// A chart is {record, given, run, refused, panel}: the record of what is shown, the one that it came with, what the
// clock makes of it, the sentence that refuses it, and where it is drawn.

import { TABLES } from "./tables.js";
import { KINDS, R, within, writeEntry } from "./clock.js";
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
const controls = controlsOf(page, runSoon), still = matchMedia("(prefers-reduced-motion: reduce)");
const waiting = { run: 0, over: 0, play: 0 }; // what the browser calls back
const $ = (id) => document.getElementById(id);
const runsOf = () => page.charts.map(({ run }) => run).filter(Boolean);

/** A new element with its properties and its children: texts stay texts. */
function make(tag, given = {}, ...children) {
  const made = Object.assign(document.createElement(tag), given);
  made.append(...children);
  return made;
}

// Running: at most once for a frame, however many events come

function runSoon() {
  waiting.run ||= requestAnimationFrame(runNow);
}

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
  page.hover = null;
  page.ask &&= askAgain(page.ask, waited);
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
    drawCaption(chart);
    if (!chart.run) continue;
    layout(chart.panel, chart.run, { until: page.until, most, widest });
    paintRun(chart.panel, wantedOf(chart.run));
  }
  drawLegend(runs);
  drawNotes();
  drawTable();
  drawWelcome();
  page.wide = $("panels").clientWidth;
  $("head").max = page.until;
  light();
}

/** The messages and the critical path, if they are asked for. */
function wantedOf({ program: { messages }, timeline }) {
  const shown = $("messages").checked && messages.length <= TABLES.most_arrows;
  if (!$("path").checked) return { path: null, messages: shown ? messages.keys() : [] };
  const path = criticalPath(timeline), of = (what) => path.map((each) => each[what]).filter((each) => each >= 0);
  return { path: new Set(of("entry")), messages: shown ? messages.keys() : of("message") };
}

const heldWords = (run) => `${run.heldText(run.most)}${run.bytes ? "" : ` microbatch${run.most === 1 ? "" : "es"}`}`;

function drawCaption({ record, run, refused, panel }) {
  panel.title.textContent = run?.name ?? record.schedule.name ?? FAMILIES[record.schedule.family].name;
  panel.box.classList.toggle("gone", !run);
  if (!run) return panel.facts.replaceChildren(make("p", { className: "refused" }, refused));
  const { program: { devices, microbatches }, timeline } = run, [held, ...words] = heldWords(run).split(" ");
  const facts = [[number(timeline.makespan), "long"], [percent(run.waiting), "waiting"]];
  facts.push([held, `${words.join(" ")} held at most`]);
  panel.facts.replaceChildren(...facts.map(([value, what]) => make("span", {}, make("b", {}, value), ` ${what}`)));
  if (record.times) panel.facts.append(make("span", {}, "These times are given: costs do not move them."));
  if (panel.coarse) panel.facts.append(make("span", {}, "Heights are shares of time."));
  const size = `devices: ${devices}, microbatches: ${microbatches}`;
  panel.box.ariaLabel = `${run.name}, ${size}. Arrow keys go from action to action`;
}

function drawLegend(runs) {
  const has = (k) => runs.some(({ program }) => program.there.has(k)), bytes = runs.flatMap((run) => run.bytes ?? []);
  const later = runs.some(({ program }) => program.stages > program.devices);
  const holds = (name) => (of) => of.bytes[name].some(Boolean);
  const together = new Set(runs.flatMap(({ timeline }) => timeline.collectives.map(({ what }) => what)));
  const looks = [
    ...[...KINDS].map((kind, k) => [has(k), TABLES.kinds[kind], `${kind} ${TABLES.meanings[kind]}`]),
    [later, { ...TABLES.kinds.F, shade: TABLES.later / 2 }, TABLES.later_stage],
    [true, { colour: TABLES.colours.lane[0] }, "waiting"],
    ...[...together].map((what) => [true, { colour: TABLES.collective }, what]),
    ...Object.entries(TABLES.memory).map(([name, look]) => [bytes.some(holds(name)), look, name]),
    [!bytes.length, TABLES.memory["saved activations"], "microbatches held"],
    [!bytes.length && has(R), INPUTS, "only their input"],
  ];
  $("legend").replaceChildren(...looks.filter(([there]) => there).map(([, look, words]) => {
    const canvas = make("canvas", { ariaHidden: "true" });
    swatch(canvas, look);
    return make("li", {}, canvas, words);
  }));
}

/** What a reader might look for and not find, and why. */
function drawNotes() {
  const says = page.charts.flatMap(({ run, given }) => (run ? leftOut(run, given) : []));
  $("missing").replaceChildren(...says.map((note) => make("p", {}, note)));
}

function leftOut({ name, program, record, bytes }, { sizes }) {
  const says = [], count = program.messages.length, again = !record.times;
  if (again && sizes && !bytes) says.push(`${name} shows no bytes and no limit: ${whyNoBytes(program, sizes)}.`);
  if ($("messages").checked && count > TABLES.most_arrows)
    says.push(`${name} shows no arrows: it has ${count} messages, more than ${TABLES.most_arrows}.`);
  return says;
}

function overSoon() {
  waiting.over ||= requestAnimationFrame(overNow);
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
  const isOther = ({ run: other }) => run && other && other !== run && page.lit.entry >= 0;
  const twins = (chart) => (isOther(chart) ? twinsOf(run.program, page.lit.entry, chart.run.program) : []);
  if (run) page.lit.twins = page.charts.map(twins);
  overSoon();
}

/** The same actions in another program; a whole backward there is the same as its half here. */
function twinsOf({ parts, kind, stage, microbatch }, e, other) {
  return within(parts, e).flatMap((part) => {
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

function summary({ run, refused }) {
  if (!run) return refused;
  const takes = `${run.name} takes ${number(run.timeline.makespan)}`;
  return `${takes}, its devices wait ${percent(run.waiting)} of the time, and each holds at most ${heldWords(run)}`;
}

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
  const [title, facts, box, base, over] = section.querySelectorAll("h2, .facts, .panel, canvas");
  chart.panel = { title, facts, base, over, box };
  $("panels").append(section);
  let from = 0; // where the button went down
  const place = (event) => chart.run && placeAt(chart.panel, event.offsetX, event.offsetY);
  const drags = (event) => Math.abs(event.clientX - from) > 3;
  box.onpointerdown = (event) => {
    from = event.clientX;
  };
  box.onpointermove = (event) => {
    if (event.buttons && drags(event)) scrub((event.offsetX - chart.panel.left) / chart.panel.scale);
    else if (!page.kept) point(n, place(event));
  };
  box.onpointerleave = () => point(n, null);
  box.onclick = (event) => {
    const found = drags(event) ? null : place(event);
    if (found) ask(page.kept ? null : [n, found.device, found.time], !page.kept);
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
  input.nextElementSibling.textContent = number(value);
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
  const rows = within(first, d).map((e) => {
    const p = parts[e], what = TABLES.meanings[KINDS[kind[p]]], after = held[d].total[heldAt(held[d], end[e])];
    return [writeEntry(entries[e]), what, stage[p], microbatch[p], number(start[e]), number(end[e]), heldText(after)];
  });
  const rowOf = (cells) => make("tr", {}, ...cells.map((each) => make("td", {}, each)));
  $("table").tBodies[0].replaceChildren(...rows.map(rowOf));
}

/** The two numbers of a site's first screen. */
function drawWelcome() {
  const [one, other] = runsOf();
  if (!one || !$("welcome")) return;
  const beside = other ? `; ${other.heldText(other.most)} with ${other.name}` : "";
  const facts = [[percent(one.waiting), `of the time devices wait with ${one.name}`]];
  facts.push([one.heldText(one.most), `microbatches at most are held by a device with ${one.name}${beside}`]);
  $("numbers").replaceChildren(...facts.map(([value, words]) => make("li", {}, make("b", {}, value), words)));
}

function showView(name) {
  for (const each of ["charts", "board"]) {
    $(each).hidden = each !== name;
    $(`show-${each}`).ariaPressed = String(each === name);
  }
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
  const recorded = ({ record, order: { placement, microbatches, name, options } }) => (
    { ...record, schedule: { ...record.schedule, options, placement, microbatches, name } }
  );
  const timesOf = ({ program: { entries, home }, timeline: { start, end } }) =>
    entries.map((each, e) => [home[e], writeEntry(each), start[e], end[e]]);
  const messagesOf = ({ program: { messages, stage, kind, microbatch }, timeline: { sent, arrived } }) =>
    messages.map(({ part, source, target }, i) => {
      const action = writeEntry([stage[part], kind[part], microbatch[part]]);
      return [action, source, target, sent?.[i] ?? null, arrived?.[i] ?? null];
    });
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
  const on = (id, event, does) => $(id).addEventListener(event, does);
  for (const { id, choices, set } of controls)
    on(id, "input", ({ target }) => set(choices ? choices()[target.selectedIndex][0] : target.valueAsNumber));
  for (const name of ["charts", "board"]) on(`show-${name}`, "click", () => showView(name));
  for (const id of ["path", "messages"]) on(id, "change", drawAll);
  for (const event of ["toggle", "change"]) on("list", event, drawTable);
  const back = () => step(false), forth = () => step(true);
  on("play", "click", play);
  on("back", "click", back);
  on("forth", "click", forth);
  on("head", "input", () => scrub($("head").valueAsNumber));
  on("head", "keydown", (event) => press(event, { ArrowLeft: back, ArrowRight: forth }));
  on("copy", "click", copyLink);
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
$("move")?.replaceWith($("M").closest("label"));
$("more").open = !shown.welcome && window.innerWidth > 600;
listen();
load(shown);
window.pipeline = { load, state };
fromLink();
