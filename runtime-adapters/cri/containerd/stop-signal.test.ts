import assert from "node:assert/strict";
import { test } from "node:test";
import { SIGNAL_NUMBERS } from "../wire/cri-messages.ts";
import { linuxSignal } from "./stop-signal.ts";

test("every signal that a container may be stopped with has a number of the kernel's", () => {
  for (const name of SIGNAL_NUMBERS.keys()) {
    const number = linuxSignal(name);
    assert.ok(number !== undefined && number >= 1 && number <= 64, name);
  }
  const known: readonly (readonly [string, number | undefined])[] = [
    ["SIGTERM", 15],
    ["SIGUSR1", 10],
    ["SIGCLD", 17],
    ["SIGRTMIN", 34],
    ["SIGRTMIN+3", 37],
    ["SIGRTMAX-14", 50],
    ["SIGRTMAX", 64],
    ["SIGRTMAX+1", undefined],
    ["SIGNOTHING", undefined],
    ["", undefined],
  ];
  for (const [name, number] of known) assert.equal(linuxSignal(name), number, name);
});
