/** The socket on which runners ask for what only the agent can give (`board-services.ts` of the contract). */
import { chmodSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { ServicePeer } from "@picolet/runtime-contract/board-services.ts";
import { ByteBudget } from "./byte-budget.ts";
import { RunnerConnection, type RunnerConnectionComponents } from "./runner-connection.ts";

/** More component containers than that no board has. */
const MAX_CONNECTIONS = 256;
/** Bounds the connections that have not identified themselves yet: each runner does so at once. */
const MAX_UNIDENTIFIED = 64;
/** Two of the largest requests at once, and two of the largest answers. */
const BUDGET_BYTES = 4_500_000;
/** Runners have the rights of their pods; only they have the folder open that leads here. */
const SOCKET_MODE = 0o666;

export type ServicePortComponents = Omit<RunnerConnectionComponents, "budget" | "answers" | "onPeer">;

export class ServicePort implements AsyncDisposable {
  readonly #components: ServicePortComponents;
  readonly #server: Server;
  readonly #budget = new ByteBudget(BUDGET_BYTES);
  /** A budget of their own: a request that is counted waits for room for its answer, never the other way round. */
  readonly #answers = new ByteBudget(BUDGET_BYTES);
  readonly #connections = new Set<RunnerConnection>();
  /** The one that has waited for the longest first. */
  readonly #unidentified = new Set<RunnerConnection>();
  /** By container. */
  readonly #ofPeers = new Map<string, RunnerConnection>();

  private constructor(components: ServicePortComponents) {
    this.#components = components;
    this.#server = createServer((socket) => this.#serve(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** @param path what stands there is removed: a socket of an agent that is gone. @throws `failed` */
  static async open(components: ServicePortComponents, path: string): Promise<ServicePort> {
    const port = new ServicePort(components);
    rmSync(path, { force: true });
    await new Promise<void>((resolve, reject) => {
      const fail = (cause: Error): void =>
        reject(new PicoletError("failed", `cannot listen on ${path}`, { cause, retryable: true }));
      port.#server.once("error", fail);
      port.#server.listen(path, () => {
        port.#server.off("error", fail);
        chmodSync(path, SOCKET_MODE);
        resolve();
      });
    });
    port.#server.on("error", (error) => components.log.warn("the socket of the components' services fails", { error }));
    // It keeps no agent from ending.
    port.#server.unref();
    return port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const each of this.#connections) each.end();
    await closed;
  }

  #serve(socket: Socket): void {
    socket.on("error", ignore("the loop that reads reports it"));
    const onPeer = ({ containerId }: ServicePeer): void => {
      this.#unidentified.delete(connection);
      this.#ofPeers.get(containerId)?.end();
      this.#ofPeers.set(containerId, connection);
    };
    const budgets = { budget: this.#budget, answers: this.#answers };
    const connection = new RunnerConnection({ ...this.#components, ...budgets, onPeer }, socket);
    this.#connections.add(connection);
    // A runner that opens connections without end keeps no other one out.
    const [oldest] = this.#unidentified;
    if (this.#unidentified.size >= MAX_UNIDENTIFIED) oldest?.end();
    this.#unidentified.add(connection);
    void connection.serve().finally(() => this.#forget(connection));
  }

  #forget(connection: RunnerConnection): void {
    this.#connections.delete(connection);
    this.#unidentified.delete(connection);
    for (const [id, each] of this.#ofPeers) if (each === connection) this.#ofPeers.delete(id);
  }
}
