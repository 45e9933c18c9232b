/** Commands in the text of documents, outside of blocks: their scripts, commands and flags exist. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { EDGECTL } from "@picolet/agent/cli/commands.ts";
import { PICOLET } from "@picolet/agent/main/node/agent-program.ts";
import { HUB } from "@picolet/hub/main/program.ts";
import { parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import type { Program } from "@picolet/protocol/command-line/program.ts";
import { blocksOf, stepsOf } from "./documented-steps.ts";
import { documents } from "./documents.ts";

/** Languages of blocks that show no command. */
const DATA_LANGUAGES = ["yaml", "toml", "js", "wit", "text"];
const PROGRAMS: ReadonlyMap<string, Program> = new Map([EDGECTL, PICOLET, HUB].map((each) => [each.name, each]));
const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly scripts: Record<string, string> };

/** Commands in backticks. A line break in the source of a document is a space. */
const inlineCommands = (text: string): readonly string[] =>
  [...text.replaceAll(/^ *```[\s\S]*?^ *```/gm, "").matchAll(/`([^`]+)`/g)]
    .map(([, code = ""]) => code.replaceAll(/\s+/g, " ").replace(/ *(?:[<>|]|&&) .*/, ""))
    .filter((code) => /^(?:npm (?:run|test|start)|node [\w/-]+\.ts|(?:edgectl|picolet|picolet-hub) [a-z-])/.test(code));

/** @returns what is wrong with it; undefined when its words are those of a program */
function faultOf(line: string): string | undefined {
  const [program = "", ...words] = line.split(" ");
  const table = PROGRAMS.get(program);
  if (table !== undefined) return faultOfProgram(words, table);
  const name = program === "node" ? undefined : words[0] === "run" ? words[1] : words[0];
  const source = program === "node" ? words[0] : sourceOf(name ?? "");
  if (source === undefined || (source !== "" && !existsSync(source))) return `there is no script ${name ?? source}`;
  const flags = words.filter((word) => /^--\w/.test(word));
  const text = source === "" ? "" : readFileSync(source, "utf8");
  // A script without a parser of its own compares the flag as text.
  const unknown = flags.filter((flag) => !text.includes(`"${flag.slice(2)}"`) && !text.includes(`"${flag}"`));
  if (unknown.length === 0) return undefined;
  const { stdout, stderr } = spawnSync(process.execPath, [source, "--help"], { encoding: "utf8" });
  return unknown.filter((flag) => !`${stdout}${stderr}`.includes(`${flag} `)).join() || undefined;
}

/** The file that an npm script runs; "" for a program of a package, undefined when there is no such script. */
function sourceOf(name: string): string | undefined {
  const script = scripts[name];
  if (script === undefined) return undefined;
  const [, own] = /sh scripts\/run\.sh ([\w./-]+)/.exec(script) ?? [];
  return own === undefined ? (/node (\S+\.ts)/.exec(script)?.[1] ?? "") : `scripts/${own}.ts`;
}

/** A command without its operands and flags is a name in the text; an alternative such as `bash|zsh` is its first. */
function faultOfProgram(words: readonly string[], table: Program): string | undefined {
  const given = words.filter((word) => word !== "...").map((word) => word.replace(/\|.*/, ""));
  try {
    parseCommandLine(given, table);
    return undefined;
  } catch (error) {
    const isName = table.commands.some(({ words: name }) => given.every((word, index) => name[index] === word));
    return isName ? undefined : String((error as Error).message);
  }
}

for (const document of documents()) {
  const text = readFileSync(document, "utf8");

  test(`${document}: commands in the text exist, with their flags`, () => {
    const faults = inlineCommands(text).flatMap((line) => {
      const fault = faultOf(line);
      return fault === undefined ? [] : [`${line}: ${fault}`];
    });
    assert.deepEqual(faults, []);
  });

  test(`${document}: every block of commands is marked as one, and a mark has its reason`, () => {
    for (const { line, language, mark } of blocksOf(text)) {
      const isShell = language === "sh" || language === "console";
      assert.ok(isShell || DATA_LANGUAGES.includes(language), `${document}:${line}: ${language || "no language"}`);
      const [name, value = ""] = mark ?? [];
      if (name === "not run") assert.ok(isShell && value.length >= 20, `${document}:${line}: a reason is missing`);
      else if (mark !== undefined) assert.ok(!isShell && value !== "", `${document}:${line}: no file is written`);
    }
    assert.equal(
      text.split(/\n *<!-- not run/).length - 1,
      blocksOf(text).filter(({ mark }) => mark?.[0] === "not run").length,
      "a mark stands on the line before a block",
    );
    for (const step of stepsOf(text)) if (step.kind === "command") assert.notEqual(step.text.trim(), "");
  });
}
