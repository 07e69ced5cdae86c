// The fleet: all its tasks, what they cost, and the way to their sessions.

const GOOD = ["done"], BAD = ["failed", "refused", "limit"];

// Draws the tasks that have all the words.
export function fleet({ database, totals, tasks }, typed, { h, table, count, dollars, short, lasted, day }) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const found = tasks.filter((task) => { const text = `${task.id} ${task.state} ${task.repo} ${task.prompt} ${task.result} ${task.model}`.toLowerCase(); return words.every((word) => text.includes(word)); });
  const tone = (state) => (GOOD.includes(state) ? "tag good" : BAD.includes(state) ? "fail" : "quiet");
  const rows = found.map((task) => [
    task.session ? () => { location.hash = `#${new URLSearchParams({ session: task.session })}`; } : null,
    [h("b", {}, task.session ? h("a", { href: `#${new URLSearchParams({ session: task.session })}` }, task.id) : task.id), h("div", { class: "quiet clamp" }, task.prompt)],
    h("span", { class: tone(task.state) }, task.state), h("span", { class: "clamp" }, task.result), h("span", { class: "clamp" }, task.repo),
    dollars(task.usd), short(task.tokens), task.seconds ? lasted(task.seconds) : "", task.ended ? day(task.ended) : "",
  ]);
  return [h("h1", {}, "Fleet"), h("p", { class: "quiet" }, [totals, database].filter(Boolean).join(" · ")), words.length ? h("p", { class: "quiet" }, `${count(found.length)} of ${count(tasks.length)}.`) : "",
    rows.length ? table("", ["*Task", "State", "Result", "Repository", ">Cost", ">Tokens", ">Time", ">Ended"], rows) : h("p", { class: "empty" }, tasks.length ? "No task matches." : "There are no tasks yet.")];
}
