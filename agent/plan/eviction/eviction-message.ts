/** Makes the message of an eviction, with its figures, in the kubelet's words. Pure. */

import { formatQuantity, type Quantity, quantityOf } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Observation, quantityOfThreshold, resourceOf, type StarvedResource } from "./eviction-signals.ts";
import type { EvictionThreshold } from "./eviction-thresholds.ts";
import { type EvictionCandidate, heldMemoryBytes, podMemoryUsage } from "./rank-for-eviction.ts";

const NANO = 1_000_000_000n;

/** @param observed of the threshold's signal */
export function evictionMessage(
  threshold: EvictionThreshold,
  observed: Observation,
  candidate: EvictionCandidate,
): string {
  const resource = resourceOf(threshold.signal);
  const format: Quantity["format"] = resource === "inodes" || resource === "pids" ? "DecimalSI" : "BinarySI";
  const show = (value: number): string => shown(value, format);
  const { value } = threshold;
  // The kubelet formats a share in binary units, of inodes and processes too.
  const quantity =
    value.kind === "quantity"
      ? formatQuantity(quantityOf(value.text))
      : shown(quantityOfThreshold(threshold, observed), "BinarySI");
  return [
    `The node was low on resource: ${resource}. `,
    `Threshold quantity: ${quantity}, available: ${show(observed.available)}. `,
    ...podSentences(resource, candidate, show),
    ...containerSentences(resource, candidate, show),
  ].join("");
}

const shown = (value: number, format: Quantity["format"]): string =>
  formatQuantity({ nano: BigInt(Math.trunc(value)) * NANO, format });

type Show = (value: number) => string;

function podSentences(resource: StarvedResource, { pod, usage }: EvictionCandidate, show: Show): readonly string[] {
  const request = resource === "memory" ? pod.pod.spec.resources?.requests?.memory : undefined;
  const used = podMemoryUsage(usage);
  if (request === undefined || used === undefined) return [];
  const { name } = pod.pod.metadata;
  return [
    `Pod ${name} was using ${show(used)}, request is ${canonical(request)}, has larger consumption of ${resource}. `,
  ];
}

/** Those that use more than they ask for. */
function containerSentences(resource: StarvedResource, candidate: EvictionCandidate, show: Show): readonly string[] {
  const { containers, initContainers = [] } = candidate.pod.pod.spec;
  return [...containers, ...initContainers].flatMap((container) => {
    const used = usedBy(resource, candidate, container);
    const request = container.resources.requests?.[resource] ?? "0";
    if (used === undefined || BigInt(Math.trunc(used)) * NANO <= quantityOf(request).nano) return [];
    const { name } = container;
    return [
      `Container ${name} was using ${show(used)}, request is ${canonical(request)}, has larger consumption of ${resource}. `,
    ];
  });
}

const canonical = (text: string): string => formatQuantity(quantityOf(text));

function usedBy(
  resource: StarvedResource,
  { usage, disk }: EvictionCandidate,
  { name }: Pick<Container, "name">,
): number | undefined {
  if (resource === "memory") {
    const seen = usage?.containers.find(({ container }) => container.name === name);
    return seen === undefined ? undefined : heldMemoryBytes(seen.usage);
  }
  if (resource !== "ephemeral-storage") return undefined;
  const [rootfs, logs] = [disk?.rootfs.get(name), disk?.logs.get(name)];
  return rootfs === undefined || logs === undefined ? undefined : rootfs.bytes + logs.bytes;
}
