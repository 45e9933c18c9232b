/**
 * What the agent does for components with devices: it judges by the pod's grants who may open what, and starts the
 * child that opens it (`devices-main.ts`). Loaded with the first call.
 */
import { randomBytes } from "node:crypto";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import {
  type BoardService,
  type DeviceGrant,
  type Plain,
  type ServiceMessage,
  type ServicePeer,
  ServiceRefusal,
} from "@picolet/runtime-contract/board-services.ts";
import { LINE_FLAGS } from "../../shared/devices/gpio-uapi.ts";
import type { DeviceKind } from "../../shared/grants/device-grants.ts";
import type {
  DeviceAnswer,
  DeviceRequest,
  DeviceTarget,
  LineConfig,
  RefusalKind,
} from "../../shared/messages/device-request.ts";
import { DEVICES_FLAGS } from "../processes/node-flags.ts";
import { type OneOffChildComponents, parseAnswer, runOneOffChild } from "../processes/one-off-child.ts";
import { OpeningPace } from "./opening-pace.ts";

export interface DeviceServiceComponents extends OneOffChildComponents {
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  readonly log: Pick<Log, "warn">;
}

export interface DeviceServiceInit {
  readonly nodePath: string;
  /** The bundled child, or `devices-main.ts`. */
  readonly devicesPath: string;
  /** Of koffi.node. */
  readonly addonPath: string;
  /** That runners see. */
  readonly servicesDirectory: string;
  readonly lockDirectory: string;
}

/** Node starts within a second on the slowest of boards; the runner has ten to come for what was opened. */
const CHILD_TIMEOUT = seconds(30);
/** Of a process that opens a file: Node takes 40. */
const CHILD_MEMORY_BYTES = 128 * 1024 * 1024;
/** Longer than any path or name of a line. */
const MAX_TEXT_LENGTH = 300;
const MAX_UINT32 = 0xffff_ffff;
const SECRET_RANDOM_BYTES = 32;
const NAME_RANDOM_BYTES = 8;

/** How each interface calls it. */
const TAGS: Readonly<Record<DeviceKind, Readonly<Record<RefusalKind, string>>>> = {
  serial: { missing: "no-such-port", busy: "busy", unsupported: "unsupported", failed: "io" },
  gpio: { missing: "no-such-line", busy: "busy", unsupported: "unsupported", failed: "io" },
  i2c: { missing: "no-such-bus", busy: "busy", unsupported: "other", failed: "other" },
};

type Grant<K extends DeviceKind> = Extract<DeviceGrant, { kind: K }>;
/** Where the runner finds what was opened; or a value. */
type Outcome = { readonly socket: string; readonly secret: string } | { readonly value: Plain };

export class DeviceService {
  readonly #components: DeviceServiceComponents;
  readonly #init: DeviceServiceInit;
  readonly #over = new AbortController();
  /** One child at a time: whether somebody has a port is looked at before it is opened. */
  #turn: Promise<unknown> = Promise.resolve();
  readonly #pace: OpeningPace;

  constructor(components: DeviceServiceComponents, init: DeviceServiceInit) {
    this.#components = components;
    this.#init = init;
    this.#pace = new OpeningPace(components.clock);
  }

  of(kind: DeviceKind): BoardService {
    const handlers: Readonly<Record<DeviceKind, BoardService["call"]>> = {
      serial: (peer, method, { value }) => this.#serial(peer, method, value),
      gpio: (peer, method, { value }) => this.#gpio(peer, method, value),
      i2c: (peer, method, { value }) => this.#i2c(peer, method, value),
    };
    return { call: handlers[kind] };
  }

  async #serial(peer: ServicePeer, method: string, value: Plain): Promise<ServiceMessage> {
    expectMethod(method, "open");
    const { port } = record(value);
    const grant = grantsOf(peer, "serial").find(({ path }) => path === textOf(port));
    if (grant === undefined) throw new ServiceRefusal("not-granted");
    return message(await this.#ask(peer, { kind: "serial", path: grant.path }));
  }

  async #i2c(peer: ServicePeer, method: string, value: Plain): Promise<ServiceMessage> {
    expectMethod(method, "open");
    const { bus, address } = record(value);
    const wanted = numberOf(address);
    const grant = grantsOf(peer, "i2c").find(
      ({ path, addresses }) => path === textOf(bus) && addresses.includes(wanted),
    );
    if (grant === undefined) throw new ServiceRefusal("not-granted");
    const { lockDirectory } = this.#init;
    return message(await this.#ask(peer, { kind: "i2c", path: grant.path, address: wanted, lockDirectory }));
  }

  async #gpio(peer: ServicePeer, method: string, value: Plain): Promise<ServiceMessage> {
    const chips = grantsOf(peer, "gpio");
    if (method === "lines") return { value: await this.#lines(peer, chips), bytes: [] };
    expectMethod(method, "open");
    const { line, ...config } = record(value);
    return message(await this.#openLine(peer, chips, textOf(line), lineConfig(config)));
  }

  /** Of the chips that are there. */
  async #lines(peer: ServicePeer, chips: readonly Grant<"gpio">[]): Promise<Plain> {
    const found: Plain[] = [];
    for (const { path, lines } of chips) {
      const outcome = await this.#ask(peer, { kind: "gpio-lines", path, lines }).catch(unlessMissing);
      if (outcome !== undefined && "value" in outcome) found.push({ path, lines: outcome.value });
    }
    return found;
  }

  async #openLine(
    peer: ServicePeer,
    chips: readonly Grant<"gpio">[],
    line: string,
    config: LineConfig,
  ): Promise<Outcome> {
    const [, path, number] = /^(.+):(\d{1,4})$/.exec(line) ?? [];
    const chip = chips.find((each) => each.path === path && each.lines.includes(Number(number)));
    const wish = { kind: "gpio", line: config } as const;
    if (chip !== undefined) {
      return this.#ask(peer, { ...wish, path: chip.path, lines: chip.lines, wanted: Number(number) });
    }
    // An id of what is not granted is looked up nowhere.
    for (const { path: each, lines } of line === "" || line.startsWith("/") ? [] : chips) {
      const outcome = await this.#ask(peer, { ...wish, path: each, lines, wanted: line }).catch(unlessMissing);
      if (outcome !== undefined) return outcome;
    }
    // A name that no granted line has may be that of another one.
    throw new ServiceRefusal("not-granted");
  }

  async #ask({ containerId }: ServicePeer, wish: DeviceTarget): Promise<Outcome> {
    const kind = wish.kind === "gpio-lines" ? "gpio" : wish.kind;
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
    void this.#run(place, wish, answered.resolve).then(answered.resolve, answered.reject).finally(resolve);
    const answer = await answered.promise;
    if (answer.kind === "value") return { value: answer.value };
    if (answer.kind === "open") return place;
    if (answer.kind === "refused") throw refusal(kind, answer.reason, answer.message);
    throw refusal(kind, "failed", "it was opened, and nobody came for it");
  }

  /** @param onAnswer is given each of them; @returns the last one. Never rejects but with what a service may throw. */
  async #run(
    { socket, secret }: { readonly socket: string; readonly secret: string },
    wish: DeviceTarget,
    onAnswer: (answer: DeviceAnswer) => void,
  ): Promise<DeviceAnswer> {
    const { nodePath, devicesPath, addonPath, servicesDirectory } = this.#init;
    const request: DeviceRequest = { addonPath, socketPath: `${servicesDirectory}/${socket}`, secret, wish };
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
      this.#components.log.warn("a device of a component cannot be opened", { path: wish.path, error });
      return { kind: "refused", reason: "failed", message: describeError(error) };
    }
  }
}

function refusal(kind: DeviceKind, reason: RefusalKind, text: string): ServiceRefusal {
  const tag = TAGS[kind][reason];
  return tag === TAGS[kind].failed ? new ServiceRefusal(tag, text || reason) : new ServiceRefusal(tag);
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof ServiceRefusal && error.tag === TAGS.gpio.missing) return undefined;
  throw error;
}

const message = (outcome: Outcome): ServiceMessage => ({
  value: "value" in outcome ? outcome.value : outcome,
  bytes: [],
});

const grantsOf = <K extends DeviceKind>({ devices = [] }: ServicePeer, kind: K): readonly Grant<K>[] =>
  devices.filter((each): each is Grant<K> => each.kind === kind);

/** A runner that asks for something else has been taken over. */
const wrong = (what: string): PicoletError => new PicoletError("invalid", `cannot take the request: ${what}`);

function expectMethod(method: string, expected: string): void {
  if (method !== expected) throw wrong(`there is no method ${method}`);
}

function record(value: Plain): Readonly<Record<string, Plain | undefined>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw wrong("it is no object");
  return value as Readonly<Record<string, Plain | undefined>>;
}

function textOf(value: Plain | undefined): string {
  if (typeof value !== "string") throw wrong("it has no text where one should be");
  return value.slice(0, MAX_TEXT_LENGTH);
}

function numberOf(value: Plain | undefined): number {
  if (!Number.isInteger(value) || Number(value) < 0 || Number(value) > MAX_UINT32) throw wrong("it has no number");
  return Number(value);
}

function lineConfig({ flags, debounceMicroseconds, initial }: Readonly<Record<string, Plain | undefined>>): LineConfig {
  const debounce = debounceMicroseconds === undefined ? undefined : numberOf(debounceMicroseconds);
  return { flags: numberOf(flags) & LINE_FLAGS, debounceMicroseconds: debounce, initial: initial === true };
}
