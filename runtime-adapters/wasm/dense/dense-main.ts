/**
 * Runs several components in one process, each on stacks of its own: `node … dense <host.json>`. It outlives the agent,
 * which commands it over a socket. The outcome of a container is in its end file, with or without an agent.
 */
import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import { lacksAddresses, startMessage } from "../shared/component/trap-message.ts";
import { StaleMount } from "../shared/host/mounts.ts";
import { TlsContexts } from "../shared/http/tls-contexts.ts";
import {
  type DenseHostLaunch,
  type DenseReport,
  type DenseRequest,
  type DenseUsage,
  LineReader,
  line,
  MAX_REQUEST_BYTES,
} from "../shared/messages/dense-messages.ts";
import { STARTED_FD, STARTED_MESSAGE, switchUser } from "../shared/messages/launch.ts";
import { DenseContainer } from "./dense-container.ts";
import { SharedCode } from "./shared-code.ts";
import { Turns } from "./turns.ts";

/** Linear memory returns to the kernel with a collection alone. Containers that end within this time share one. */
const COLLECTION_DELAY_MS = 500;
const MAX_AGENTS = 4;
/** Bounds the file of errors that belong to no component. */
const MAX_COMPLAINTS = 20;
const MAX_COMPLAINT_LENGTH = 200;
const STDERR_FD = 2;

class DenseHost {
  readonly #containers = new Map<string, DenseContainer>();
  readonly #code = new SharedCode();
  readonly #tls = new TlsContexts();
  readonly #turns: Turns;
  /** The oldest first: one agent's, and its successor's before the first is seen to be gone. */
  readonly #agents = new Set<Socket>();
  #collection: NodeJS.Timeout | undefined;

  constructor(turnFd: number) {
    this.#turns = new Turns({
      now: () => performance.now(),
      soon: setImmediate,
      // All ids have the same length, so that the file always has a complete one.
      onTurn: (id) => writeSync(turnFd, id, 0),
    });
  }

  serve(socket: Socket): void {
    this.#agents.add(socket);
    if (this.#agents.size > MAX_AGENTS) [...this.#agents][0]?.destroy();
    const reader = new LineReader(MAX_REQUEST_BYTES);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#agents.delete(socket));
    socket.on("data", (chunk: Buffer) => {
      try {
        for (const text of reader.push(chunk)) this.#carryOut(JSON.parse(text) as DenseRequest, socket);
      } catch {
        socket.destroy();
      }
    });
    socket.write(line({ kind: "hello", containers: [...this.#containers.keys()] }));
  }

  #carryOut(request: DenseRequest, socket: Socket): void {
    switch (request.kind) {
      case "start":
        void this.#start(request);
        return;
      case "stop":
        this.#containers.get(request.id)?.stop(request.exitCode);
        return;
      case "ping":
        socket.write(line({ kind: "pong", number: request.number }));
        return;
      case "usage":
        socket.write(line({ kind: "usage", containers: this.#usage() }));
    }
  }

  async #start({ id, code, launch }: Extract<DenseRequest, { kind: "start" }>): Promise<void> {
    if (this.#containers.has(id)) return;
    const container = new DenseContainer(id, code, launch, {
      turns: this.#turns,
      code: this.#code,
      tls: this.#tls,
      onEnd: () => {
        this.#containers.delete(id);
        this.#say({ kind: "ended", id });
        this.#collectLater();
      },
    });
    this.#containers.set(id, container);
    try {
      await container.prepare();
    } catch (error) {
      this.#containers.delete(id);
      const hasOthers = this.#containers.size > 0;
      const stale = error instanceof StaleMount || (lacksAddresses(error) && hasOthers);
      this.#say({ kind: "refused", id, message: startMessage(error), stale });
      this.#collectLater();
      return;
    }
    this.#say({ kind: "started", id });
    container.begin();
    this.#collectLater();
  }

  #say(report: DenseReport): void {
    for (const agent of this.#agents) agent.write(line(report));
  }

  #usage(): DenseUsage[] {
    return [...this.#containers.values()].map(({ id, memoryBytes, ranMs }) => ({ id, memoryBytes, ranMs }));
  }

  /** Collects the garbage of a start too. */
  #collectLater(): void {
    this.#collection ??= setTimeout(() => {
      this.#collection = undefined;
      void globalThis.gc?.({ type: "major", flavor: "last-resort", execution: "sync" });
    }, COLLECTION_DELAY_MS);
  }
}

function main(launchPath: string): void {
  const { identity, socketPath, turnPath } = JSON.parse(readFileSync(launchPath, "utf8")) as DenseHostLaunch;
  if (identity !== undefined) switchUser(identity);
  const turnFd = openSync(turnPath, "w", 0o600);
  ftruncateSync(turnFd);
  const host = new DenseHost(turnFd);
  createServer((socket) => host.serve(socket)).listen(socketPath, () => {
    try {
      writeSync(STARTED_FD, STARTED_MESSAGE);
      closeSync(STARTED_FD);
    } catch {
      ignore("the agent that started this has ended, and the next one reads the state folder");
    }
  });
}

/** @returns a handler that writes the first errors down */
function complaining(): (error: unknown) => void {
  let left = MAX_COMPLAINTS;
  return (error) => {
    left -= 1;
    if (left >= 0) writeSync(STDERR_FD, `${describeError(error).slice(0, MAX_COMPLAINT_LENGTH)}\n`);
  };
}

// An error in a callback of one component must not end the others.
process.on("uncaughtException", complaining());

main(process.argv[2] ?? "host.json");
