/**
 * Serial ports of the board, by a component in real runners; pseudo terminals stand for the cable and its other end.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { basename } from "node:path";
import { after, before, describe, test } from "node:test";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { MountFolder } from "../support/unit/machine/mount-folder.ts";
import { PseudoTerminal } from "../support/unit/wasm/pseudo-terminal.ts";
import { testComponent } from "../support/wasm/components.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const IMAGE = "localhost/serial:1";
const ASYNC = "localhost/async-serial:1";
const NEVER = new AbortController().signal;
/** Bits of c_cflag. */
const CSIZE = 0x30;
const CRTSCTS = 0x80000000;
const IXON_IXOFF = 0x1400;

let runtime: WasmRuntime;
let adapter: WasmAdapter;
let pods = 0;

before(async () => {
  runtime = await WasmRuntime.create({ p3: true });
  adapter = runtime.adapter();
  await adapter.images.import(await testComponent("serial.c"), IMAGE, NEVER);
  await adapter.images.import(await testComponent("async-serial.c"), ASYNC, NEVER);
});

after(async () => {
  await adapter?.[Symbol.asyncDispose]();
  await runtime?.[Symbol.asyncDispose]();
});

class Running implements AsyncDisposable {
  readonly #pod: WasmPod;
  readonly #container: ObservedContainer;

  private constructor(pod: WasmPod, container: ObservedContainer) {
    this.#pod = pod;
    this.#container = container;
  }

  /** A pod that may use these ports. */
  static async start(ports: readonly string[], steps: readonly string[], image = IMAGE): Promise<Running> {
    pods += 1;
    const pod = await WasmPod.create(runtime, adapter, {
      name: `serial-${pods}`,
      image,
      annotations: {
        "wasm.picolet.io/interfaces": "serial",
        "wasm.picolet.io/devices": ports.map((each) => `serial:${each}`).join("; "),
      },
    });
    return new Running(pod, await pod.start({ args: steps }));
  }

  says(lines: number): Promise<string[]> {
    return this.#pod.text(this.#container, lines);
  }

  /** All that it said until it ended by itself. */
  async end(): Promise<string[]> {
    const { exitCode, message } = await this.#pod.exit(this.#container.id);
    assert.equal(exitCode, 0, message);
    return this.says(0);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#pod[Symbol.asyncDispose]();
  }
}

const open = (path: string, options = "9600 8 0 1 0"): string[] => ["open", path, ...options.split(" ")];

const sumOf = (bytes: Uint8Array): number => bytes.reduce((sum, byte, index) => sum + byte * ((index % 251) + 1), 0);
const pattern = (length: number): Buffer => Buffer.from(Array.from({ length }, (_, index) => index % 251));

describe("a serial port", () => {
  test("is read and written raw, with the speed and the flow control that the component asks for", async () => {
    using terminal = new PseudoTerminal();
    const steps = [
      ...open(terminal.path, "19200 8 0 1 1"),
      "write",
      "AT\r\n",
      "count",
      "6",
      "set",
      "250000",
      "8",
      "break",
    ];
    await using running = await Running.start([terminal.path], [...steps, "write", "x", "read", "1"]);
    assert.equal((await terminal.read(4)).toString(), "AT\r\n");
    const { line, speed } = terminal.settings;
    assert.deepEqual([line & CSIZE, (line & CRTSCTS) >>> 0, speed], [CSIZE, CRTSCTS, 19_200]);
    // Bytes that a terminal in cooked mode interprets: interrupt, line ends, flow control, erase, end.
    const special = Buffer.from("\u0003\r\n\u0013\u007f\u0004", "latin1");
    await terminal.write(special);
    assert.equal((await terminal.read(1)).toString(), "x");
    assert.deepEqual([terminal.settings.speed, terminal.settings.line & 0x80000000], [250_000, 0]);
    await terminal.write(Buffer.from("."));
    assert.deepEqual(await running.end(), [
      ...["open", "written", `sum ${sumOf(special)}`, "set", "break", "written", "read ."],
    ]);
  });

  test("is a component's of WASI 0.3, whose timers run while it waits for the line", async () => {
    using terminal = new PseudoTerminal();
    await using running = await Running.start([terminal.path], [terminal.path], ASYNC);
    assert.deepEqual(await running.says(1), ["open"]);
    await terminal.write(Buffer.from("a"));
    assert.equal((await terminal.read(1)).toString(), "a");
    await terminal.write(Buffer.from("bc"));
    assert.equal((await terminal.read(2)).toString(), "bc");
    assert.deepEqual(await running.end(), ["open", "abc", "and the timer"]);
  });

  test("has no such frame: that is said, and software flow control is", async () => {
    using terminal = new PseudoTerminal();
    const { path } = terminal;
    const steps = [...open(path, "9600 7 0 1 0"), ...open(path, "9600 8 0 3 0"), ...open(path, "0 8 0 1 0")];
    steps.push(...open(path, "9600 8 0 1 2"), "set", "9600", "6", "lines", "raise", "hold");
    await using running = await Running.start([path], steps);
    const said = await running.says(7);
    assert.deepEqual(said, [
      ...["error unsupported", "error unsupported", "error unsupported", "open"],
      ...["error unsupported", "error unsupported", "error unsupported"],
    ]);
    assert.equal(terminal.settings.input, IXON_IXOFF);
  });

  test("is not busy while a container has a terminal of that number", async () => {
    using terminal = new PseudoTerminal();
    using container = new MountFolder();
    execFileSync("mount", ["-t", "devpts", "-o", "newinstance,ptmxmode=600", "devpts", container.path]);
    using opened = new DisposableStack();
    const name = basename(terminal.path);
    let other = opened.use(new PseudoTerminal(container.path));
    while (basename(other.path) !== name) other = opened.use(new PseudoTerminal(container.path));
    opened.adopt(openSync(other.path, constants.O_RDWR | constants.O_NOCTTY), closeSync);
    await using running = await Running.start([terminal.path], open(terminal.path));
    assert.deepEqual(await running.end(), ["open"]);
  });

  test("is busy while another pod has it, or a program of the node, and free again afterwards", async () => {
    using terminal = new PseudoTerminal();
    const { path } = terminal;
    const program = openSync(path, constants.O_RDWR | constants.O_NOCTTY);
    await using first = await Running.start([path], [...open(path), "appears", path, "hold"]);
    assert.deepEqual(await first.says(2), ["error busy", "error busy"]);
    closeSync(program);
    const holder = await Running.start([path], [...open(path), "hold"]);
    assert.deepEqual(await holder.says(1), ["open"]);
    await using second = await Running.start([path], open(path));
    assert.deepEqual(await second.end(), ["error busy"]);
    await holder[Symbol.asyncDispose]();
    await using third = await Running.start([path], [...open(path), "close", ...open(path), ...open(path)]);
    assert.deepEqual(await third.end(), ["open", "shut", "open", "error busy"]);
  });

  test("is nobody's whose pod does not name it, and a device of another kind is none", async () => {
    using mine = new PseudoTerminal();
    using other = new PseudoTerminal();
    const steps = [...open(other.path), ...open("/dev/null"), ...open("/dev/ttyNONE0"), ...open("../dev/null")];
    await using running = await Running.start(
      [mine.path, "/dev/null", "/dev/ttyNONE0", "/dev/tty1"],
      [...[...steps, ...open("/dev/tty1"), ...open(mine.path)]],
    );
    assert.deepEqual(await running.end(), [
      ...["error not-granted", "error io: /dev/null is no serial port", "error no-such-port", "error not-granted"],
      ...["error io: /dev/tty1 is no serial port", "open"],
    ]);
  });

  test("may be plugged in later, by its lasting name, and pulled out", async () => {
    using terminal = new PseudoTerminal();
    const name = `/dev/picolet-${process.pid}-plugged`;
    const steps = ["appears", name, "write", "hi", "end", "write", "x"];
    await using running = await Running.start([name], steps);
    assert.deepEqual(await running.says(1), ["error no-such-port"]);
    terminal.link(name);
    assert.equal((await terminal.read(2)).toString(), "hi");
    terminal.unplug();
    assert.deepEqual(await running.end(), ["error no-such-port", "open", "written", "closed", "failed"]);
  });

  test("has whoever sends too fast wait, at both ends", async () => {
    using terminal = new PseudoTerminal();
    const sent = pattern(200_000);
    const steps = [...open(terminal.path), "fill", String(sent.length), "read", "1", "count"];
    await using running = await Running.start([terminal.path], [...steps, String(sent.length)]);
    await running.says(1);
    assert.deepEqual((await terminal.read(1)).toString("latin1"), "\0");
    // The rest is unread: the component waits for its first few thousand bytes.
    assert.deepEqual(await terminal.read(sent.length - 1), sent.subarray(1));
    await running.says(2);
    // The component waits for one byte, and gets it; then it is slower than this.
    await terminal.write(Buffer.from("!"));
    await terminal.write(sent);
    assert.deepEqual((await running.end()).slice(2), ["read !", `sum ${sumOf(sent)}`]);
  });

  test("is one of sixteen at the most, and all are given back at the component's end", async () => {
    const terminals = Array.from({ length: 17 }, () => new PseudoTerminal());
    try {
      const base = `/dev/picolet-${process.pid}-many`;
      for (const [index, each] of terminals.entries()) each.link(`${base}-${index}`);
      const names = terminals.map((_, index) => `${base}-${index}`);
      await using running = await Running.start(names, ["hoard", base, "17"]);
      assert.deepEqual(await running.end(), ["opened 16", "error io: more than 16 devices are open"]);
    } finally {
      for (const each of terminals) each[Symbol.dispose]();
    }
  });

  test("is asked for again in a runner that was kept ready", async () => {
    using terminal = new PseudoTerminal();
    const pod = await WasmPod.create(runtime, adapter, {
      ...{ name: "serial-again", image: IMAGE },
      annotations: {
        "wasm.picolet.io/interfaces": "serial",
        "wasm.picolet.io/devices": `serial:${terminal.path}`,
      },
    });
    const first = await pod.start({ args: open(terminal.path) });
    await pod.exit(first.id);
    await adapter.sparesSettled;
    const second = await pod.start({ args: open(terminal.path), attempt: 1 });
    assert.equal((await pod.exit(second.id)).exitCode, 0);
    assert.deepEqual(await pod.text(second, 1), ["open"]);
    await pod[Symbol.asyncDispose]();
  });
});

test("a component with devices is not started where the two annotations do not agree", async () => {
  const start = (annotations: Readonly<Record<string, string>>) => async () => {
    const pod = await WasmPod.create(runtime, adapter, { name: "disagrees", image: IMAGE, annotations });
    await using _ = pod;
    await pod.start({ args: [] });
  };
  const named = { "wasm.picolet.io/interfaces": "serial" };
  await assert.rejects(start(named), /serial is named without a device: add serial:\/dev\/ttyS0/);
  await assert.rejects(
    start({ "wasm.picolet.io/devices": "serial:/dev/ttyS0" }),
    /add serial to wasm.picolet.io\/inter/,
  );
});
