/** Plugins that come and go, written with grpc-js, on virtual time. */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { Millis } from "@picolet/protocol/ports.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { TestDevicePlugin } from "@picolet/test/support/unit/plugins/test-device-plugin.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { DeviceCheckpoint } from "./device-checkpoint.ts";
import { DeviceManager } from "./device-manager.ts";
import { DevicePlugins } from "./device-plugins.ts";

const RESOURCE = "example.com/camera";

/** The parts of one agent, and a plugin with two devices. */
class Bench {
  readonly clock = new VirtualClock();
  readonly folder = new TempFolder();
  readonly plugin: TestDevicePlugin;
  kept: DeviceCheckpoint | undefined;
  manager: DeviceManager;
  plugins: DevicePlugins;

  constructor(context: TestContext) {
    const folder = join(this.folder.path, "device-plugins");
    mkdirSync(folder);
    const devices = ["a", "b"].map((ID) => ({ ID, health: "Healthy" as const }));
    this.plugin = new TestDevicePlugin({ folder, resource: RESOURCE, devices });
    [this.manager, this.plugins] = this.start();
    context.after(async () => {
      this.plugin.stop();
      await this.plugins[Symbol.asyncDispose]();
      this.folder[Symbol.dispose]();
    });
  }

  /** The next agent. */
  start(): [DeviceManager, DevicePlugins] {
    const log = new RecordedLog();
    this.manager = new DeviceManager(
      {
        ...{ log, isKnown: () => true, withCdi: async (launch) => launch },
        keep: (checkpoint) => {
          this.kept = checkpoint;
        },
      },
      this.kept,
    );
    this.plugins = new DevicePlugins({ clock: this.clock, log, manager: this.manager }, { folder: this.folder.path });
    return [this.manager, this.plugins];
  }

  async register(): Promise<void> {
    await this.plugin.serve();
    const socket = { endpoint: this.plugin.endpoint, socketPath: this.plugin.endpoint };
    await this.plugins.register({ type: "DevicePlugin", name: RESOURCE, versions: ["v1beta1"], ...socket });
  }

  /** Waits until the node counts so many devices, and so many healthy ones. */
  async until(capacity: string, allocatable: string): Promise<void> {
    for await (const counts of this.manager.counts.changes(AbortSignal.timeout(20_000)))
      if (counts.capacity[RESOURCE] === capacity && counts.allocatable[RESOURCE] === allocatable) return;
  }

  get counts(): readonly (string | undefined)[] {
    const { capacity, allocatable } = this.manager.counts.current;
    return [capacity[RESOURCE], allocatable[RESOURCE]];
  }

  async pass(duration: Millis): Promise<void> {
    await this.clock.advance(duration);
    await this.clock.settle();
  }
}

test("the devices of a plugin that goes are unhealthy, and none when it stays away for five minutes", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  bench.plugin.stop();
  await bench.until("2", "0");
  await bench.pass(millis(299_999));
  assert.deepEqual(bench.counts, ["2", "0"]);
  await bench.pass(millis(1));
  assert.deepEqual(bench.counts, ["0", "0"]);
  assert.deepEqual([...(bench.kept?.registered ?? [])], []);
  await bench.register();
  await bench.until("2", "2");
});

test("a plugin that is back in time keeps its devices", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  bench.plugin.stop();
  await bench.until("2", "0");
  await bench.pass(seconds(200));
  await bench.register();
  await bench.until("2", "2");
  await bench.pass(seconds(400));
  assert.deepEqual(bench.counts, ["2", "2"]);
});

test("the next agent counts the devices of a plugin that is not back yet, as unhealthy", async (context) => {
  const bench = new Bench(context);
  await bench.register();
  await bench.until("2", "2");
  await bench.plugins[Symbol.asyncDispose]();
  assert.deepEqual(bench.counts, ["2", "2"]);
  bench.start();
  assert.deepEqual(bench.counts, ["2", "0"]);
  bench.plugin.stop();
  await bench.register();
  await bench.until("2", "2");
});
