/**
 * The provider of keys in a TPM, with Debian's software TPM: what becomes of sealed boxes through starts, changes and
 * losses.
 */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { KEY_FILE } from "@picolet/agent/keys/key-file-name.ts";
import { SoftwareTpm, withoutSwtpm } from "../support/agent/swtpm.ts";
import { Board, keepsItsKey, losesItsKey, opens, waitsForItsKey } from "../support/unit/agent/key-board.ts";

test("tpm2: the TPM seals and unseals; after it was cleared, or on another board, the key is lost", {
  skip: withoutSwtpm,
}, async (t) => {
  await using tpm = await SoftwareTpm.start(join(new Board(t).path, "one"));
  await using other = await SoftwareTpm.start(join(new Board(t).path, "two"));
  const board = new Board(t, { tpmDevice: tpm.device, run: tpm.run });
  const box = await keepsItsKey(board, "tpm2");
  const refusing = async (program: string): Promise<never> => {
    throw new Error(`${program}: TPM_RC_LOCKOUT`);
  };
  board.devices = { ...board.devices, run: refusing };
  await waitsForItsKey(board, box);
  board.devices = { ...board.devices, run: other.run };
  // The disk in another board: that has no way to the key, and goes on with its own.
  const stolen = await board.start("tpm2");
  assert.match(stolen.problem?.reason ?? "", /the TPM was cleared, or is another one/);
  writeFileSync(board.file(KEY_FILE), readFileSync(board.file("store-keys.lost.json")));
  board.devices = { ...board.devices, run: tpm.run };
  assert.ok(opens(await board.start(), box), "back in its own board");
  tpm.clear();
  await losesItsKey(board, box, /the TPM was cleared, or is another one/);
});
