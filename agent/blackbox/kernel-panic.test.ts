import assert from "node:assert/strict";
import { mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import fc from "fast-check";
import { type KernelPanic, kernelPanic, lastWords } from "./kernel-panic.ts";

/** A board whose kernel panics now and then, and whose clock begins at zero. */
class Board implements Disposable {
  readonly log = new RecordedLog();
  readonly #folder = new TempFolder();
  #boot = 1;
  #time = 0;

  boot(): void {
    this.#boot += 1;
  }
  keep(name: string, text: string): void {
    const path = this.#folder.at(`pstore/${name}`);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    this.#time += 1;
    utimesSync(path, this.#time, this.#time);
  }
  start(isNewBoot: boolean, notePath = this.#folder.at("note")): KernelPanic | undefined {
    const found = kernelPanic(
      { folder: this.#folder.at("pstore"), notePath, bootId: `boot-${this.#boot}`, log: this.log },
      isNewBoot,
    );
    return found && { ...found, path: found.path.slice(found.path.indexOf("pstore")) };
  }
  note(): string {
    return readFileSync(this.#folder.at("note"), "utf8");
  }
  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

const PANIC =
  "Panic#1 Part1\n<4>[   90.1] before\n<0>[   90.2] Kernel panic - not syncing: Fatal exception\n<4>[ 90.3] more\n";
const MESSAGE = "Kernel panic - not syncing: Fatal exception";

test("a panic is told from the first start after it until the board starts again", () => {
  using board = new Board();
  assert.equal(board.start(true), undefined, "there is no folder yet");
  board.boot();
  board.keep("7601/001/dmesg.txt", PANIC);
  const told = { message: MESSAGE, path: "pstore/7601/001/dmesg.txt" };
  assert.deepEqual(board.start(true), told);
  assert.deepEqual(board.start(false), told, "after a restart of the agent too");
  board.boot();
  assert.equal(board.start(true), undefined);
  board.boot();
  board.keep("dmesg-ramoops-0", PANIC.replaceAll("90", "91"));
  assert.deepEqual(board.start(true), { message: MESSAGE, path: "pstore/dmesg-ramoops-0" });
});

test("a panic from before the agent was installed is not told as that of the last boot", () => {
  using board = new Board();
  board.keep("dmesg-ramoops-0", PANIC);
  assert.equal(board.start(false), undefined);
  board.boot();
  assert.equal(board.start(true), undefined);
});

test("a disk that takes no note costs no start, and what is no note or no record is none", () => {
  using board = new Board();
  board.keep("dmesg-ramoops-0", PANIC);
  assert.equal(board.start(true, "/proc/none")?.message, MESSAGE);
  assert.deepEqual(board.log.problems, ["cannot note that a kernel's panic was reported"]);
  board.keep("empty/dmesg.txt", "");
  assert.equal(board.start(true)?.path, "pstore/dmesg-ramoops-0");
  assert.match(board.note(), /"bootId":"boot-1"/);
});

test("the line that says why is found, and is one line of plain text however the record looks", () => {
  assert.equal(lastWords(PANIC), MESSAGE);
  assert.equal(
    lastWords("<1>[    2.0] BUG: kernel NULL pointer dereference, address: 0\n<4>[ 2.1] CPU: 1\n"),
    "BUG: kernel NULL pointer dereference, address: 0",
  );
  assert.equal(lastWords("<4>[    2.0] watchdog: hung\n\n"), "watchdog: hung");
  assert.equal(lastWords(""), "");
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 600 }), (text) => {
      assert.match(lastWords(text), /^[ -~]{0,240}$/);
    }),
  );
});
