import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { compressLog } from "./compress-log.ts";

const NEVER = new AbortController().signal;

test("a log becomes its gzip, with its times and its mode", async () => {
  using folder = new TempFolder();
  const content = randomBytes(200_000);
  writeFileSync(folder.at("0.log.x"), content);
  chmodSync(folder.at("0.log.x"), 0o640);
  utimesSync(folder.at("0.log.x"), 1_700_000_000, 1_700_000_001);
  await compressLog(folder.at("0.log.x"), NEVER);
  assert.deepEqual(readdirSync(folder.path), ["0.log.x.gz"]);
  assert.deepEqual(gunzipSync(readFileSync(folder.at("0.log.x.gz"))), content);
  const stats = statSync(folder.at("0.log.x.gz"));
  assert.deepEqual([stats.mtimeMs, stats.mode & 0o777], [1_700_000_001_000, 0o640]);
});

test("a log that is deleted while it is compressed does not come back", async () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("0.log.x"), randomBytes(8_000_000));
  const done = compressLog(folder.at("0.log.x"), NEVER);
  const temporary = folder.at("0.log.x.gz.tmp");
  while (!existsSync(temporary) || statSync(temporary).size === 0) await nextTurn();
  unlinkSync(folder.at("0.log.x"));
  await done;
  assert.deepEqual(readdirSync(folder.path), []);
});

test("one that is stopped in the middle leaves the log alone", async () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("0.log.x"), randomBytes(8_000_000));
  const stop = new AbortController();
  const done = compressLog(folder.at("0.log.x"), stop.signal);
  const temporary = folder.at("0.log.x.gz.tmp");
  while (!existsSync(temporary) || statSync(temporary).size === 0) await nextTurn();
  stop.abort();
  await assert.rejects(done);
  assert.deepEqual(readdirSync(folder.path), ["0.log.x"]);
});

test("what is not there cannot be compressed, and nothing is made", async () => {
  using folder = new TempFolder();
  await assert.rejects(compressLog(folder.at("none"), NEVER));
  assert.deepEqual(readdirSync(folder.path), []);
});

test("links and pipes that a runner has put into its folder lead nowhere", async () => {
  using folder = new TempFolder();
  const [secret, log] = [folder.at("secret"), folder.at("0.log.x")];
  writeFileSync(secret, "of the node");
  symlinkSync(secret, log);
  await assert.rejects(compressLog(log, NEVER), { code: "ELOOP" });
  unlinkSync(log);
  execFileSync("mkfifo", [log]);
  await assert.rejects(compressLog(log, NEVER), /no regular file/);
  unlinkSync(log);
  assert.deepEqual(readdirSync(folder.path), ["secret"]);
  // In the place of what is made.
  writeFileSync(log, "a line\n");
  symlinkSync(secret, `${log}.gz.tmp`);
  symlinkSync(secret, `${log}.gz`);
  await compressLog(log, NEVER);
  assert.equal(readFileSync(secret, "utf8"), "of the node");
  assert.ok(lstatSync(`${log}.gz`).isFile());
  assert.equal(gunzipSync(readFileSync(`${log}.gz`)).toString(), "a line\n");
});
