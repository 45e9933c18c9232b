import { createServer, type Server, type Socket } from "node:net";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { listenOnPort, portOf } from "../api/tcp-port.ts";
import type { KubeletServer } from "./kubelet-server.ts";

export interface KubeletPortComponents {
  /** Loads TLS, HTTP and what answers; called for each connection. */
  readonly load: () => Promise<KubeletServer>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface KubeletPortInit {
  readonly address: string;
  /** 0: any free one. */
  readonly port: number;
}

/** A board may have a kubelet beside the agent, which keeps the port. */
const LONGEST_WAIT = seconds(300);

/** Port 10250: a listening socket, as long as no client comes. */
export class KubeletPort implements Component {
  readonly name = "kubelet port";
  readonly #components: KubeletPortComponents;
  readonly #init: KubeletPortInit;
  #server: Server | undefined;
  #loaded: KubeletServer | undefined;
  #warned = "";

  constructor(components: KubeletPortComponents, init: KubeletPortInit) {
    this.#components = components;
    this.#init = init;
  }

  /** Undefined while it does not listen. */
  get port(): number | undefined {
    return portOf(this.#server);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#components;
    const server = (): Server =>
      createServer({ noDelay: true, keepAlive: true }, (socket) => void this.#accept(socket));
    const init = { part: this.name, ...this.#init, longestWait: LONGEST_WAIT };
    this.#server = await listenOnPort({ server, clock, log }, init, signal);
    await aborted(signal);
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    this.#loaded?.[Symbol.dispose]();
    await closed;
  }

  async #accept(socket: Socket): Promise<void> {
    const destroy = (): void => void socket.destroy();
    // A client that resets its connection while the server is loaded is no failure of the agent.
    socket.on("error", destroy);
    try {
      this.#loaded = await this.#components.load();
      if (this.#server === undefined || socket.destroyed) return destroy();
      this.#loaded.accept(socket);
    } catch (error) {
      this.#warn(describeError(error));
      destroy();
    } finally {
      socket.off("error", destroy);
    }
  }

  /** Logged once until it changes: any client can cause it. */
  #warn(error: string): void {
    if (error !== this.#warned) this.#components.log.warn("cannot serve the kubelet's API", { error });
    this.#warned = error;
  }
}
