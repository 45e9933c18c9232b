/** Waiting for pods over the agent's local API, for `npm start` and for tests. */
import { get, type IncomingMessage } from "node:http";
import type { PodList, WatchLine } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";

/** By `metadata.name`. */
export type PodsByName = ReadonlyMap<string, Pod>;

export interface Followed {
  /** True when the condition held before the time was over. */
  readonly reached: boolean;
  /** Every incarnation at the end. */
  readonly pods: readonly Pod[];
}

/** Follows the pods until `condition` holds of them. @throws when the agent cannot be reached or goes away */
export async function followPods(
  socketPath: string,
  limitMs: number,
  condition: (pods: PodsByName) => boolean,
): Promise<Followed> {
  const pods = new Map<string | undefined, Pod>();
  const response = await requestAgent(socketPath, "/v1/pods?watch=true");
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    response.destroy();
  }, limitMs);
  const answer = (reached: boolean): Followed => ({ reached, pods: [...pods.values()] });
  try {
    // The list is read after the watch has begun, which tells an empty node from one that has not reported yet.
    const list = JSON.parse(await textOf(await requestAgent(socketPath, "/v1/pods"))) as PodList;
    for (const pod of list.items) pods.set(pod.metadata.uid, pod);
    if (condition(byName(pods.values()))) return answer(true);
    for await (const line of linesOf(response)) {
      const change = JSON.parse(line) as WatchLine<Pod>;
      if (change.type === "ERROR") throw new Error(change.error.message);
      if (change.type === "DELETED") pods.delete(change.object.metadata.uid);
      else pods.set(change.object.metadata.uid, change.object);
      if (condition(byName(pods.values()))) return answer(true);
    }
    throw new Error("the agent ended the watch");
  } catch (error) {
    if (isLate) return answer(false);
    throw error;
  } finally {
    clearTimeout(timer);
    response.destroy();
  }
}

export function requestAgent(socketPath: string, path: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get({ socketPath, path, agent: false }, resolve).on("error", reject);
  });
}

export async function textOf(response: IncomingMessage): Promise<string> {
  let whole = "";
  for await (const chunk of response.setEncoding("utf8")) whole += chunk;
  return whole;
}

export async function* linesOf(response: IncomingMessage): AsyncIterable<string> {
  let rest = "";
  for await (const chunk of response.setEncoding("utf8")) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield line;
  }
}

export const isReady = (pod: Pod | undefined): boolean =>
  pod?.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;

/** Keeps one pod of each name, preferably one that is not ending. */
export function byName(pods: Iterable<Pod>): PodsByName {
  const endingFirst = [...pods].sort((a, b) => Number(isEnding(b)) - Number(isEnding(a)));
  return new Map(endingFirst.map((pod) => [pod.metadata.name, pod]));
}

const isEnding = (pod: Pod): boolean => pod.metadata.deletionTimestamp !== undefined;
