import assert from "node:assert/strict";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { filePod } from "@picolet/test/support/unit/agent/small-agent.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { AnnotatedDevices } from "./annotated-devices.ts";
import { readGivenDevices, writeGivenDevices } from "./given-devices.ts";

class Bench {
  readonly folder = new TempFolder();
  readonly root = this.folder.path;
  readonly told: string[] = [];
  readonly pod: DesiredPod;
  isRunning = false;
  readonly #file = join(this.root, "given");
  devices: AnnotatedDevices;

  constructor(context: TestContext, text: string, restartPolicy: "Always" | "Never" = "Always") {
    context.after(() => this.folder[Symbol.dispose]());
    mkdirSync(join(this.root, "dev"));
    const made = filePod("web", ["run"], { restartPolicy });
    const metadata = { ...made.pod.metadata, annotations: { "picolet.io/devices": text } };
    this.pod = { ...made, uid: podUid("u1"), pod: { ...made.pod, metadata } };
    this.devices = this.start();
  }

  /** The next agent. */
  start(): AnnotatedDevices {
    this.devices = new AnnotatedDevices(
      {
        clock: new VirtualClock(),
        pods: () => [{ desired: this.pod, isRunning: this.isRunning }],
        event: (_pod, type, reason, message) => this.told.push(`${type} ${reason}: ${message}`),
        restart: (uid) => this.told.push(`restart ${uid}`),
        keep: (given) => writeGivenDevices(this.#file, given),
      },
      {
        allowed: [{ match: ["/dev/tty*"], namespaces: ["default"] }],
        root: this.root,
        kept: readGivenDevices(this.#file) ?? {},
      },
    );
    return this.devices;
  }

  plug(name: string, target: string): void {
    symlinkSync(target, join(this.root, "dev", name));
  }

  unplug(name: string): void {
    rmSync(join(this.root, "dev", name));
  }
}

test("a container gets the nodes with their permissions, and not what is away or leads elsewhere", (context) => {
  const bench = new Bench(context, "/dev/ttyA:r; /dev/ttyB");
  bench.plug("ttyA", "/dev/null");
  const isAway = (error: unknown): boolean =>
    isPicoletError(error, "not_found") &&
    error.message === "/dev/ttyB of the annotation picolet.io/devices is not plugged in";
  assert.throws(() => bench.devices.launch(bench.pod), isAway);
  bench.plug("ttyB", "/etc/passwd");
  assert.throws(() => bench.devices.launch(bench.pod), isAway);
  bench.unplug("ttyB");
  bench.plug("ttyB", "/dev/full");
  assert.deepEqual(bench.devices.launch(bench.pod), [
    { containerPath: "/dev/ttyA", hostPath: "/dev/null", permissions: "r", readOnly: true },
    { containerPath: "/dev/ttyB", hostPath: "/dev/full", permissions: "rw", readOnly: false },
  ]);
});

test("what the configuration does not allow any more starts no container", (context) => {
  const bench = new Bench(context, "/dev/null");
  assert.throws(
    () => bench.devices.launch(bench.pod),
    (error) => isPicoletError(error, "permission_denied") && error.reason === "CreateContainerConfigError",
  );
});

test("a link is judged by its name or by the node that it leads to", (context) => {
  const bench = new Bench(context, "/dev/harmless");
  assert.match(bench.devices.refusal(bench.pod) ?? "", /does not allow in namespace default/);
  bench.plug("harmless", "/dev/full");
  assert.match(bench.devices.refusal(bench.pod) ?? "", /does not allow in namespace default/);
  bench.unplug("harmless");
  bench.plug("harmless", "/dev/tty");
  assert.equal(bench.devices.refusal(bench.pod), undefined);
});

test("a device that goes is reported; one that returns as another device restarts the containers", (context) => {
  const bench = new Bench(context, "/dev/ttyA");
  bench.plug("ttyA", "/dev/null");
  bench.devices.launch(bench.pod);
  bench.isRunning = true;
  bench.devices.scan();
  assert.deepEqual(bench.told, []);
  bench.unplug("ttyA");
  bench.devices.scan();
  bench.devices.scan();
  bench.plug("ttyA", "/dev/null");
  bench.devices.scan();
  bench.unplug("ttyA");
  bench.devices.scan();
  bench.plug("ttyA", "/dev/full");
  bench.devices.scan();
  bench.devices.scan();
  assert.deepEqual(bench.told, [
    "Warning DeviceUnplugged: /dev/ttyA was unplugged. A container that starts waits for it",
    "Normal DevicePlugged: /dev/ttyA is plugged in",
    "Warning DeviceUnplugged: /dev/ttyA was unplugged. A container that starts waits for it",
    "Normal DevicePlugged: /dev/ttyA is plugged in. Its containers restart, because their device has changed",
    "restart u1",
  ]);
});

test("a device that comes wakes up the pod that waits for it, and restarts nothing", (context) => {
  const bench = new Bench(context, "/dev/ttyA");
  let changes = 0;
  bench.devices.changes.listen(() => (changes += 1), new AbortController().signal);
  bench.devices.scan();
  bench.plug("ttyA", "/dev/null");
  bench.devices.scan();
  assert.deepEqual(bench.told, ["Normal DevicePlugged: /dev/ttyA is plugged in"]);
  assert.equal(changes, 1);
  bench.devices.launch(bench.pod);
  bench.isRunning = true;
  bench.devices.scan();
  assert.equal(bench.told.length, 1);
});

test("a device that returns as another one while no agent runs restarts the containers, once", (context) => {
  const bench = new Bench(context, "/dev/ttyA");
  bench.plug("ttyA", "/dev/null");
  bench.devices.launch(bench.pod);
  bench.isRunning = true;
  bench.devices.scan();
  bench.start().scan();
  assert.deepEqual(bench.told, []);
  bench.unplug("ttyA");
  bench.plug("ttyA", "/dev/full");
  // The agent scans before it has seen what runs.
  bench.isRunning = false;
  bench.start().scan();
  assert.deepEqual(bench.told, []);
  bench.isRunning = true;
  bench.devices.scan();
  bench.devices.scan();
  bench.start().scan();
  assert.deepEqual(bench.told, [
    "Normal DevicePlugged: /dev/ttyA is plugged in. Its containers restart, because their device has changed",
    "restart u1",
  ]);
});

test("what was kept of devices is read strictly", (context) => {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const path = join(folder.path, "given");
  assert.equal(readGivenDevices(path), undefined);
  for (const text of ["", "[]", '{"a":1}', '{"a":{"b":1}}']) {
    writeFileSync(path, text);
    assert.throws(
      () => readGivenDevices(path),
      (error) => isPicoletError(error, "corrupt"),
      text,
    );
  }
});

test("a pod that does not restart keeps what it has, and an agent's start restarts nothing", (context) => {
  const bench = new Bench(context, "/dev/ttyA", "Never");
  bench.isRunning = true;
  bench.plug("ttyA", "/dev/null");
  bench.devices.scan();
  bench.unplug("ttyA");
  bench.devices.scan();
  bench.plug("ttyA", "/dev/full");
  bench.devices.scan();
  assert.equal(bench.told.filter((each) => each.startsWith("restart")).length, 0);
  assert.equal(bench.told.length, 2);
});
