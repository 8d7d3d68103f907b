// The page: what is shown, and what a reader does with it. Text from outside only becomes textContent.
//
// A chart is {record, given, run, refused, panel}: the record of what is shown, the one with rows or times of its own
// that it came with, what the clock makes of it, the sentence that refuses it, and where it is drawn.

import { TABLES } from "./tables.js";
import { KINDS, writeEntry } from "./clock.js";
import { criticalPath, number } from "./why.js";
import { fromFragment, toFragment } from "./share.js";
import { layout, paintOver, paintRun, placeAt, readColours, swatch } from "./paint.js";
import { INPUTS, litAt, percent, runOf, rangeOf } from "./runs.js";
import { readLoaded } from "./loaded.js";
import { FAMILIES } from "./families.js";
import { controlsOf } from "./controls.js";
import { mountBoard } from "./board.js";

const page = { charts: [], size: {}, stage: null, at: 0, until: 0, ask: null, kept: false, hover: null, lit: null, notes: [], welcome: null };
const controls = controlsOf(page, runSoon), still = matchMedia("(prefers-reduced-motion: reduce)");
const waiting = { run: 0, over: 0, play: 0 };

let board = null;

const $ = (id) => document.getElementById(id);

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

function overSoon() {
  waiting.over ||= requestAnimationFrame(overNow);
}

/** Run what changed, and draw everything. */
function runNow() {
  waiting.run = 0;
  const waited = page.ask && page.lit?.entry < 0;
  for (const chart of page.charts) {
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

/** The same question of a new run; one about a wait that is not there any more is about the longest one of the device. */
function askAgain([n, device, time], waited) {
  const run = page.charts[n]?.run;
  if (!run || device >= run.program.devices) return null;
  const { makespan } = run.timeline, waits = waitsOf(run, device), there = ([from, to]) => from <= time && time < to;
  if (waited && waits.length && !waits.some(there)) [[time]] = waits.toSorted((a, b) => b[1] - b[0] - (a[1] - a[0]));
  return time <= makespan ? [n, device, time] : null;
}

/** [from, to] of each time at which a device waits. */
function waitsOf({ program, timeline }, device) {
  const found = [];
  let since = 0;
  for (let e = program.first[device]; e <= program.first[device + 1]; e++) {
    const until = e < program.first[device + 1] ? timeline.start[e] : timeline.makespan;
    if (until > since) found.push([since, until]);
    if (e < program.first[device + 1]) since = Math.max(since, timeline.end[e]);
  }
  return found;
}

// Drawing

function drawAll() {
  const runs = page.charts.map(({ run }) => run).filter(Boolean);
  page.until = Math.max(0, ...runs.map(({ timeline }) => timeline.makespan));
  page.at = Math.min(page.at, page.until);
  const shared = { until: page.until, most: Math.max(...runs.map((run) => run.most)) || 1 };
  shared.widest = Math.max(4, ...runs.map((run) => run.heldText(run.most).length));
  for (const chart of page.charts) {
    drawCaption(chart);
    if (!chart.run) continue;
    layout(chart.panel, chart.run, shared);
    paintRun(chart.panel, wantedOf(chart.run));
  }
  drawLegend(runs);
  drawTable();
  drawWelcome();
  $("head").max = page.until;
  light();
}

/** The messages and the critical path, if they are asked for. */
function wantedOf(run) {
  const { messages } = run.program, shown = $("messages").checked && messages.length <= TABLES.most_arrows;
  if (!$("path").checked) return { path: null, messages: shown ? messages.keys() : [] };
  const path = criticalPath(run.timeline), on = path.map(({ message }) => message).filter((each) => each != null);
  return { path: new Set(path.map(({ entry }) => entry).filter((each) => each != null)), messages: shown ? messages.keys() : on };
}

function drawCaption({ record, run, refused, panel }) {
  panel.title.textContent = run?.name ?? FAMILIES[record.schedule.family].name;
  panel.box.classList.toggle("refused", !run);
  if (!run) return panel.facts.replaceChildren(make("span", {}, refused));
  const { program, timeline } = run, says = [number(timeline.makespan), percent(run.waiting), `${run.heldText(run.most)}`];
  panel.facts.replaceChildren(...["long", "waiting", run.bytes ? "held at most" : "microbatches held at most"].map((word, i) => make("span", {}, make("b", {}, says[i]), ` ${word}`)));
  const size = `${program.devices} device${program.devices > 1 ? "s" : ""}, ${program.microbatches} microbatch${program.microbatches > 1 ? "es" : ""}`;
  panel.box.setAttribute("aria-label", `${run.name}, ${size}: ${says[0]} long, ${says[1]} waiting. Arrow keys go from action to action`);
  if (run.record.times) panel.facts.append(make("span", {}, "as given: the costs do not move it"));
}

function drawLegend(runs) {
  const kinds = Object.keys(TABLES.kinds).filter((kind) => runs.some((run) => run.kinds.includes(kind)));
  const looks = kinds.map((kind) => [TABLES.kinds[kind], `${kind} ${TABLES.meanings[kind]}`]);
  if (runs.some(({ program }) => program.stages > program.devices)) looks.push([{ ...TABLES.kinds.F, shade: TABLES.later / 2 }, TABLES.later_stage]);
  looks.push([{ colour: TABLES.colours.lane[0] }, "waiting"]);
  for (const what of new Set(runs.flatMap(({ timeline }) => timeline.collectives.map((each) => each.what)))) looks.push([{ colour: TABLES.collective }, what]);
  if (runs.some(({ bytes }) => bytes)) looks.push(...Object.entries(TABLES.memory).map(([name, look]) => [look, name]));
  else looks.push([TABLES.memory["saved activations"], "microbatches held"], ...(kinds.includes("R") ? [[INPUTS, "only their input"]] : []));
  $("legend").replaceChildren(...looks.map(([look, words]) => make("li", {}, make("canvas", { ariaHidden: "true" }), words)));
  looks.forEach(([look], i) => swatch($("legend").children[i].firstChild, look));
}

function overNow() {
  waiting.over = 0;
  for (const [n, { run, panel }] of page.charts.entries()) {
    if (run) paintOver(panel, page.at, page.lit?.chart === n ? page.lit : null, page.lit?.twins[n]);
  }
  const words = `${number(Math.round(page.at * 1000) / 1000)} of ${number(page.until)}`;
  if (document.activeElement !== $("head") || waiting.play) $("head").value = page.at;
  $("head").setAttribute("aria-valuetext", `time ${words}`);
  $("now").textContent = words;
}

// Asking: a place is [chart, device, time]

/** Light what is asked, here and in the other chart. */
function light() {
  const asked = page.hover ?? page.ask, run = asked && page.charts[asked[0]]?.run;
  page.lit = run ? { chart: asked[0], ...litAt(run, asked[1], asked[2]) } : null;
  if (page.lit) page.lit.twins = page.charts.map((chart, n) => (n === asked[0] || !chart.run ? [] : twinsOf(run, page.lit.entry, chart.run)));
  overSoon();
}

/** The same actions in another run; a whole backward there is the same as its half here. */
function twinsOf(run, entry, other) {
  if (entry < 0) return [];
  const same = { B: "BI", I: "IB" }, found = [];
  for (let i = run.program.parts[entry]; i < run.program.parts[entry + 1]; i++) {
    const kind = KINDS[run.program.kind[i]], places = [...(same[kind] ?? kind)].map((k) => other.program.find(KINDS.indexOf(k), run.program.stage[i], run.program.microbatch[i]));
    found.push(...places.filter((each) => each >= 0).slice(0, 1).map((each) => other.program.entry[each]));
  }
  return found;
}

/** Say it where everybody reads it; aloud only if it was asked by key, click or slider: pointing would flood. */
function tell(aloud) {
  $("say").ariaLive = aloud ? "polite" : "off";
  const says = page.lit ? page.lit.sentence : summary();
  if ($("say").textContent !== says) $("say").textContent = says;
}

function summary() {
  const each = ({ run, refused }) => {
    if (!run) return refused;
    const held = `${run.heldText(run.most)}${run.bytes ? "" : run.most === 1 ? " microbatch" : " microbatches"}`;
    return `${run.name} takes ${number(run.timeline.makespan)}, its devices wait ${percent(run.waiting)} of the time, and each holds at most ${held}`;
  };
  return page.charts.map(each).join(". ");
}

function ask(place, kept, move = true) {
  [page.ask, page.kept, page.hover] = [place, kept, null];
  if (place && move) page.at = place[2];
  light();
  tell(true);
}

// A panel: two canvases that take the mouse and the keys

function addPanel(chart, n) {
  const title = make("h2"), facts = make("div", { className: "caption" });
  const [base, over] = [0, 1].map(() => make("canvas", { ariaHidden: "true" }));
  const box = make("div", { className: "panel", tabIndex: 0, role: "application" }, base, over);
  chart.panel = { title, facts, base, over, box };
  $("panels").append(make("section", { className: "chart" }, make("div", { className: "caption" }, title, facts), box));
  let drag = null;
  const place = (event) => {
    const edge = box.getBoundingClientRect();
    return placeAt(chart.panel, event.clientX - edge.left, event.clientY - edge.top);
  };
  box.addEventListener("pointerdown", (event) => (drag = { x: event.clientX, moved: false }));
  box.addEventListener("pointermove", (event) => {
    if (drag && Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
    if (drag?.moved) return scrub((event.clientX - box.getBoundingClientRect().left - chart.panel.left) / chart.panel.scale);
    if (!page.kept) point(n, place(event));
  });
  box.addEventListener("pointerleave", () => point(n, (drag = null)));
  box.addEventListener("pointerup", (event) => {
    const found = drag && !drag.moved && place(event);
    drag = null;
    if (found) ask(page.kept ? null : [n, found.device, found.time], !page.kept);
  });
  box.addEventListener("keydown", (event) => {
    const done = chart.run && onKey(n, chart.run, event);
    if (done) event.preventDefault();
  });
}

function point(n, found) {
  const same = found && page.lit && page.hover && page.lit.chart === n && page.lit.device === found.device && page.lit.from <= found.time && found.time < page.lit.to;
  if (same || (!found && !page.hover)) return;
  page.hover = found && [n, found.device, found.time];
  light();
  tell(false);
}

function onKey(n, run, { key, shiftKey, ctrlKey, metaKey, altKey }) {
  if (ctrlKey || metaKey || altKey) return false;
  const here = page.ask?.[0] === n ? page.ask : null, [, device, time] = here ?? [n, 0, 0], { program, timeline } = run;
  const starts = Array.from(timeline.start.subarray(program.first[device], program.first[device + 1]));
  const go = (found) => (found === undefined || ask([n, device, found], true), true);
  if (key === "Escape") return ask(null, false), true;
  if (key === " ") return play(), true;
  if (key === "ArrowRight") return go(here ? starts.find((each) => each > time) : starts[0]);
  if (key === "ArrowLeft") return go(starts.findLast((each) => each < time));
  if (key.toLowerCase() === "w") {
    const waits = waitsOf(run, device).map(([from]) => from);
    return go(shiftKey ? waits.findLast((each) => each < time) : waits.find((each) => each > time || (!here && each === time)));
  }
  const to = device + ({ ArrowUp: -1, ArrowDown: 1 }[key] ?? NaN);
  if (to >= 0 && to < program.devices) return ask([n, to, Math.max(time, 0)], true, false), true;
  return key.startsWith("Arrow");
}

// The playhead

function scrub(time) {
  page.at = Math.max(0, Math.min(page.until, time));
  overSoon();
}

/** To the next time, or the last one, at which anything begins or ends. */
function step(forward) {
  const times = page.charts.flatMap(({ run }) => (run ? [run.timeline.start, run.timeline.end] : []));
  let found = forward ? page.until : 0;
  for (const column of times) for (const time of column) {
    if (forward ? time > page.at && time < found : time < page.at && time > found) found = time;
  }
  scrub(found);
}

function play() {
  const going = !waiting.play;
  if (going && page.at >= page.until) page.at = 0;
  $("play").textContent = going ? "Pause" : "Play";
  $("play").ariaPressed = String(going);
  if (!going) {
    clearTimeout(waiting.play);
    cancelAnimationFrame(waiting.play);
    waiting.play = 0;
    return;
  }
  let before = performance.now();
  const tick = (now) => {
    if (still.matches) step(true);
    else scrub(page.at + ((now - before) / 12000) * page.until);
    before = now;
    if (page.at >= page.until) play();
    else again();
  };
  const again = () => (waiting.play = still.matches ? setTimeout(tick, 600) : requestAnimationFrame(tick));
  again();
}

// Controls, table, welcome

function buildControls() {
  const boxes = controls.map(({ id, label, more, range, set }) => {
    const input = range ? make("input", { id, type: "range" }) : make("select", { id });
    input.addEventListener("input", () => {
      set(range ? Number(input.value) : input.value);
      if (range) input.nextSibling.textContent = number(Number(input.value));
    });
    const value = range ? [make("output", { htmlFor: id })] : [];
    return make("label", { className: more ? "control more" : "control" }, make("span", {}, label), input, ...value);
  });
  const more = make("button", { id: "more", type: "button", onclick: () => showMore(more.ariaExpanded !== "true") }, "More to move");
  $("controls").append(...boxes.filter((box) => !box.classList.contains("more")), more, ...boxes.filter((box) => box.classList.contains("more")));
  showMore(!page.welcome && innerWidth > 600);
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
      const [least, to, step] = range, reach = value > to ? value * 2 : Math.max(to, Number(input.max) || 0);
      if (Number(input.max) !== reach) Object.assign(input, { min: least, max: reach, step: step === 1 ? 1 : (step * reach) / to });
      if (Number(input.value) !== value) input.value = value;
      input.nextSibling.textContent = number(value);
      continue;
    }
    const wanted = choices(), key = wanted.map(([, words]) => words).join();
    if (input.dataset.key !== key) input.replaceChildren(...wanted.map(([each, words]) => make("option", { value: each }, words)));
    input.dataset.key = key;
    input.value = value;
  }
}

/** All actions of a chart's device; it is made when it is open. */
function drawTable() {
  if (!$("list").open) return;
  const [n, device] = ($("which").firstChild?.lastChild.value ?? "0 0").split(" ").map(Number);
  const places = page.charts.flatMap(({ run }, i) => (run ? rangeOf(run.program.devices).map((d) => [`${i} ${d}`, `${run.name}, device ${d}`]) : []));
  const select = make("select", { onchange: drawTable }, ...places.map(([value, words]) => make("option", { value }, words)));
  const found = places.find(([value]) => value === `${n} ${device}`) ?? places[0];
  if (!found) return $("table").replaceChildren();
  select.value = found[0];
  const had = document.activeElement === $("which").firstChild?.lastChild;
  $("which").replaceChildren(make("label", {}, "Actions of ", select));
  if (had) select.focus();
  const [chart, d] = found[0].split(" ").map(Number), { program, timeline, held, heldText } = page.charts[chart].run;
  const rows = rangeOf(program.first[d + 1] - program.first[d]).map((i) => {
    const e = program.first[d] + i, p = program.parts[e], own = held[d];
    const after = own.total[own.times.findLastIndex((time) => time <= timeline.end[e])];
    return [writeEntry(program.entries[e]), TABLES.meanings[KINDS[program.kind[p]]], program.stage[p], program.microbatch[p], number(timeline.start[e]), number(timeline.end[e]), heldText(after)];
  });
  const heads = ["action", "what", "stage", "microbatch", "start", "end", "held then"], cell = (tag) => (text, i) => make(tag, { className: i > 1 ? "number" : "" }, String(text));
  const head = make("thead", {}, make("tr", {}, ...heads.map(cell("th"))));
  $("table").replaceChildren(head, make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell("td"))))));
}

/** The first screen of the site: one sentence, two numbers that change, two ways on. */
function drawWelcome() {
  $("welcome").hidden = !page.welcome;
  if (!page.welcome) return;
  const [one, other] = page.charts.map(({ run }) => run), numbers = [];
  if (one) numbers.push([percent(one.waiting), `of the time devices wait with ${one.name}`]);
  if (one && other) numbers.push([one.heldText(one.most), `microbatches at most are held by a device with ${one.name}, ${other.heldText(other.most)} with ${other.name}`]);
  const ways = page.welcome.ways.map(({ text, href }) => make("a", { href: /^(https?:|[^:]*$)/.test(href) ? href : "#" }, text));
  $("title").textContent = page.welcome.sentence;
  $("welcome").replaceChildren(make("ul", {}, ...numbers.map(([value, words]) => make("li", {}, make("b", {}, value), words))), make("nav", { ariaLabel: "ways on" }, ...ways));
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
  const charts = found.charts.map((record) => ({ record, given: record.schedule.rows ? record : null, run: runOf(record), refused: null }));
  if (found.board) board?.load(found.board);
  $("panels").replaceChildren();
  Object.assign(page, { charts, at: found.at ?? 0, ask: found.ask ?? null, kept: false, hover: null, lit: null, stage: null });
  const sizes = charts.find(({ record }) => !record.schedule.rows) ?? charts[0], { program, order } = sizes.run;
  page.size = { devices: program.devices, microbatches: program.microbatches, stages_per_device: order.options?.stages_per_device ?? 2 };
  charts.forEach(addPanel);
  runNow();
}

function fromBoard(json) {
  load(json);
  showView("charts");
}

function state() {
  if (waiting.run) cancelAnimationFrame(waiting.run), runNow();
  const runs = page.charts.map(({ run }) => run).filter(Boolean);
  const action = ({ stage, kind, microbatch }, p) => writeEntry([stage[p], kind[p], microbatch[p]]);
  const named = ({ record, order: { placement, microbatches, name, options } }) => ({ ...record, schedule: { ...record.schedule, options, placement, microbatches, name } });
  return {
    charts: runs.map(named),
    at: page.at,
    ask: page.ask,
    times: runs.map(({ program, timeline: { start, end } }) => program.entries.map((each, e) => [program.home[e], writeEntry(each), start[e], end[e]])),
    messages: runs.map(({ program, timeline: { sent, arrived } }) =>
      program.messages.map(({ part, source, target }, i) => [action(program, part), source, target, sent?.[i] ?? null, arrived?.[i] ?? null])),
    makespan: runs.map(({ timeline }) => timeline.makespan),
    peak: runs.map(({ counts }) => counts.map((each) => Math.max(...each.counts))),
    bytes: runs.map(({ bytes, held }) => bytes && held.map(({ total }) => Math.max(...total))),
    sentence: $("say").textContent,
    board: board && board.state(),
  };
}

function fromLink() {
  if (location.hash.length < 2) return;
  try {
    load(fromFragment(location.hash.slice(1)));
  } catch (error) {
    $("say").textContent = `this link shows nothing: ${error.message}`;
  }
}

async function copyLink() {
  const done = (words) => ($("copied").textContent = words);
  try {
    history.replaceState(null, "", `#${toFragment(state())}`);
  } catch (error) {
    return done(error.message);
  }
  await navigator.clipboard.writeText(location.href).then(() => done("copied"), () => done("it is in the address bar"));
}

function open() {
  const shown = JSON.parse($("shown").textContent);
  readColours();
  page.welcome = shown.welcome ?? null;
  buildControls();
  $("notes").replaceChildren(...(shown.notes ?? []).map((note) => make("p", {}, note)));
  load(shown);
  $("views").hidden = !shown.puzzles?.length;
  if (shown.puzzles?.length) board = mountBoard($("board"), { puzzles: shown.puzzles, load: fromBoard });
  for (const name of ["charts", "board"]) $(`show-${name}`).addEventListener("click", () => showView(name));
  $("play").addEventListener("click", play);
  $("back").addEventListener("click", () => step(false));
  $("forth").addEventListener("click", () => step(true));
  $("head").addEventListener("input", () => scrub(Number($("head").value)));
  $("head").addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    step(event.key === "ArrowRight");
    $("head").value = page.at;
  });
  for (const id of ["path", "messages"]) $(id).addEventListener("change", drawAll);
  $("copy").addEventListener("click", copyLink);
  $("list").addEventListener("toggle", drawTable);
  addEventListener("hashchange", fromLink);
  let wide = 0;
  new ResizeObserver(([{ contentRect }]) => contentRect.width && wide !== (wide = contentRect.width) && requestAnimationFrame(drawAll)).observe($("panels"));
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
    matchMedia(query).addEventListener("change", () => (readColours(), drawAll()));
  }
  window.pipeline = { load, state };
  fromLink();
}

open();
