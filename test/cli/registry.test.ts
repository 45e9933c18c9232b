/** A command is one row: what a row says is in help, completion, reference and man page, and its `run` runs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EDGECTL } from "@picolet/agent/cli/commands.ts";
import type { Command } from "@picolet/agent/cli/context/command.ts";
import { runEdgectl } from "@picolet/agent/cli/run-edgectl.ts";
import { countFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { commandReference } from "@picolet/scripts/docs/command-reference.ts";
import { manPage } from "@picolet/scripts/docs/man-page.ts";
import { CapturedTerminal, NO_KEYBOARD, type Outcome } from "../support/unit/agent/edgectl-bench.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";

const BLINKS = countFlag({ name: "times", help: "how many times", default: "3", least: 1 });

const blink: Command = {
  words: ["led", "blink"],
  access: "operate",
  operands: "COLOUR",
  atLeast: 1,
  atMost: 1,
  summary: "blink the board's light",
  details: "Finds the board in a rack.",
  flags: [BLINKS, { name: "pace", value: "PACE", help: "how fast", choices: ["slow", "fast"] }],
  exitCodes: [[3, "there is no light"]],
  examples: [["edgectl led blink green", "green, three times"]],
  completes: ["files"],
  run: async ({ terminal }, input) => {
    await terminal.write(`${input.positionals[0]} ${input.value(BLINKS)}\n`);
    return 3;
  },
};

const PROGRAM = { ...EDGECTL, commands: [...EDGECTL.commands, blink] };

async function run(...words: readonly string[]): Promise<Outcome> {
  const terminal = new CapturedTerminal();
  const around = {
    ...{ terminal, clock: new VirtualClock(0), environment: {}, workingDirectory: "/" },
    readBeside: () => "[]",
    input: async function* () {},
    keyboard: NO_KEYBOARD,
  };
  const code = await runEdgectl(words, around, PROGRAM);
  return { code, out: terminal.out, error: terminal.error };
}

const TEXTS = ["blink the board's light", "--times N", "how many times (default 3)", "edgectl led blink green"];

test("it runs, with its flags parsed and its own exit code", async () => {
  assert.deepEqual(await run("led", "blink", "green", "--times", "5"), { code: 3, out: "green 5\n", error: "" });
  assert.deepEqual(await run("led", "blink", "red"), { code: 3, out: "red 3\n", error: "" });
  const { code, error } = await run("led", "blink", "red", "--times", "0");
  assert.deepEqual(
    [code, error.split("\n")[0]],
    [64, 'edgectl: --times must be a whole number of at least 1, not "0"'],
  );
});

test("it is in the help", async () => {
  assert.match((await run("help")).out, /^ {2}led blink {6}blink the board's light$/m);
  const { out } = await run("led", "blink", "--help");
  for (const text of [...TEXTS, "edgectl led blink COLOUR [flags]", "Finds the board", "3 there is no light"])
    assert.ok(out.includes(text), text);
  assert.equal((await run("help", "led")).out, out);
});

test("it is completed", async () => {
  assert.equal((await run("__complete", "le")).out, "led\n");
  assert.equal((await run("__complete-described", "led", "")).out, "blink\tblink the board's light\n");
  assert.equal((await run("__complete", "led", "blink", "gr")).out, ":files\n");
  assert.equal((await run("__complete", "led", "blink", "--pa")).out, "--pace\n");
  assert.equal((await run("__complete", "led", "blink", "--pace", "")).out, "slow\nfast\n");
  assert.equal((await run("__complete", "led", "blink", "--pace=f")).out, "--pace=fast\n");
});

test("it is in the reference and in the man page", () => {
  const reference = commandReference(PROGRAM);
  for (const text of [...TEXTS, "## edgectl led blink", "[`led blink`](#edgectl-led-blink)", "3 there is no light"])
    assert.ok(reference.includes(text), text);
  const page = manPage(PROGRAM, { version: "1", others: [] });
  for (const text of [...TEXTS, '.SS "edgectl led blink COLOUR"', "there is no light"])
    assert.ok(
      page
        .replaceAll(/\\f[BIR]|\\(?=-)/g, "")
        .toLowerCase()
        .includes(text.toLowerCase()),
      text,
    );
});
