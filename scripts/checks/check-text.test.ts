import assert from "node:assert/strict";
import { test } from "node:test";
import { faultsOf, WORDS, wrapComments } from "./check-text.ts";

const messages = (path: string, source: string): string[] => faultsOf(path, source).map(({ message }) => message);

test("a word of the table is refused in a comment and in a document, and not in code or in `code`", () => {
  assert.match(messages("a.ts", "/** Tried anew. */\nexport const x = 1;").join(), /"anew": write again/);
  assert.match(messages("a.md", "Somebody joins.").join(), /"Somebody"/);
  assert.match(messages("a.md", "Anybody may read it.").join(), /"Anybody"/);
  assert.deepEqual(messages("a.ts", 'const anew = "anew"; // the flag `anew`'), []);
});

test("a word of the table is refused in a message, and not in that of a test", () => {
  assert.match(messages("a.ts", 'throw new Error("nobody came");').join(), /"nobody"/);
  assert.match(messages("a.ts", `log(\`\${name} starts anew\`);`).join(), /"anew"/);
  assert.deepEqual(messages("a.test.ts", 'test("it starts anew");'), []);
});

test("each word of the table is found", () => {
  const samples = [
    ..."anew|somebody|nobody|whoever|whatever|is to be|belongs into|strangers|stand-ins|lets go of".split("|"),
    ..."looks at|told of|is told|rouses|for want of".split("|"),
  ];
  assert.equal(samples.length, WORDS.length);
  for (const [index, { pattern }] of WORDS.entries()) assert.match(samples[index] ?? "", pattern);
});

test("a comment that is a clause is refused, a sentence is not", () => {
  assert.match(messages("a.ts", "/** Of a hostile manifest. */").join(), /write a sentence/);
  assert.deepEqual(messages("a.ts", "/** What is on disk counts. */"), []);
  assert.deepEqual(messages("a.ts", "/** Bounds memory against a hostile manifest. */"), []);
});

test("a long line is refused, but for what cannot be divided", () => {
  assert.match(messages("a.ts", `// ${"word ".repeat(30)}`).join(), /wrap it at 120/);
  assert.deepEqual(messages("a.ts", `const x = "${"a long text ".repeat(12)}";`), []);
  assert.deepEqual(messages("a.md", `| ${"cell ".repeat(40)} |`), []);
  assert.match(messages("a.md", `\`one\` ${"word ".repeat(30)} \`two\``).join(), /wrap it at 120/);
  assert.deepEqual(messages("a.md", `\`\`\`sh\nls ${"name ".repeat(30)}\n\`\`\``), []);
});

test("comments are wrapped without a word lost, and lists and tags keep their lines", () => {
  const words = "one two three four five six seven eight nine ten ".repeat(4).trim();
  const source = `  // ${words}\n  const x = 1;\n/**\n * ${words}\n *\n * - a point\n * @throws when it must\n */\nconst y = 2;\n`;
  const wrapped = wrapComments("a.ts", source);
  assert.ok(wrapped.split("\n").every((line) => line.length <= 120));
  const bare = (text: string): string[] => text.split(/[\s*/]+/).filter((word) => word !== "");
  assert.deepEqual(bare(wrapped), bare(source));
  assert.match(wrapped, /\n \*\n \* - a point\n \* @throws when it must\n \*\//);
  assert.equal(wrapComments("a.ts", wrapped), wrapped);
  const table = `/**\n * ${words}\n *\n *     name      meaning\n *     other     meaning\n */\n`;
  assert.match(wrapComments("a.ts", table), /\n \* {5}name {6}meaning\n \* {5}other {5}meaning\n/);
  const fenced = `/**\n * ${words}\n *\n * \`\`\`ts\n * const a = 1;\n * const b = 2;\n * \`\`\`\n */\n`;
  assert.match(wrapComments("a.ts", fenced), /\n \* ```ts\n \* const a = 1;\n \* const b = 2;\n \* ```\n/);
  const item = wrapComments("a.ts", `/**\n * - ${words}\n */\n`).split("\n");
  assert.match(item[1] ?? "", /^ \* - one/);
  assert.match(item[2] ?? "", /^ \* {3}\w/);
});
