// Three plots over the requests of a session, on one axis: what filled each, what it used, its cost.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 68, RIGHT = 12;
const PANELS = [
  { name: "context", title: "In the request", top: 18, height: 160 },
  { name: "tokens", title: "Cache", top: 208, height: 64 },
  { name: "cost", title: "Cost so far", top: 302, height: 46 },
];
export const HEIGHT = 360;
export const USED = ["read", "write", "input"];

export const short = (n) =>
  n >= 1e6 ? `${(n / 1e6).toFixed(n >= 1e7 ? 0 : 1)}M` : n >= 1e3 ? `${(n / 1e3).toFixed(n >= 1e4 ? 0 : 1)}k` : `${n}`;
export const dollars = (n) => !n ? "$0" : `$${n >= 100 ? n.toFixed(0) : n >= 1 ? n.toFixed(2) : n.toFixed(4)}`;
const tokenTick = (n) => short(n).replace(".0", "");
const dollarTick = (n) => dollars(n).replace(/(\.\d\d)0+$/, "$1");

function node(name, attributes, ...inside) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

export const used = (step) => ({
  read: step.usage.read || 0,
  write: (step.usage.write || 0) + (step.usage.write_1h || 0),
  input: step.usage.input || 0,
});

// At most one column for two pixels: of several requests, the largest is shown.
function columns(steps, width) {
  const count = Math.min(steps.length, Math.max(1, Math.floor(width / 2)));
  const found = [];
  for (let c = 0; c < count; c++) {
    const from = Math.floor((c * steps.length) / count), to = Math.floor(((c + 1) * steps.length) / count);
    let best = steps[from];
    for (let i = from; i < to; i++) if (steps[i].tokens > best.tokens) best = steps[i];
    found.push(best);
  }
  return found;
}

// Paths of columns that stand on each other, the first at the bottom.
function stack(values, names, place) {
  const width = place.width / values.length, gap = width > 6 ? 1.5 : 0;
  const paths = names.map(() => "");
  values.forEach((row, c) => {
    let sum = 0;
    const x = place.left + c * width;
    row.forEach((value, n) => {
      if (!value) return;
      const y = place.y(sum + value), h = place.y(sum) - y;
      paths[n] += `M${x.toFixed(2)} ${y.toFixed(2)}h${(width - gap).toFixed(2)}v${h.toFixed(2)}h${(gap - width).toFixed(2)}z`;
      sum += value;
    });
  });
  return names.map((name, n) => node("path", { class: `layer ${name}`, d: paths[n], "data-layer": name }));
}

function axis(panel, most, width, label) {
  const y = (value) => panel.top + panel.height * (1 - value / (most || 1));
  const rough = most / Math.max(2.5, panel.height / 42) || 1, power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 5, 10].map((f) => f * power).find((f) => f >= rough);
  const marks = [];
  for (let value = 0; value <= most * 1.0001; value += size) {
    marks.push(node("line", { class: "grid", x1: LEFT, x2: LEFT + width, y1: y(value), y2: y(value) }));
    marks.push(node("text", { class: "mark", x: LEFT - 8, y: y(value) + 4 }, label(value)));
  }
  marks.push(node("text", { class: "title", x: LEFT, y: panel.top - 7 }, panel.title));
  return { y, marks };
}

function line(steps, y, width) {
  const step = width / steps.length;
  const points = steps.map((one, i) => `${(LEFT + (i + 1) * step).toFixed(2)} ${y(one.total).toFixed(2)}`);
  const floor = y(0).toFixed(2), end = (LEFT + width).toFixed(2);
  return [
    node("path", { class: "area", d: `M${LEFT} ${floor}L${points.join("L")}L${end} ${floor}z` }),
    node("path", { class: "curve", d: `M${LEFT} ${floor}L${points.join("L")}` }),
  ];
}

// Draws the story and returns what moves the cursor in it.
export function plot(box, story, { hover, pick }) {
  const full = Math.max(480, box.clientWidth), width = full - LEFT - RIGHT, { steps, layers } = story;
  const svg = node("svg", { viewBox: `0 0 ${full} ${HEIGHT}`, width: full, height: HEIGHT, role: "img" });
  const most = Math.max(...steps.map((one) => one.tokens), 1);
  svg.setAttribute("aria-label", `${steps.length} requests of at most ${most} tokens, ${dollars(story.dollars)} in all`);
  const shown = columns(steps, width), [context, tokens, cost] = PANELS;
  const at = (index) => LEFT + ((index + 0.5) / steps.length) * width;

  const first = axis(context, most, width, tokenTick);
  svg.append(...first.marks, ...stack(shown.map((one) => one.sizes), layers, { left: LEFT, width, y: first.y }));
  const second = axis(tokens, most, width, tokenTick);
  svg.append(...second.marks, ...stack(shown.map((one) => USED.map((name) => used(one)[name])), USED, { left: LEFT, width, y: second.y }));
  const third = axis(cost, Math.max(story.dollars, steps.at(-1)?.total || 0) || 1, width, dollarTick);
  svg.append(...third.marks, ...line(steps, third.y, width));

  for (const one of story.compactions) {
    const x = at(steps.findIndex((step) => step.entry > one.entry)) - width / steps.length / 2;
    if (x > LEFT) svg.append(node("line", { class: "cut", x1: x, x2: x, y1: context.top, y2: cost.top + cost.height }));
  }
  story.misses.forEach((miss, n) => {
    const index = story.byReply.get(miss.seq);
    if (index === undefined) return;
    svg.append(node("circle", { class: story.expected[n] ? "miss expected" : "miss", cx: at(index), cy: tokens.top - 4, r: 3.5 }));
  });

  const bar = (name) => svg.appendChild(node("line", { class: name, y1: context.top, y2: cost.top + cost.height, x1: -9, x2: -9 }));
  const cursor = bar("cursor"), chosen = bar("chosen");
  const move = (mark, index) => ["x1", "x2"].forEach((name) => mark.setAttribute(name, index < 0 ? -9 : at(index)));
  const under = (event) => {
    const x = ((event.clientX - svg.getBoundingClientRect().left) * full) / svg.getBoundingClientRect().width;
    return x < LEFT || x > LEFT + width ? -1 : Math.min(steps.length - 1, Math.floor(((x - LEFT) / width) * steps.length));
  };
  svg.addEventListener("pointermove", (event) => { const i = under(event); move(cursor, i); hover(i, event); });
  svg.addEventListener("pointerleave", (event) => { move(cursor, -1); hover(-1, event); });
  svg.addEventListener("click", (event) => { const i = under(event); if (i >= 0) pick(i); });
  box.replaceChildren(svg);
  return (index) => move(chosen, index);
}
