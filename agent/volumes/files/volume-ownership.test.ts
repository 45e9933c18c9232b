/** On a real file system, as root: owners are changed. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, lstatSync, mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { changeOwnership } from "./volume-ownership.ts";

const NEVER = new AbortController().signal;
const skip = process.geteuid?.() === 0 ? false : "needs root";
const READ_WRITE = { fsGroup: 2000, readOnly: false, onlyOnRootMismatch: false };

const rights = (path: string): readonly number[] => {
  const { gid, mode } = lstatSync(path);
  return [gid, mode & 0o7777];
};

test("the group gets what a file's owner may not keep from it, folders pass it on, what is more stays", {
  skip,
}, async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("v/deep"), { recursive: true });
  writeFileSync(folder.at("v/deep/program"), "");
  chmodSync(folder.at("v/deep/program"), 0o4755);
  writeFileSync(folder.at("v/secret"), "", { mode: 0o400 });
  chmodSync(folder.at("v/deep"), 0o700);
  await changeOwnership(folder.at("v"), READ_WRITE, NEVER);
  assert.deepEqual(rights(folder.at("v/deep")), [2000, 0o2770]);
  assert.deepEqual(rights(folder.at("v/deep/program")), [2000, 0o4775]);
  assert.deepEqual(rights(folder.at("v/secret")), [2000, 0o660]);
  const before = lstatSync(folder.at("v/secret"), { bigint: true }).ctimeNs;
  await changeOwnership(folder.at("v"), READ_WRITE, NEVER);
  assert.equal(lstatSync(folder.at("v/secret"), { bigint: true }).ctimeNs, before, "nothing to do, nothing written");

  await changeOwnership(folder.at("v"), { ...READ_WRITE, fsGroup: 3000, readOnly: true }, NEVER);
  assert.deepEqual(rights(folder.at("v/secret")), [3000, 0o660]);
});

test("a read-only volume may be read by its group", { skip }, async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("v"), { mode: 0o700 });
  writeFileSync(folder.at("v/file"), "", { mode: 0o400 });
  await changeOwnership(folder.at("v"), { ...READ_WRITE, readOnly: true }, NEVER);
  assert.deepEqual(rights(folder.at("v")), [2000, 0o2750]);
  assert.deepEqual(rights(folder.at("v/file")), [2000, 0o440]);
});

test("with OnRootMismatch the root tells that all is done, and is changed last", { skip }, async () => {
  using folder = new TempFolder();
  const policy = { ...READ_WRITE, onlyOnRootMismatch: true };
  mkdirSync(folder.at("v"));
  for (let index = 0; index < 600; index += 1) writeFileSync(folder.at(`v/${index}`), "");
  const stop = new AbortController();
  const progress = (): void => stop.abort();
  await assert.rejects(changeOwnership(folder.at("v"), { ...policy, progress }, stop.signal), isCancelled);
  assert.equal(statSync(folder.at("v")).gid, 0, "it was cut off");
  await changeOwnership(folder.at("v"), policy, NEVER);
  for (let index = 0; index < 600; index += 1) assert.equal(statSync(folder.at(`v/${index}`)).gid, 2000);
  chownSync(folder.at("v/1"), 0, 0);
  await changeOwnership(folder.at("v"), policy, NEVER);
  assert.equal(statSync(folder.at("v/1")).gid, 0);
  chmodSync(folder.at("v"), 0o2700);
  await changeOwnership(folder.at("v"), policy, NEVER);
  assert.equal(statSync(folder.at("v/1")).gid, 2000);
});

test("names that are no text, links that lead nowhere and FIFOs hold nothing up", { skip }, async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("v"));
  writeFileSync(Buffer.concat([Buffer.from(folder.at("v/")), Buffer.from([0xff, 0xfe])]), "");
  symlinkSync("/nowhere", folder.at("v/link"));
  const made = spawn("mkfifo", [folder.at("v/fifo")]);
  await once(made, "exit");
  await changeOwnership(folder.at("v"), READ_WRITE, NEVER);
  assert.equal(lstatSync(folder.at("v/link")).gid, 2000);
  assert.deepEqual(rights(folder.at("v/fifo"))[0], 2000);
});

test("however fast somebody exchanges files for links, nothing outside gets another owner or other rights", {
  skip,
}, async () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("v/sub"), { recursive: true });
  mkdirSync(folder.at("outside"));
  writeFileSync(folder.at("outside/file"), "", { mode: 0o600 });
  chmodSync(folder.at("outside"), 0o700);
  const attack = `cd ${folder.at("v")}; echo ready
    while :; do
      rm -rf x d; ln -s ${folder.at("outside/file")} x; ln -s ${folder.at("outside")} d
      rm -f x d; : >x; mkdir d; : >d/file
    done`;
  const attacker = spawn("sh", ["-c", attack], { stdio: ["ignore", "pipe", "ignore"] });
  const exit = once(attacker, "exit");
  try {
    await once(attacker.stdout, "data");
    for (let round = 0; round < 1500; round += 1) {
      // A file that it removes while the tree is read makes that call fail; the pod's next preparation tries again.
      await changeOwnership(folder.at("v"), READ_WRITE, NEVER).catch(() => undefined);
    }
  } finally {
    attacker.kill("SIGKILL");
    await exit;
  }
  assert.deepEqual(rights(folder.at("outside")), [0, 0o700]);
  assert.deepEqual(rights(folder.at("outside/file")), [0, 0o600]);
});
