/**
 * The agent's services for components with devices: `service.ts` of each kind judges a call by the pod's grants,
 * and the child that this starts opens the device (`devices-main.ts`). Loaded with the first call.
 */
import { randomBytes } from "node:crypto";
import { TokenBucket } from "@picolet/protocol/async/token-bucket.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import {
  type BoardService,
  type DeviceKind,
  type Plain,
  type ServicePeer,
  ServiceRefusal,
} from "@picolet/runtime-contract/board-services.ts";
import { gpioCalls } from "../../shared/board/gpio/service.ts";
import { i2cCalls } from "../../shared/board/i2c/service.ts";
import { serialCalls } from "../../shared/board/serial/service.ts";
import type { DeviceCalls } from "../../shared/devices/service/device-calls.ts";
import type { DeviceAnswer, DeviceRequest, DeviceTarget, RefusalKind } from "../../shared/messages/device-request.ts";
import { DEVICES_FLAGS } from "../processes/node-flags.ts";
import { type OneOffChildComponents, parseAnswer, runOneOffChild } from "../processes/one-off-child.ts";

export interface DeviceServiceComponents extends OneOffChildComponents {
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  readonly log: Pick<Log, "warn">;
}

export interface DeviceServiceInit {
  readonly nodePath: string;
  /** The bundled child, or `devices-main.ts`. */
  readonly devicesPath: string;
  /** Path of koffi.node. */
  readonly addonPath: string;
  /** The folder that runners see. */
  readonly servicesDirectory: string;
  readonly lockDirectory: string;
}

/** The table of the services of devices. */
const DEVICE_CALLS: Readonly<Record<DeviceKind, DeviceCalls>> = {
  serial: serialCalls,
  gpio: gpioCalls,
  i2c: i2cCalls,
};

/** Bounds the child. Node starts within a second on the slowest boards, and the runner has ten to fetch the file. */
const CHILD_TIMEOUT = seconds(30);
/** Bounds the child's memory. Node takes 40 MiB. */
const CHILD_MEMORY_BYTES = 128 * MEBIBYTE;
const SECRET_RANDOM_BYTES = 32;
const NAME_RANDOM_BYTES = 8;

/** Where the runner fetches the open file. */
interface Place {
  readonly socket: string;
  readonly secret: string;
}

export class DeviceService {
  readonly #components: DeviceServiceComponents;
  readonly #init: DeviceServiceInit;
  readonly #over = new AbortController();
  /** One child at a time, because it checks whether a port is in use before it opens the port. */
  #turn: Promise<unknown> = Promise.resolve();
  readonly #pace: OpeningPace;

  constructor(components: DeviceServiceComponents, init: DeviceServiceInit) {
    this.#components = components;
    this.#init = init;
    this.#pace = new OpeningPace(components.clock);
  }

  of(kind: DeviceKind): BoardService {
    const { tags, call } = DEVICE_CALLS[kind];
    return {
      call: async (peer, method, { value }) => {
        const open = (target: DeviceTarget): Promise<Plain> => this.#open(peer, kind, target, tags);
        return { value: await call(peer, method, value, open), bytes: [] };
      },
    };
  }

  async #open(
    { containerId }: ServicePeer,
    kind: DeviceKind,
    target: DeviceTarget,
    tags: DeviceCalls["tags"],
  ): Promise<Plain> {
    await this.#pace.wait(containerId, this.#over.signal);
    const before = this.#turn;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turn = promise;
    await before;
    const place = {
      socket: `device-${randomBytes(NAME_RANDOM_BYTES).toString("hex")}`,
      secret: randomBytes(SECRET_RANDOM_BYTES).toString("hex"),
    };
    const answered = Promise.withResolvers<DeviceAnswer>();
    void this.#run(place, kind, target, answered.resolve).then(answered.resolve, answered.reject).finally(resolve);
    const answer = await answered.promise;
    if (answer.kind === "value") return answer.value;
    if (answer.kind === "open") return { ...place };
    if (answer.kind === "refused") throw refusal(tags, answer.reason, answer.message);
    throw refusal(tags, "failed", "it was opened, and its runner did not take it");
  }

  /**
   * Never rejects except with an error that a service may throw.
   * @param onAnswer receives each answer
   * @returns the last answer
   */
  async #run(
    { socket, secret }: Place,
    kind: DeviceKind,
    target: DeviceTarget,
    onAnswer: (answer: DeviceAnswer) => void,
  ): Promise<DeviceAnswer> {
    const { nodePath, devicesPath, addonPath, servicesDirectory, lockDirectory } = this.#init;
    const socketPath = `${servicesDirectory}/${socket}`;
    const request: DeviceRequest = { addonPath, socketPath, secret, kind, target, lockDirectory };
    const program = {
      command: [...DEVICES_FLAGS, devicesPath],
      name: "the process that opens devices",
      task: "opening the device",
      input: JSON.stringify(request),
      onLine: (line: string): void => {
        const answer = parseAnswer(line) as DeviceAnswer | undefined;
        if (answer !== undefined) onAnswer(answer);
      },
    };
    const init = { nodePath, timeout: CHILD_TIMEOUT, memoryLimitBytes: CHILD_MEMORY_BYTES, cgroupPath: undefined };
    try {
      return (await runOneOffChild(this.#components, init, program, this.#over.signal)) as DeviceAnswer;
    } catch (error) {
      this.#components.log.warn("a device of a component cannot be opened", { path: target.path, error });
      return { kind: "refused", reason: "failed", message: describeError(error) };
    }
  }
}

function refusal(tags: DeviceCalls["tags"], reason: RefusalKind, text: string): ServiceRefusal {
  const tag = tags[reason];
  return tag === tags.failed ? new ServiceRefusal(tag, text || reason) : new ServiceRefusal(tag);
}

/** A component opens its pod's devices when it begins, about a dozen. */
const BURST = 32;
/**
 * Openings a second after the burst. Each one starts a process of the node, outside of the pod's limits, which takes a
 * board's core for a tenth of a second and more. A component that opens missing devices in a loop then takes at most a
 * twentieth of the core.
 */
const RATE = 0.5;
/** Bounds memory. Containers with a full bucket are forgotten first. */
const MAX_CONTAINERS = 256;

/** Limits how often a container opens devices. Callers above the rate wait. */
export class OpeningPace {
  readonly #clock: Pick<Clock, "monotonic" | "sleep">;
  /** By container, in the order of the last opening. */
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(clock: Pick<Clock, "monotonic" | "sleep">) {
    this.#clock = clock;
  }

  /** @throws `cancelled` */
  async wait(containerId: string, signal: AbortSignal): Promise<void> {
    const known = this.#buckets.get(containerId);
    const bucket = known ?? new TokenBucket({ clock: this.#clock }, { rate: RATE, burst: BURST });
    this.#buckets.delete(containerId);
    this.#forget();
    this.#buckets.set(containerId, bucket);
    await bucket.take(signal);
  }

  #forget(): void {
    if (this.#buckets.size < MAX_CONTAINERS) return;
    for (const [id, bucket] of this.#buckets) if (bucket.isFull) this.#buckets.delete(id);
    const [oldest] = this.#buckets.keys();
    if (this.#buckets.size >= MAX_CONTAINERS && oldest !== undefined) this.#buckets.delete(oldest);
  }
}
