// The page: what is shown, and what a reader does with it. Text from outside only becomes textContent.
//
// A chart is {record, given, run, refused, panel}: the record of what is shown, the one with rows or times of its own
// that it came with, what the clock makes of it, the sentence that refuses it, and where it is drawn.

import { TABLES } from "./tables.js";
import { KINDS, writeEntry } from "./clock.js";
import { FAMILIES } from "./families.js";
import { criticalPath, number } from "./why.js";
import { heldAt } from "./memory.js";
import { fromFragment, toFragment } from "./share.js";
import { layout, paintOver, paintRun, placeAt, readColours, swatch } from "./paint.js";
import { INPUTS, countTo, litAt, percent, runOf } from "./runs.js";
import { readLoaded } from "./loaded.js";
import { controlsOf } from "./controls.js";
import { mountBoard } from "./board.js";

const page = { charts: [], size: {}, stage: null, at: 0, until: 0, ask: null, kept: false, hover: null, lit: null };
const controls = controlsOf(page, runSoon), still = matchMedia("(prefers-reduced-motion: reduce)");
const waiting = { run: 0, over: 0, play: 0 };
let board = null;

const $ = (id) => document.getElementById(id);
const runsOf = () => page.charts.map(({ run }) => run).filter(Boolean);

/** A new element with its properties or attributes, and its children: texts stay texts. */
function make(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Running: at most once for a frame, however many events come

function runSoon() {
  waiting.run ||= requestAnimationFrame(runNow);
}

/** Run what changed, and draw everything. */
function runNow() {
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
  refreshControls();
  tell(true);
}

/** The same question of a new run; one about a wait that is not there any more is about the device's longest one. */
function askAgain([n, device, time], waited) {
  const run = page.charts[n]?.run;
  if (!(device < run?.program.devices)) return null;
  const waits = run.waits[device].toSorted((a, b) => b[1] - b[0] - (a[1] - a[0]));
  const moves = waited && waits.length && !waits.some(([from, to]) => from <= time && time < to);
  const asked = moves ? waits[0][0] : time;
  return asked <= run.timeline.makespan ? [n, device, asked] : null;
}

// Drawing

function drawAll() {
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
  drawTable();
  drawWelcome();
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

const several = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const heldWords = (run) => `${run.heldText(run.most)}${run.bytes ? "" : ` microbatch${run.most === 1 ? "" : "es"}`}`;

function drawCaption({ record, run, refused, panel }) {
  panel.title.textContent = run?.name ?? FAMILIES[record.schedule.family].name;
  panel.box.classList.toggle("gone", !run);
  if (!run) return panel.facts.replaceChildren(make("p", { className: "refused" }, refused));
  const { program: { devices, microbatches }, timeline } = run, [held, ...words] = heldWords(run).split(" ");
  const facts = [[number(timeline.makespan), "long"], [percent(run.waiting), "waiting"]];
  facts.push([held, `${words.join(" ")} held at most`]);
  panel.facts.replaceChildren(...facts.map(([value, what]) => make("span", {}, make("b", {}, value), ` ${what}`)));
  if (record.times) panel.facts.append(make("span", {}, "These times are given: costs do not move them."));
  if (panel.coarse) panel.facts.append(make("span", {}, "Heights are shares of time."));
  const size = `${several(devices, "device")}, ${several(microbatches, "microbatch").replace("chs", "ches")}`;
  panel.box.setAttribute("aria-label", `${run.name}, ${size}. Arrow keys go from action to action`);
}

function drawLegend(runs) {
  const kinds = [...KINDS].filter((_, k) => runs.some(({ program }) => program.there.has(k)));
  const looks = kinds.map((kind) => [TABLES.kinds[kind], `${kind} ${TABLES.meanings[kind]}`]);
  const later = runs.some(({ program }) => program.stages > program.devices), inBytes = runs.some(({ bytes }) => bytes);
  if (later) looks.push([{ ...TABLES.kinds.F, shade: TABLES.later / 2 }, TABLES.later_stage]);
  looks.push([{ colour: TABLES.colours.lane[0] }, "waiting"]);
  const together = new Set(runs.flatMap(({ timeline }) => timeline.collectives.map(({ what }) => what)));
  for (const what of together) looks.push([{ colour: TABLES.collective }, what]);
  const isHeld = ([name]) => runs.some(({ bytes }) => bytes?.some((device) => device.bytes[name].some(Boolean)));
  if (inBytes) looks.push(...Object.entries(TABLES.memory).filter(isHeld).map(([name, look]) => [look, name]));
  else looks.push([TABLES.memory["saved activations"], "microbatches held"]);
  if (!inBytes && kinds.includes("R")) looks.push([INPUTS, "only their input"]);
  $("legend").replaceChildren(...looks.map(([look, words]) => {
    const canvas = make("canvas", { ariaHidden: "true" });
    swatch(canvas, look);
    return make("li", {}, canvas, words);
  }));
}

function overSoon() {
  waiting.over ||= requestAnimationFrame(overNow);
}

function overNow() {
  waiting.over = 0;
  page.charts.forEach(({ run, panel }, n) => {
    if (run) paintOver(panel, page.at, page.lit?.chart === n ? page.lit : null, page.lit?.twins[n]);
  });
  const words = `${number(Math.round(page.at * 1000) / 1000)} of ${number(page.until)}`;
  if (Number($("head").value) !== page.at) $("head").value = page.at;
  if ($("now").textContent === words) return;
  $("head").setAttribute("aria-valuetext", `time ${words}`);
  $("now").textContent = words;
}

// Asking: a place is [chart, device, time]

/** Light what is asked, here and in the other chart. */
function light() {
  const asked = page.hover ?? page.ask, run = page.charts[asked?.[0]]?.run;
  page.lit = run ? { chart: asked[0], ...litAt(run, asked[1], asked[2]) } : null;
  const others = page.charts.map((chart) => (chart.run === run ? null : chart.run));
  if (run) page.lit.twins = others.map((other) => (other ? twinsOf(run.program, page.lit.entry, other.program) : []));
  overSoon();
}

/** The same actions in another program; a whole backward there is the same as its half here. */
function twinsOf({ parts, kind, stage, microbatch }, e, other) {
  const own = e < 0 ? [] : countTo(parts[e + 1] - parts[e], parts[e]), same = { B: "BI", I: "IB" };
  const found = own.map((part) => {
    const kinds = same[KINDS[kind[part]]] ?? KINDS[kind[part]];
    const twins = [...kinds].map((each) => other.find(KINDS.indexOf(each), stage[part], microbatch[part]));
    return twins.find((each) => each >= 0);
  });
  return found.filter((each) => each !== undefined).map((each) => other.entry[each]);
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
  const { hover, lit } = page, there = hover && lit.chart === n && lit.device === found?.device;
  if ((!found && !hover) || (there && lit.from <= found.time && found.time < lit.to)) return;
  page.hover = found && [n, found.device, found.time];
  light();
  tell(false);
}

// A panel: two canvases that take the mouse and the keys

function addPanel(chart, n) {
  const [base, over] = [0, 1].map(() => make("canvas", { ariaHidden: "true" }));
  const title = make("h2"), facts = make("div", { className: "caption" });
  const box = make("div", { className: "panel", tabIndex: 0, role: "application" }, base, over);
  chart.panel = { title, facts, base, over, box };
  $("panels").append(make("section", { className: "chart" }, make("div", { className: "caption" }, title, facts), box));
  let drag = null; // where the button went down, until it moves: then null again, and `scrubs`
  let scrubs = false;
  const place = (event) => placeAt(chart.panel, event.offsetX, event.offsetY);
  box.onpointerdown = (event) => {
    [drag, scrubs] = [event.clientX, false];
  };
  box.onpointermove = (event) => {
    scrubs ||= drag !== null && Math.abs(event.clientX - drag) > 3;
    if (scrubs) scrub((event.offsetX - chart.panel.left) / chart.panel.scale);
    else if (!page.kept) point(n, place(event));
  };
  box.onpointerleave = () => {
    [drag, scrubs] = [null, false];
    point(n, null);
  };
  box.onpointerup = (event) => {
    const found = scrubs ? null : place(event);
    [drag, scrubs] = [null, false];
    if (found) ask(page.kept ? null : [n, found.device, found.time], !page.kept);
  };
  box.onkeydown = (event) => chart.run && !event.ctrlKey && !event.metaKey && onKey(n, chart.run, event);
}

/** Arrows go from action to action and from device to device, w to the next wait; Escape lets go. */
function onKey(n, { program: { first, devices }, timeline, waits }, event) {
  const here = page.ask?.[0] === n, [, device, time] = here ? page.ask : [n, 0, -1];
  const starts = [...timeline.start.subarray(first[device], first[device + 1])];
  const begun = waits[device].map(([from]) => from);
  const after = (times) => times.find((each) => each > time), before = (times) => times.findLast((each) => each < time);
  const go = (to, found, at) => found !== undefined && to >= 0 && to < devices && ask([n, to, found], true, at);
  const does = {
    ArrowRight: () => go(device, after(starts)),
    ArrowLeft: () => go(device, before(starts)),
    ArrowUp: () => go(device - 1, Math.max(0, time), page.at),
    ArrowDown: () => go(device + 1, Math.max(0, time), page.at),
    w: () => go(device, after(begun)),
    W: () => go(device, before(begun)),
    Escape: () => ask(null, false),
    " ": play,
  };
  if (!Object.hasOwn(does, event.key)) return;
  event.preventDefault();
  does[event.key]();
}

// The playhead

function scrub(time) {
  page.at = Math.max(0, Math.min(page.until, time));
  overSoon();
}

/** To the next time, or the last one, at which anything begins or ends. */
function step(forward) {
  let found = forward ? page.until : 0;
  for (const { timeline: { start, end } } of runsOf()) for (const column of [start, end]) for (const time of column) {
    if (forward ? time > page.at && time < found : time < page.at && time > found) found = time;
  }
  scrub(found);
}

function play() {
  const going = !waiting.play;
  [$("play").textContent, $("play").ariaPressed] = [going ? "Pause" : "Play", String(going)];
  clearTimeout(waiting.play);
  waiting.play = 0;
  if (!going) return;
  if (page.at >= page.until) page.at = 0;
  const goOn = (before) => (waiting.play = setTimeout(() => {
    const now = performance.now();
    if (still.matches) step(true);
    else scrub(page.at + ((now - before) / 12000) * page.until);
    if (page.at >= page.until) play();
    else goOn(now);
  }, still.matches ? 600 : 15));
  goOn(performance.now());
}

// Controls, table, welcome

function buildControls(all) {
  const more = make("button", { id: "more", type: "button" }, "More to move");
  more.onclick = () => showMore(more.ariaExpanded !== "true");
  for (const { id, label, more: hides, range, set } of controls) {
    const input = range ? make("input", { id, type: "range" }) : make("select", { id });
    const value = range ? [make("output", { htmlFor: id, ariaLive: "off" })] : [];
    input.addEventListener("input", () => {
      set(range ? Number(input.value) : input.value);
      if (range) value[0].textContent = number(Number(input.value));
    });
    if (hides && !more.isConnected) $("controls").append(more);
    const className = hides ? "control more" : "control";
    $("controls").append(make("label", { className }, make("span", {}, label), input, ...value));
  }
  showMore(all);
}

function showMore(all) {
  $("more").ariaExpanded = String(all);
  $("controls").classList.toggle("few", !all);
}

function refreshControls() {
  for (const { id, range, choices, now, enabled } of controls) {
    const input = $(id), value = now();
    input.disabled = !enabled();
    if (range) {
      const [min, to, step] = range, max = Math.max(to, value > to ? 2 * value : Number(input.max));
      Object.assign(input, { min, max, step: step < 1 ? (step * max) / to : step, value });
      input.nextSibling.textContent = number(value);
      continue;
    }
    const wanted = choices(), key = wanted.map(([, words]) => words).join();
    if (input.dataset.key !== key) input.replaceChildren(...wanted.map(option));
    [input.dataset.key, input.value] = [key, value];
  }
}

const option = ([value, words]) => make("option", { value }, words);

/** All actions of a chart's device; made when it is open. */
function drawTable() {
  if (!$("list").open) return;
  const select = $("which").querySelector("select"), wanted = select.value;
  const placesOf = ({ run }, n) => (run?.waits ?? []).map((_, d) => [`${n} ${d}`, `${run.name}, device ${d}`]);
  const places = page.charts.flatMap(placesOf);
  select.replaceChildren(...places.map(option));
  if (places.some(([value]) => value === wanted)) select.value = wanted;
  if (!places.length) return;
  const [n, d] = select.value.split(" ").map(Number), { program, timeline, held, heldText } = page.charts[n].run;
  const { first, parts, kind, stage, microbatch, entries } = program, { start, end } = timeline;
  const rows = countTo(first[d + 1] - first[d], first[d]).map((e) => {
    const p = parts[e], what = TABLES.meanings[KINDS[kind[p]]], after = held[d].total[heldAt(held[d], end[e])];
    return [writeEntry(entries[e]), what, stage[p], microbatch[p], number(start[e]), number(end[e]), heldText(after)];
  });
  const cell = (tag) => (text, i) => make(tag, { className: i > 1 ? "number" : "" }, String(text));
  const cells = (tag) => (row) => make("tr", {}, ...row.map(cell(tag)));
  const heads = cells("th")(["action", "what", "stage", "microbatch", "start", "end", "held then"]);
  $("table").replaceChildren(make("thead", {}, heads), make("tbody", {}, ...rows.map(cells("td"))));
}

/** The first screen of a site: one sentence, two numbers that change, two ways on. */
function drawWelcome() {
  $("welcome").hidden = $("site").hidden = !page.welcome;
  if (!page.welcome) return;
  const [one, other] = page.charts.map(({ run }) => run), facts = [];
  if (one) facts.push([percent(one.waiting), `of the time devices wait with ${one.name}`]);
  const beside = other ? `; ${other.heldText(other.most)} with ${other.name}` : "";
  if (one) facts.push([one.heldText(one.most), `microbatches at most are held by a device with ${one.name}${beside}`]);
  const safe = (href) => (/^(https?:|[^:]*$)/.test(href) ? href : "#");
  const linksTo = (name) => page.welcome[name].map(({ text, href }) => make("a", { href: safe(href) }, text));
  $("title").textContent = page.welcome.sentence;
  const items = facts.map(([value, words]) => make("li", {}, make("b", {}, value), words));
  $("welcome").replaceChildren(make("ul", {}, ...items), make("nav", { ariaLabel: "ways on" }, ...linksTo("ways")));
  $("site").replaceChildren(...linksTo("more"));
}

function showView(name) {
  for (const each of ["charts", "board"]) {
    $(each).hidden = each !== name;
    $(`show-${each}`).ariaPressed = String(each === name);
  }
  if (name === "charts") drawAll();
}

// In and out

/** Show what a state, or JSON of the library, says; an Error in words for anything else, and nothing changes. */
function load(json) {
  const found = readLoaded(json, page.charts.map(({ record }) => record));
  const givenOf = (record) => (record.schedule.rows ? record : null);
  const charts = found.charts.map((record) => ({ record, given: givenOf(record), run: runOf(record) }));
  if (found.board) board?.load(found.board);
  const { at = 0, ask = null } = found, { program, order } = (charts.find(({ given }) => !given) ?? charts[0]).run;
  const { devices, microbatches } = program, stages_per_device = order.options?.stages_per_device ?? 2;
  for (const chart of charts) chart.record = chart.run.record;
  Object.assign(page, { charts, at, ask, kept: false, hover: null, lit: null, stage: null });
  page.size = { devices, microbatches, stages_per_device };
  $("panels").replaceChildren();
  runNow();
}

function state() {
  if (waiting.run) {
    cancelAnimationFrame(waiting.run);
    runNow();
  }
  const runs = runsOf();
  const recorded = ({ record, order: { placement, microbatches, name, options } }) => ({
    ...record, schedule: { ...record.schedule, options, placement, microbatches, name },
  });
  const timesOf = ({ program: { entries, home }, timeline: { start, end } }) =>
    entries.map((each, e) => [home[e], writeEntry(each), start[e], end[e]]);
  const messagesOf = ({ program: { messages, stage, kind, microbatch }, timeline: { sent, arrived } }) =>
    messages.map(({ part, source, target }, i) => {
      const action = writeEntry([stage[part], kind[part], microbatch[part]]);
      return [action, source, target, sent?.[i] ?? null, arrived?.[i] ?? null];
    });
  const highest = (list) => list.reduce((a, b) => Math.max(a, b), 0);
  return {
    charts: runs.map(recorded), at: page.at, ask: page.ask, times: runs.map(timesOf), messages: runs.map(messagesOf),
    makespan: runs.map(({ timeline }) => timeline.makespan),
    peak: runs.map(({ counts }) => counts.map((each) => highest(each.counts))),
    bytes: runs.map(({ bytes }) => bytes && bytes.map(({ total }) => highest(total))),
    sentence: $("say").textContent,
    board: board && board.state(),
  };
}

/** Show what the address says after its #: a state, or #board=NAME for an empty board, of one's own if it is "own". */
function fromLink() {
  const text = location.hash.slice(1), [, named] = /^board=([\w-]+)$/.exec(text) ?? [];
  try {
    if (named) openBoard(named === "own" ? "free" : named);
    else if (text) load(fromFragment(text));
  } catch (error) {
    $("say").textContent = `this link shows nothing: ${error.message}`;
  }
}

function openBoard(name) {
  const choose = $("board").querySelector("select");
  const known = [...choose.options].some(({ value }) => value === name);
  if (!known) throw new Error(`there is no puzzle "${name.slice(0, 40)}"`);
  choose.value = name;
  choose.dispatchEvent(new Event("change"));
  showView("board");
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

function open() {
  const shown = JSON.parse($("shown").textContent);
  page.welcome = shown.welcome;
  readColours();
  buildControls(!page.welcome && window.innerWidth > 600);
  $("notes").replaceChildren(...(shown.notes ?? []).map((note) => make("p", {}, note)));
  load(shown);
  $("views").hidden = !shown.puzzles?.length;
  if (shown.puzzles?.length) board = mountBoard($("board"), { puzzles: shown.puzzles, load: fromBoard, make });
  const on = (id, event, does) => $(id).addEventListener(event, does);
  for (const name of ["charts", "board"]) on(`show-${name}`, "click", () => showView(name));
  for (const id of ["path", "messages"]) on(id, "change", drawAll);
  on("play", "click", play);
  on("back", "click", () => step(false));
  on("forth", "click", () => step(true));
  on("head", "input", () => scrub(Number($("head").value)));
  on("head", "keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    step(event.key === "ArrowRight");
  });
  on("copy", "click", copyLink);
  on("list", "toggle", drawTable);
  on("which", "change", drawTable);
  window.addEventListener("hashchange", fromLink);
  let wide = 0;
  new ResizeObserver(([{ contentRect: { width } }]) => {
    if (width && width !== wide) requestAnimationFrame(drawAll);
    wide = width || wide;
  }).observe($("panels"));
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"])
    matchMedia(query).addEventListener("change", () => {
      readColours();
      drawAll();
    });
  window.pipeline = { load, state };
  fromLink();
}

function fromBoard(json) {
  showView("charts"); // what is hidden has no width to draw in
  load(json);
}

open();
