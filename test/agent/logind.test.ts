import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import type { NodeShutdownControl } from "@picolet/agent/core/node/node-shutdown-control.ts";
import { systemBusPath } from "@picolet/agent/node/dbus-connection.ts";
import { LogindShutdown } from "@picolet/agent/node/logind.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { type Clock, millis, seconds } from "@picolet/protocol/ports.ts";
import { MessageBus, messageBusMissing } from "../support/agent/message-bus.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const skip = messageBusMissing();
const INHIBITED = "inhibit shutdown picolet delay";

/** Pods end when the test says so. */
class Pods implements NodeShutdownControl {
  readonly told = new WatchSource<readonly string[]>([]);
  isShuttingDown = false;
  #ended: () => void = () => undefined;

  begin(why: string): Promise<void> {
    if (!this.isShuttingDown) this.#tell(`begin ${why}`);
    this.isShuttingDown = true;
    return new Promise((resolve) => {
      this.#ended = resolve;
    });
  }

  end(): void {
    this.#ended();
  }

  cancel(): Promise<void> {
    this.#tell("cancel");
    this.isShuttingDown = false;
    this.#ended();
    return Promise.resolve();
  }

  async until(count: number): Promise<readonly string[]> {
    for await (const told of this.told.changes(AbortSignal.timeout(60_000))) if (told.length >= count) return told;
    throw new Error(`only told: ${this.told.current.join("; ")}`);
  }

  #tell(what: string): void {
    this.told.set([...this.told.current, what]);
  }
}

class Following implements AsyncDisposable {
  readonly pods = new Pods();
  readonly log = new RecordedLog();
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;

  constructor(bus: Pick<MessageBus, "socketPath" | "dropIns">, delay: number, clock: Clock = systemClock) {
    const logind = new LogindShutdown(
      { shutdown: this.pods, clock, random: { next: () => 0 }, log: this.log },
      { busPath: bus.socketPath, delay: seconds(delay), dropInFolder: bus.dropIns },
    );
    this.#done = endOfRun(logind.run(this.#stop.signal));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#done;
  }
}

test("a shutdown waits until the pods have ended, and one that is cancelled is held up anew", { skip }, async () => {
  await using bus = await MessageBus.start();
  await bus.startLogind(30);
  await using following = new Following(bus, 20);
  await bus.said(INHIBITED);
  bus.tell("shutdown");
  assert.deepEqual(await following.pods.until(1), ["begin logind"]);
  assert.deepEqual(await bus.rest(0), [], "the lock is held while pods end");
  following.pods.end();
  await bus.said("released");
  bus.tell("cancel");
  assert.deepEqual(await following.pods.until(2), ["begin logind", "cancel"]);
  await bus.said(INHIBITED);
  assert.equal(existsSync(join(bus.dropIns, "99-picolet_shutdown.conf")), false, "logind's own limit was enough");
});

test("logind's limit is raised where it is less than what pods may take", { skip }, async () => {
  await using bus = await MessageBus.start();
  await bus.startLogind(5);
  await using following = new Following(bus, 42);
  assert.deepEqual(await bus.said(INHIBITED), ["reload", INHIBITED]);
  assert.match(
    readFileSync(join(bus.dropIns, "99-picolet_shutdown.conf"), "utf8"),
    /^\[Login\]\nInhibitDelayMaxSec=42$/m,
  );
  assert.deepEqual(following.log.problems, []);
});

test("a shutdown that had begun before anybody listened is heard of", { skip }, async () => {
  await using bus = await MessageBus.start();
  await bus.startLogind(30);
  bus.tell("shutdown");
  await using following = new Following(bus, 20);
  assert.deepEqual(await following.pods.until(1), ["begin logind"]);
  following.pods.end();
  await bus.said("released");
});

test("the lock goes with whoever followed", { skip }, async () => {
  await using bus = await MessageBus.start();
  await bus.startLogind(30);
  {
    await using _following = new Following(bus, 20);
    await bus.said(INHIBITED);
  }
  await bus.said("released");
});

test("a bus that goes away and comes back is followed again", { skip }, async () => {
  await using bus = await MessageBus.start();
  await bus.startLogind(30);
  await using following = new Following(bus, 20);
  await bus.said(INHIBITED);
  await bus.stopDaemon();
  await bus.startDaemon();
  await bus.startLogind(30);
  bus.tell("shutdown");
  assert.deepEqual(await following.pods.until(1), ["begin logind"]);
});

/** Waits for next to nothing between two tries; what is a limit stays as it is. */
const IMPATIENT: Clock = {
  monotonic: () => systemClock.monotonic(),
  wall: () => systemClock.wall(),
  sleep: (duration, signal) => systemClock.sleep(duration > seconds(10) ? duration : millis(duration / 100), signal),
};

const GARBAGE: Readonly<Record<string, (socket: Socket) => void>> = {
  "hangs up": (socket) => socket.destroy(),
  "refuses us": (socket) => socket.write("REJECTED EXTERNAL\r\n"),
  "sends a line without end": (socket) => socket.write("O".repeat(10_000)),
  "sends no messages": (socket) => socket.write(`OK 1234\r\n${"x".repeat(100)}`),
  "sends a message without end": (socket) =>
    socket.write(Buffer.concat([Buffer.from("OK 1\r\nl\x02\0\x01"), Buffer.alloc(12, 0xff)])),
};

for (const [name, behave] of Object.entries(GARBAGE)) {
  test(`a bus that ${name} does no harm`, async () => {
    using folder = new TempFolder();
    const connected = new WatchSource(0);
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      behave(socket);
      connected.set(connected.current + 1);
    });
    await new Promise<void>((resolve) => server.listen(folder.at("bus"), resolve));
    try {
      await using following = new Following(
        { socketPath: folder.at("bus"), dropIns: folder.at("conf") },
        20,
        IMPATIENT,
      );
      for await (const count of connected.changes(AbortSignal.timeout(60_000))) if (count >= 4) break;
      assert.ok(connected.current >= 4, "it is tried again and again");
      assert.deepEqual(following.log.problems, ["logind is not followed: a shutdown ends no pods by itself"]);
    } finally {
      server.close();
    }
  });
}

test("where there is no bus, that is said once", async () => {
  using folder = new TempFolder();
  const waits = new WatchSource(0);
  const sleep: Clock["sleep"] = (duration, signal) => {
    waits.set(waits.current + 1);
    return IMPATIENT.sleep(duration, signal);
  };
  const bus = { socketPath: folder.at("none"), dropIns: folder.at("conf") };
  await using following = new Following(bus, 20, { ...IMPATIENT, sleep });
  for await (const count of waits.changes(AbortSignal.timeout(60_000))) if (count >= 8) break;
  assert.ok(waits.current >= 8, "it is tried again and again");
  assert.deepEqual(following.log.problems, ["logind is not followed: a shutdown ends no pods by itself"]);
});

test("the bus is where the environment says", () => {
  assert.equal(systemBusPath({}), "/run/dbus/system_bus_socket");
  assert.equal(systemBusPath({ DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/a%20b,guid=1" }), "/a b");
  assert.equal(systemBusPath({ DBUS_SYSTEM_BUS_ADDRESS: "tcp:host=x;unix:guid=1,path=/b" }), "/b");
});
