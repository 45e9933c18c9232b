/**
 * The program of `test/guest/devices.long.test.ts` in its guest, started by the kernel as init: the component adapter
 * with real components on the kernel's devices. Each scenario's result is a line on the console.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { ContainerLaunch, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { encodeLineRequest, GPIO, LINE_FLAG, requestedFd } from "@picolet/runtime-wasm/shared/board/gpio/uapi.ts";
import { deviceAddon } from "@picolet/runtime-wasm/shared/devices/runner-packages.ts";
import { SystemCalls } from "@picolet/runtime-wasm/shared/devices/system-calls.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";
import { UsbBridgeChip } from "./usb-bridge-chip.ts";
import { UsbLineChip } from "./usb-line-chip.ts";

const APP = "/app";
const CHIP = "chip";
const LINE_CHIP = "line-chip";
const NEVER = new AbortController().signal;
const SETTINGS = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 };

const log = new RecordedLog();
const adapter = new WasmAdapter(
  { clock: systemClock, log, cgroups: undefined, hostIps: () => [], warn: () => undefined, services: {} },
  {
    rootDirectory: `${APP}/root`,
    stateDirectory: `${APP}/state`,
    nodePath: process.execPath,
    runnerPath: `${APP}/wasm-runner.cjs`,
    transpilePath: `${APP}/wasm-runner.cjs`,
    pullPath: `${APP}/wasm-runner.cjs`,
    densePath: `${APP}/wasm-runner.cjs`,
    devicesPath: `${APP}/wasm-devices.cjs`,
    cgroupSettings: SETTINGS,
    limits: { spareRunners: 0 },
    p3: true,
  },
);
let pods = 0;

type Component = "pins" | "async-pins" | "serial";

class GuestPod {
  readonly #desired: DesiredPod;
  readonly #logPath: string;
  readonly #sandboxId: string;
  readonly #id: string;

  private constructor(desired: DesiredPod, sandboxId: string, id: string, logPath: string) {
    this.#desired = desired;
    this.#sandboxId = sandboxId;
    this.#id = id;
    this.#logPath = logPath;
  }

  static async start(component: Component, devices: string, args: readonly string[]): Promise<GuestPod> {
    pods += 1;
    const uid = `pod-${pods}`;
    const interfaces = [...new Set(devices.split(";").map((each) => each.trim().split(":")[0]))].join();
    const annotations = { "wasm.picolet.io/interfaces": interfaces, "wasm.picolet.io/devices": devices };
    const image = `localhost/${component}:1`;
    const pod = {
      ...{ apiVersion: "v1", kind: "Pod", metadata: { name: uid, namespace: "default", uid, annotations } },
      spec: { securityContext: {}, containers: [{ name: "main", image, resources: {} }] },
    } as unknown as Pod;
    const desired: DesiredPod = { uid: podUid(uid), source: "file", origin: "", pod };
    const logDirectory = `${APP}/logs/${uid}`;
    mkdirSync(logDirectory, { recursive: true });
    const sandbox = { attempt: 0, hostname: uid, dns: undefined, logDirectory, cgroupParent: "" };
    await adapter.apply(desired, { kind: "createSandbox", sandbox }, NEVER);
    const info = await adapter.images.status(image, NEVER);
    const container: ContainerLaunch = {
      ...{ name: "main", attempt: 0, hash: "", backoff: millis(0), image: { requested: image, id: info?.id ?? "" } },
      ...{ command: [], args, env: [], workingDir: "", mounts: [], logPath: "main.log" },
    };
    await adapter.apply(desired, { kind: "startContainer", container }, NEVER);
    const { sandboxes, containers } = await adapter.inspect(desired.uid, NEVER);
    const [made] = containers;
    return new GuestPod(desired, sandboxes[0]?.id ?? "", made?.id ?? "", made?.logPath ?? "");
  }

  said(): string[] {
    const lines = existsSync(this.#logPath) ? readFileSync(this.#logPath, "utf8").split("\n").slice(0, -1) : [];
    return lines.map((line) => line.split(" ").slice(3).join(" "));
  }

  /** Until it ends by itself, or has said so many lines. */
  async until(lines: number): Promise<string[]> {
    const enough = new AbortController();
    const hints = adapter.hints(enough.signal)[Symbol.asyncIterator]();
    for (;;) {
      const hint = Promise.race([hints.next(), new Promise((resolve) => setTimeout(resolve, 100))]);
      const { containers } = await adapter.inspect(this.#desired.uid, NEVER);
      const hasEnded = containers.some((each) => each.id === this.#id && each.state.kind === "exited");
      if (hasEnded || this.said().length >= lines) break;
      await hint;
    }
    enough.abort();
    return this.said();
  }

  async remove(): Promise<void> {
    await adapter.apply(this.#desired, { kind: "removeSandbox", sandboxId: this.#sandboxId }, NEVER);
  }
}

const tell = (name: string, outcome: unknown): void => console.log(`RESULT ${JSON.stringify([name, outcome])}`);

async function scenario(name: string, component: Component, devices: string, steps: string): Promise<void> {
  const pod = await GuestPod.start(component, devices, steps.split(" "));
  tell(name, await pod.until(Number.POSITIVE_INFINITY));
  await pod.remove();
}

/** The bus of an adapter whose name holds `text`. */
async function busNamed(text: string): Promise<string> {
  const folder = "/sys/bus/i2c/devices";
  for (;;) {
    for (const each of readdirSync(folder)) {
      const path = `${folder}/${each}/name`;
      if (/^i2c-\d+$/.test(each) && readFileSync(path, "utf8").includes(text)) return `/dev/${each}`;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

interface Devices {
  /** A bus that does whole transfers, with a memory at 0x48. */
  readonly bridge: string;
  /** One of SMBus alone, with a memory at 0x50. */
  readonly stub: string;
  readonly chip: string;
  /** The devices that pods may use. */
  readonly grants: string;
}

async function transfers({ bridge, stub, grants }: Devices, component: Component): Promise<void> {
  const whole = `bus ${bridge} 0x48 put 10a1b2c3 ask 10 3 get 2 huge drop bus ${bridge} 0x49 ask 10 1`;
  const commands = `bus ${stub} 0x50 put 1055 ask 10 1 put 2001020304 ask 20 4 put 10 get 1 ask 20 33`;
  const others = `bus ${bridge} 0x50 bus /dev/i2c-99 0x48 bus /dev/null 0x48`;
  await scenario(`transfers of ${component}`, component, grants, `${whole} ${commands} ${others}`);
}

async function lines({ chip, grants }: Devices, component: Component): Promise<void> {
  const levels = `output ${chip}:0 1 input ${chip}:1 read set 0 read level set 1 level next lines`;
  const others = `input ${chip}:3 input GPIO17 input ${chip}:9 input /dev/gpiochip7:1 edges ${chip}:2`;
  await scenario(`lines of ${component}`, component, grants, `${levels} ${others}`);
}

/** A pod, a driver of the kernel and a program of the node have what another pod wants. */
async function contention({ bridge, chip, grants }: Devices): Promise<void> {
  const calls = new SystemCalls(deviceAddon(`${APP}/wasm-runner.cjs`));
  const fd = openSync(chip, constants.O_RDWR);
  const request = encodeLineRequest(2, { flags: LINE_FLAG.input, debounceMicroseconds: undefined, initial: false });
  calls.ioctl(fd, GPIO.getLine, request);
  writeFileSync(`/sys/bus/i2c/devices/${bridge.slice("/dev/".length)}/new_device`, "dummy 0x4a\n");
  const holder = await GuestPod.start("pins", grants, `bus ${bridge} 0x48 output ${chip}:0 0 hold`.split(" "));
  await holder.until(2);
  const steps = `bus ${bridge} 0x48 bus ${bridge} 0x4a input ${chip}:2 input ${chip}:0 input ${chip}:1`;
  await scenario("busy", "pins", grants, steps);
  closeSync(requestedFd(request));
  await holder.remove();
  await scenario("free", "pins", grants, `bus ${bridge} 0x48 input ${chip}:2 input ${chip}:0`);
}

/** A line that the component itself changes is wired to the one whose edges it waits for. */
async function edges({ stub }: Devices): Promise<void> {
  const plugged = spawn(process.execPath, [process.argv[1] ?? "", LINE_CHIP], { stdio: "inherit" });
  const chips = (): string[] => readdirSync("/dev").filter((name) => name.startsWith("gpiochip"));
  while (chips().length === 0) await new Promise((resolve) => setTimeout(resolve, 50));
  const chip = `/dev/${chips()[0]}`;
  const steps = `output ${chip}:0 0 edges ${chip}:1 next set 1 wait set 0 wait next read`;
  // The component imports the interface of buses too.
  await scenario("edges", "pins", `gpio:${chip}:0,1;i2c:${stub}:0x50`, steps);
  plugged.kill("SIGKILL");
}

/** Two ports of the machine that are connected to each other. */
async function ports(): Promise<void> {
  const [near, far] = ["/dev/ttyS1", "/dev/ttyS2"];
  const listener = await GuestPod.start(
    "serial",
    `serial:${far}`,
    `open ${far} 19200 7 1 2 0 read 5 write pong`.split(" "),
  );
  await listener.until(1);
  const steps = `open ${near} 19200 7 1 2 0 lines write hello read 4 raise lines break set 115200 8 write x`;
  await scenario("near-port", "serial", `serial:${near}`, steps);
  tell("far-port", await listener.until(Number.POSITIVE_INFINITY));
}

async function main(): Promise<void> {
  // The chip is another process: a process that waits for the kernel cannot also answer the kernel.
  const chip = spawn(process.execPath, [process.argv[1] ?? "", CHIP], { stdio: "inherit" });
  for (const name of ["pins", "async-pins", "serial"]) {
    await adapter.images.import(`${APP}/${name}.wasm`, `localhost/${name}:1`, NEVER);
  }
  const bridge = await busNamed("MCP2221");
  const stub = await busNamed("stub");
  const pins = "/dev/gpiochip0";
  // The last thing that the driver makes: until it has, the kernel gives it nothing of what the chip says.
  while (!existsSync(pins)) await new Promise((resolve) => setTimeout(resolve, 50));
  const grants = [
    ...[`i2c:${bridge}:0x48,0x49,0x4a`, `i2c:${stub}:0x50`, "i2c:/dev/i2c-99:0x48", "i2c:/dev/null:0x48"],
    ...[`gpio:${pins}:0,1,2,9`, "gpio:/dev/gpiochip7:1"],
  ].join(";");
  const devices: Devices = { bridge, stub, chip: pins, grants };
  // The second is of WASI 0.3.
  for (const component of ["pins", "async-pins"] as const) {
    await transfers(devices, component);
    await lines(devices, component);
  }
  await contention(devices);
  const gone = once(chip, "exit");
  chip.kill("SIGKILL");
  await gone;
  await scenario("unplugged", "pins", grants, `bus ${bridge} 0x48 input ${pins}:0`);
  await edges(devices);
  await ports();
}

if (process.argv[2] === CHIP) {
  new UsbBridgeChip();
} else if (process.argv[2] === LINE_CHIP) {
  new UsbLineChip();
} else {
  main()
    .catch((error: unknown) => tell("failed", `${describeError(error)} ${JSON.stringify(log)}`))
    .finally(() => process.exit());
}
