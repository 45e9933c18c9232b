/** A runner asks the agent for a device, and receives the open file (`shared/devices/descriptors.ts`). */
import { constants, openSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import type { Plain } from "@picolet/runtime-contract/board-services.ts";
import { entryPath, O_PATH } from "../../host/paths.ts";
import { Failure } from "../../resources/failure.ts";
import type { StreamContext } from "../../resources/streams.ts";
import type { AgentCalls, ErrorCase } from "../../services/agent-calls.ts";
import { takeDescriptors } from "../descriptors.ts";
import { SystemCalls } from "../system-calls.ts";
import { DeviceWaits } from "./device-waits.ts";

/** Bounds the open devices of a container: ports, lines and addresses together. */
export const MAX_OPEN_DEVICES = 16;

/** Threads of libuv: one waits for devices, the other looks up names. libuv reads it when it starts the first one. */
const THREADS = "2";

export interface DeviceContext extends StreamContext {
  readonly agent: AgentCalls;
  readonly host: DeviceHost;
}

export class DeviceHost {
  readonly calls: SystemCalls;
  readonly waits: DeviceWaits;
  readonly #folder: number;
  #open = 0;

  /** While the runner still may. */
  constructor(addonPath: string, serviceDirectory: string) {
    process.env.UV_THREADPOOL_SIZE = THREADS;
    this.calls = new SystemCalls(addonPath);
    this.waits = new DeviceWaits(this.calls);
    this.#folder = openSync(serviceDirectory, O_PATH | constants.O_DIRECTORY);
  }

  get isFull(): boolean {
    return this.#open >= MAX_OPEN_DEVICES;
  }

  /**
   * Call it once in a host function, as its first effect.
   * @param failed the interface's tag for an error in words
   * @returns the descriptors, the device's first. Call `closed` when they are closed.
   */
  open(agent: AgentCalls, method: string, value: Plain, failed: "io" | "other"): readonly number[] {
    const answer = callDeviceAgent(() => agent.ask({ method, value, repeatable: true }), failed);
    const { socket, secret } = answer.value as { readonly socket: string; readonly secret: string };
    try {
      const taken = takeDescriptors(this.calls, entryPath(this.#folder, socket), secret);
      this.#open += 1;
      return taken;
    } catch (error) {
      throw new Failure<ErrorCase>({ tag: failed, val: `the device cannot be had: ${describeError(error)}` });
    }
  }

  closed(): void {
    this.#open -= 1;
  }
}

/** The agent may be away, or may not know devices. */
export function callDeviceAgent<T>(ask: () => T, failed: "io" | "other"): T {
  try {
    return ask();
  } catch (error) {
    const isAway = error instanceof Failure && (error.payload as ErrorCase).tag === "unavailable";
    throw isAway ? new Failure<ErrorCase>({ tag: failed, val: "the agent cannot be asked for it now" }) : error;
  }
}
