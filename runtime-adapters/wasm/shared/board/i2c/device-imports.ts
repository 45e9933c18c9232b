/** picolet:board/i2c: one address of a bus each, for which the agent has had the bus opened and locked. */
import { closeSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type * as I2c from "@picolet/wit/generated/picolet-board-i2c.js";
import { type DeviceContext, MAX_OPEN_DEVICES } from "../../devices/host/device-host.ts";
import { Failure } from "../../resources/failure.ts";
import { HandlePool, HostResource } from "../../resources/handles.ts";
import {
  bytesRead,
  encodeSmbus,
  encodeTransfer,
  FUNCS_BYTES,
  I2C_FUNCS,
  I2C_RDWR,
  I2C_SMBUS,
  isTooLarge,
  supportsI2c,
} from "./uapi.ts";

const failure = (error: I2c.Error): Failure<I2c.Error> => new Failure(error);

/** Documentation/i2c/fault-codes.rst */
const ERRORS: Readonly<Record<string, I2c.Error>> = {
  ENXIO: { tag: "no-acknowledge", val: "address" },
  EREMOTEIO: { tag: "no-acknowledge", val: "unknown" },
  EAGAIN: { tag: "arbitration-loss" },
  EPROTO: { tag: "bus" },
  EOVERFLOW: { tag: "overrun" },
  EBUSY: { tag: "timeout" },
  ETIMEDOUT: { tag: "timeout" },
  ENODEV: { tag: "other", val: "the bus is gone" },
  EOPNOTSUPP: { tag: "other", val: "the bus cannot do such a transfer" },
  EINVAL: { tag: "other", val: "the bus cannot do such a transfer" },
};

export function i2cImports(context: DeviceContext) {
  const devices = new HandlePool("devices");
  const { host, agent } = context;
  return {
    "picolet:board/i2c": {
      open(bus: string, address: number): Device {
        if (host.isFull) throw failure({ tag: "other", val: `more than ${MAX_OPEN_DEVICES} devices are open` });
        const descriptors = host.open(agent, "i2c.open", { bus, address }, "other");
        return new Device(devices, context, address, descriptors);
      },
      Device,
    },
  };
}

class Device extends HostResource implements I2c.Device {
  readonly #context: DeviceContext;
  readonly #address: number;
  /** The bus; and a lock, so that no other pod has the address meanwhile. */
  readonly #descriptors: readonly number[];
  #functions: number | undefined;

  constructor(pool: HandlePool, context: DeviceContext, address: number, descriptors: readonly number[]) {
    super(pool);
    this.#context = context;
    this.#address = address;
    this.#descriptors = descriptors;
  }

  transaction(operations: I2c.Operation[]): Uint8Array[] {
    // Before anything is made of them: a component may ask for four gigabytes.
    if (isTooLarge(operations)) throw failure({ tag: "too-large" });
    if (operations.length === 0) return [];
    const { calls } = this.#context.host;
    const addressOf = (memory: Buffer): bigint => calls.addressOf(memory);
    const functions = this.#busFunctions();
    const transfer = supportsI2c(functions)
      ? encodeTransfer(this.#address, operations, addressOf)
      : encodeSmbus(operations, functions, addressOf);
    if (transfer === undefined) {
      throw failure({ tag: "other", val: "the bus speaks SMBus alone, which has no such transfer" });
    }
    this.#ioctl(supportsI2c(functions) ? I2C_RDWR : I2C_SMBUS, transfer.memory);
    return bytesRead(transfer);
  }

  read(length: number): Uint8Array {
    return this.#only([{ tag: "read", val: length }]);
  }

  write(data: Uint8Array): void {
    this.transaction([{ tag: "write", val: data }]);
  }

  writeRead(data: Uint8Array, length: number): Uint8Array {
    return this.#only([
      { tag: "write", val: data },
      { tag: "read", val: length },
    ]);
  }

  #only(operations: I2c.Operation[]): Uint8Array {
    const [bytes = new Uint8Array()] = this.transaction(operations);
    return bytes;
  }

  #busFunctions(): number {
    if (this.#functions === undefined) {
      const memory = Buffer.alloc(FUNCS_BYTES);
      this.#ioctl(I2C_FUNCS, memory);
      this.#functions = memory.readUInt32LE();
    }
    return this.#functions;
  }

  #ioctl(request: number, memory: Buffer): void {
    const [bus = -1] = this.#descriptors;
    try {
      this.#context.host.calls.ioctl(bus, request, memory);
    } catch (error) {
      const code = errnoOf(error) || "unknown";
      throw failure(ERRORS[code] ?? { tag: "other", val: code });
    }
  }

  protected override closed(): void {
    for (const each of this.#descriptors) closeSync(each);
    this.#context.host.closed();
  }
}
