import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import { parseCommandLine } from "./command-line.ts";
import { countFlag } from "./flag-values.ts";
import type { Flag } from "./program.ts";
import { isUsageError } from "./usage-error.ts";

const output: Flag = { name: "output", short: "o", value: "FORMAT", help: "", choices: ["json", "wide"] };
const TAIL = countFlag({ name: "tail", help: "" });
const COMMANDS = [
  { words: ["status"], flags: [output] },
  {
    words: ["logs"],
    atMost: 2,
    flags: [
      { name: "follow", short: "f", help: "" },
      { name: "previous", short: "p", help: "" },
      TAIL,
      { name: "container", short: "c", value: "C", help: "" },
    ],
  },
  { words: ["image", "list"], flags: [] },
  { words: ["image", "import"], flags: [], operands: "FILE", atLeast: 1, atMost: 1 },
];
const GLOBALS: readonly Flag[] = [
  { name: "socket", value: "PATH", help: "" },
  { name: "help", short: "h", help: "" },
];

const PROGRAM = { name: "program", commands: COMMANDS, globals: GLOBALS };

const parse = (line: string) => parseCommandLine(line === "" ? [] : line.split(" "), PROGRAM);

test("flags stand anywhere, short ones together, values apart or attached", () => {
  for (const line of [
    "logs web -fp --tail 5 -c app",
    "--tail=5 -fp logs -capp web",
    "-f logs web --previous --tail 5 -c=app",
    "logs --tail 5 -fpc app -- web",
    "--follow=true -p --tail 9 --tail 5 logs web --container=app",
  ]) {
    const { command, arguments: input } = parse(line);
    assert.deepEqual(command?.words, ["logs"], line);
    assert.deepEqual(input.positionals, ["web"], line);
    assert.deepEqual(
      [input.flag("follow"), input.flag("previous"), input.value(TAIL), input.text("container"), input.flag("help")],
      [true, true, 5, "app", false],
      line,
    );
  }
  assert.deepEqual(parse("logs -- -f").arguments.positionals, ["-f"]);
  assert.deepEqual(parse("logs -").arguments.positionals, ["-"]);
  assert.equal(parse("logs x --follow=false").arguments.flag("follow"), false);
  assert.equal(parse("-h").command, undefined);
  assert.deepEqual(parse("image import x").command?.words, ["image", "import"]);
});

for (const [line, message] of [
  ["staus", 'unknown command "staus"; did you mean "status"?'],
  ["stat", 'unknown command "stat"; did you mean "status"?'],
  ["xyzzy", 'unknown command "xyzzy"'],
  ["image", "image needs one of: list, import"],
  ["image lits", 'unknown command "image lits"; did you mean "image list"?'],
  ["logs --folow", 'unknown flag --folow; did you mean "--follow"?'],
  ["logs -x", "unknown flag -x"],
  ["logs -fx", "unknown flag -x in -fx"],
  ["logs --tail", "--tail needs a value"],
  ["logs -c", "-c needs a value"],
  ["logs --follow=maybe", "--follow takes no value but true or false"],
  ["status --tail 5", '--tail does not go with "status"'],
  ["--tail 5", "--tail does not go with no command"],
  ["status -o jsno", '--output must be one of json, wide; did you mean "json"?'],
] as const) {
  test(`refused: ${line}`, () => {
    assert.throws(
      () => parse(line),
      (error) => isPicoletError(error) && error.message === message && isUsageError(error),
    );
  });
}

test("a count is a whole number", () => {
  assert.throws(() => parse("logs x --tail 1e3"), /^PicoletError: --tail must be a whole number, not "1e3"/);
});

test("no command line does more than be refused", () => {
  const word = fc.oneof(
    fc.string(),
    fc.constantFrom("logs", "image", "-", "--", "-f", "-c", "--tail", "--tail=", "-h", "--output=json", "__proto__"),
  );
  fc.assert(
    fc.property(fc.array(word), (line) => {
      try {
        parseCommandLine(line, PROGRAM);
      } catch (error) {
        assert.ok(isUsageError(error), String(error));
      }
    }),
  );
});
