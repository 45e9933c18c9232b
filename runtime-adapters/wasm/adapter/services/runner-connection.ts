/**
 * One runner's connection, at the agent's end. Everything that arrives may be hostile: the runner's own code is ours,
 * but a component may have broken out of it. One request at a time is read, answered and taken by the runner; meanwhile
 * nothing more is read, so that a runner that floods or does not listen fills its own socket and nothing else.
 */
import type { Socket } from "node:net";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, seconds } from "@picolet/protocol/ports.ts";
import {
  type BoardServices,
  type ServiceMessage,
  type ServicePeer,
  ServiceRefusal,
} from "@picolet/runtime-contract/board-services.ts";
import { encodeFrame, FrameReader, MAX_FRAME_BYTES } from "../../shared/messages/service-frames.ts";
import {
  type Answer,
  answerMessage,
  PROTOCOL_VERSION,
  type Request,
  readHello,
  readRequest,
  splitMethod,
  welcomeMessage,
} from "../../shared/messages/service-messages.ts";
import type { ByteBudget } from "./byte-budget.ts";

export interface RunnerConnectionComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly services: BoardServices;
  /** The budget of requests. */
  readonly budget: ByteBudget;
  /** The budget of answers that runners have not taken yet. */
  readonly answers: ByteBudget;
  /** The owner of a token; undefined: unknown, or of a container that has ended. */
  readonly peerOf: (token: string) => ServicePeer | undefined;
  /** It has said who it is. A connection that it had before is over. */
  readonly onPeer: (peer: ServicePeer) => void;
}

const MAX_HELLO_BYTES = 1024;
/** From connecting to having said who it is. */
const HELLO_TIMEOUT = seconds(5);
/** From a frame's first byte to its last, and for taking an answer. 2 MiB through a local socket take a moment. */
const TRANSFER_TIMEOUT = seconds(10);
/** Frames up to this size are not counted: with 256 connections 4 MiB, either way. */
const UNCOUNTED_BYTES = 16_384;
/**
 * Bounds the calls of one runner, in a burst and then each second: a component that calls in a loop takes some 5 % of a
 * board's core.
 */
const CALLS_PER_SECOND = 1000;
/** A large one is as many: 2 MiB of JSON are parsed in a quarter of a second. */
const BYTES_PER_CALL = 2048;

const UNAVAILABLE = "unavailable";

/** Waits until there is room for so many bytes of an answer. */
type Reserve = (bytes: number) => Promise<void>;

export class RunnerConnection {
  readonly #components: RunnerConnectionComponents;
  readonly #socket: Socket;
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #reader = new FrameReader();
  readonly #ended = new AbortController();
  #calls = CALLS_PER_SECOND;
  #callsAt: number;

  constructor(components: RunnerConnectionComponents, socket: Socket) {
    this.#components = components;
    this.#socket = socket;
    this.#callsAt = components.clock.monotonic();
    this.#chunks = socket[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    socket.once("close", () => this.#ended.abort());
  }

  end(): void {
    this.#socket.destroy();
  }

  /** To its end. Never rejects. */
  async serve(): Promise<void> {
    const { log } = this.#components;
    let peer: ServicePeer | undefined;
    try {
      peer = await this.#welcomed();
      if (peer === undefined) return;
      this.#components.onPeer(peer);
      while (await this.#answerNext(peer));
    } catch (error) {
      // A connection that breaks off is not logged: every runner ends so.
      if (isPicoletError(error, "corrupt") || isPicoletError(error, "deadline_exceeded")) {
        log.warn("a component's runner does not keep to the protocol: its connection is closed", {
          container: peer?.containerId ?? "unknown",
          error: describeError(error),
        });
      }
    } finally {
      this.end();
    }
  }

  async #welcomed(): Promise<ServicePeer | undefined> {
    const message = await this.#within(HELLO_TIMEOUT, "read a runner's first words", () =>
      this.#frame(MAX_HELLO_BYTES),
    );
    const hello = message === undefined ? undefined : readHello(message);
    if (hello === undefined) {
      if (message === undefined) return undefined;
      throw new PicoletError("corrupt", "cannot read the runner's first words");
    }
    if (hello.version !== PROTOCOL_VERSION) return undefined;
    const peer = this.#components.peerOf(hello.token);
    if (peer !== undefined) await this.#send(encodeFrame(welcomeMessage));
    return peer;
  }

  /** @returns false at the end. */
  async #answerNext(peer: ServicePeer): Promise<boolean> {
    const give: ((kept?: number) => void)[] = [];
    // Before the next one is read, so that a runner that waits holds nothing.
    await this.#pace();
    try {
      const message = await this.#frame(MAX_FRAME_BYTES, async (bytes) => {
        give.push(await this.#components.budget.take(bytes));
      });
      if (message === undefined) return false;
      const request = readRequest(message);
      if (request === undefined) throw new PicoletError("corrupt", "cannot read a request");
      let room: ((kept?: number) => void) | undefined;
      const reserve = async (bytes: number): Promise<void> => {
        room = await this.#components.answers.take(bytes);
        give.push(room);
      };
      const frame = framed(await this.#outcome(peer, request, reserve));
      const counted = frame.length > UNCOUNTED_BYTES ? frame.length : 0;
      if (room !== undefined) room(counted);
      else if (counted > 0) await reserve(counted);
      await this.#send(frame);
      return true;
    } finally {
      for (const each of give) each();
    }
  }

  async #outcome(peer: ServicePeer, { id, method: name, value, bytes }: Request, reserve: Reserve): Promise<Answer> {
    const [service, method] = splitMethod(name);
    try {
      const result = await this.#call(peer, service, method, { value, bytes }, reserve);
      return { ...result, id, ok: true };
    } catch (error) {
      if (error instanceof ServiceRefusal) return { id, ok: false, tag: error.tag, val: error.val };
      this.#components.log.warn("a call of a component failed", { method: name, error: describeError(error) });
      return { id, ok: false, tag: UNAVAILABLE, val: undefined };
    }
  }

  async #call(
    peer: ServicePeer,
    name: string,
    method: string,
    request: ServiceMessage,
    reserve: Reserve,
  ): Promise<ServiceMessage> {
    const granted = peer.interfaces.find((each) => each === name);
    const make = granted && this.#components.services[granted];
    // The runner asks for nothing that its pod does not name; this one has been taken over.
    if (make === undefined) throw new PicoletError("permission_denied", `cannot call ${name}: it is not granted`);
    const service = await make();
    if (service.largeAnswers?.has(method)) await reserve(MAX_FRAME_BYTES);
    return service.call(peer, method, request);
  }

  /** The next one, undefined at the end of the connection. @param reserve is waited for before a large one is read. */
  async #frame(maxBytes: number, reserve?: Reserve): Promise<ServiceMessage | undefined> {
    let reserved = false;
    let left: number = TRANSFER_TIMEOUT;
    for (;;) {
      const { announced } = this.#reader;
      if (!reserved && announced > UNCOUNTED_BYTES && announced <= maxBytes) {
        reserved = true;
        await reserve?.(announced);
      }
      const message = this.#reader.next(maxBytes);
      if (message !== undefined) {
        this.#calls -= 1 + announced / BYTES_PER_CALL;
        return message;
      }
      const since = this.#components.clock.monotonic();
      const isWithin = !this.#reader.isEmpty;
      const next = isWithin
        ? await this.#within(millis(Math.max(left, 1)), "read a runner's request", () => this.#chunks.next())
        : await this.#chunks.next();
      if (next.done === true) return undefined;
      if (isWithin) left -= this.#components.clock.monotonic() - since;
      this.#reader.push(next.value);
    }
  }

  async #send(frame: Uint8Array): Promise<void> {
    const written = new Promise<void>((resolve) => this.#socket.write(frame, () => resolve()));
    if (this.#socket.writableLength > 0) {
      await this.#within(TRANSFER_TIMEOUT, "send an answer to a runner", () => written);
    }
  }

  #within<T>(duration: Millis, what: string, task: () => Promise<T>): Promise<T> {
    return withDeadline(this.#components.clock, duration, what, task, this.#ended.signal);
  }

  async #pace(): Promise<void> {
    const { clock } = this.#components;
    const now = clock.monotonic();
    this.#calls = Math.min(CALLS_PER_SECOND, this.#calls + ((now - this.#callsAt) / 1000) * CALLS_PER_SECOND);
    this.#callsAt = now;
    if (this.#calls >= 0) return;
    await clock.sleep(millis(Math.ceil((-this.#calls / CALLS_PER_SECOND) * 1000)), this.#ended.signal);
  }
}

/** A service that answers with more than fits has made a mistake, which the component must not wait for. */
function framed(answer: Answer): Uint8Array {
  try {
    return encodeFrame(answerMessage(answer));
  } catch {
    return encodeFrame(answerMessage({ id: answer.id, ok: false, tag: UNAVAILABLE, val: undefined }));
  }
}
