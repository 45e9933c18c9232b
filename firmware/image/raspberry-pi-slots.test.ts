/**
 * Updates of a Raspberry Pi: the boot check, the RAM disk's choice and RAUC's backend, all in sh(1), on a board of
 * files whose firmware follows the rules of autoboot.txt and of the tryboot flag.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { bootedPartition } from "@picolet/test/support/firmware/raspberry-pi-rom.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";

const own = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const BOOT_CHECK = own("../updates/boot-check");
const BOOT_SLOTS = own("tree/usr/lib/picolet-image/boot-slots");
const COMMIT_SLOT = own("raspberrypi/usr/lib/picolet-image/commit-slot");
const CHOOSE_SLOT = own("initrd/choose-slot");
/** From util-linux. */
const SETSID = "/usr/bin/setsid";
const DEADLINE_S = 60;
/** Starts of one update; more would be a board that restarts for ever. */
const MAX_STARTS = 16;
/** The first boot partitions of the disk. */
const SLOT_OF: Readonly<Record<number, "A" | "B">> = { 2: "A", 3: "B" };
const NUMBERS = "1 picolet\n2 boot-a\n3 boot-b\n5 boot-state\n6 root-a\n7 root-b\n8 data\n";

/** `$w` is the board's folder. */
const PROGRAMS: Readonly<Record<string, string>> = {
  // Each write to the card counts; after the one in `cut` the power is lost.
  dd: `case "$*" in *of=*) ;; *) exec /bin/dd "$@" ;; esac
/bin/dd "$@"; code=$?
n=$(($(cat $w/writes) + 1)); echo $n >$w/writes
[ ! -e $w/cut ] || [ "$(cat $w/cut)" != $n ] || { /bin/rm $w/cut; kill -9 0; }
exit $code`,
  rauc: `booted=$(cat $w/booted); other=$(echo $booted | tr AB BA)
case "$*" in
  "status --output-format=shell") i=1; for slot in A B; do
    echo "RAUC_SLOT_BOOTNAME_$i='$slot'"; echo "RAUC_SLOT_BOOT_STATUS_$i='$(sh $SLOTS get-state $slot)'"; i=$((i + 1)); done ;;
  "status mark-good") sh $SLOTS set-state $booted good ;;
  "status mark-bad booted") sh $SLOTS set-state $booted bad ;;
  "status mark-bad other") sh $SLOTS set-state $other bad ;;
  "status mark-active booted") sh $SLOTS set-primary $booted ;;
  "status mark-active other") sh $SLOTS set-primary $other ;;
  *) exit 1 ;;
esac`,
  systemctl: `case "$1" in is-failed) exit 1 ;; reboot) echo yes >$w/reboot ;; esac`,
  sleep: `echo $(($(cut -d. -f1 $w/uptime) + $1)).00 >$w/uptime
[ ! -e $w/healthy-$(cat $w/booted) ] || printf 'id=t1\\n' >$w/state/healthy`,
  modprobe: `[ ! -e $w/no-firmware ] && echo yes >$w/flag`,
  reboot: `echo yes >$w/reboot; kill -9 0`,
  sync: "true",
  flock: "true",
};

class Pi implements Disposable {
  readonly #folder = new TempFolder();
  readonly path = this.#folder.at("board");
  starts = 0;

  constructor() {
    const bin = this.#folder.at("bin");
    for (const folder of [bin, this.path, join(this.path, "state"), join(this.path, "fat")]) mkdirSync(folder);
    for (const [name, body] of Object.entries(PROGRAMS)) {
      writeFileSync(join(bin, name), `#!/bin/sh\nw=$BOARD\n${body}\n`);
      chmodSync(join(bin, name), 0o755);
    }
    const files = { writes: "0", partitions: NUMBERS, "boot-state": "", uptime: "5.00\n", "fat/autoboot.txt": "" };
    for (const [name, text] of Object.entries(files)) this.write(name, text);
    // As it was made with the card: A is good and the default.
    this.write("cmdline", "quiet rauc.slot=A\n");
    this.write("booted", "A\n");
    this.#sh(BOOT_SLOTS, "set-state", "A", "good");
    this.write("writes", "0");
    rmSync(join(this.path, "picolet-default-slot"));
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.path, name), text);
  }
  read(name: string): string {
    return readFileSync(join(this.path, name), "utf8").trim();
  }
  has(name: string): boolean {
    return existsSync(join(this.path, name));
  }
  #take(name: string): boolean {
    const had = this.has(name);
    rmSync(join(this.path, name), { force: true });
    return had;
  }

  #sh(script: string, ...args: readonly string[]): { readonly isCut: boolean; readonly stdout: string } {
    const env = {
      ...{ PATH: `${this.#folder.at("bin")}:/usr/bin:/bin`, BOARD: this.path, SLOTS: BOOT_SLOTS },
      ...{ PICOLET_SLOTS: BOOT_SLOTS, PICOLET_COMMIT_SLOT: COMMIT_SLOT, PICOLET_IMAGE_LIB: this.path },
      ...{ PICOLET_RUN: this.path, PICOLET_BOOT_PARTITION: join(this.path, "fat"), PICOLET_POLL: "20" },
      ...{ PICOLET_BOOT_STATE: join(this.path, "boot-state"), PICOLET_CMDLINE: join(this.path, "cmdline") },
      ...{ PICOLET_UPDATES: join(this.path, "state"), PICOLET_UPTIME: join(this.path, "uptime") },
    };
    // A group of its own, which is killed as a whole.
    const ran = spawnSync(SETSID, ["--wait", "sh", script, ...args], { env, encoding: "utf8" });
    const isCut = ran.status === 137 || ran.signal === "SIGKILL";
    assert.ok(isCut || ran.status === 0, `${script}: ${ran.stderr}`);
    return { isCut, stdout: ran.stdout };
  }

  slots(...args: readonly string[]): string {
    return this.#sh(BOOT_SLOTS, ...args).stdout.trim();
  }

  get autoboot(): string {
    return readFileSync(join(this.path, "fat/autoboot.txt"), "latin1");
  }
  /** The slot that the firmware starts by itself. */
  get defaultSlot(): string {
    return SLOT_OF[bootedPartition(this.autoboot, false)] ?? "none";
  }

  /** One start: firmware, RAM disk, boot check. @returns whether the board goes on without a restart */
  #start(): boolean {
    this.starts += 1;
    assert.ok(this.starts <= MAX_STARTS, "the board restarts for ever");
    rmSync(join(this.path, "reboot"), { force: true });
    // The flag holds for one start.
    const isRequested = this.#take("flag") && !this.has("ignores-tryboot");
    const slot = SLOT_OF[bootedPartition(this.autoboot, isRequested)] ?? "A";
    if (this.has(`broken-${slot}`)) return false;
    this.write("booted", `${slot}\n`);
    this.write("cmdline", `quiet rauc.slot=${slot} ro\n`);
    this.write("uptime", "5.00\n");
    if (this.#sh(CHOOSE_SLOT, slot).isCut) return false;
    if (this.has(`corrupt-${slot}`)) return false;
    return !this.#sh(BOOT_CHECK).isCut && !this.has("reboot");
  }

  runToTheEnd(): void {
    while (!this.#start());
  }

  /** Prepares a trial as the agent does, when RAUC has written slot B. */
  beginUpdate(): void {
    this.write("state/trial", `id=t1\nkind=os\nslot=B\ndeadline=${DEADLINE_S}\nversion=2.0\n`);
  }

  get outcome(): string {
    return /^outcome=(.*)$/m.exec(this.has("state/result") ? this.read("state/result") : "")?.[1] ?? "none";
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

/** @param prepare makes the new slot good or bad */
function update(prepare: (pi: Pi) => void, cutAfter?: number): Pi {
  const pi = new Pi();
  prepare(pi);
  pi.beginUpdate();
  if (cutAfter !== undefined) pi.write("cut", String(cutAfter));
  pi.runToTheEnd();
  return pi;
}

const isHealthy = (pi: Pi): void => {
  pi.write("healthy-A", "");
  pi.write("healthy-B", "");
};

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
