/** The components of `examples/`, as their READMEs say: built by the build, run as their pods. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { before, test } from "node:test";
import { buildExamples } from "@picolet/scripts/build/build-examples.ts";
import { untilPrinted } from "../../support/hub/test-fleet.ts";
import { runningProcesses } from "../../support/unit/machine/processes.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

const NAMES = ["hello", "beat", "starts"];

before(async () => {
  assert.deepEqual(await buildExamples(), NAMES, "all three languages are at hand");
});

/** Runs it until it has printed what is expected, and then with Ctrl-C, which leaves no process behind. */
async function printed(name: string, expected: RegExp, ...more: readonly string[]): Promise<void> {
  using folder = new TempFolder();
  const words = ["wasm", "run", `dist/examples/${name}.wasm`, "--pod", `examples/${name}/pod.yaml`, ...more];
  const env = { ...process.env, TMPDIR: folder.path };
  const child = spawn("dist/board/bin/edgectl", words, { stdio: ["ignore", "pipe", "pipe"], env });
  const closed = new Promise<number | null>((resolve) => child.once("close", resolve));
  await untilPrinted(child, (text) => expected.test(text));
  assert.notDeepEqual(processesOf(folder), []);
  child.kill("SIGINT");
  assert.equal(await closed, 130);
  assert.deepEqual(processesOf(folder), []);
}

/** The processes with the folder in their arguments. */
const processesOf = ({ path }: TempFolder) =>
  runningProcesses().filter(({ words }) => words.some((word) => word.startsWith(path)));

test("the one of text greets", async () => printed("hello", /hello/i));

test("the one of JavaScript beats, with what its pod and its user say", async () =>
  printed("beat", /beat 1 of here\nbeat 2 of here\n/, "-e", "NODE_NAME=here", "-e", "SECONDS=1"));

test("the one of JavaScript beats beside others too, where its stack is set aside", async () => {
  const more = ["-e", "NODE_NAME=here", "-e", "SECONDS=1", "-a", "mode=dense"];
  await printed("beat", /beat 1 of here\nbeat 2 of here\n/, ...more);
});

test("the one of C counts its starts on its volume", async () => {
  using folder = new TempFolder();
  await printed("starts", /start 1\n/, "--dir", `${folder.path}:/kept`, "-e", "FOLDER=/kept");
  await printed("starts", /start 2\n/, "--dir", `${folder.path}:/kept`, "-e", "FOLDER=/kept");
  assert.equal(readFileSync(folder.at("starts"), "utf8"), "2\n");
});
