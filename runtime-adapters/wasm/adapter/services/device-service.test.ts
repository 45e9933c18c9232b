import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { type Plain, type ServicePeer, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { DeviceService, OpeningPace } from "./device-service.ts";

const PEER: ServicePeer = {
  containerId: "c",
  container: "main",
  pod: { name: "p", namespace: "default", uid: "u" },
  interfaces: ["serial", "gpio", "i2c"],
  buckets: [],
  devices: [
    { kind: "serial", path: "/dev/ttyMINE" },
    { kind: "gpio", path: "/dev/gpiochip9", lines: [4] },
    { kind: "i2c", path: "/dev/i2c-9", addresses: [0x48] },
  ],
};

/** Refuses before it starts a process, because there is no program to start. */
const service = new DeviceService(
  { clock: systemClock, log: new RecordedLog(), cgroups: undefined },
  {
    ...{ nodePath: "/nonexistent", devicesPath: "", addonPath: "" },
    ...{ servicesDirectory: "/nonexistent", lockDirectory: "/nonexistent" },
  },
);

const ask = async (kind: "serial" | "gpio" | "i2c", method: string, value: Plain, peer = PEER): Promise<string> => {
  try {
    await service.of(kind).call(peer, method, { value, bytes: [] });
    return "taken";
  } catch (error) {
    if (error instanceof ServiceRefusal) return error.tag;
    assert.ok(isPicoletError(error, "invalid"), String(error));
    return "invalid";
  }
};

test("nothing is opened that the pod does not name", async () => {
  assert.equal(await ask("serial", "open", { port: "/dev/ttyS0" }), "not-granted");
  assert.equal(await ask("serial", "open", { port: "/dev/gpiochip9" }), "not-granted");
  assert.equal(await ask("serial", "open", { port: "/dev/../dev/ttyMINE" }), "not-granted");
  assert.equal(await ask("i2c", "open", { bus: "/dev/i2c-9", address: 0x49 }), "not-granted");
  assert.equal(await ask("i2c", "open", { bus: "/dev/i2c-8", address: 0x48 }), "not-granted");
  assert.equal(await ask("gpio", "open", { line: "", flags: 4 }), "not-granted");
  assert.equal(await ask("serial", "open", { port: "/dev/ttyMINE" }, { ...PEER, devices: [] }), "not-granted");
  // An older agent's record of a container has none.
  const { devices: _, ...older } = PEER;
  assert.equal(await ask("serial", "open", { port: "/dev/ttyMINE" }, older), "not-granted");
  // The grant is there; the process that would open it is not.
  assert.equal(await ask("serial", "open", { port: "/dev/ttyMINE" }), "io");
  assert.equal(await ask("gpio", "open", { line: "/dev/gpiochip9:4", flags: 4 }), "io");
  assert.equal(await ask("i2c", "open", { bus: "/dev/i2c-9", address: 0x48 }), "other");
});

test("a runner that has been taken over gets no further by asking for nonsense", async () => {
  const kind = fc.constantFrom("serial" as const, "gpio" as const, "i2c" as const);
  const method = fc.constantFrom("open", "lines", "close", "constructor");
  const value = fc.oneof(
    fc.jsonValue(),
    fc.dictionary(
      fc.constantFrom("port", "bus", "address", "line", "flags", "debounceMicroseconds", "initial"),
      fc.jsonValue(),
    ),
  );
  const none = { ...PEER, devices: [] };
  await fc.assert(
    fc.asyncProperty(kind, method, value, async (each, name, asked) => {
      const outcome = await ask(each, name, asked as Plain, none);
      const isEmptyList = each === "gpio" && name === "lines";
      assert.ok(isEmptyList ? outcome === "taken" : ["not-granted", "invalid"].includes(outcome), outcome);
    }),
  );
});

const { signal } = new AbortController();

test("a component that opens in a loop waits, and no other one for it", async () => {
  const clock = new VirtualClock();
  const pace = new OpeningPace(clock);
  let opened = 0;
  const loop = async (): Promise<void> => {
    for (; opened < 40; opened += 1) await pace.wait("greedy", signal);
  };
  const looping = loop();
  await clock.advance(millis(0));
  assert.equal(opened, 32);
  await pace.wait("modest", signal);
  assert.equal(clock.monotonic(), 0);
  await clock.advance(seconds(16));
  await looping;
  assert.equal(opened, 40);
  // All that it may have at once is there again.
  await clock.advance(seconds(64));
  opened = 8;
  await loop();
  assert.equal(clock.monotonic(), 80_000);
});

test("containers that come and go take a bounded number of places", async () => {
  const clock = new VirtualClock();
  const pace = new OpeningPace(clock);
  for (let count = 0; count < 33; count += 1) void pace.wait("greedy", signal).catch(() => undefined);
  for (let count = 0; count < 200; count += 1) await pace.wait(`short-${count}`, signal);
  let isOpen = false;
  void pace.wait("greedy", signal).then(() => {
    isOpen = true;
  });
  await clock.advance(seconds(1));
  assert.equal(isOpen, false, "it is still known");
});
