/**
 * Updates of a Raspberry Pi: the boot check, the RAM disk's choice and RAUC's backend, all in sh(1), on a board of
 * files whose firmware follows the rules of autoboot.txt and of the tryboot flag.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  BoardOfFiles,
  type FileFirmware,
  type Slot,
  updateOf,
} from "@picolet/test/support/unit/firmware/board-of-files.ts";
import { bootedPartition } from "@picolet/test/support/unit/firmware/raspberry-pi-rom.ts";

const own = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const COMMIT_SLOT = own("raspberrypi/usr/lib/picolet-image/commit-slot");
const CHOOSE_SLOT = own("initrd/choose-slot");
/** The first boot partitions of the disk. */
const SLOT_OF: Readonly<Record<number, Slot>> = { 2: "A", 3: "B" };
const NUMBERS = "1 picolet\n2 boot-a\n3 boot-b\n5 boot-state\n6 root-a\n7 root-b\n8 data\n";

const autobootOf = (board: BoardOfFiles): string => readFileSync(join(board.path, "fat/autoboot.txt"), "latin1");

const FIRMWARE: FileFirmware = {
  files: { partitions: NUMBERS, "fat/autoboot.txt": "" },
  prepare: (board) => void board.take("picolet-default-slot"),
  environment: ({ path }) => ({ PICOLET_COMMIT_SLOT: COMMIT_SLOT, PICOLET_BOOT_PARTITION: join(path, "fat") }),
  start: (board) => {
    // The flag holds for one start.
    const isRequested = board.take("flag") && !board.has("ignores-tryboot");
    const slot = SLOT_OF[bootedPartition(autobootOf(board), isRequested)] ?? "A";
    if (board.has(`broken-${slot}`)) return false;
    board.runs(slot);
    return !board.sh(CHOOSE_SLOT, slot).isCut;
  },
};

class Pi extends BoardOfFiles {
  constructor() {
    super(FIRMWARE);
  }

  get autoboot(): string {
    return autobootOf(this);
  }
  /** The slot that the firmware starts by itself. */
  get defaultSlot(): string {
    return SLOT_OF[bootedPartition(this.autoboot, false)] ?? "none";
  }
}

const update = (prepare: (pi: Pi) => void, cutAfter?: number): Pi => updateOf(new Pi(), prepare, cutAfter);

const isHealthy = (pi: Pi): void => pi.isHealthy();

function assertRuns(pi: Pi, slot: "A" | "B"): void {
  assert.equal(pi.read("booted"), slot);
  assert.equal(pi.slots("get-state", slot), "good");
  assert.equal(pi.defaultSlot, slot, "also without the flag");
  assert.equal(pi.autoboot.length, 512);
  const { starts } = pi;
  pi.runToTheEnd();
  assert.equal(pi.starts, starts + 1, "the next start is a single one");
  assert.equal(pi.read("booted"), slot);
}

test("a new system is tried on request, and is the firmware's own choice when it is good", () => {
  using pi = update(isHealthy);
  assert.equal(pi.outcome, "good");
  assertRuns(pi, "B");
  assert.match(pi.autoboot, /^\[all\]\ntryboot_a_b=1\nboot_partition=3\n\[tryboot\]\nboot_partition=2\n#+\n$/);
});

test("a system whose kernel does not start is left after three tries", () => {
  using pi = update((each) => each.write("broken-B", ""));
  assert.equal(pi.outcome, "rolledBack");
  // The start with the update, three tries with the way back each.
  assert.equal(pi.starts, 8);
  assertRuns(pi, "A");
});

test("a system that never becomes healthy is left", () => {
  using pi = update((each) => each.write("healthy-A", ""));
  assert.equal(pi.outcome, "rolledBack");
  assertRuns(pi, "A");
});

test("a firmware that ignores the request, or does not take it, keeps the system that runs", () => {
  for (const fault of ["ignores-tryboot", "no-firmware"]) {
    using pi = update((each) => {
      isHealthy(each);
      each.write(fault, "");
    });
    assert.equal(pi.outcome, "rolledBack", fault);
    assertRuns(pi, "A");
  }
});

test("a system that has become corrupt is left for the other one", () => {
  using pi = update(isHealthy);
  pi.write("corrupt-B", "");
  pi.starts = 0;
  pi.slots("set-state", "A", "good");
  pi.runToTheEnd();
  assert.equal(pi.read("booted"), "A");
});

/** Writes of an update until its system is judged, which do not depend on how it is judged. */
const WRITES_OF_TRIAL = 8;

test("power that is lost after any write of an update leaves a system that boots", () => {
  // The state of the slots is written twice: of a way back, every other write is enough.
  for (const [first, step, prepare] of [
    [1, 1, isHealthy],
    [WRITES_OF_TRIAL, 2, (pi: Pi): void => pi.write("healthy-A", "")],
  ] as const) {
    using whole = update(prepare);
    const writes = Number(whole.read("writes"));
    assert.ok(writes > WRITES_OF_TRIAL, `${writes} writes`);
    for (let cut = first; cut <= writes; cut += step) {
      using pi = update(prepare, cut);
      assert.equal(pi.has("cut"), false, `the update has no write ${cut}`);
      assert.equal(pi.outcome, whole.outcome, `after write ${cut} of ${writes}`);
      const slot = whole.outcome === "good" ? "B" : "A";
      assert.deepEqual(
        [pi.read("booted"), pi.defaultSlot, pi.autoboot.length],
        [slot, slot, 512],
        `after write ${cut}`,
      );
    }
  }
});
