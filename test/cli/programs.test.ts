/** The tables of all programs: what makes help, man pages and references of them holds for each. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EDGECTL } from "@picolet/agent/cli/commands.ts";
import { PICOLET } from "@picolet/agent/main/node/agent-program.ts";
import { HUB } from "@picolet/hub/main/program.ts";
import { parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import { helpText } from "@picolet/protocol/command-line/help-text.ts";
import type { Program } from "@picolet/protocol/command-line/program.ts";

const PROGRAMS: readonly Program[] = [EDGECTL, PICOLET, HUB];

for (const program of PROGRAMS) {
  const helps = [[], ...program.commands.map(({ words }) => words)].map((words) => helpText(words, program));

  test(`every help of ${program.name} fits a terminal of 80 columns and ends with one line end`, () => {
    for (const help of helps) {
      for (const line of help.split("\n")) assert.match(line, /^[\x20-\x7e]{0,80}$/);
      assert.match(help, /[^\n]\n$/);
    }
  });

  test(`${program.name} names each flag, short flag and command once`, () => {
    const names = program.commands.map(({ words }) => words.join(" "));
    assert.equal(new Set(names).size, names.length);
    for (const { flags } of program.commands) {
      const own = [...program.globals, ...flags];
      const labels = own.flatMap(({ name, short }) => [`--${name}`, ...(short === undefined ? [] : [`-${short}`])]);
      assert.deepEqual(
        labels.filter((label, index) => labels.indexOf(label) !== index),
        [],
      );
    }
  });

  test(`every default of ${program.name} is a value that its flag takes`, () => {
    for (const { words, flags } of program.commands) {
      for (const { name, value, choices, parse, default: byDefault } of [...program.globals, ...flags]) {
        if (byDefault === undefined) continue;
        assert.ok(value !== undefined && choices?.includes(byDefault) !== false, `${words} --${name}`);
        parse?.(byDefault);
      }
    }
  });

  test(`every example of ${program.name} is a command line that it takes`, () => {
    for (const { examples } of program.commands) {
      for (const [line] of examples) {
        const [name = "", ...words] = (line.match(new RegExp(`${program.name}(?: [^&|<>()]+)?`))?.[0] ?? "")
          .trim()
          .split(/\s+/);
        assert.equal(name, program.name, line);
        parseCommandLine(words, program);
      }
    }
  });
}
