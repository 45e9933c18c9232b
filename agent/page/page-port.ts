import { createServer, type Server, type Socket } from "node:net";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { listenOnPort, portOf } from "../api/tcp-port.ts";
import type { PageServer } from "./page-server.ts";

export interface PagePortComponents {
  /** Loads the server. */
  readonly open: () => Promise<PageServer>;
  /** Called when the server has been dropped. */
  readonly unload: () => void;
  readonly clock: Clock;
  readonly log: Log;
}

export interface PagePortInit {
  readonly address: string;
  /** 0: any free one, which the log names. */
  readonly port: number;
}

/** A browser opens six at most; the rest is for tabs and other people. */
export const MAX_CONNECTIONS = 32;
/** The server is dropped after so long without a connection. */
const IDLE = seconds(60);
/** Another agent on this machine may have the port for good. */
const LONGEST_WAIT = seconds(60);

/** The port of the board's page. Until a client connects it is a listening socket and nothing else. */
export class PagePort implements Component {
  readonly name = "page";
  readonly #components: PagePortComponents;
  readonly #init: PagePortInit;
  readonly #life = new AbortController();
  /** In the order in which they came. */
  readonly #sockets = new Set<Socket>();
  #listener: Server | undefined;
  #server: PageServer | undefined;
  #opening: Promise<PageServer> | undefined;
  #idle: AbortController | undefined;

  constructor(components: PagePortComponents, init: PagePortInit) {
    this.#components = components;
    this.#init = init;
  }

  /** Undefined while it does not listen. */
  get port(): number | undefined {
    return portOf(this.#listener);
  }

  get connections(): number {
    return this.#sockets.size;
  }

  get isLoaded(): boolean {
    return this.#server !== undefined;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#components;
    const server = (): Server => createServer((socket) => void this.#connected(socket));
    const init = { part: this.name, ...this.#init, longestWait: LONGEST_WAIT };
    this.#listener = await listenOnPort({ server, clock, log }, init, signal);
    await aborted(signal);
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    this.#idle?.abort();
    const listener = this.#listener;
    this.#listener = undefined;
    const closed = new Promise<void>((resolve) =>
      listener === undefined ? resolve() : listener.close(() => resolve()),
    );
    for (const socket of this.#sockets) socket.destroy();
    this.#server?.[Symbol.dispose]();
    this.#server = undefined;
    await closed;
  }

  async #connected(socket: Socket): Promise<void> {
    this.#idle?.abort();
    if (this.#sockets.size >= MAX_CONNECTIONS) this.#makeRoom();
    if (this.#sockets.size >= MAX_CONNECTIONS) return void socket.destroy();
    this.#sockets.add(socket);
    socket.on("error", ignore("a client that breaks off is none any more"));
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) void this.#dropWhenIdle();
    });
    try {
      this.#opening ??= this.#components.open();
      const server = await this.#opening;
      if (this.#life.signal.aborted) return server[Symbol.dispose]();
      this.#server = server;
      if (!socket.destroyed) server.accept(socket);
    } catch (error) {
      this.#opening = undefined;
      this.#components.log.warn("cannot serve the page", { error: describeError(error) });
      socket.destroy();
    }
  }

  /** A client that asks for nothing gives way to one that may. */
  #makeRoom(): void {
    const server = this.#server;
    const unused = [...this.#sockets].find((socket) => server?.isBusy(socket) !== true);
    if (unused === undefined) return;
    this.#sockets.delete(unused);
    unused.destroy();
  }

  async #dropWhenIdle(): Promise<void> {
    const idle = new AbortController();
    this.#idle = idle;
    const isOver = await this.#components.clock.sleep(IDLE, idle.signal).then(
      () => true,
      () => false,
    );
    if (!isOver || this.#sockets.size > 0) return;
    this.#server?.[Symbol.dispose]();
    this.#server = undefined;
    this.#opening = undefined;
    this.#components.unload();
  }
}
