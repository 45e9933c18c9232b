/** Man pages as the tools of a board's system read them. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { EDGECTL } from "@picolet/agent/cli/commands.ts";
import { PICOLET } from "@picolet/agent/main/node/agent-program.ts";
import { HUB } from "@picolet/hub/main/program.ts";
import type { Program } from "@picolet/protocol/command-line/program.ts";
import { manPage } from "@picolet/scripts/docs/man-page.ts";

const PROGRAMS: readonly Program[] = [EDGECTL, PICOLET, HUB];

const pageOf = (program: Program): string =>
  manPage(program, { version: "1.2.3", others: PROGRAMS.filter((each) => each !== program) });

const missing = (path: string): string | false => (existsSync(path) ? false : `${path} is not installed`);

for (const program of PROGRAMS) {
  const input = pageOf(program);
  const name = `${program.name}(${program.section})`;

  test(`groff formats ${name} without a warning, with every command and flag in it`, {
    skip: missing("/usr/bin/groff"),
  }, () => {
    const { stdout, stderr } = spawnSync("groff", ["-man", "-ww", "-Tascii", "-P-bcou"], { input, encoding: "utf8" });
    assert.equal(stderr, "");
    // Without overstriking; lines are filled.
    const text = stdout.replaceAll(/\s+/g, " ");
    for (const { words, flags } of program.commands) {
      assert.ok(text.includes([program.name, ...words].join(" ")), words.join(" "));
      for (const flag of flags) assert.ok(text.includes(`--${flag.name}`), flag.name);
    }
    for (const [code] of program.exitCodes) assert.match(text, new RegExp(` ${code} `));
  });

  test(`mandoc finds nothing to warn of in ${name}`, { skip: missing("/usr/bin/mandoc") }, () => {
    const { stdout } = spawnSync("mandoc", ["-Tlint", "-Wwarning"], { input, encoding: "utf8" });
    // A date would make each build another one.
    assert.deepEqual(
      stdout.split("\n").filter((line) => line !== "" && !line.includes("missing date")),
      [],
    );
  });
}
