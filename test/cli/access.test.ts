/** The access of a restricted login to each command of the table. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { COMMANDS, EDGECTL } from "@picolet/agent/cli/commands.ts";
import { ACCESS_LEVELS, checkAccess } from "@picolet/agent/cli/context/access.ts";
import { parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import fc from "fast-check";
import { EdgectlBench } from "../support/unit/agent/edgectl-bench.ts";

/** Reviewed by hand: a new command is refused to a login that only looks, until it is in this list. */
const LOOKING = [
  ...["completion", "config", "describe", "devices", "doctor", "events", "explain", "get", "help", "image list"],
  "images",
  ...["keyvalue list", "logs", "status", "top", "update status", "version", "wasm check", "why"],
];

function isAllowed(line: string, restriction?: string): boolean {
  const { command, arguments: input } = parseCommandLine(line.split(" "), EDGECTL);
  assert.ok(command);
  try {
    checkAccess(command, input, { PICOLET_ACCESS: restriction });
    return true;
  } catch {
    return false;
  }
}

const lineOf = ({ words, atLeast = 0 }: (typeof COMMANDS)[number]): string =>
  [...words, ...Array.from({ length: atLeast }, () => "x")].join(" ");

test("a login without a grant runs the commands that only look", () => {
  const allowed = COMMANDS.filter((each) => isAllowed(lineOf(each), "view:ssh")).map(({ words }) => words.join(" "));
  assert.deepEqual(allowed.sort(), LOOKING);
});

test("nothing restricts root's edgectl, nor the level admin; each level includes the one before", () => {
  for (const each of COMMANDS) {
    const line = lineOf(each);
    assert.ok(isAllowed(line));
    assert.ok(isAllowed(line, "admin:console"));
    const allowed = ACCESS_LEVELS.map((level) => isAllowed(line, `${level}:ssh`));
    assert.deepEqual(allowed, [...allowed].sort(), line);
  }
});

test("a privileged pod on the node needs the access of root", () => {
  assert.equal(isAllowed("debug node --image busybox", "operate:ssh"), false);
  assert.ok(isAllowed("debug node --image busybox", "admin:ssh"));
});

test("the flags of a command count", () => {
  assert.equal(isAllowed("doctor --fix", "operate:ssh"), false);
  assert.ok(isAllowed("support-bundle -", "view:ssh"));
  assert.equal(isAllowed("support-bundle x.tar.gz", "view:ssh"), false);
});

test("any other level only looks", () => {
  fc.assert(
    fc.property(
      fc.string().filter((text) => !/^(operate|admin)(:|$)/.test(text)),
      (text) => !isAllowed("restart web", text),
    ),
  );
});

test("a login that has edgectl alone is not sent to other programs", async (t) => {
  const bench = await EdgectlBench.start(t);
  await bench.stopAgent();
  assert.match((await bench.run(["status"])).error, /systemctl start picolet/);
  bench.environment.PICOLET_ACCESS = "view:console";
  const { code, error } = await bench.run(["status"]);
  assert.equal(code, 2);
  assert.doesNotMatch(error, /systemctl|--socket|sudo/);
  assert.match(error, /try again in a minute/);
});

test("a refusal reaches no agent, and says how to allow it", async (t) => {
  const bench = await EdgectlBench.start(t);
  bench.environment.PICOLET_ACCESS = "view:console";
  const { code, error } = await bench.run(["restart", "web"]);
  assert.equal(code, 1);
  assert.equal(
    error,
    `edgectl: this login may only read, and "edgectl restart" needs the access "operate".
To allow it, write console: {access: operate} into picolet.yaml and restart the board.
`,
  );
  assert.deepEqual(bench.asked, []);
});
