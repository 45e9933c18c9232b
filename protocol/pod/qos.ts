/** The QoS class as the kubelet computes it (pkg/apis/core/v1/helper/qos). */

import { addQuantities, parseQuantity, type Quantity } from "../kubernetes/quantity.ts";
import type { Pod } from "./pod.ts";
import type { QosClass } from "./pod-status.ts";

/** The resources that decide; others do not count. */
const QOS_RESOURCES = ["cpu", "memory"] as const;

type Totals = Map<string, Quantity>;

/** Adds what is above zero. @returns how many of the deciding resources were. */
function addTo(totals: Totals, texts: Readonly<Record<string, string>> | undefined): number {
  let found = 0;
  for (const name of QOS_RESOURCES) {
    const text = texts?.[name];
    const result = text === undefined ? undefined : parseQuantity(text);
    if (!result?.ok || result.quantity.nano <= 0n) continue;
    found += 1;
    const before = totals.get(name);
    totals.set(name, before === undefined ? result.quantity : addQuantities(before, result.quantity));
  }
  return found;
}

export function qosClass(pod: Pod): QosClass {
  const { spec } = pod;
  const parts =
    spec.resources === undefined
      ? [...spec.containers, ...(spec.initContainers ?? [])].map((container) => container.resources)
      : [spec.resources];
  const requests: Totals = new Map();
  const limits: Totals = new Map();
  let everyPartLimited = true;
  for (const part of parts) {
    addTo(requests, part.requests);
    if (addTo(limits, part.limits) < QOS_RESOURCES.length) everyPartLimited = false;
  }
  if (requests.size === 0 && limits.size === 0) return "BestEffort";
  const equal =
    requests.size === limits.size && [...requests].every(([name, { nano }]) => limits.get(name)?.nano === nano);
  return everyPartLimited && equal ? "Guaranteed" : "Burstable";
}
