/** A node and what is already taken on it. */

import { parseQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { podRequests } from "@picolet/protocol/pod/pod-resources.ts";
import type { NodeObject } from "../../api/typed-objects.ts";

/** Nano units by resource name. */
export type Amounts = ReadonlyMap<string, bigint>;

export interface HostPort {
  readonly ip: string;
  readonly protocol: string;
  readonly port: number;
}

const NANO = 1_000_000_000n;
/** Requests that are assumed for a container without any when nodes are compared: 100m of CPU, 200 MB of memory. */
const UNREQUESTED_CPU = NANO / 10n;
const UNREQUESTED_MEMORY = 200n * 1024n * 1024n * NANO;
const ANY_IP = "0.0.0.0";

/** Facts of a pod that are needed often, computed once. */
export interface PodNeeds {
  readonly pod: Pod;
  readonly requests: Amounts;
  /** For scores: never zero. */
  readonly weighed: { readonly cpu: bigint; readonly memory: bigint };
  readonly ports: readonly HostPort[];
}

export function podNeeds(pod: Pod): PodNeeds {
  const requests = new Map([...podRequests(pod)].map(([name, { nano }]) => [name, nano]));
  const count = BigInt(pod.spec.containers.length);
  const ports = [...pod.spec.containers, ...(pod.spec.initContainers ?? []).filter(isSidecar)].flatMap((container) =>
    (container.ports ?? [])
      .filter(({ hostPort = 0 }) => hostPort > 0)
      .map(({ hostIP, protocol, hostPort = 0 }) => ({ ip: hostIP || ANY_IP, protocol, port: hostPort })),
  );
  return {
    pod,
    requests,
    weighed: {
      cpu: requests.get("cpu") || count * UNREQUESTED_CPU,
      memory: requests.get("memory") || count * UNREQUESTED_MEMORY,
    },
    ports,
  };
}

const isSidecar = ({ restartPolicy }: { readonly restartPolicy?: string | undefined }): boolean =>
  restartPolicy === "Always";

export const portsConflict = (left: HostPort, right: HostPort): boolean =>
  left.port === right.port &&
  left.protocol === right.protocol &&
  (left.ip === right.ip || left.ip === ANY_IP || right.ip === ANY_IP);

export class NodeInfo {
  #node: NodeObject;
  #allocatable: Amounts;
  // Undefined while there are none: an empty Map takes 184 bytes, and there are thousands of nodes.
  #pods: Map<string, PodNeeds> | undefined;
  #repelling: Set<PodNeeds> | undefined;
  #requested: Map<string, bigint> | undefined;
  #cpu = 0n;
  #memory = 0n;

  constructor(node: NodeObject) {
    this.#node = node;
    this.#allocatable = amountsOf(node);
  }

  get node(): NodeObject {
    return this.#node;
  }

  set node(node: NodeObject) {
    this.#node = node;
    this.#allocatable = amountsOf(node);
  }

  get pods(): Iterable<PodNeeds> {
    return this.#pods?.values() ?? [];
  }

  /** Those that keep others away from where they are. */
  get repelling(): Iterable<PodNeeds> {
    return this.#repelling ?? [];
  }

  get podCount(): number {
    return this.#pods?.size ?? 0;
  }

  get weighed(): { readonly cpu: bigint; readonly memory: bigint } {
    return { cpu: this.#cpu, memory: this.#memory };
  }

  allocatable(resource: string): bigint {
    return this.#allocatable.get(resource) ?? 0n;
  }

  requested(resource: string): bigint {
    return this.#requested?.get(resource) ?? 0n;
  }

  has(uid: string): boolean {
    return this.#pods?.has(uid) === true;
  }

  /** Replaces one of the same uid. */
  add(needs: PodNeeds): void {
    const uid = needs.pod.metadata.uid ?? "";
    this.remove(uid);
    this.#pods ??= new Map();
    this.#pods.set(uid, needs);
    const antiAffinity = needs.pod.spec.affinity?.podAntiAffinity;
    if ((antiAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? []).length > 0) {
      this.#repelling ??= new Set();
      this.#repelling.add(needs);
    }
    this.#count(needs, 1n);
  }

  remove(uid: string): void {
    const needs = this.#pods?.get(uid);
    if (needs === undefined) return;
    this.#pods?.delete(uid);
    this.#repelling?.delete(needs);
    this.#count(needs, -1n);
  }

  #count({ requests, weighed }: PodNeeds, sign: bigint): void {
    for (const [name, amount] of requests) {
      this.#requested ??= new Map();
      this.#requested.set(name, this.requested(name) + sign * amount);
    }
    this.#cpu += sign * weighed.cpu;
    this.#memory += sign * weighed.memory;
  }
}

function amountsOf({ status }: NodeObject): Amounts {
  const amounts = new Map<string, bigint>();
  for (const [name, text] of Object.entries(status?.allocatable ?? status?.capacity ?? {})) {
    const parsed = parseQuantity(String(text));
    if (parsed.ok) amounts.set(name, parsed.quantity.nano);
  }
  return amounts;
}
