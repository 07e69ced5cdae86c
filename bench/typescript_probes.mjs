// Probes of @anthropic-ai/claude-agent-sdk (npm) against our program; one JSON line for each.
// Run by `python -m bench conformance typescript`, which serves the scripted model.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, executable, cwd] = process.argv.slice(2);
const require = createRequire(modules + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const sdk = await load("@anthropic-ai/claude-agent-sdk");
const { z } = await load("zod");

const base = { pathToClaudeCodeExecutable: executable, cwd, model: "anthropic/claude-opus-5-5" };

async function ask(prompt, options = {}) {
  const messages = [];
  for await (const message of sdk.query({ prompt, options: { ...base, ...options } })) messages.push(message);
  return { messages, init: messages.find((m) => m.subtype === "init"), last: messages.at(-1) };
}

function check(condition, what) {
  if (!condition) throw new Error(what);
}

const probes = {
  "a query is answered": async () => {
    const { init, last } = await ask("hello");
    check(init.tools.includes("Bash") && last.result === "Hello.", JSON.stringify(last));
  },
  "canUseTool decides on calls": async () => {
    const asked = [];
    const canUseTool = async (name, input) => {
      asked.push(name);
      return { behavior: "allow", updatedInput: input };
    };
    await ask("write", { canUseTool });
    check(asked.join() === "Write" && readFileSync(cwd + "/a.txt", "utf8") === "a", asked.join());
  },
  "hooks are called": async () => {
    const heard = [];
    const hook = async (input) => (heard.push(input.hook_event_name), {});
    const hooks = { PreToolUse: [{ hooks: [hook] }], Stop: [{ hooks: [hook] }] };
    await ask("list", { hooks });
    check(heard.join() === "PreToolUse,Stop", heard.join());
  },
  "tools of the client are called": async () => {
    const add = sdk.tool("add", "Add", { a: z.number(), b: z.number() }, async ({ a, b }) => ({
      content: [{ type: "text", text: `Sum: ${a + b}` }],
    }));
    const mcpServers = { calc: sdk.createSdkMcpServer({ name: "calc", tools: [add] }) };
    const { messages } = await ask("add", { mcpServers, allowedTools: ["mcp__calc__add"] });
    check(JSON.stringify(messages).includes("Sum: 5"), "no sum");
  },
  "partial messages are streamed": async () => {
    const { messages } = await ask("hello", { includePartialMessages: true });
    check(messages.some((m) => m.type === "stream_event"), "no events");
  },
  "an answer has a form": async () => {
    const schema = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
    const { last } = await ask("count", { outputFormat: { type: "json_schema", schema } });
    check(last.structured_output?.n === 4, JSON.stringify(last));
  },
  "a session is resumed": async () => {
    const first = await ask("hello");
    const { last } = await ask("again", { resume: first.last.session_id });
    check(last.session_id === first.last.session_id && last.result === "Again.", JSON.stringify(last));
  },
  "a session is forked": async () => {
    const first = await ask("hello");
    const { last } = await ask("again", { resume: first.last.session_id, forkSession: true });
    check(last.session_id !== first.last.session_id && last.result === "Again.", JSON.stringify(last));
  },
  "a turn is interrupted": async () => {
    async function* prompts() {
      yield { type: "user", message: { role: "user", content: "slow" }, parent_tool_use_id: null };
      await new Promise((resolve) => setTimeout(resolve, 60000).unref());
    }
    const options = { ...base, includePartialMessages: true };
    const query = sdk.query({ prompt: prompts(), options });
    for await (const message of query) {
      if (message.type === "stream_event") await query.interrupt();
      if (message.type === "result") {
        check(message.is_error && message.terminal_reason === "aborted_streaming", JSON.stringify(message));
        query.close?.();
        return;
      }
    }
    throw new Error("no result");
  },
  "agents of the client are known": async () => {
    const agents = { helper: { description: "helps", prompt: "Help." } };
    const { init } = await ask("hello", { agents });
    check(init.agents.includes("helper"), init.agents.join());
  },
  "listSessions and getSessionMessages find the session": async () => {
    const { last } = await ask("hello");
    const listed = await sdk.listSessions({ dir: cwd });
    check(listed.some((one) => one.sessionId === last.session_id), JSON.stringify(listed));
    const messages = await sdk.getSessionMessages(last.session_id, { dir: cwd });
    check(messages.map((one) => one.type).join() === "user,assistant", JSON.stringify(messages));
  },
};

for (const [name, probe] of Object.entries(probes)) {
  let why = "";
  try {
    await probe();
  } catch (error) {
    why = String(error?.message ?? error).slice(0, 500);
  }
  console.log(JSON.stringify({ name, ok: !why, why }));
}
process.exit(existsSync(cwd) ? 0 : 1);
