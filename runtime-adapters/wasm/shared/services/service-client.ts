/**
 * A runner's end of the connection to the agent. The agent may be killed and restarted at any time: repeatable calls
 * are sent again, others fail as `unavailable`, and no call waits forever.
 */
import type { Socket } from "node:net";
import { type ServiceMessage, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { encodeFrame, FrameReader, MAX_FRAME_BYTES } from "../messages/service-frames.ts";
import {
  type Answer,
  helloMessage,
  PROTOCOL_VERSION,
  readAnswer,
  readWelcome,
  requestMessage,
} from "../messages/service-messages.ts";
import type { StartedOperation } from "../resources/polling.ts";

export interface ServiceClientComponents {
  /** Opens a connection to the agent. */
  readonly connect: () => Promise<Socket>;
  /** @returns a function that cancels the timer */
  readonly after: (milliseconds: number, act: () => void) => () => void;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** `connect` is not called any more. */
  readonly onClose?: (() => void) | undefined;
}

export interface CallOptions {
  /** True when a repeated call has the same effect as one call. */
  readonly repeatable: boolean;
}

/** Bounds the wait for an agent that restarts, which takes one to five seconds on a small board. */
const PATIENCE_MS = 15_000;
/** A write waits for the disk, and an SD card may take its time. */
const ANSWER_PATIENCE_MS = 30_000;
/** An agent that is being started refuses connections; jittered by half. */
const FIRST_RETRY_MS = 50;
const MAX_RETRY_MS = 1000;

const unavailable = (): ServiceRefusal => new ServiceRefusal("unavailable");

interface Call {
  readonly id: number;
  readonly frame: Uint8Array;
  readonly repeatable: boolean;
  readonly settle: (outcome: ServiceMessage | ServiceRefusal) => void;
  readonly cancelPatience: () => void;
  sent: boolean;
}

type Link = { readonly kind: "none" } | { readonly kind: "connecting" } | { readonly kind: "open"; socket: Socket };

export class ServiceClient {
  readonly #components: ServiceClientComponents;
  readonly #token: string;
  /** In the order of asking, which is that of the answers. */
  readonly #calls = new Map<number, Call>();
  #link: Link = { kind: "none" };
  #retryMs = FIRST_RETRY_MS;
  #lastId = 0;
  #closed = false;

  constructor(components: ServiceClientComponents, token: string) {
    this.#components = components;
    this.#token = token;
  }

  /**
   * Asks the agent. Its `result` throws a ServiceRefusal: the service's own, or `unavailable`.
   * @param method `<interface>.<method>`
   * @throws `resource_exhausted` when the message is too large to be sent
   */
  call(method: string, message: ServiceMessage, { repeatable }: CallOptions): StartedOperation<ServiceMessage> {
    this.#lastId += 1;
    const id = this.#lastId;
    const frame = encodeFrame(requestMessage({ ...message, id, method }));
    let outcome: ServiceMessage | ServiceRefusal | undefined;
    const waking = new Set<() => void>();
    const settle = (settled: ServiceMessage | ServiceRefusal): void => {
      this.#calls.delete(id);
      outcome = settled;
      for (const wake of waking) wake();
      this.#rest();
    };
    const give = (): void => this.#giveUp(id);
    const cancelPatience = this.#components.after(PATIENCE_MS + ANSWER_PATIENCE_MS, give);
    this.#calls.set(id, { id, frame, repeatable, settle, cancelPatience, sent: false });
    if (this.#closed) cancelPatience();
    else this.#send();
    return {
      ready: () => outcome !== undefined,
      onReady: (wake) => {
        waking.add(wake);
        return () => waking.delete(wake);
      },
      result: () => {
        if (outcome === undefined || outcome instanceof ServiceRefusal) throw outcome ?? unavailable();
        return outcome;
      },
    };
  }

  /** Its component has ended: no call is answered any more, and none fails. */
  close(): void {
    this.#closed = true;
    for (const { cancelPatience } of this.#calls.values()) cancelPatience();
    this.#calls.clear();
    if (this.#link.kind === "open") this.#link.socket.destroy();
    this.#components.onClose?.();
  }

  /** Sends the calls that have not been sent yet. */
  #send(): void {
    if (this.#link.kind === "none") this.#connect();
    if (this.#link.kind !== "open") return;
    const { socket } = this.#link;
    socket.ref();
    for (const call of this.#calls.values()) {
      if (call.sent) continue;
      call.sent = true;
      socket.write(call.frame);
    }
  }

  #connect(): void {
    this.#link = { kind: "connecting" };
    let waited = 0;
    const attempt = (): void => {
      if (this.#closed) return;
      this.#open().catch(() => {
        if (waited >= PATIENCE_MS || this.#calls.size === 0) return this.#lost();
        const delay = this.#retryMs * (0.5 + this.#components.random());
        this.#retryMs = Math.min(MAX_RETRY_MS, this.#retryMs * 2);
        waited += delay;
        this.#components.after(delay, attempt);
      });
    };
    attempt();
  }

  /** @throws when no agent listens, or it does not know this runner (yet) */
  async #open(): Promise<void> {
    const socket = await this.#components.connect();
    const reader = new FrameReader();
    const cancelPatience = this.#components.after(PATIENCE_MS, () => socket.destroy());
    try {
      socket.write(encodeFrame(helloMessage({ version: PROTOCOL_VERSION, token: this.#token })));
      if (!readWelcome(await firstMessage(socket, reader))) throw new Error("the agent does not answer as one");
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      cancelPatience();
    }
    this.#opened(socket, reader);
  }

  #opened(socket: Socket, reader: FrameReader): void {
    if (this.#closed) {
      socket.destroy();
      return;
    }
    this.#retryMs = FIRST_RETRY_MS;
    this.#link = { kind: "open", socket };
    const over = (): void => {
      socket.destroy();
      if (this.#link.kind === "open" && this.#link.socket === socket) this.#broken();
    };
    socket.on("error", over);
    socket.on("close", over);
    socket.on("data", (chunk: Buffer) => {
      try {
        reader.push(chunk);
        for (
          let message = reader.next(MAX_FRAME_BYTES);
          message !== undefined;
          message = reader.next(MAX_FRAME_BYTES)
        ) {
          this.#answered(readAnswer(message));
        }
      } catch {
        over();
      }
    });
    this.#send();
    this.#rest();
  }

  /** @throws for an answer to nothing that was asked: the other end has gone wrong. */
  #answered(answer: Answer | undefined): void {
    const call = answer === undefined ? undefined : this.#calls.get(answer.id);
    if (answer === undefined || call === undefined) throw new Error("an answer to no question");
    call.cancelPatience();
    call.settle(answer.ok ? answer : new ServiceRefusal(answer.tag, answer.val));
  }

  /** It is unknown whether the calls that were sent have been done. */
  #broken(): void {
    this.#link = { kind: "none" };
    for (const call of [...this.#calls.values()]) {
      if (call.sent && !call.repeatable) this.#giveUp(call.id);
      else call.sent = false;
    }
    if (this.#calls.size > 0) this.#connect();
  }

  /** There is no agent to connect to. */
  #lost(): void {
    this.#link = { kind: "none" };
    this.#retryMs = FIRST_RETRY_MS;
    for (const id of [...this.#calls.keys()]) this.#giveUp(id);
  }

  #giveUp(id: number): void {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    call.cancelPatience();
    call.settle(unavailable());
    // Its answer may still come; the next one must not be taken for it.
    if (call.sent && this.#link.kind === "open") this.#link.socket.destroy();
  }

  /** A connection without a question keeps no component alive that waits for nothing else. */
  #rest(): void {
    if (this.#link.kind === "open" && this.#calls.size === 0) this.#link.socket.unref();
  }
}

/** @throws when the connection ends before it, or it is none. */
function firstMessage(socket: Socket, reader: FrameReader): Promise<ServiceMessage> {
  return new Promise((resolve, reject) => {
    const done = (settle: () => void): void => {
      socket.off("data", onData);
      socket.off("close", onEnd);
      settle();
    };
    const onEnd = (): void => done(() => reject(new Error("the agent has closed the connection")));
    const onData = (chunk: Buffer): void => {
      try {
        reader.push(chunk);
        const message = reader.next(MAX_FRAME_BYTES);
        if (message !== undefined) done(() => resolve(message));
      } catch (error) {
        done(() => reject(error));
      }
    };
    socket.on("data", onData);
    socket.on("close", onEnd);
  });
}
