/**
 * A board of files: boot check and RAUC's backend run as they are, in sh(1), and each write to the card counts, so that
 * the power can be lost after any of them. How a slot is chosen is the firmware's part.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { TempFolder } from "../machine/temp-folder.ts";

const own = (path: string): string => fileURLToPath(new URL(`../../../../firmware/${path}`, import.meta.url));
const BOOT_CHECK = own("updates/boot-check");
const BOOT_SLOTS = own("image/tree/usr/lib/picolet-image/boot-slots");
/** From util-linux. */
const SETSID = "/usr/bin/setsid";
const DEADLINE_S = 60;
/** Starts of one update; more would be a board that restarts for ever. */
const MAX_STARTS = 16;

export type Slot = "A" | "B";

/** A script of the board's firmware or system, and whether the power was lost in it. */
export interface Ran {
  readonly isCut: boolean;
  readonly stdout: string;
}

export interface FileFirmware {
  /** Programs that count as writes, beside `dd`: the real one by the case pattern of its arguments that write. */
  readonly writers?: Readonly<Record<string, string>>;
  /** Files of a new card, by path. */
  readonly files: Readonly<Record<string, string>>;
  /** Called once the slots' state of a new card is there. */
  readonly prepare?: (board: BoardOfFiles) => void;
  readonly environment?: (board: BoardOfFiles) => Readonly<Record<string, string>>;
  /** Turns the board on, and records the slot with `runs`. @returns false when nothing started, or the power was lost */
  readonly start: (board: BoardOfFiles) => boolean;
}

/** A program that writes to the card: after the write whose number is in `cut` the power is lost. */
const writer = (
  program: string,
  pattern: string,
): string => `case "$*" in ${pattern}) ;; *) exec ${program} "$@" ;; esac
${program} "$@"; code=$?
n=$(($(cat $w/writes) + 1)); echo $n >$w/writes
[ ! -e $w/cut ] || [ "$(cat $w/cut)" != $n ] || { /bin/rm $w/cut; kill -9 0; }
exit $code`;

/** `$w` is the board's folder. */
const PROGRAMS: Readonly<Record<string, string>> = {
  dd: writer("/bin/dd", "*of=*"),
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

export class BoardOfFiles implements Disposable {
  readonly #folder = new TempFolder();
  readonly #firmware: FileFirmware;
  readonly path = this.#folder.at("board");
  starts = 0;

  constructor(firmware: FileFirmware) {
    this.#firmware = firmware;
    const bin = this.#folder.at("bin");
    for (const folder of [bin, this.path, join(this.path, "state"), join(this.path, "fat")]) mkdirSync(folder);
    const writers = Object.entries(firmware.writers ?? {}).map(
      ([program, pattern]) => [program.slice(program.lastIndexOf("/") + 1), writer(program, pattern)] as const,
    );
    for (const [name, body] of [...Object.entries(PROGRAMS), ...writers]) {
      writeFileSync(join(bin, name), `#!/bin/sh\nw=$BOARD\n${body}\n`);
      chmodSync(join(bin, name), 0o755);
    }
    const files = { writes: "0", "boot-state": "", uptime: "5.00\n", ...firmware.files };
    for (const [name, text] of Object.entries(files)) this.write(name, text);
    // As it was made with the card: A is good and the default.
    this.runs("A");
    this.sh(BOOT_SLOTS, "set-state", "A", "good");
    this.write("writes", "0");
    firmware.prepare?.(this);
  }

  write(name: string, text: string | Uint8Array): void {
    writeFileSync(join(this.path, name), text);
  }
  read(name: string): string {
    return readFileSync(join(this.path, name), "utf8").trim();
  }
  has(name: string): boolean {
    return existsSync(join(this.path, name));
  }
  /** Removes a file. @returns whether it was there */
  take(name: string): boolean {
    const had = this.has(name);
    rmSync(join(this.path, name), { force: true });
    return had;
  }

  /** Records the slot whose kernel starts. */
  runs(slot: Slot): void {
    this.write("booted", `${slot}\n`);
    this.write("cmdline", `quiet rauc.slot=${slot} ro\n`);
    this.write("uptime", "5.00\n");
  }

  /** Runs a script in the board's folder. */
  sh(script: string, ...args: readonly string[]): Ran {
    const env = {
      ...{ PATH: `${this.#folder.at("bin")}:/usr/bin:/bin`, BOARD: this.path, SLOTS: BOOT_SLOTS },
      ...{ PICOLET_SLOTS: BOOT_SLOTS, PICOLET_COMMIT_SLOT: "/nonexistent", PICOLET_IMAGE_LIB: this.path },
      ...{ PICOLET_RUN: this.path, PICOLET_POLL: "20" },
      ...{ PICOLET_BOOT_STATE: join(this.path, "boot-state"), PICOLET_CMDLINE: join(this.path, "cmdline") },
      ...{ PICOLET_UPDATES: join(this.path, "state"), PICOLET_UPTIME: join(this.path, "uptime") },
      ...this.#firmware.environment?.(this),
    };
    // A group of its own, which is killed as a whole.
    const options = { cwd: this.path, env, encoding: "utf8" } as const;
    const ran = spawnSync(SETSID, ["--wait", "sh", script, ...args], options);
    const isCut = ran.status === 137 || ran.signal === "SIGKILL";
    assert.ok(isCut || ran.status === 0, `${script}: ${ran.stderr}`);
    return { isCut, stdout: ran.stdout };
  }

  slots(...args: readonly string[]): string {
    return this.sh(BOOT_SLOTS, ...args).stdout.trim();
  }

  /** One start: firmware, kernel, boot check. @returns whether the board goes on without a restart */
  #start(): boolean {
    this.starts += 1;
    assert.ok(this.starts <= MAX_STARTS, "the board restarts for ever");
    rmSync(join(this.path, "reboot"), { force: true });
    if (!this.#firmware.start(this)) return false;
    if (this.has(`corrupt-${this.read("booted")}`)) return false;
    return !this.sh(BOOT_CHECK).isCut && !this.has("reboot");
  }

  runToTheEnd(): void {
    while (!this.#start());
  }

  /** Prepares a trial as the agent does, when RAUC has written slot B. */
  beginUpdate(): void {
    this.write("state/trial", `id=t1\nkind=os\nslot=B\ndeadline=${DEADLINE_S}\nversion=2.0\n`);
  }

  /** Both systems have an agent that becomes healthy. */
  isHealthy(): void {
    this.write("healthy-A", "");
    this.write("healthy-B", "");
  }

  get outcome(): string {
    return /^outcome=(.*)$/m.exec(this.has("state/result") ? this.read("state/result") : "")?.[1] ?? "none";
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

/** @param prepare makes the new slot good or bad @param cutAfter the write after which the power is lost */
export function updateOf<B extends BoardOfFiles>(board: B, prepare: (board: B) => void, cutAfter?: number): B {
  prepare(board);
  board.beginUpdate();
  if (cutAfter !== undefined) board.write("cut", String(cutAfter));
  board.runToTheEnd();
  return board;
}
