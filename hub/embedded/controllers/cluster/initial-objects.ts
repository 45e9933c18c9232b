import {
  type KubeClient,
  type KubeObject,
  type ResourceType,
  RUNTIME_CLASSES,
  SERVICES,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import {
  CLUSTER_ROLE_BINDINGS,
  CLUSTER_ROLES,
  NAMESPACES,
  PRIORITY_CLASSES,
} from "@picolet/hub-core/kube-client/resource-types.ts";
import { aborted } from "@picolet/protocol/async/abort.ts";
import { Backoff, type BackoffPolicy, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import { API_SERVICE_ADDRESS } from "../../resources/service-address.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import { AUTO_UPDATE, BOOTSTRAP_ROLES } from "./bootstrap-roles.ts";

const TYPES: readonly ResourceType[] = [
  NAMESPACES,
  PRIORITY_CLASSES,
  RUNTIME_CLASSES,
  SERVICES,
  CLUSTER_ROLES,
  CLUSTER_ROLE_BINDINGS,
];

const priorityClass = (name: string, value: number, description: string): KubeObject => ({
  apiVersion: "scheduling.k8s.io/v1",
  kind: "PriorityClass",
  metadata: { name },
  value,
  description,
});

/** The objects of a new cluster. */
const INITIAL_OBJECTS: readonly KubeObject[] = [
  ...["default", "kube-system", "kube-public", "kube-node-lease"].map((name) => ({
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name },
  })),
  priorityClass(
    "system-node-critical",
    2_000_001_000,
    "Used for system critical pods that must not be moved from their current node.",
  ),
  priorityClass(
    "system-cluster-critical",
    2_000_000_000,
    "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
  ),
  {
    apiVersion: "v1",
    kind: "Service",
    metadata: {
      namespace: "default",
      name: "kubernetes",
      labels: { component: "apiserver", provider: "kubernetes" },
    },
    spec: {
      type: "ClusterIP",
      clusterIP: API_SERVICE_ADDRESS,
      ports: [{ name: "https", port: 443, protocol: "TCP", targetPort: 6443 }],
    },
  },
  // Components run on every node of ours.
  { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name: "wasm" }, handler: "wasm" },
  ...BOOTSTRAP_ROLES,
];

const RETRY: BackoffPolicy = { first: millis(500), max: seconds(30), jitter: FULL_JITTER, least: millis(250) };

/** Makes what is missing, and brings roles of ours up to what this version has. @throws what the API server says */
export async function ensureInitialObjects(client: KubeClient, signal: AbortSignal): Promise<void> {
  for (const object of INITIAL_OBJECTS) {
    const type = TYPES.find(({ kind }) => kind === object.kind);
    if (type !== undefined) await ensure(client, type, object, signal);
  }
}

async function ensure(client: KubeClient, type: ResourceType, object: KubeObject, signal: AbortSignal): Promise<void> {
  const { namespace = "", name } = object.metadata;
  const ref = { namespace, name };
  let existing: KubeObject;
  try {
    existing = await client.get(type, ref, signal);
  } catch (error) {
    if (!isPicoletError(error, "not_found")) throw error;
    try {
      await client.create(type, ref, object, {}, signal);
    } catch (refusal) {
      if (!isPicoletError(refusal, "already_exists")) throw refusal;
    }
    return;
  }
  const isOurs = existing.metadata.annotations?.[AUTO_UPDATE] === "true";
  if (!isOurs || JSON.stringify(existing.rules) === JSON.stringify(object.rules)) return;
  await client.update(type, ref, { ...existing, rules: object.rules }, {}, signal);
}

/** Sees to the initial objects once, for as long as it takes. */
export class InitialObjects implements Component {
  readonly name = "initial objects";
  readonly #ports: ControllerPorts;

  constructor(ports: ControllerPorts) {
    this.#ports = ports;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { client, clock, random, log } = this.#ports;
    const backoff = new Backoff(random, RETRY);
    for (;;) {
      try {
        await ensureInitialObjects(client, signal);
        break;
      } catch (error) {
        if (signal.aborted || isCancelled(error)) throw error;
        if (backoff.failures === 0) log.warn("cannot make the initial objects", { error: describeError(error) });
        await clock.sleep(backoff.next(), signal);
      }
    }
    await aborted(signal);
  }
}
