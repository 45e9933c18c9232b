import type { BoundPods } from "@picolet/hub-core/fleet.ts";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { METRICS_GROUP, METRICS_VERSION, type UsageObjects } from "@picolet/hub-core/usage-objects.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { BoardSamples, BoardUsage, Counter, PodUsage } from "./board-samples.ts";

const API_VERSION = `${METRICS_GROUP}/${METRICS_VERSION}`;
const NANOCORES = 1e9;

export interface UsageObjectsComponents {
  readonly samples: Pick<BoardSamples, "usageOf">;
  readonly pods: BoundPods;
  /** Labels of a Node of this hub; undefined for one that is none. */
  readonly nodeLabels: (name: string) => Readonly<Record<string, string>> | undefined;
  readonly nodeNames: () => Iterable<string>;
}

/** Boards' samples joined with the Nodes and pods that the API server has: labels and bindings are never a board's. */
export class SampledUsage implements UsageObjects {
  readonly #components: UsageObjectsComponents;

  constructor(components: UsageObjectsComponents) {
    this.#components = components;
  }

  node(name: string): KubeObject | undefined {
    const { samples, nodeLabels } = this.#components;
    const board = samples.usageOf(name);
    const usage = board?.usage === undefined ? undefined : usageOf(board.usage);
    if (board === undefined || usage === undefined) return undefined;
    const labels = nodeLabels(name);
    if (labels === undefined) return undefined;
    return {
      apiVersion: API_VERSION,
      kind: "NodeMetrics",
      metadata: { name, creationTimestamp: timeOf(board), labels },
      ...spanOf(board),
      usage,
    };
  }

  *nodes(): Generator<KubeObject> {
    for (const name of this.#components.nodeNames()) {
      const object = this.node(name);
      if (object !== undefined) yield object;
    }
  }

  pod(namespace: string, name: string): KubeObject | undefined {
    const pod = this.#components.pods.pod(namespace, name);
    const board = pod === undefined ? undefined : this.#components.samples.usageOf(pod.node);
    if (pod === undefined || board === undefined) return undefined;
    const used = board.pods.find((each) => each.pod.uid === pod.uid);
    return used === undefined ? undefined : podObject(pod, board, used);
  }

  *pods(namespace: string): Generator<KubeObject> {
    const { pods, samples, nodeNames } = this.#components;
    for (const node of nodeNames()) {
      const board = samples.usageOf(node);
      if (board === undefined) continue;
      const used = new Map(board.pods.map((each) => [each.pod.uid, each]));
      for (const pod of pods.podsOf(node)) {
        if (namespace !== "" && pod.namespace !== namespace) continue;
        const found = used.get(pod.uid);
        const object = found === undefined ? undefined : podObject(pod, board, found);
        if (object !== undefined) yield object;
      }
    }
  }
}

function podObject(
  { namespace, name, labels }: { namespace: string; name: string; labels: () => Readonly<Record<string, string>> },
  board: BoardUsage,
  { containers }: PodUsage,
): KubeObject | undefined {
  const shown = containers.map((each) => ({ name: each.name, usage: usageOf(each) }));
  // A pod of which a container cannot be judged yet is not scaled by the others.
  if (shown.length === 0 || shown.some(({ usage }) => usage === undefined)) return undefined;
  return {
    apiVersion: API_VERSION,
    kind: "PodMetrics",
    metadata: { name, namespace, creationTimestamp: timeOf(board), labels: labels() },
    ...spanOf(board),
    containers: shown,
  };
}

const timeOf = ({ atMs }: BoardUsage): string => kubeTime(new Date(atMs));

/** A duration as Go writes it. */
const spanOf = (board: BoardUsage) => ({
  timestamp: timeOf(board),
  window: `${Math.max(0, board.windowMs) / 1000}s`,
});

/** Quantities as metrics-server writes them. */
function usageOf({ cores, workingSetBytes }: Counter): Readonly<Record<string, string>> | undefined {
  if (cores === undefined) return undefined;
  return { cpu: `${Math.round(cores * NANOCORES)}n`, memory: `${Math.floor(workingSetBytes / KIBIBYTE)}Ki` };
}
