import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { test } from "node:test";
import { PseudoTerminal } from "@picolet/test/support/unit/wasm/pseudo-terminal.ts";
import { deviceAddon } from "../runner-packages.ts";
import { POLLIN, SystemCalls } from "../system-calls.ts";
import { DeviceWaits } from "./device-waits.ts";

const addonPath = deviceAddon(import.meta.filename);

test("a wait for a device is ended once, by that device, and not after it was cancelled", async () => {
  using terminal = new PseudoTerminal();
  using other = new PseudoTerminal();
  const fds = [terminal, other].map(({ path }) => openSync(path, constants.O_RDWR | constants.O_NOCTTY));
  const [fd = -1, otherFd = -1] = fds;
  const waits = new DeviceWaits(new SystemCalls(addonPath));
  const woken: string[] = [];
  const first = Promise.withResolvers<void>();
  waits.add(otherFd, POLLIN, () => woken.push("other"));
  const giveUp = waits.add(fd, POLLIN, () => woken.push("given up"));
  waits.add(fd, POLLIN, () => {
    woken.push("first");
    first.resolve();
  });
  giveUp();
  assert.equal(waits.isReady(fd, POLLIN), false);
  await terminal.write(Buffer.from("a line\n"));
  await first.promise;
  // The line is still unread, so that a new wait ends at once.
  await new Promise<void>((wake) => void waits.add(fd, POLLIN, wake));
  assert.deepEqual(woken, ["first"]);
  assert.deepEqual([waits.isReady(fd, POLLIN), waits.isReady(otherFd, POLLIN)], [true, false]);
  const unplugged = new Promise<void>((wake) => void waits.add(otherFd, POLLIN, wake));
  other.unplug();
  await unplugged;
  assert.deepEqual(woken, ["first", "other"]);
  for (const each of fds) closeSync(each);
});

test("a process can end while it waits for a silent device, and ends when it waits for none", () => {
  const script = (end: string): string => `
    import { openSync } from "node:fs";
    import { DeviceWaits } from ${JSON.stringify(import.meta.resolve("./device-waits.ts"))};
    import { SystemCalls } from ${JSON.stringify(import.meta.resolve("../system-calls.ts"))};
    const waits = new DeviceWaits(new SystemCalls(${JSON.stringify(addonPath)}));
    const giveUp = waits.add(openSync("/dev/ptmx", "r+"), 1, () => process.exit(1));
    setTimeout(() => ${end}, 50);`;
  for (const end of ["process.exit(7)", "{ giveUp(); process.exitCode = 7; }"]) {
    const args = ["--input-type=module", "--no-warnings", "-e", script(end)];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
    assert.equal(status, 7, `${end}: ${stderr}`);
  }
});
