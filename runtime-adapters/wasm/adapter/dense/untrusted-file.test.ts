import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { StateFolder } from "../state/state-folder.ts";
import { readUntrusted, readUntrustedFields } from "../state/untrusted-file.ts";
import { ProcessFolder } from "./process-folder.ts";

const GIGABYTES = 3_000_000_000;

/** Objects that a hostile process may put in the place of a file of its own. */
function* inPlaceOf(path: string): Generator<string> {
  execFileSync("mkfifo", [path]);
  yield "a pipe without a writer";
  rmSync(path);
  symlinkSync("/dev/zero", path);
  yield "a link to what never ends";
  rmSync(path);
  mkdirSync(path);
  yield "a folder";
  rmSync(path, { recursive: true });
}

test("an object in the place of a file is not read, and never waited for", () => {
  using folder = new TempFolder();
  const path = folder.at("end");
  assert.equal(readUntrusted(path, 10), undefined);
  for (const what of inPlaceOf(path)) {
    assert.equal(readUntrusted(path, 10), undefined, what);
    assert.deepEqual(readUntrustedFields(path, 10), {}, what);
  }
  writeFileSync(path, "0123456789abc");
  assert.equal(readUntrusted(path, 10), "0123456789");
});

test("a process of several containers that puts something else in the place of its turn holds up no agent", () => {
  using folder = new TempFolder();
  const host = new ProcessFolder(folder.path);
  host.make({ namespace: "n", identity: undefined, network: false, cgroupPath: undefined });
  for (const what of inPlaceOf(folder.at("own/turn"))) assert.equal(host.turn(), "", what);
  writeFileSync(folder.at("own/turn"), "");
  truncateSync(folder.at("own/turn"), GIGABYTES);
  assert.equal(host.turn().length, 64);
});

test("a runner's message about its end is bounded", () => {
  using folder = new TempFolder();
  const state = new StateFolder(folder.path);
  mkdirSync(state.container("u", "c"), { recursive: true });
  const said = (text: string): string | undefined => {
    writeFileSync(state.endPath("u", "c"), text);
    return state.endMessage("u", "c");
  };
  assert.equal(said('{"kind":"trap","message":"wasm trap: unreachable"}'), "wasm trap: unreachable");
  for (const text of ["", "null", "[]", "7", '{"message":{"toString":1}}', '{"message":7}']) {
    assert.equal(said(text), undefined, text);
  }
  assert.equal(said(JSON.stringify({ message: "x".repeat(10_000) }))?.length, 4096);
  for (const path of [state.endPath("u", "c"), state.fatalPath("u", "c")]) {
    writeFileSync(path, "it is");
    truncateSync(path, GIGABYTES);
  }
  assert.equal(state.endMessage("u", "c"), undefined);
  assert.match(state.fatal("u", "c"), /^it is/);
});
