/** The hub's API server as the bench uses it: stock client calls, and the two streams that are timed. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { get } from "node:https";
import type { ClusterAccess } from "@picolet/hub/kubernetes/cluster-access.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import { openClient } from "@picolet/hub/main/hub-client.ts";
import { type KubeClient, type KubeObject, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WebSocket } from "ws";

const NAMESPACE = "default";
/** Generous: the machine is shared. What has not come by then never will. */
const LIMIT_MS = 120_000;
const CHANNEL_PROTOCOL = "v4.channel.k8s.io";
const STDOUT = 1;

export const limit = (): AbortSignal => AbortSignal.timeout(LIMIT_MS);

export class ApiClient implements AsyncDisposable {
  readonly #access: ClusterAccess;
  readonly #client: KubeClient & AsyncDisposable;

  private constructor(access: ClusterAccess) {
    this.#access = access;
    this.#client = openClient({ clock: systemClock, random: { next: Math.random } }, access);
  }

  static async open(kubeconfig: string): Promise<ApiClient> {
    return new ApiClient(await loadKubeconfigAccess({ kubeconfig }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client[Symbol.asyncDispose]();
  }

  async create(pod: unknown): Promise<KubeObject> {
    const object = pod as KubeObject;
    return await this.#client.create(PODS, { namespace: NAMESPACE, name: "" }, object, {}, limit());
  }

  async delete(name: string): Promise<void> {
    await this.#client.delete(PODS, { namespace: NAMESPACE, name }, {}, limit());
  }

  /** Resolves when the API server has no such pod any more. */
  async untilGone(name: string): Promise<void> {
    const { items, resourceVersion } = await this.#client.list(PODS, { namespace: NAMESPACE }, limit());
    if (items.every(({ metadata }) => metadata.name !== name)) return;
    for await (const event of this.#client.watch(PODS, { namespace: NAMESPACE, resourceVersion }, limit())) {
      if (event.type === "DELETED" && event.object.metadata.name === name) return;
    }
    throw new Error("the watch ended");
  }

  async deleteAll(): Promise<void> {
    const { items } = await this.#client.list(PODS, { namespace: NAMESPACE }, limit());
    for (const pod of items) await this.delete(pod.metadata.name);
  }

  /** Follows the pods from now on until `isOver` says so of one more change. @returns how many changes there were */
  async countChanges(work: () => void, isOver: (pod: KubeObject) => boolean): Promise<number> {
    const signal = limit();
    const { resourceVersion } = await this.#client.list(PODS, { namespace: NAMESPACE }, signal);
    let changes = 0;
    work();
    for await (const event of this.#client.watch(PODS, { namespace: NAMESPACE, resourceVersion }, signal)) {
      if (event.type === "BOOKMARK") continue;
      changes += 1;
      if (isOver(event.object)) return changes;
    }
    throw new Error("the watch ended");
  }

  /** Seconds from the connection's start until a command's first byte. */
  async execFirstByte(pod: string, command: readonly string[]): Promise<number> {
    const query = new URLSearchParams({ container: "app", stdout: "true" });
    for (const word of command) query.append("command", word);
    const { tls, headers } = await this.#access.credentials();
    const url = `${this.#access.server}/api/v1/namespaces/${NAMESPACE}/pods/${pod}/exec?${query}`;
    return await firstByte(url, { ...tls, headers });
  }

  /** The whole log of a pod's one container. @returns its size and how long it took, in seconds */
  async readLog(pod: string): Promise<{ readonly bytes: number; readonly seconds: number }> {
    const { tls, headers } = await this.#access.credentials();
    const url = `${this.#access.server}/api/v1/namespaces/${NAMESPACE}/pods/${pod}/log?container=app`;
    const startedAt = performance.now();
    const request = get(url, { ...tls, headers, signal: limit() });
    const [response] = (await once(request, "response")) as [IncomingMessage];
    if (response.statusCode !== 200) throw new Error(`the log of ${pod} answers ${response.statusCode}`);
    let bytes = 0;
    for await (const piece of response) bytes += (piece as Buffer).length;
    return { bytes, seconds: (performance.now() - startedAt) / 1000 };
  }
}

type WebSocketOptions = ConstructorParameters<typeof WebSocket>[2];

/** Seconds from the connection's start until the first byte on the command's standard output. */
export async function firstByte(url: string, options: WebSocketOptions): Promise<number> {
  const startedAt = performance.now();
  const socket = new WebSocket(url.replace(/^http/, "ws"), [CHANNEL_PROTOCOL], options);
  try {
    return await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("the command said nothing")), LIMIT_MS);
      socket.on("message", (data: Buffer) => {
        if (data[0] !== STDOUT || data.length < 2) return;
        clearTimeout(timer);
        resolve((performance.now() - startedAt) / 1000);
      });
      socket.on("error", reject);
      socket.on("close", (code, reason) => reject(new Error(`the command's stream ended: ${code} ${reason}`)));
    });
  } finally {
    socket.on("error", () => undefined);
    socket.terminate();
  }
}
