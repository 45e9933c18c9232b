/** picolet:board/serial on Linux' terminals, raw: the kernel's own buffers are the only ones but for one write. */
import { errnoOf } from "@picolet/protocol/guards.ts";
import type * as Serial from "@picolet/wit/generated/picolet-board-serial.js";
import { type DeviceContext, MAX_OPEN_DEVICES } from "../../devices/host/device-host.ts";
import { Failure } from "../../resources/failure.ts";
import { HandlePool, HostResource, trap } from "../../resources/handles.ts";
import { InputStream, OutputStream } from "../../resources/streams.ts";
import { SerialLine } from "./device-line.ts";
import {
  decodeLines,
  encodeLines,
  encodeTermios,
  hasAppliedOptions,
  isFrame,
  TCFLSH,
  TCGETS2,
  TCIFLUSH,
  TCSETS2,
  TERMIOS_BYTES,
  TIOCCBRK,
  TIOCMGET,
  TIOCMSET,
  TIOCSBRK,
} from "./uapi.ts";

/** Between a quarter and half of a second. */
const BREAK_NS = 300_000_000n;
/** The port has no such thing, or not this way. */
const UNSUPPORTED = new Set(["EINVAL", "ENOTTY", "EOPNOTSUPP"]);

const failure = (error: Serial.Error): Failure<Serial.Error> => new Failure(error);

export function serialImports(context: DeviceContext) {
  const ports = new HandlePool("serial ports");
  const { host, agent } = context;
  return {
    "picolet:board/serial": {
      open(port: string, options: Serial.Options): Port {
        if (!isFrame(options)) throw failure({ tag: "unsupported" });
        if (host.isFull) throw failure({ tag: "io", val: `more than ${MAX_OPEN_DEVICES} devices are open` });
        const [fd = -1] = host.open(agent, "serial.open", { port }, "io");
        const line = new SerialLine(context, fd, options);
        try {
          configure(context, fd, options);
          // Earlier input came at another speed, or was for another program.
          asPort(() => host.calls.ioctl(fd, TCFLSH, TCIFLUSH));
          return new Port(ports, context, line);
        } catch (error) {
          line.release();
          throw error;
        }
      },
      Port,
    },
  };
}

class Port extends HostResource {
  readonly #context: DeviceContext;
  readonly #line: SerialLine;
  #hasInput = false;
  #hasOutput = false;

  constructor(pool: HandlePool, context: DeviceContext, line: SerialLine) {
    super(pool);
    this.#context = context;
    this.#line = line;
  }

  input(): InputStream {
    if (this.#hasInput) throw trap("the input of a serial port was asked for twice");
    this.#hasInput = true;
    return new InputStream(this.#context, this.#line.source());
  }

  output(): OutputStream {
    if (this.#hasOutput) throw trap("the output of a serial port was asked for twice");
    this.#hasOutput = true;
    return new OutputStream(this.#context, this.#line.sink());
  }

  setOptions(options: Serial.Options): void {
    if (!isFrame(options)) throw failure({ tag: "unsupported" });
    try {
      configure(this.#context, this.#line.fd, options);
    } catch (error) {
      // Options that are refused change nothing.
      configure(this.#context, this.#line.fd, this.#line.options);
      throw error;
    }
    this.#line.options = options;
  }

  modemLines(): Serial.ModemLines {
    return decodeLines(this.#lines());
  }

  setModemLines(set: Serial.ModemLines): void {
    const bits = Buffer.alloc(4);
    bits.writeUInt32LE(encodeLines(set, this.#lines()));
    asPort(() => this.#context.host.calls.ioctl(this.#line.fd, TIOCMSET, bits));
  }

  sendBreak(): void {
    const { poller, host } = this.#context;
    const { fd } = this.#line;
    poller.finish(() => {
      asPort(() => host.calls.ioctl(fd, TIOCSBRK, 0));
      const timer = poller.timer(poller.now() + BREAK_NS);
      const result = (): void => void asPort(() => host.calls.ioctl(fd, TIOCCBRK, 0));
      return { at: timer.at, ready: () => timer.ready(), result };
    });
  }

  #lines(): number {
    const bits = Buffer.alloc(4);
    asPort(() => this.#context.host.calls.ioctl(this.#line.fd, TIOCMGET, bits));
    return bits.readUInt32LE();
  }

  protected override closed(): void {
    this.#line.release();
  }
}

/** Drivers change options that they do not support, so that the options are read back. */
function configure({ host: { calls } }: DeviceContext, fd: number, options: Serial.Options): void {
  asPort(() => calls.ioctl(fd, TCSETS2, encodeTermios(options)));
  const actual = Buffer.alloc(TERMIOS_BYTES);
  asPort(() => calls.ioctl(fd, TCGETS2, actual));
  if (!hasAppliedOptions(actual, options)) throw failure({ tag: "unsupported" });
}

function asPort<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    const code = errnoOf(error) || "unknown";
    if (UNSUPPORTED.has(code)) throw failure({ tag: "unsupported" });
    throw failure({ tag: "io", val: code === "EIO" ? "the port is gone" : code });
  }
}
