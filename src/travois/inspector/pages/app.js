// The page. All that comes from a log is put into text nodes only; nothing here makes markup of text.

import { plot, short, dollars, used, USED } from "./plot.js";
import { transcript } from "./transcript.js";
import { fleet } from "./fleet.js";

const $ = (id) => document.getElementById(id);
const main = $("main"), find = $("find"), tip = $("tip");
const TABS = ["transcript", "requests", "cache", "compactions", "decisions", "agents", "tasks", "notes", "search"];
const ROW = 32, MOST = 300;
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;
let at = {}, story = null, sessions = null, fleetPage = null, stream = null, mark = null, list = null, due = 0, asked = 0, way = "messages", talk = null;

// --- small things -------------------------------------------------------------------------------

// Characters that nobody could see are shown as what they are.
const clean = (text) => String(text).replace(UNSEEN, (c) => (c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : `\u27e8${c.codePointAt(0).toString(16)}\u27e9`));

function h(name, attributes, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false).map((one) => (one instanceof Node ? one : clean(one))));
  return made;
}

async function ask(question, query = {}) {
  const told = await fetch(`api/${question}?${new URLSearchParams(query)}`);
  if (!told.ok) throw new Error(await told.text());
  return told.json();
}

const sorry = (error) => h("p", { class: "card empty", role: "alert" }, error.message);
const about = (more) => ({ session: at.session, ...(at.agent ? { agent: at.agent } : {}), ...more });
const count = (n) => n.toLocaleString("en");
const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)}%` : "–");
const lasted = (s) => (s >= 90 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` : `${s.toFixed(1)} s`);
const MINUTE = { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" };
const day = (t) => new Date(t * 1000).toLocaleString([], MINUTE);
const period = (from, to) => new Intl.DateTimeFormat([], MINUTE).formatRange(from * 1000, to * 1000);
const clock = (t) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
// A link to a request may name no tab: it is older than the transcript.
const tabOf = (place) => place.tab || (place.step ? "requests" : "transcript");
const tab = () => tabOf(at);
const link = (more) => `#${new URLSearchParams(about(more))}`;
const go = (more) => { location.hash = link({ ...(at.tab ? { tab: at.tab } : {}), ...(at.step ? { step: at.step } : {}), ...more }); };
const press = (run) => ({ onclick: run, onkeydown: (event) => { if (event.key === "Enter") run(event); } });

function table(caption, heads, rows) {
  const cell = (name, one, n) => h(name, { class: heads[n]?.startsWith(">") ? "n" : heads[n]?.startsWith("*") ? "wide" : null }, one);
  return h("div", { class: "card section-table" }, h("table", {}, caption ? h("caption", {}, caption) : "",
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { class: head.startsWith(">") ? "n" : null, scope: "col" }, head.replace(/^[>*]/, ""))))),
    h("tbody", {}, rows.map(([run, ...cells]) => h("tr", run ? { tabindex: 0, ...press(run) } : {}, cells.map((one, n) => cell("td", one, n)))))));
}

// --- the list of sessions -----------------------------------------------------------------------

async function showSessions() {
  story = null;
  document.title = "Sessions · Travois";
  find.placeholder = "Filter  /";
  $("crumbs").replaceChildren();
  $("live").textContent = "";
  fleetPage = null;
  sessions = await ask("sessions");
  $("crumbs").replaceChildren((await ask("has-fleet")) ? h("a", { href: "#fleet=all" }, "Fleet") : "");
  listSessions();
}

async function showFleet() {
  story = sessions = null;
  document.title = "Fleet · Travois";
  find.placeholder = "Filter  /";
  $("crumbs").replaceChildren(h("a", { href: "#fleet=all" }, "Fleet"));
  $("live").textContent = "";
  fleetPage = await ask("fleet");
  listTasks();
}

const listTasks = () => main.replaceChildren(...fleet(fleetPage, find.value, { h, table, count, dollars, short, lasted, day }));

function listSessions() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = sessions.filter(({ title, summary }) => { const text = `${title} ${summary.id} ${summary.cwd}`.toLowerCase(); return words.every((word) => text.includes(word)); });
  const rows = found.slice(0, MOST).map(({ title, summary, live }) => [
    () => { find.value = ""; location.hash = `#${new URLSearchParams({ session: summary.id })}`; },
    [live && h("span", { class: "tag good" }, "live"), live && " ", h("span", { class: "clamp" }, title), summary.trouble && h("div", { class: "fail" }, summary.trouble)],
    summary.cwd, day(summary.updated), count(summary.turns), short(summary.size),
  ]);
  const more = found.length > MOST ? ` The first ${MOST} are shown; type to narrow them down.` : "";
  main.replaceChildren(h("h1", {}, "Sessions"), h("p", { class: "quiet" }, `${count(found.length)} of ${count(sessions.length)}.${more}`),
    rows.length ? table("", ["*Title", "Folder", "Last used", ">Turns", ">Bytes"], rows) : h("p", { class: "empty" }, sessions.length ? "No session matches." : "There are no sessions yet."));
}

// --- one session --------------------------------------------------------------------------------

async function load(first = 0) {
  const place = about(), [listed, told] = await ask("overview", about({ first }));
  if (place.session !== at.session || place.agent !== at.agent) return false;
  const steps = first ? [...story.steps.slice(0, first), ...told.steps] : told.steps;
  story = { ...told, listed, steps, byReply: new Map(steps.map((step) => [step.reply, step.index])) };
  return true;
}

async function showSession() {
  find.placeholder = "Search  /";
  if (stream) stream.close();
  if (!(await load())) return;
  stream = new EventSource(`live?${new URLSearchParams(about())}`);
  stream.onmessage = () => grown().catch(() => {});
  stream.onerror = () => { $("live").textContent = ""; };
  frame();
}

// The log has grown: only what is not known yet is asked for, at most once a second.
async function grown() {
  const wait = due - Date.now();
  if (!story) return;
  if (wait > 0) { clearTimeout(grown.timer); grown.timer = setTimeout(stream.onmessage, wait); return; }
  due = Date.now() + 1000;
  const before = story, open = story.steps.findIndex((step) => !step.reply && !step.failed);
  const last = at.step === undefined || Number(at.step) === before.steps.length;
  const known = before.entries;
  if (!(await load(open < 0 ? Math.max(0, before.steps.length - 1) : open))) return;
  if (story.entries === known && story.listed.live === before.listed.live) return;
  frame({ quiet: tab() === "transcript" || (tab() === "requests" && !(last && story.steps.length > before.steps.length)) });
}

function frame({ quiet = false } = {}) {
  const { listed, steps, usage, misses, expected } = story;
  const title = at.agent ? `Agent ${at.agent}` : listed.title;
  document.title = `${title} · Travois`;
  $("crumbs").replaceChildren(h("a", { href: `#${new URLSearchParams({ session: at.session })}` }, listed.title), at.agent ? h("span", {}, at.agent) : "");
  $("live").textContent = listed.live ? "live" : "";
  const asks = misses.length - expected.filter(Boolean).length, prompt = (usage.input || 0) + (usage.read || 0) + (usage.write || 0) + (usage.write_1h || 0);
  const figures = [
    ["Cost", dollars(story.dollars)], ["Requests", count(steps.length)], ["Turns", count(steps.at(-1)?.turn || 0)],
    ["From cache", percent(usage.read || 0, prompt)],
    ["Cache misses", count(misses.length), misses.length ? (asks ? `${asks} unexpected` : "all expected") : ""],
    ["Compactions", count(story.compactions.length)], ["Largest request", short(Math.max(0, ...steps.map((one) => one.tokens))), "tokens"],
  ];
  const top = h("section", { id: "top" },
    h("h1", { class: "clamp", title: clean(title) }, title),
    h("div", { class: "quiet" }, [listed.summary.cwd, listed.summary.id, steps.length ? period(steps[0].at, steps.at(-1).at) : "", story.damaged ? `${many(story.damaged, "damaged line")} skipped` : ""].filter(Boolean).join(" · ")),
    h("dl", { class: "figures" }, figures.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, ` ${more}`) : "")))),
    steps.length ? h("div", { class: "card plots" }, h("div", { id: "plot" }), h("ul", { class: "legend", id: "legend" })) : h("p", { class: "card empty" }, "No request was sent in this session yet."));
  if (quiet && $("top")) { $("top").replaceWith(top); main.querySelector("[role=tablist]").replaceWith(tabs()); }
  else main.replaceChildren(top, tabs(), h("section", { id: "panel", role: "tabpanel", "aria-label": tab() }));
  draw();
  if (quiet) { if (list) list.render(); if (talk) talk.grow(); return; }
  show();
}

function draw() {
  if (!story.steps.length) return;
  mark = plot($("plot"), story, { hover, pick: (index) => go({ step: index + 1, tab: "requests" }) });
  mark(chosen());
  legend();
}

const chosen = () => Math.min(story.steps.length, Math.max(1, Number(at.step) || story.steps.length)) - 1;

function legend() {
  const step = story.steps[chosen()], amount = used(step);
  const one = (name, value) => h("li", {}, h("span", { class: `dot ${name}` }), `${name} `, h("b", {}, count(value)));
  $("legend").replaceChildren(...story.layers.map((name, n) => [name, step.sizes[n]]).filter(([name, value], n) => value || story.steps.some((s) => s.sizes[n])).map(([name, value]) => one(name, value)),
    h("li", { class: "wideonly" }, "·"), ...USED.map((name) => one(name, amount[name])));
}

function hover(index, event) {
  tip.hidden = index < 0;
  if (index < 0) return;
  const step = story.steps[index], row = (name, value) => h("div", {}, h("span", {}, h("span", { class: `dot ${name}` }), name), h("b", {}, count(value)));
  tip.replaceChildren(h("b", {}, `Request ${index + 1}`), ` turn ${step.turn}, ${clock(step.at)}`,
    ...story.layers.map((name, n) => step.sizes[n] && row(name, step.sizes[n])).filter(Boolean).reverse(),
    h("div", {}, "total", h("b", {}, count(step.tokens))), h("div", {}, "from cache", h("b", {}, percent(used(step).read, step.tokens))), h("div", {}, "output", h("b", {}, count(step.usage.output || 0))), h("div", {}, "cost", h("b", {}, dollars(step.dollars))), h("div", {}, "took", h("b", {}, lasted(step.seconds))), h("div", {}, step.model));
  const right = event.clientX + 16 + tip.offsetWidth > innerWidth;
  tip.style.left = `${right ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16}px`;
  tip.style.top = `${Math.max(8, Math.min(event.clientY, innerHeight - tip.offsetHeight - 8))}px`;
}

function tabs() {
  const sizes = { requests: story.steps.length, cache: story.misses.length, compactions: story.compactions.length, agents: story.agents, tasks: story.tasks.length };
  const one = (name) => h("button", { role: "tab", id: `tab-${name}`, "aria-selected": String(name === tab()), onclick: () => go({ tab: name, ...(name === "requests" ? { step: chosen() + 1 } : {}) }) }, name[0].toUpperCase() + name.slice(1), sizes[name] ? ` ${count(sizes[name])}` : "");
  return h("div", { role: "tablist", "aria-label": "Parts of the session" }, TABS.map(one));
}

async function show() {
  const number = ++asked;
  document.querySelectorAll("[role=tab]").forEach((one) => one.setAttribute("aria-selected", String(one.id === `tab-${tab()}`)));
  list = talk = null;
  const made = await Promise.resolve(PANELS[tab()]()).catch(sorry);
  if (number === asked && made) $("panel").replaceChildren(...[made].flat());
}

const PANELS = {
  async transcript() {
    const page = await ask("transcript", about({ ...(at.tool ? { tool: at.tool } : {}), ...(at.entry ? { entry: at.entry } : {}) }));
    talk = transcript(page, { h, ask, about, clock, count, many, lasted, at, go, toRequest: (step) => link({ step: step + 1, tab: "requests" }) });
    if (at.entry) setTimeout(() => {
      const found = [...main.querySelectorAll(".block")].findLast((one) => Number(one.dataset.entry) <= Number(at.entry));
      found?.classList.add("linked");
      found?.scrollIntoView({ block: "center" });
    });
    return talk.parts;
  },

  requests() {
    if (!story.steps.length) return [];
    $("panel").replaceChildren(h("div", { class: "pair" },
      h("div", { class: "card list", role: "listbox", tabindex: 0, "aria-label": "Requests" }, h("div", { class: "heads", "aria-hidden": "true" }, ["#", "Time", "Tokens", "Cache", "Cost"].map((one) => h("span", {}, one))), h("div", { class: "rows" })),
      h("article", { class: "card detail", id: "detail", "aria-live": "polite" })));
    list = requests(document.querySelector(".list"));
    detail(chosen());
    return null;
  },

  cache() {
    const kinds = Object.entries(story.kinds).map(([name, kind]) => [null, name, count(kind.tokens), dollars(kind.dollars), percent(kind.dollars, story.dollars)]);
    const rows = story.misses.map((miss, n) => {
      const index = story.byReply.get(miss.seq);
      return [index === undefined ? null : () => go({ step: index + 1, tab: "requests" }), index === undefined ? "–" : count(index + 1), h("span", { class: story.expected[n] ? "tag" : "tag bad" }, story.expected[n] ? "expected" : "unexpected"), miss.cause, miss.detail, count(miss.tokens), dollars(miss.dollars)];
    });
    return h("div", {}, rows.length ? table("Replies that read less from the cache than they could have", [">Request", "", "Cause", "*Detail", ">Resent", ">Extra cost"], rows) : h("p", { class: "card empty" }, "No cache misses: every reply read all it could from the cache."),
      h("p", {}), table("Cost by kind", ["Kind", ">Tokens", ">Cost", ">Share"], kinds));
  },

  async compactions() {
    if (!story.compactions.length) return h("p", { class: "card empty" }, "Nothing was compacted in this session.");
    const rows = story.compactions.map((one) => [() => go({ tab: "compactions", compaction: one.entry }), `${one.number}`, day(one.at), one.trigger || one.by, short(one.before), short(one.planned), one.measured ? short(one.measured) : "–", many(one.spans.length, "span"), dollars(one.dollars + one.rewritten), h("span", { class: "tag" }, one.state)]);
    const made = [table("Compactions: sizes in tokens", [">#", "When", "Trigger", ">Before", ">Planned", ">Measured", "Saved", ">Cost", "State"], rows)];
    const entry = Number(at.compaction) || story.compactions.at(-1).entry;
    const told = compaction(await ask("diff", about({ compaction: entry })));
    if (at.compaction) setTimeout(() => told.scrollIntoView({ block: "start" }));
    return [...made, h("p", {}), told];
  },

  async decisions() {
    const found = await ask("choices", about());
    const good = { allow: "tag good", deny: "tag bad" };
    const rows = found.slice(-1000).reverse().map((one) => [() => go({ step: one.step + 1, tab: "requests" }), clock(one.at), h("span", { class: good[one.kind] || "tag" }, one.kind), one.by, h("span", { class: "clamp" }, one.what), one.why]);
    return rows.length ? table(`Permission decisions, questions and hooks, the newest first${found.length > 1000 ? ` (1,000 of ${count(found.length)})` : ""}`, ["Time", "", "By", "*What", "Why"], rows) : h("p", { class: "card empty" }, "No decisions in this session yet.");
  },

  async agents() {
    const found = await ask("agents", { session: at.session });
    const rows = found.map((one) => [() => { location.hash = `#${new URLSearchParams({ session: at.session, agent: one.id })}`; }, `${"\u2003".repeat(one.depth)}${one.depth ? "\u2514 " : ""}${one.name || one.id}`, one.kind, h("span", { class: one.state === "running" ? "tag good" : "tag" }, one.state), short(one.tokens), dollars(one.dollars), one.doing, one.what]);
    return rows.length ? table("Agents, each below the one that started it", ["Agent", "Type", "State", ">Tokens", ">Cost", "Activity", "*Task"], rows) : h("p", { class: "card empty" }, "This session started no agents.");
  },

  tasks() {
    const good = { completed: "tag good", in_progress: "tag" };
    const rows = story.tasks.map((one) => [null, `#${one.id}`, h("span", { class: good[one.status] || "tag" }, one.status), one.owner, one.waits.map((id) => `#${id}`).join(", "), one.subject]);
    return rows.length ? table("The task list as it stands", [">Task", "Status", "Owner", "Blocked by", "*Subject"], rows) : h("p", { class: "card empty" }, "This session has no tasks.");
  },

  notes() {
    const held = story.notes;
    if (!held) return h("p", { class: "card empty" }, "This session has no notes yet.");
    return h("div", { class: "card" }, h("p", {}, `${count(held.tokens)} tokens, written ${day(held.at)}, up to entry ${count(held.covers)} of the log`), h("pre", {}, held.text));
  },

  async search() {
    if (!find.value.trim()) { find.focus(); return h("p", { class: "card empty" }, "Type words above to search. A text matches if it contains all of them."); }
    const found = await ask("search", about({ words: find.value }));
    const rows = found.map((one) => [() => go({ step: one.step + 1, tab: "requests" }), count(one.entry), clock(one.at), h("span", { class: "tag" }, one.kind), one.title, lit(one.text)]);
    return rows.length ? table(`${many(found.length, "text")} with “${find.value.trim()}”, the newest first`, [">Entry", "Time", "", "Who", "*Text"], rows) : h("p", { class: "card empty" }, "No text in this session contains all of these words.");
  },
};

function lit(text) {
  const word = find.value.trim().split(/\s+/)[0].toLowerCase(), where = text.toLowerCase().indexOf(word);
  return where < 0 ? text : [text.slice(0, where), h("mark", {}, text.slice(where, where + word.length)), text.slice(where + word.length)];
}

// --- the requests -------------------------------------------------------------------------------

// Only the rows in sight are there.
function requests(box) {
  const [heads, rows] = box.children;
  const render = () => {
    rows.style.height = `${story.steps.length * ROW}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4), last = Math.min(story.steps.length, first + Math.ceil(box.clientHeight / ROW) + 8);
    rows.replaceChildren(...story.steps.slice(first, last).map(row));
  };
  const reveal = (index) => {
    const y = index * ROW, end = y + ROW + heads.offsetHeight;
    if (y < box.scrollTop || end > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
    render();
  };
  box.addEventListener("scroll", render);
  rows.style.height = `${story.steps.length * ROW}px`;
  return { render, reveal };
}

function row(step) {
  const before = story.steps[step.index - 1], index = step.index;
  const names = ["row", (!before || before.turn !== step.turn) && "turn", step.moved.length && "moved", step.failed && "bad"].filter(Boolean).join(" ");
  const made = h("div", { class: names, role: "option", "aria-selected": String(index === chosen()), onclick: () => go({ step: index + 1 }) },
    h("span", {}, `${index + 1}`), h("span", {}, step.failed ? step.failed : [clock(step.at), " ", h("span", { class: "quiet" }, `turn ${step.turn}`)]), h("span", {}, short(step.tokens)),
    h("span", {}, step.reply ? percent(used(step).read, step.tokens).replace(/\.\d/, "") : "…"), h("span", {}, dollars(step.dollars)));
  made.style.top = `${index * ROW}px`;
  return made;
}

async function detail(index) {
  if (list) list.reveal(index);
  mark?.(index);
  legend();
  const number = ++asked, step = story.steps[index];
  const seen = await ask("seen", about({ step: index })).catch((error) => { $("detail")?.replaceChildren(sorry(error)); });
  if (!seen || number !== asked || !$("detail")) return;
  const fresh = step.items - step.common, kept = percent(seen.shared, step.size);
  const body = h("div", { id: "seen" });
  const ways = { messages: () => messages(body, index, seen), head: () => heading(body, index), bytes: () => bytes(body, index, seen) };
  const turn = (name) => { way = name; buttons.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.way === name))); body.replaceChildren(); ways[name](); };
  const buttons = h("div", { class: "buttons" }, [["messages", "Messages"], ["head", `System and ${many(seen.tools, "tool")}`], ["bytes", "Bytes"]].map(([name, text]) => h("button", { class: "plain", "data-way": name, onclick: () => turn(name) }, text)));
  const meter = h("div", { class: "meter", role: "img", "aria-label": `${kept} of the bytes match the start of the previous request` }, h("i", {}));
  meter.firstChild.style.width = step.size ? `${(100 * seen.shared) / step.size}%` : "0";
  const facts = [day(step.at), step.model, step.reply ? lasted(step.seconds) : step.failed ? "failed" : "waiting", `${count(step.tokens)} in, ${count(step.usage.output || 0)} out`, dollars(step.dollars), step.stop && step.stop !== "end" && step.stop !== "calls" ? `stopped: ${step.stop}` : ""];
  $("detail").replaceChildren(
    h("h2", {}, `Request ${index + 1}`, h("span", { class: "quiet" }, ` of ${count(story.steps.length)} · turn ${step.turn}`)),
    h("div", { class: "quiet" }, facts.filter(Boolean).join(" · ")), step.failed ? h("div", { class: "fail" }, step.failed) : "", meter,
    step.moved.length ? h("div", { class: "moved" }, "Prefix changed by ", step.moved.map(([cause, more]) => [h("span", { class: "tag" }, cause), more ? ` ${more} ` : " "])) : "",
    h("div", { class: "quiet" }, index ? `${count(seen.shared)} of ${count(step.size)} bytes (${kept}) match the start of the previous request; ${many(fresh, "item")} of ${count(step.items)} ${fresh === 1 ? "is" : "are"} new${seen.gone ? `, ${many(seen.gone, "item")} removed` : ""}.` : `The first request: ${count(step.size)} bytes, ${many(step.items, "item")}.`),
    h("div", { class: seen.problem ? "proof bad" : "proof" }, seen.problem || "\u2713 Rebuilt from the log: byte for byte what was sent."), buttons, body);
  turn(way);
}

function messages(body, index, seen) {
  const { step } = seen, first = seen.lines[0]?.index ?? step.items;
  const query = (line, part) => about({ step: index, item: line.index, part });
  const draw = (lines) => lines.map((line) => item(line, { fresh: index > 0 && line.index >= step.common, query }));
  const earlier = async (before) => {
    const from = Math.max(0, before - 50);
    body.firstChild.replaceWith(button(from), ...draw(await ask("items", about({ step: index, first: from, last: before }))));
  };
  const button = (before) => (before > 0 ? h("button", { class: "plain", onclick: () => earlier(before) }, `Show earlier items (${count(before)})`) : h("span", {}));
  const later = async (from) => { const more = await ask("items", about({ step: index, first: from, last: step.items })); rest.replaceWith(...draw(more)); rest = next(from + more.length); body.lastChild.before(rest); };
  const next = (from) => (from < step.items ? h("button", { class: "plain", onclick: () => later(from) }, `Show later items (${count(step.items - from)})`) : h("span", {}));
  let rest = next(first + seen.lines.length);
  body.replaceChildren(button(first), ...draw(seen.lines), rest, seen.answer ? item(seen.answer, { answer: true, query: (line, part) => about({ step: index, item: step.items, part }) }) : h("span", {}));
}

function item(line, { fresh = false, answer = false, query }) {
  const tag = answer ? "reply" : fresh ? "new" : "";
  return h("div", { class: `item ${line.layer}${fresh ? " fresh" : ""}${answer ? " answer" : ""}`, "data-entry": line.entry },
    h("header", {}, h("b", {}, answer ? "Reply" : line.layer), tag && !answer ? h("span", { class: "tag" }, tag) : "", h("span", {}, `about ${count(line.tokens)} tokens · entry ${line.entry}`)),
    line.parts.map((part, n) => {
      const words = part.kind === "person" || part.kind === "model";
      const pre = h("pre", { class: words ? "words" : null }, part.text);
      const more = line.lengths[n] > part.text.length ? h("button", { class: "plain", onclick: async () => { pre.replaceChildren(clean(await ask("text", query(line, n)))); more.remove(); } }, `All ${count(line.lengths[n])} characters`) : "";
      const media = (part.media || []).map((one) => h("div", { class: "quiet" }, `${one.kind} ${one.name || one.mime}, ${count(one.size)} bytes`));
      return h("div", { class: "part" }, words ? "" : h("b", { class: part.kind === "error" ? "fail" : null }, part.kind === "call" ? `calls ${part.title}` : `${part.kind}: ${part.title}`), part.text ? pre : "", more, media);
    }));
}

async function heading(body, index) {
  const told = await ask("head", about({ step: index }));
  body.replaceChildren(h("div", { class: "item system" }, h("header", {}, h("b", {}, "system"), h("span", {}, `${count(told.system.length)} characters`)), h("pre", {}, told.system)),
    ...told.tools.map((tool) => h("div", { class: "item tools" }, h("header", {}, h("b", {}, tool.name)), h("pre", { class: "words" }, tool.description), h("pre", {}, tool.schema))));
}

async function bytes(body, index, seen) {
  const from = Math.max(0, seen.shared - 600), told = await ask("bytes", about({ step: index, start: from }));
  const data = new TextEncoder().encode(told.text), cut = Math.max(0, seen.shared - told.start), text = (part) => new TextDecoder().decode(part);
  const pre = h("pre", { id: "bytes", "data-start": told.start }, h("span", { class: "faded" }, text(data.slice(0, cut))), h("mark", {}, text(data.slice(cut))));
  let end = told.start + data.length;
  const more = h("button", { class: "plain", onclick: async () => { const next = await ask("bytes", about({ step: index, start: end })); pre.append(h("mark", {}, next.text)); end += new TextEncoder().encode(next.text).length; if (end >= next.size) more.remove(); } }, "More");
  body.replaceChildren(h("p", { class: "quiet" }, `From byte ${count(told.start)} of ${count(told.size)}. Marked: what follows the prefix shared with the previous request.`), pre, end < told.size ? more : "");
}

function compaction({ receipt, dropped, count: total, tokens, kept, summary }) {
  const query = (line, part) => about({ compaction: receipt.entry, item: line.index, part });
  const further = (from) => (from < total ? h("button", { class: "plain", onclick: async (event) => { const more = await ask("items", about({ compaction: receipt.entry, first: from, last: total })); event.target.replaceWith(...more.map((line) => item(line, { query })), further(from + more.length)); } }, `Show more (${count(total - from)})`) : "");
  const read = (span, n) => h("li", {}, h("button", { class: "plain", onclick: async (event) => { const pre = h("pre", { class: "scroll" }, await ask("span", about({ compaction: receipt.entry, span: n })).catch((error) => error.message)); event.target.replaceWith(h("b", {}, span.title), pre); } }, span.title || span.file), " ", h("span", { class: "quiet", title: clean(span.file) }, span.file.split("/").at(-1)));
  return h("div", { class: "card section", id: "diff" }, h("h2", {}, `Compaction ${receipt.number}`),
    h("p", { class: "quiet" }, `${count(receipt.before)} tokens before, ${count(receipt.planned)} planned, ${receipt.measured ? `${count(receipt.measured)} measured` : "not measured yet"}; ${many(kept, "item")} kept. Threshold ${count(receipt.threshold)} tokens (${receipt.set_by}); took ${lasted(receipt.seconds)}; ${dollars(receipt.dollars)} for the summary, ${dollars(receipt.rewritten)} for resending the rest.`),
    receipt.restored.length ? h("p", { class: "quiet" }, `Restored: ${receipt.restored.join(", ")}`) : "",
    h("div", { class: "cols" },
      h("div", {}, h("h2", {}, `Removed: ${many(total, "item")}, about ${short(tokens)} tokens`), h("div", { class: "scroll", id: "went" }, dropped.map((line) => item(line, { query })), further(dropped.length))),
      h("div", {}, h("h2", {}, "Summary"), h("div", { class: "scroll", id: "stands" }, summary.map((text) => h("div", { class: "item summary" }, h("pre", {}, text)))))),
    receipt.spans.length ? [h("h2", {}, "Saved text"), h("ul", {}, receipt.spans.map(read))] : "");
}

// --- keys and places ----------------------------------------------------------------------------

// To the next request, or to the next row of a table.
function moveBy(step) {
  if (story?.steps.length && tab() === "requests") {
    if ($("detail").getBoundingClientRect().top > innerHeight - 240) document.querySelector("[role=tablist]").scrollIntoView();
    go({ step: Math.min(story.steps.length, Math.max(1, chosen() + 1 + step)) });
    return;
  }
  const rows = [...main.querySelectorAll("tbody tr[tabindex]")], here = rows.indexOf(document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, here + step))]?.focus();
}

const KEYS = { j: () => moveBy(1), k: () => moveBy(-1), ArrowDown: () => moveBy(1), ArrowUp: () => moveBy(-1), "/": () => { find.focus(); find.select(); } };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { escape(); return; }
  if (event.target === find) { if (event.key === "Enter" && story) { at.tab === "search" ? show() : go({ tab: "search" }); } return; }
  if (event.key.startsWith("Arrow") && !event.target.closest?.(".list")) return;
  const run = KEYS[event.key] || (story && TABS[Number(event.key) - 1] && (() => go({ tab: TABS[Number(event.key) - 1] })));
  if (run) { event.preventDefault(); run(); }
});

function escape() {
  if (document.activeElement === find) { find.value = ""; find.blur(); if (!story && sessions) listSessions(); return; }
  if (!["transcript", "requests"].includes(tab())) go({ tab: "transcript" });
  else if (at.agent) location.hash = `#${new URLSearchParams({ session: at.session, tab: "agents" })}`;
  else location.hash = "#";
}

find.addEventListener("input", () => { if (!story && sessions) listSessions(); else if (!story && fleetPage) listTasks(); });

async function route() {
  const before = at;
  at = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  tip.hidden = true;
  try {
    if (at.fleet) { if (stream) stream.close(); find.value = ""; await showFleet(); }
    else if (!at.session) { if (stream) stream.close(); await showSessions(); }
    else if (!story || before.session !== at.session || before.agent !== at.agent) await showSession();
    else if (tab() !== tabOf(before) || at.tool !== before.tool || at.entry !== before.entry || at.tab === "compactions") show();
    else if (tab() === "requests") detail(chosen());
  } catch (error) {
    main.replaceChildren(sorry(error));
  }
}

let width = innerWidth;
addEventListener("resize", () => { if (story && $("plot") && innerWidth !== width) { width = innerWidth; draw(); } });
addEventListener("hashchange", route);
route();
