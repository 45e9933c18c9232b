/** The agent as it is built: what it does not need lies in files that are not loaded, and all of them are there. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";
import { SCRIPT_NAMES, SHELLS } from "@picolet/agent/cli/context/completion-scripts.ts";
import { FIELD_DOCUMENTATION } from "@picolet/agent/config/field-documentation.ts";

const PROGRAM = resolve("dist/board/lib/picolet.cjs");
const PARTS = resolve("dist/board/lib/picolet");

/** The modules that only some agents load, or only now and then. */
const ON_DEMAND = [
  "hub-link",
  "http-source",
  "logind",
  "credential-plugins",
  "image-archive",
  "compress-log",
  "unlock",
];

/** The files of ours that an agent has loaded when it reads its command line. */
function loadedAtStart(): readonly string[] {
  const script = `
    process.on("exit", () => process.stderr.write(JSON.stringify(Object.keys(require.cache))));
    require(process.argv[1]);`;
  const { stderr } = spawnSync(process.execPath, ["-e", script, PROGRAM, "--version"], { encoding: "utf8" });
  return JSON.parse(stderr) as string[];
}

test("all parts that the agent may load are there, and no others", () => {
  const parts = readdirSync(PARTS).map((name) => join(PARTS, name));
  const required = [PROGRAM, ...parts].flatMap((file) =>
    [...readFileSync(file, "utf8").matchAll(/require\("(\.[^"]+)"\)/g)].map(([, path = ""]) =>
      join(dirname(file), path),
    ),
  );
  assert.deepEqual(
    required.filter((file) => !existsSync(file)),
    [],
  );
  assert.deepEqual(new Set(required), new Set(parts));
});

test("what people read of the configuration's fields is in no file of the agent", () => {
  const text = JSON.stringify(FIELD_DOCUMENTATION["wasm.maxComponentSize"]).slice(1, -1);
  for (const file of [PROGRAM, ...readdirSync(PARTS).map((name) => join(PARTS, name))])
    assert.ok(!readFileSync(file, "utf8").includes(text), file);
  assert.ok(readFileSync(resolve("dist/board/lib/configuration-fields.json"), "utf8").includes(text));
});

test("the build has man pages of all programs, and completions for each shell", () => {
  const pages = [
    "board/share/man/man1/edgectl.1",
    "board/share/man/man8/picolet.8",
    "hub/share/man/man8/picolet-hub.8",
  ];
  for (const page of pages) assert.match(readFileSync(join("dist", page), "utf8"), /^\.TH /);
  for (const [shell, name] of Object.entries(SCRIPT_NAMES))
    assert.equal(readFileSync(join("dist/board/share/completions", shell, name), "utf8"), SHELLS.get(shell));
});

test("an agent loads what it may do without only when it is needed", () => {
  const loaded = loadedAtStart();
  assert.ok(loaded.includes(PROGRAM), "the program itself");
  for (const module of ON_DEMAND) {
    const isPart = (file: string): boolean => file.startsWith(join(PARTS, `${module}-`));
    assert.ok(
      readdirSync(PARTS).some((name) => isPart(join(PARTS, name))),
      `${module} is no part of its own`,
    );
    assert.equal(loaded.find(isPart), undefined);
  }
});
