/**
 * picolet:board/gpio: each line is an open file of its own, which the agent has had opened; the chip is not reached.
 */
import { closeSync, readSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type * as Gpio from "@picolet/wit/generated/picolet-board-gpio.js";
import { callDeviceAgent, type DeviceContext, MAX_OPEN_DEVICES } from "../../devices/host/device-host.ts";
import { POLLIN } from "../../devices/system-calls.ts";
import { Failure } from "../../resources/failure.ts";
import { HandlePool, HostResource } from "../../resources/handles.ts";
import { Pollable, type Readiness } from "../../resources/polling.ts";
import { decodeEvents, decodeValues, encodeValues, GPIO, LINE_FLAG } from "./uapi.ts";

/** The interface's limit for one call. */
const MAX_EVENTS = 64;

const failure = (error: Gpio.Error): Failure<Gpio.Error> => new Failure(error);

const BIAS: Readonly<Record<Gpio.Bias, number>> = {
  "as-is": 0,
  disabled: LINE_FLAG.biasDisabled,
  "pull-up": LINE_FLAG.biasPullUp,
  "pull-down": LINE_FLAG.biasPullDown,
};
const DRIVE: Readonly<Record<Gpio.Drive, number>> = {
  "push-pull": 0,
  "open-drain": LINE_FLAG.openDrain,
  "open-source": LINE_FLAG.openSource,
};

interface Asked {
  readonly flags: number;
  readonly debounceMicroseconds?: number;
  readonly initial?: boolean;
}

/** The agent's answer about one chip. */
interface ChipLines {
  readonly path: string;
  readonly lines: readonly { readonly line: number; readonly name: string; readonly consumer: string | null }[];
}

export function gpioImports(context: DeviceContext) {
  const inputs = new HandlePool("input lines");
  const outputs = new HandlePool("output lines");
  const { host, agent } = context;
  const open = (line: string, asked: Asked): number => {
    if (host.isFull) throw failure({ tag: "io", val: `more than ${MAX_OPEN_DEVICES} devices are open` });
    const [fd = -1] = host.open(agent, "gpio.open", { line, ...asked }, "io");
    return fd;
  };
  return {
    "picolet:board/gpio": {
      lines(): Gpio.LineInfo[] {
        const { value } = callDeviceAgent(() => agent.ask({ method: "gpio.lines", repeatable: true }), "io");
        return (value as unknown as readonly ChipLines[]).flatMap(({ path, lines }) =>
          lines.map(({ line, name, consumer }) => ({
            ...{ id: `${path}:${line}`, name },
            ...(consumer === null ? {} : { consumer }),
          })),
        );
      },
      openInput: (line: string, options: Gpio.InputOptions) =>
        new InputLine(inputs, context, open(line, inputRequest(options))),
      openOutput: (line: string, options: Gpio.OutputOptions) =>
        new OutputLine(outputs, context, open(line, outputRequest(options))),
      InputLine,
      OutputLine,
    },
  };
}

function inputRequest({ bias, activeLow, edges, debounceMicroseconds }: Gpio.InputOptions): Asked {
  const flags =
    LINE_FLAG.input |
    BIAS[bias] |
    (activeLow ? LINE_FLAG.activeLow : 0) |
    (edges.rising === true ? LINE_FLAG.edgeRising : 0) |
    (edges.falling === true ? LINE_FLAG.edgeFalling : 0);
  return debounceMicroseconds === undefined ? { flags } : { flags, debounceMicroseconds };
}

function outputRequest({ bias, activeLow, drive, initial }: Gpio.OutputOptions): Asked {
  const flags = LINE_FLAG.output | BIAS[bias] | DRIVE[drive] | (activeLow ? LINE_FLAG.activeLow : 0);
  return { flags, initial };
}

abstract class Line extends HostResource {
  protected readonly context: DeviceContext;
  protected readonly fd: number;

  constructor(pool: HandlePool, context: DeviceContext, fd: number) {
    super(pool);
    this.context = context;
    this.fd = fd;
  }

  read(): boolean {
    const memory = encodeValues(false);
    asLine(() => this.context.host.calls.ioctl(this.fd, GPIO.getValues, memory));
    return decodeValues(memory);
  }

  protected override closed(): void {
    closeSync(this.fd);
    this.context.host.closed();
  }
}

class InputLine extends Line implements Gpio.InputLine {
  /** The kernel keeps the edges until they are fetched. */
  next(max: number): Gpio.EdgeEvent[] {
    const memory = Buffer.alloc(Math.min(max, MAX_EVENTS) * GPIO.eventBytes);
    // Reading a line without edges would fail with another error.
    if (memory.length === 0 || !this.#readiness.ready()) return [];
    const length = asLine(() => readSync(this.fd, memory, 0, memory.length, null));
    return decodeEvents(memory.subarray(0, length));
  }

  subscribe(): Pollable {
    const { handles, poller } = this.context;
    return new Pollable(handles.pollables, poller, this.#readiness);
  }

  get #readiness(): Readiness {
    const { waits } = this.context.host;
    const { fd } = this;
    return { ready: () => waits.isReady(fd, POLLIN), onReady: (wake) => waits.add(fd, POLLIN, wake) };
  }
}

class OutputLine extends Line implements Gpio.OutputLine {
  write(level: boolean): void {
    asLine(() => this.context.host.calls.ioctl(this.fd, GPIO.setValues, encodeValues(level)));
  }
}

function asLine<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    const code = errnoOf(error) || "unknown";
    throw failure({ tag: "io", val: code === "ENODEV" ? "the chip is gone" : code });
  }
}
