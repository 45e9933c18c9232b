/** Tokens of service accounts on the disk: sealed, bound to their pod, sealed again with newer keys. */
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { filesWith } from "@picolet/test/support/unit/machine/raw-bytes.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type SealerInit, sealerOf } from "@picolet/test/support/unit/store/sealers.ts";
import type { Sealer } from "../../core/store/sealer.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { sealPlainTokens } from "./plain-tokens.ts";
import { ServiceAccountTokens } from "./service-account-tokens.ts";

const NEVER = new AbortController().signal;
const SOURCE = { expirationSeconds: 3600 };
const pod = (uid: string): DesiredPod => desired(podOf({ serviceAccountName: "runner" }, { uid }), uid);

class Board implements Disposable {
  readonly folder = new TempFolder();
  readonly clock = new VirtualClock();
  readonly objects = new TestClusterObjects(this.clock);
  readonly paths = new PodPaths({ rootDir: this.folder.path, podLogsDir: this.folder.at("logs") });

  sealer(init: SealerInit = {}): ReturnType<typeof sealerOf> {
    return sealerOf({ clock: this.clock, ...init });
  }

  async token(uid: string, sealer: Sealer | undefined): Promise<string> {
    const { objects, clock, paths } = this;
    return (await new ServiceAccountTokens({ objects, clock, paths, sealer }).get(pod(uid), "v", 0, SOURCE, NEVER))
      .token;
  }

  file(uid: string): string {
    return `${this.paths.pod(uid)}/tokens/v-0.json`;
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("a kept token is not in plain on the disk, and is there again without a hub", async () => {
  using board = new Board();
  assert.equal(await board.token("a", board.sealer()), "token-1");
  assert.deepEqual(filesWith(board.folder.path, "token-1"), []);
  board.objects.goOffline();
  assert.equal(await board.token("a", board.sealer()), "token-1");
});

test("a token file of another pod, one that is damaged, and one of a lost key are no tokens", async () => {
  using board = new Board();
  await board.token("a", board.sealer());
  mkdirSync(dirname(board.file("b")), { recursive: true });
  copyFileSync(board.file("a"), board.file("b"));
  assert.equal(await board.token("b", board.sealer()), "token-2", "another pod's is not taken");
  assert.equal(await board.token("a", board.sealer({ seed: 99 })), "token-3", "nor that of a lost key");
  for (const text of [
    "",
    "null",
    "[]",
    '{"sealed":7}',
    '{"sealed":"AAAA"}',
    readFileSync(board.file("a"), "utf8").slice(0, -9),
  ]) {
    writeFileSync(board.file("a"), text);
    assert.match(await board.token("a", board.sealer()), /^token-\d$/, text);
  }
});

test("a token of an older key is sealed again as soon as it is read", async () => {
  using board = new Board();
  const sealer = board.sealer();
  await board.token("a", sealer);
  board.objects.goOffline();
  await board.clock.advance(millis(60_000));
  sealer.rotate();
  sealer.rotate();
  assert.equal(await board.token("a", sealer), "token-1");
  sealer.settle(new Set([3]));
  assert.equal(await board.token("a", sealer), "token-1", "though the first key is gone");
});

test("plain tokens of an older picolet are sealed at the start, and what they were in is overwritten", async () => {
  using board = new Board();
  for (const uid of ["a", "b"]) await board.token(uid, undefined);
  writeFileSync(`${board.file("b")}.new`, '{"token":"token-2');
  assert.notDeepEqual(filesWith(board.folder.path, "token-1"), []);
  const sealer = board.sealer();
  const log = new RecordedLog();
  for (let start = 0; start < 2; start += 1) sealPlainTokens({ rootDir: board.folder.path, sealer, log });
  for (const token of ["token-1", "token-2"]) assert.deepEqual(filesWith(board.folder.path, token), []);
  assert.deepEqual(readdirSync(dirname(board.file("b"))), ["v-0.json"]);
  board.objects.goOffline();
  assert.equal(await board.token("a", sealer), "token-1");
  assert.equal(await board.token("b", sealer), "token-2");
});
