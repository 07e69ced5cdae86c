// Counts tokens with public vocabularies: node judge.cjs NODE_MODULES < [text, ...]
// npm install tiktoken @anthropic-ai/tokenizer
const fs = require("fs");
const path = require("path");
const modules = path.resolve(process.argv[2]);
const { Tiktoken } = require("module").createRequire(path.join(modules, "judge.cjs"))("tiktoken/lite");
const read = (name) => JSON.parse(fs.readFileSync(path.join(modules, name)));
const build = (table) => new Tiktoken(table.bpe_ranks, table.special_tokens, table.pat_str);
const o200k = build(read("tiktoken/encoders/o200k_base.json"));
const claude = build(read("@anthropic-ai/tokenizer/claude.json"));
const texts = JSON.parse(fs.readFileSync(0));
const count = (judge, text) => judge.encode(text, [], []).length;
console.log(
  JSON.stringify({
    o200k: texts.map((text) => count(o200k, text)),
    claude: texts.map((text) => count(claude, text.normalize("NFKC"))),
  }),
);
