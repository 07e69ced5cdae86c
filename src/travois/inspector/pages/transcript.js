// The conversation: prompts, answers, and tool calls with what they brought.

const PREVIEW_LINES = 6;
const QUIET = ["Read", "TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "Skill"];
const MARKS = { done: "\u2713", failed: "\u2717", denied: "\u2717", running: "\u25cf" };

// Draws a page of the conversation into a box and returns what takes in what has been added since.
export function transcript(page, { h, ask, about, clock, count, many, lasted, at, go, toRequest }) {
  const read = (query) => ask("transcript", about({ ...(at.tool ? { tool: at.tool } : {}), ...query }));
  const column = h("div", { class: "talk" });
  let { start, total } = page, end = start;

  const head = (block, who) => h("header", {}, h("b", {}, who), h("span", {}, clock(block.at)), h("a", { href: toRequest(block.step), title: "What the model saw" }, `request ${count(block.step + 1)}`));
  // Of Markdown, only what would be in the way of reading: bold words, headings, code and tables.
  const inline = (text) => text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part, n) => (n % 2 ? (part[0] === "`" ? h("code", {}, part.slice(1, -1)) : h("b", {}, part.slice(2, -2))) : part));
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => h("td", {}, inline(cell.trim())));
  const table = (lines) => h("table", { class: "words-table" }, h("tbody", {}, lines.filter((line) => !/^[|:\s-]+$/.test(line)).map((line) => h("tr", {}, cells(line)))));
  const prose = (text) => text.split(/((?:^\|.*(?:\n|$))+)/m).flatMap((part, n) => (n % 2 ? table(part.trim().split("\n")) : part.split(/^(#{1,6} .*)$/m).flatMap((piece, at) => (at % 2 ? h("b", {}, inline(piece.replace(/^#+ /, ""))) : inline(piece)))));
  const marked = (text) => text.split(/^```[^\n]*\n([\s\S]*?)(?:^```[ \t]*$\n?|$(?![\s\S]))/m).flatMap((part, n) => (n % 2 ? h("pre", {}, part.replace(/\n$/, "")) : prose(part)));
  const words = (block) => [h("div", { class: "words" }, block.kind === "answer" ? marked(block.text) : block.text), block.length > block.text.length ? h("p", { class: "quiet" }, `${count(block.length)} characters; the request has all of them.`) : ""];

  const drawn = {
    prompt: (block) => h("section", { class: "block prompt" }, head(block, "You"), words(block)),
    answer: (block) => h("section", { class: "block answer" }, head(block, "Model"), words(block)),
    remark: (block) => h("section", { class: "block remark" }, block.text),
    thinking: (block) => h("details", { class: "block thinking" }, h("summary", {}, `Thought: ${block.text.trim().split("\n")[0]}`), h("div", { class: "words" }, block.text)),
    call: ({ call, step, at: when }) => h("section", { class: `block call ${call.state}` },
      h("header", {}, h("span", { class: "state" }, MARKS[call.state]), h("b", {}, call.name), h("code", {}, call.title || call.args), call.state === "denied" ? h("span", { class: "fail" }, "not run") : "", h("span", { class: "when" }, [clock(when), call.seconds >= 0.1 ? lasted(call.seconds) : ""].filter(Boolean).join(" \u00b7 "), h("a", { href: toRequest(step), title: "What the model saw" }, `request ${count(step + 1)}`))),
      call.rows.length ? diff(call.rows) : result(call)),
  };

  // The first lines of a result; of a command the last ones, for they say how it ended.
  function result(call) {
    const lines = call.text.replace(/\s+$/, "").split("\n").filter((line, n, all) => line || all.length > 1);
    if (!call.text.trim()) return "";
    const most = QUIET.includes(call.name) && call.state === "done" ? 0 : PREVIEW_LINES;
    const short = call.name === "Bash" ? lines.slice(-most) : lines.slice(0, most);
    const pre = h("pre", { class: call.state === "failed" ? "fail" : null }, short.join("\n"));
    if (short.length === lines.length && call.length <= call.text.length) return pre;
    const more = h("button", { class: "plain", onclick: () => { pre.hidden = false; pre.textContent = ""; pre.append(h("span", {}, call.text)); more.remove(); } }, `All ${many(lines.length, "line")}`);
    return [most ? pre : (pre.hidden = true, pre), more];
  }

  function diff(rows) {
    const name = { "+": "added", "-": "removed", " ": "kept", gap: "gap", file: "file" };
    const span = (one) => { const text = one.syntax ? h("span", { class: `s-${one.syntax}` }, one.text) : one.text; return one.is_changed ? h("mark", {}, text) : text; };
    return h("div", { class: "scroll" }, h("table", { class: "diff" }, h("tbody", {}, rows.map((row) => h("tr", { class: name[row.kind] },
      h("td", {}, row.old || ""), h("td", {}, row.new || ""), h("td", {}, { gap: "\u22ef", file: "" }[row.kind] ?? row.kind), h("td", {}, row.spans.map(span)))))));
  }

  const draw = (block, n, from) => { const made = drawn[block.kind](block); made.dataset.entry = block.entry; made.dataset.at = from + n; return made; };
  const tools = Object.entries(page.tools);
  const filter = h("div", { class: "buttons", role: "group", "aria-label": "Show only the calls of a tool" },
    [["", "Everything"], ...tools.map(([name, n]) => [name, `${name} ${count(n)}`])].map(([name, text]) => h("button", { class: "plain", "aria-pressed": String((at.tool || "") === name), onclick: () => go({ tab: "transcript", tool: name }) }, text)));
  const earlier = h("button", { class: "plain", onclick: async () => {
    const from = Math.max(0, start - 200), more = await read({ first: from }), blocks = more.blocks.slice(0, start - from);
    column.prepend(...blocks.map((block, n) => draw(block, n, from)));
    start = from;
    name();
  } });
  const later = h("button", { class: "plain", onclick: () => grow() });
  const name = () => { earlier.hidden = !start; earlier.textContent = `Show earlier (${count(start)})`; later.hidden = end >= total; later.textContent = `Show later (${count(total - end)})`; };

  function add(blocks, from) {
    for (const one of [...column.children]) if (Number(one.dataset.at) >= from) one.remove();
    column.append(...blocks.map((block, n) => draw(block, n, from)));
    end = from + blocks.length;
    name();
  }

  // From the first call without a result on: it may have one.
  async function grow() {
    const open = column.querySelector(".call.running"), from = open ? Number(open.dataset.at) : end;
    const more = await read({ first: from });
    total = more.total;
    add(more.blocks, from);
  }

  add(page.blocks, start);
  if (!total) column.append(h("p", { class: "empty" }, "Nothing was said in this session yet."));
  return { parts: [tools.length ? filter : "", earlier, column, later], grow: () => (end >= total || column.querySelector(".call.running") ? grow() : null) };
}
