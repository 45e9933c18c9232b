import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import {
  type BoardInterface,
  type BoardService,
  type ServiceMessage,
  type ServicePeer,
  ServiceRefusal,
} from "@picolet/runtime-contract/board-services.ts";
import { ServicePort } from "@picolet/runtime-wasm/adapter/services/service-port.ts";
import { encodeFrame, FrameReader, MAX_FRAME_BYTES } from "@picolet/runtime-wasm/shared/messages/service-frames.ts";
import {
  helloMessage,
  PROTOCOL_VERSION,
  requestMessage,
} from "@picolet/runtime-wasm/shared/messages/service-messages.ts";
import type { StartedOperation } from "@picolet/runtime-wasm/shared/resources/polling.ts";
import { ServiceClient } from "@picolet/runtime-wasm/shared/services/service-client.ts";
import { TempFolder } from "../machine/temp-folder.ts";
import { RecordedLog } from "../ports/recorders.ts";

export const TOKEN = "ab".repeat(32);
const OTHERS = "0e".repeat(30);
const PEER: ServicePeer = {
  containerId: "c1",
  container: "main",
  pod: { name: "p", namespace: "default", uid: "u" },
  interfaces: ["keyvalue"],
  buckets: [],
};
export const hello = encodeFrame(helloMessage({ version: PROTOCOL_VERSION, token: TOKEN }));
export const ask = (id: number, method: string, bytes: readonly Uint8Array[] = []): Uint8Array =>
  encodeFrame(requestMessage({ id, method, value: null, bytes }));

/** The hello of other containers with the same grants. */
export const helloOf = (index: number): Uint8Array =>
  encodeFrame(helloMessage({ version: PROTOCOL_VERSION, token: `${OTHERS}${String(index).padStart(4, "0")}` }));

function peerOf(token: string): ServicePeer | undefined {
  if (token === TOKEN) return PEER;
  return token.startsWith(OTHERS) ? { ...PEER, containerId: `other-${token.slice(OTHERS.length)}` } : undefined;
}

/** Answers with what it was asked; `refuse` is refused, `fail` fails. */
export const echo: BoardService = {
  call(_, method, request) {
    if (method === "refuse") throw new ServiceRefusal("quota-exceeded");
    if (method === "fail") throw new PicoletError("failed", "cannot do it");
    if (method === "much") return { value: null, bytes: [new Uint8Array(MAX_FRAME_BYTES)] };
    return request;
  },
};

export class Bench implements AsyncDisposable {
  readonly folder = new TempFolder();
  readonly log = new RecordedLog();
  readonly path = this.folder.at("s");
  #port: ServicePort | undefined;
  readonly #service: BoardService;
  readonly #clock: Clock;
  readonly #name: BoardInterface;

  constructor(service: BoardService, clock: Clock, name: BoardInterface) {
    this.#service = service;
    this.#clock = clock;
    this.#name = name;
  }

  /** @param name of the interface that the service has, and that every container is granted */
  static async open(
    service: BoardService = echo,
    clock: Clock = systemClock,
    name: BoardInterface = "keyvalue",
  ): Promise<Bench> {
    const bench = new Bench(service, clock, name);
    await bench.start();
    return bench;
  }

  async start(): Promise<void> {
    const services = { [this.#name]: () => this.#service };
    const peer = (token: string): ServicePeer | undefined => {
      const known = peerOf(token);
      return known && { ...known, interfaces: [this.#name] };
    };
    const components = { clock: this.#clock, log: this.log, services, peerOf: peer };
    this.#port = await ServicePort.open(components, this.path);
  }

  async stop(): Promise<void> {
    await this.#port?.[Symbol.asyncDispose]();
    this.#port = undefined;
  }

  client(token = TOKEN): ServiceClient {
    return clientOf(this.path, token);
  }

  async raw(): Promise<Socket> {
    const socket = connect(this.path);
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    this.folder[Symbol.dispose]();
  }
}

export function clientOf(path: string, token = TOKEN): ServiceClient {
  const open = async (): Promise<Socket> => {
    const socket = connect(path);
    await once(socket, "connect");
    socket.on("error", () => socket.destroy());
    return socket;
  };
  const after = (ms: number, act: () => void): (() => void) => {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  };
  return new ServiceClient({ connect: open, after, random: () => 0.5 }, token);
}

export async function outcome<R>(begun: StartedOperation<R>): Promise<R> {
  await new Promise<void>((resolve) => {
    begun.onReady?.(resolve);
    if (begun.ready()) resolve();
  });
  return begun.result();
}

export const EMPTY: ServiceMessage = { value: null, bytes: [] };
export const call = (
  client: ServiceClient,
  method: string,
  message = EMPTY,
  repeatable = true,
): Promise<ServiceMessage> => outcome(client.call(`keyvalue.${method}`, message, { repeatable }));

/** The messages that arrive until the other end closes, or there are `count`. */
export async function received(socket: Socket, count = Number.POSITIVE_INFINITY): Promise<ServiceMessage[]> {
  const reader = new FrameReader();
  const found: ServiceMessage[] = [];
  for await (const chunk of socket) {
    reader.push(chunk);
    for (let next = reader.next(MAX_FRAME_BYTES); next !== undefined; next = reader.next(MAX_FRAME_BYTES))
      found.push(next);
    if (found.length >= count) break;
  }
  return found;
}
