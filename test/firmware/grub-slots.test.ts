/**
 * Updates of a board with GRUB: its commands, the boot check and RAUC's backend, on a board of files. The power is lost
 * after every write of an update, also after those of GRUB itself.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { grubAsShell, STATE_SECTORS } from "../support/firmware/grub-shell.ts";
import { BoardOfFiles, type FileFirmware, type Slot, updateOf } from "../support/unit/firmware/board-of-files.ts";

const GRUB_EDITENV = "/usr/bin/grub-editenv";
const SECTOR = 512;
const skip = existsSync(GRUB_EDITENV) ? false : `not installed: ${GRUB_EDITENV}`;

const stateOf = (board: BoardOfFiles): Buffer => readFileSync(join(board.path, "boot-state"));

const FIRMWARE: FileFirmware = {
  writers: { [GRUB_EDITENV]: "*' set '*" },
  files: { "grub.sh": grubAsShell() },
  start: (board) => {
    const state = stateOf(board);
    for (const [name, sector] of Object.entries(STATE_SECTORS))
      board.write(name, state.subarray(sector * SECTOR, (sector + 1) * SECTOR));
    const { isCut, stdout } = board.sh("grub.sh");
    for (const [name, sector] of Object.entries(STATE_SECTORS))
      readFileSync(join(board.path, name)).copy(state, sector * SECTOR);
    board.write("boot-state", state);
    const slot = stdout.trim();
    if (isCut || board.has(`broken-${slot}`)) return false;
    assert.match(slot, /^[AB]$/);
    board.runs(slot as Slot);
    return true;
  },
};

const update = (prepare: (board: BoardOfFiles) => void, cutAfter?: number): BoardOfFiles =>
  updateOf(new BoardOfFiles(FIRMWARE), prepare, cutAfter);

const isHealthy = (board: BoardOfFiles): void => board.isHealthy();
const isSick = (board: BoardOfFiles): void => board.write("healthy-A", "");
const isBroken = (board: BoardOfFiles): void => board.write("broken-B", "");

// The state of the slots is written twice: of a way back, every other write is enough.
for (const [what, prepare, outcome, slot, step] of [
  ["a good system stays", isHealthy, "good", "B", 1],
  ["a system that never becomes healthy is left", isSick, "rolledBack", "A", 2],
  ["a system whose kernel does not start is left", isBroken, "rolledBack", "A", 2],
] as const)
  test(`${what}, wherever the power is lost`, { skip }, () => {
    using whole = update(prepare);
    assert.equal(whole.outcome, outcome);
    const writes = Number(whole.read("writes"));
    for (let cut = 1; cut <= writes; cut += step) {
      using board = update(prepare, cut);
      assert.equal(board.has("cut"), false, `the update has no write ${cut}`);
      assert.deepEqual([board.outcome, board.read("booted")], [outcome, slot], `after write ${cut} of ${writes}`);
      assert.equal(board.slots("get-state", slot), "good");
      const { starts } = board;
      board.runToTheEnd();
      assert.deepEqual([board.starts - starts, board.read("booted")], [1, slot], "the next start is a single one");
    }
  });

test("a copy of the slots' state that is damaged is replaced by the other one", { skip }, () => {
  for (const sector of Object.values(STATE_SECTORS)) {
    using board = update(isHealthy);
    const state = stateOf(board);
    state.fill(0xa5, sector * SECTOR, (sector + 1) * SECTOR);
    board.write("boot-state", state);
    board.runToTheEnd();
    assert.equal(board.read("booted"), "B", `without the sector ${sector}`);
  }
});
