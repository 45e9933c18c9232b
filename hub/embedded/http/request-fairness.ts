/**
 * The order of requests, as Kubernetes' API Priority and Fairness decides it (KEP-1040): a flow schema puts a request
 * into a priority level and a flow, and flows take turns at the level's seats (`kubelet-api/fairness/fair-queue.ts`).
 * The schemas and shares are the suggested configuration of Kubernetes 1.34. Two things differ, because one event loop
 * does all the work: only so much is started in one turn of it, and a seat is held while a request is worked on, not
 * while its body comes.
 */

import type { IncomingMessage } from "node:http";
import { FairQueue, QueueRefusal, type Seat } from "@picolet/kubelet-api/fairness/fair-queue.ts";
import { networkOf } from "@picolet/kubelet-api/fairness/network-of.ts";
import { bodyOf } from "@picolet/kubelet-api/pipes/unread-body.ts";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { NODES_GROUP } from "@picolet/protocol/pki/node-subject.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { budgetOf, type IdentityKind, identityKindOf } from "../admission/quotas.ts";
import { bodyTooLarge, MAX_BODY_BYTES, tooLarge } from "../api/limits.ts";
import type { UserInfo } from "../api/resource-definition.ts";
import { StatusError } from "../api/status-error.ts";
import { AUTHENTICATED, MASTERS, SERVICE_ACCOUNTS } from "../auth/attributes.ts";
import type { KeptBytes, UserMemory } from "../service/resource-request.ts";
import type { RequestPath, RequestVerb } from "./request-info.ts";

/** Shares of the suggested priority levels. `exempt` has no queue. */
export const SHARES = {
  "node-high": 40,
  system: 30,
  "leader-election": 10,
  "workload-high": 40,
  "workload-low": 100,
  "global-default": 20,
  "catch-all": 5,
} as const;

type Level = keyof typeof SHARES;

/**
 * Requests being worked on at one time. One core works on one of them; the others wait for the disk, which takes all
 * writes of a turn together.
 */
export const SEATS = 128;
/** An ordinary request takes half a millisecond: other work of the hub comes in every few of them. */
const WIDTH_PER_TURN = 8;
/** As Kubernetes' `queueLengthLimit` (50) by the hands of a flow (6), or thereabouts. */
export const FLOW_QUEUE = 300;
/** Bounds memory of the waiting requests of one level, 20 KB each with their sockets. */
const LEVEL_QUEUE = 5000;
/** A quarter of a request's 60 seconds, as Kubernetes. */
export const WAIT_LIMIT = seconds(15);

/** Bytes of bodies and answers that one flow has in memory: five of the largest bodies. */
export const FLOW_BYTES = 16 * MEBIBYTE;
/** Bytes of all flows; when they are used up, each flow has an equal part of them. */
export const TOTAL_BYTES = 128 * MEBIBYTE;

/** One list without pages; it is three times in memory while its answer is made. */
export const MAX_LIST_BYTES = 2 * TOTAL_BYTES;

/** Reading, checking and writing 64 KiB takes as long as an ordinary request. */
const BYTES_PER_WIDTH = 64 * KIBIBYTE;
/** Reading and filtering a hundred objects takes as long, too. */
const OBJECTS_PER_WIDTH = 100;
const MAX_WIDTH = 64;

/**
 * Watches, and streams such as exec, of one user at a time. A client-go process with informers for everything has
 * fifty, a kubelet one for each Secret and ConfigMap of its pods besides.
 */
export const MAX_STREAMS: Readonly<Record<IdentityKind, number>> = {
  administrator: 5000,
  user: 1000,
  node: 512,
  bootstrap: 16,
  anonymous: 16,
};

export interface Classified {
  /** A flow schema of Kubernetes' suggested configuration. */
  readonly schema: string;
  readonly level: Level | "exempt";
  readonly flow: string;
}

const HEALTH = /^\/(healthz|livez|readyz)(\/|$)/;
const KUBE_SYSTEM = `${SERVICE_ACCOUNTS}:kube-system`;
const CONTROLLERS = ["system:kube-controller-manager", "system:kube-scheduler"];

/** @param address of the client: all clients without credentials are one user, so their networks are flows */
export function classify(user: UserInfo, address: string, path: RequestPath): Classified {
  const { name, groups } = user;
  const of = (schema: string, level: Level | "exempt", flow = budgetOf(name)): Classified => ({ schema, level, flow });
  if (groups.includes(MASTERS)) return of("exempt", "exempt");
  if (path.kind === "other" && HEALTH.test(path.path)) return of("probes", "exempt");
  const isLease = path.kind === "resource" && path.group === "coordination.k8s.io" && path.plural === "leases";
  const isSystem = CONTROLLERS.includes(name) || groups.includes(KUBE_SYSTEM);
  if (isLease && isSystem) return of("system-leader-election", "leader-election");
  if (groups.includes(NODES_GROUP)) {
    const isNode = path.kind === "resource" && path.group === "" && path.plural === "nodes";
    return isLease || isNode ? of("system-node-high", "node-high") : of("system-nodes", "system");
  }
  if (isSystem) return of(CONTROLLERS.includes(name) ? name.slice(7) : "kube-system-service-accounts", "workload-high");
  if (groups.includes(SERVICE_ACCOUNTS)) return of("service-accounts", "workload-low");
  if (groups.includes(AUTHENTICATED)) return of("global-default", "global-default");
  return of("catch-all", "catch-all", `${name} ${networkOf(address)}`);
}

export interface RequestFairnessComponents {
  readonly clock: Clock;
  /** Stored objects of a resource (`pods`): what a list has to go through. */
  readonly count: (resource: string) => number;
  /** Default: setImmediate. */
  readonly later?: (work: () => void) => void;
}

export class RequestFairness {
  readonly #queue: FairQueue;
  readonly #bytes = new FlowBytes();
  readonly #unread = new UnreadBytes();
  readonly #count: (resource: string) => number;
  readonly #streams = new Map<string, number>();

  constructor({ clock, count, later = setImmediate }: RequestFairnessComponents) {
    const shares = Object.entries(SHARES);
    const total = shares.reduce((sum, [, share]) => sum + share, 0);
    const levels = shares.map(([name, share]) => {
      const seats = Math.max(2, Math.ceil((SEATS * share) / total));
      return { name, share, seats, flowSeats: Math.ceil(seats / 2), flowQueue: FLOW_QUEUE, queue: LEVEL_QUEUE };
    });
    this.#count = count;
    this.#queue = new FairQueue({ clock, later }, { levels, waitLimit: WAIT_LIMIT, widthPerTurn: WIDTH_PER_TURN });
  }

  /** Seats that are held, requests that wait, bytes in memory, watches and streams. */
  get load(): { readonly seats: number; readonly waiting: number; readonly bytes: number; readonly streams: number } {
    const { seats, waiting } = this.#queue.load;
    const streams = [...this.#streams.values()].reduce((sum, each) => sum + each, 0);
    return { seats, waiting, bytes: this.#bytes.total + this.#unread.total, streams };
  }

  /** For one request, whose end disposes of it. */
  begin(signal: AbortSignal): RequestTurn {
    return new RequestTurn({ queue: this.#queue, bytes: this.#bytes, unread: this.#unread }, signal);
  }

  /** The width of a request without its body. */
  widthOf(path: RequestPath, verb: RequestVerb, query: URLSearchParams): number {
    const isList =
      verb === "list" || verb === "deletecollection" || (verb === "watch" && !query.get("resourceVersion"));
    if (path.kind === "other" || !isList) return 1;
    const count = this.#count(path.group === "" ? path.plural : `${path.plural}.${path.group}`);
    const limit = verb === "list" ? Number(query.get("limit") ?? 0) || count : count;
    return Math.min(MAX_WIDTH, 1 + Math.floor(Math.min(count, limit) / OBJECTS_PER_WIDTH));
  }

  /** Counts a watch or a stream of the user until `signal` aborts. @throws StatusError 429 */
  countStream(user: UserInfo, signal: AbortSignal): void {
    // One that has aborted already would be counted for ever.
    if (signal.aborted) return;
    const budget = budgetOf(user.name);
    const count = this.#streams.get(budget) ?? 0;
    if (count >= MAX_STREAMS[identityKindOf(user)]) throw tooManyRequests();
    this.#streams.set(budget, count + 1);
    const end = (): void => {
      const left = (this.#streams.get(budget) ?? 1) - 1;
      if (left > 0) this.#streams.set(budget, left);
      else this.#streams.delete(budget);
    };
    signal.addEventListener("abort", end, { once: true });
  }
}

interface TurnComponents {
  readonly queue: FairQueue;
  readonly bytes: FlowBytes;
  readonly unread: UnreadBytes;
}

/** One request's way: it waits for a seat, reads its body without one, waits again, and answers. */
export class RequestTurn implements UserMemory, Disposable {
  /** For the metrics; undefined: no resource was asked for, or it is not known yet. */
  verb: RequestVerb | undefined;
  readonly #components: TurnComponents;
  readonly #signal: AbortSignal;
  #seat: Seat | undefined;
  #held = 0;
  #class: Classified | undefined;

  constructor(components: TurnComponents, signal: AbortSignal) {
    this.#components = components;
    this.#signal = signal;
  }

  /** Resolves when the request may be worked on. @throws StatusError 429; `cancelled` */
  async enter(to: Classified, width: number): Promise<void> {
    this.#class = to;
    await this.#sit(width);
  }

  /** Gives the seat back: the rest is sending or a stream, which takes no work. */
  leave(): void {
    this.#seat?.release();
    this.#seat = undefined;
  }

  /**
   * Reads the body within the flow's budget, without the seat, and takes one again. @throws StatusError 413, 429, 400
   */
  async readBody(message: IncomingMessage): Promise<Buffer> {
    const announced = Number(message.headers["content-length"] ?? 0);
    if (announced === 0 && message.headers["transfer-encoding"] === undefined) return Buffer.alloc(0);
    if (announced > MAX_BODY_BYTES) throw bodyTooLarge();
    this.leave();
    this.#reserve(announced);
    const chunks: Buffer[] = [];
    let length = 0;
    try {
      for await (const chunk of bodyOf(message)) {
        length += chunk.length;
        if (length > MAX_BODY_BYTES) throw bodyTooLarge();
        if (length > this.#held) this.#reserve(length - this.#held);
        chunks.push(chunk);
      }
    } catch (error) {
      if (error instanceof StatusError) throw error;
      throw new StatusError("BadRequest", "cannot read the body of the request", undefined, error);
    }
    await this.#sit(1 + Math.floor(length / BYTES_PER_WIDTH));
    return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks);
  }

  /** Undefined: an administrator's, without a bound. */
  get memory(): UserMemory | undefined {
    return this.#isQueued ? this : undefined;
  }

  /**
   * Counts further bytes of a list. One list of the flow may be larger than the flow's budget; others give way.
   * @throws StatusError 413, 429
   */
  grow(bytes: number): void {
    if (!this.#isQueued) return;
    const flow = this.#class?.flow ?? "";
    const budget = this.#components.bytes;
    if (this.#held + bytes > MAX_LIST_BYTES) {
      throw tooLarge(`the list has more than ${MAX_LIST_BYTES} bytes; ask for it in pages, by "limit" and "continue"`);
    }
    if (!budget.mayGrow(flow, this.#held, bytes)) throw tooManyRequests();
    budget.hold(flow, bytes);
    this.#held += bytes;
  }

  take(bytes: number, signal: AbortSignal): Promise<KeptBytes> {
    return this.#components.unread.take(this.#class?.flow ?? "", bytes, signal);
  }

  /** An answer of so many bytes is kept until it is sent; further requests of the flow wait for it. */
  holdAnswer(bytes: number): void {
    if (!this.#isQueued) return;
    this.#components.bytes.resize(this.#class?.flow ?? "", this.#held, bytes);
    this.#held = bytes;
  }

  [Symbol.dispose](): void {
    this.leave();
    if (this.#held > 0) this.#components.bytes.release(this.#class?.flow ?? "", this.#held);
    this.#held = 0;
  }

  get #isQueued(): boolean {
    return this.#class !== undefined && this.#class.level !== "exempt";
  }

  #reserve(bytes: number): void {
    if (!this.#isQueued) return;
    const { bytes: budget } = this.#components;
    const flow = this.#class?.flow ?? "";
    if (!budget.hasRoom(flow, bytes)) throw tooManyRequests();
    budget.hold(flow, bytes);
    this.#held += bytes;
  }

  async #sit(width: number): Promise<void> {
    this.leave();
    const to = this.#class;
    if (to === undefined || to.level === "exempt") return;
    // Answers that the flow does not take are memory as well.
    if (!this.#components.bytes.hasRoom(to.flow, 0)) throw tooManyRequests();
    try {
      this.#seat = await this.#components.queue.take(to.level, to.flow, Math.min(MAX_WIDTH, width), this.#signal);
    } catch (error) {
      throw error instanceof QueueRefusal ? tooManyRequests() : error;
    }
  }
}

/** Bytes in memory by flow. */
class FlowBytes {
  readonly #flows = new Map<string, number>();
  total = 0;

  hasRoom(flow: string, bytes: number): boolean {
    const held = this.#flows.get(flow) ?? 0;
    const isFull = this.total + bytes > TOTAL_BYTES;
    // The first of a flow gets in while others use up what there is, up to twice as much.
    if (held === 0) return this.total + bytes <= 2 * TOTAL_BYTES;
    return held + bytes <= (isFull ? Math.min(FLOW_BYTES, TOTAL_BYTES / this.#flows.size) : FLOW_BYTES);
  }

  /** True when a flow's answer in the making, of `own` bytes so far, may have more. */
  mayGrow(flow: string, own: number, bytes: number): boolean {
    const isAlone = (this.#flows.get(flow) ?? 0) === own;
    return isAlone ? this.total + bytes <= 2 * TOTAL_BYTES : this.hasRoom(flow, bytes);
  }

  resize(flow: string, from: number, to: number): void {
    if (to > from) this.hold(flow, to - from);
    else if (to < from) this.release(flow, from - to);
  }

  hold(flow: string, bytes: number): void {
    if (bytes === 0) return;
    this.#flows.set(flow, (this.#flows.get(flow) ?? 0) + bytes);
    this.total += bytes;
  }

  release(flow: string, bytes: number): void {
    const left = (this.#flows.get(flow) ?? 0) - bytes;
    if (left > 0) this.#flows.set(flow, left);
    else this.#flows.delete(flow);
    this.total -= bytes;
  }
}

interface WaitingStream {
  readonly bytes: number;
  readonly grant: () => void;
}

/** Bytes that streams keep until their clients take them. Streams of a flow that has too many wait for each other. */
class UnreadBytes {
  readonly #bytes = new FlowBytes();
  /** By flow, in the order of their coming. */
  readonly #waiting = new Map<string, Set<WaitingStream>>();

  get total(): number {
    return this.#bytes.total;
  }

  /** @throws `cancelled` */
  async take(flow: string, bytes: number, signal: AbortSignal): Promise<KeptBytes> {
    if (this.#waiting.has(flow) || !this.#bytes.hasRoom(flow, bytes)) await this.#wait(flow, bytes, signal);
    else this.#bytes.hold(flow, bytes);
    let held = bytes;
    const resize = (to: number): void => {
      this.#bytes.resize(flow, held, to);
      held = to;
      this.#grant();
    };
    return { resize, [Symbol.dispose]: () => resize(0) };
  }

  #wait(flow: string, bytes: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(flow) ?? new Set();
    const giveUp = (): void => {
      waiting.delete(waiter);
      if (waiting.size === 0) this.#waiting.delete(flow);
      reject(cancelled("the wait for memory"));
    };
    const grant = (): void => {
      signal.removeEventListener("abort", giveUp);
      resolve();
    };
    const waiter: WaitingStream = { bytes, grant };
    if (signal.aborted) return Promise.reject(cancelled("the wait for memory"));
    signal.addEventListener("abort", giveUp, { once: true });
    this.#waiting.set(flow, waiting.add(waiter));
    return promise;
  }

  #grant(): void {
    for (const [flow, waiting] of this.#waiting) {
      for (const waiter of waiting) {
        if (!this.#bytes.hasRoom(flow, waiter.bytes)) break;
        this.#bytes.hold(flow, waiter.bytes);
        waiting.delete(waiter);
        waiter.grant();
      }
      if (waiting.size === 0) this.#waiting.delete(flow);
    }
  }
}

/** In Kubernetes' words. */
export const tooManyRequests = (): StatusError =>
  new StatusError("TooManyRequests", "Too many requests, please try again later.", { retryAfterSeconds: 1 });
