/** A board on which pods leak, one after the other: real containers, real cgroups, an agent with a hub. */
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { totalmem } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { allReady, containerIdOf, containerPod } from "../../support/agent/node-fixtures.ts";
import type { Containerd } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { JoinedBoard } from "../hub/tunnel-figures.ts";
import { limit } from "../measure/api-client.ts";
import type { ObserverAnswer, ObserverOrder } from "./eviction-observer.ts";

/** One pod that leaked, and its end. */
export interface Leak {
  /** The end of the pod: by the agent, or by the kernel before it. */
  readonly how: "evicted" | "OOM killed";
  /** Until no process of the pod is left; undefined: it never crossed the threshold as the observer saw it. */
  readonly crossingToGoneMs: number | undefined;
  /** Beyond the threshold. */
  readonly overshootMiB: number;
  /** Other pods and the agent that did not live through it. */
  readonly lost: readonly string[];
}

/** The limit of all pods together, and how much of it must stay free. */
const PODS_BYTES = 400 * MEBIBYTE;
const THRESHOLD_BYTES = 100 * MEBIBYTE;
/** Beside the pod that leaks: one that has much and asked for it, one that has little, one that asked for nothing. */
const OTHERS = {
  big: { script: "exec /go/load hold 150", requests: { memory: "180Mi" } },
  small: { script: undefined, requests: { memory: "16Mi" } },
  plain: { script: undefined, requests: {} },
};
const MOUNT = "/sys/fs/cgroup/memory";

/** Needs cgroup v1. */
export class LeakBoard implements AsyncDisposable {
  readonly #board: JoinedBoard;
  readonly #go: TempFolder;
  /** Processes of the other pods' containers. */
  #pids: ReadonlyMap<string, number> = new Map();

  private constructor(board: JoinedBoard, go: TempFolder) {
    this.#board = board;
    this.#go = go;
  }

  static async start(containerd: Containerd): Promise<LeakBoard> {
    await using started = new AsyncDisposableStack();
    const go = started.use(new TempFolder());
    const source = fileURLToPath(new URL("../../support/guest/image/load.c", import.meta.url));
    execFileSync("clang", ["-Os", "-static", "-o", go.at("load"), source]);
    execFileSync("mkfifo", [go.at("rate")]);
    const board = started.use(
      await JoinedBoard.start(containerd, {
        systemReserved: { memory: String(totalmem() - PODS_BYTES) },
        evictionHard: { "memory.available": String(THRESHOLD_BYTES) },
        evictionPressureTransitionPeriod: "0s",
      }),
    );
    const leaks = new LeakBoard(board, go);
    await leaks.#startOthers();
    started.move();
    return leaks;
  }

  async #startOthers(): Promise<void> {
    const { api, node, containerd } = this.#board;
    const names = Object.keys(OTHERS);
    for (const [name, { script, requests }] of Object.entries(OTHERS)) {
      await api.create(this.#pod(name, script, requests));
    }
    const pods = await node.waitForPods("the pods beside it", allReady(names.length));
    this.#pids = new Map([
      ["the agent", node.pid],
      ...names.map((name) => [name, containerd.pidOf(containerIdOf(pods.get(name)))] as const),
    ]);
  }

  #pod(name: string, script: string | undefined, requests: Readonly<Record<string, string>>): unknown {
    const pod = containerPod(name, script, { nodeName: this.#board.nodeName, restartPolicy: "Never" });
    const { spec } = pod as { readonly spec: { readonly containers: readonly [object] } };
    const [container] = spec.containers;
    const volumeMounts = [{ name: "go", mountPath: "/go" }];
    const volumes = [{ name: "go", hostPath: { path: this.#go.path } }];
    const containers = [{ ...container, image: BUSYBOX_IMAGE, resources: { requests }, volumeMounts }];
    return { ...(pod as object), spec: { ...spec, containers, volumes } };
  }

  /** cgroupfs path of the cgroup of all pods. */
  get podsCgroup(): string {
    return `${this.#board.node.cgroupRoot}/kubepods`;
  }

  /** Starts a pod that takes ever more memory, and sees it gone. */
  async leak(mibPerSecond: number): Promise<Leak> {
    const { api, node } = this.#board;
    await api.create(this.#pod("leak", "read rate < /go/rate; exec /go/load leak $rate", { memory: "16Mi" }));
    const pods = await node.waitForPods("a pod that will leak", (all) => allReady(this.#pids.size)(all));
    const { answer, begun } = this.#observe(containerIdOf(pods.get("leak")));
    await begun;
    await this.#begin(mibPerSecond);
    const seen = await answer;
    const after = await node.waitForPods("its end", (all) => all.get("leak")?.status?.phase === "Failed");
    const { reason, containerStatuses } = after.get("leak")?.status ?? {};
    const wasKilled = containerStatuses?.[0]?.state.terminated?.reason === "OOMKilled";
    await api.delete("leak");
    await node.waitForPods("it gone", (all) => !all.has("leak"));
    await api.untilGone("leak");
    return {
      how: reason === "Evicted" && !wasKilled ? "evicted" : "OOM killed",
      crossingToGoneMs: seen.crossingToGoneMs,
      overshootMiB: Math.max(0, (seen.peakBytes - this.#crossingBytes()) / MEBIBYTE),
      lost: [...this.#pids].filter(([, pid]) => !isAlive(pid)).map(([name]) => name),
    };
  }

  /** Its container waits for the rate. */
  async #begin(mibPerSecond: number): Promise<void> {
    await using pipe = await open(this.#go.at("rate"), "w");
    await pipe.write(`${mibPerSecond}\n`);
  }

  #observe(containerId: string): { readonly begun: Promise<unknown>; readonly answer: Promise<ObserverAnswer> } {
    const pods = this.#podsFolder();
    const container = readdirSync(pods, { recursive: true, withFileTypes: true }).find(
      ({ name }) => name === containerId,
    );
    if (container === undefined) throw new Error(`container ${containerId} has no cgroup in ${pods}`);
    const child = fork(fileURLToPath(new URL("eviction-observer.ts", import.meta.url)));
    const order: ObserverOrder = { pods, crossingBytes: this.#crossingBytes(), leaker: container.parentPath };
    child.send(order);
    const begun = once(child, "message", { signal: limit() });
    const answer = begun
      .then(() => once(child, "message", { signal: limit() }))
      .then(([seen]) => seen as ObserverAnswer);
    return { begun, answer };
  }

  #podsFolder(): string {
    return join(MOUNT, this.podsCgroup);
  }

  #crossingBytes(): number {
    return Number(readFileSync(join(this.#podsFolder(), "memory.limit_in_bytes"), "utf8")) - THRESHOLD_BYTES;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#board.drain();
    await this.#board[Symbol.asyncDispose]();
    this.#go[Symbol.dispose]();
  }
}

function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
