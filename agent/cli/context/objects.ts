/** Objects as machines read them, and how pods are named. Pure. */

import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { PodSummary } from "@picolet/protocol/pod/pod-summary.ts";
import { usageError } from "./exit-codes.ts";
import { age } from "./text-layout.ts";
import { toYaml } from "./yaml-writer.ts";

/** The default namespace, as for kubectl. */
export const DEFAULT_NAMESPACE = "default";

export type MachineFormat = "json" | "yaml";

/** `undefined`: for people. */
export function machineFormat(input: Arguments): MachineFormat | undefined {
  const output = input.text("output");
  return output === "json" || output === "yaml" ? output : undefined;
}

export const printObject = (value: unknown, format: MachineFormat): string =>
  format === "json" ? `${JSON.stringify(value, undefined, 2)}\n` : toYaml(value);

/** As `kubectl get -o json` prints several. */
export const listObject = (items: readonly unknown[]): unknown => {
  return { apiVersion: "v1", items, kind: "List", metadata: { resourceVersion: "" } };
};

export interface PodName {
  /** `undefined`: whichever has it, `default` first. */
  readonly namespace: string | undefined;
  readonly name: string;
}

const RESOURCE_PREFIX = /^(?:pods?|po)\//;

/** `NAME`, `pod/NAME` or `NAMESPACE/NAME`. */
export function parsePodName(text: string, namespace: string | undefined): PodName {
  const name = text.replace(RESOURCE_PREFIX, "");
  const [first = "", second, ...more] = name.split("/");
  if (first === "" || second === "" || more.length > 0) throw usageError(`"${text}" is no name of a pod`);
  if (second === undefined) return { namespace, name: first };
  if (namespace !== undefined && namespace !== first) {
    throw usageError(`"${text}" is not in namespace ${namespace}`);
  }
  return { namespace: first, name: second };
}

export const podPath = ({ namespace, name }: PodName): string =>
  `/v1/namespaces/${encodeURIComponent(namespace ?? "-")}/pods/${encodeURIComponent(name)}`;

/** The shortest that can be typed back in. */
export const podLabel = (namespace: string, name: string): string =>
  namespace === DEFAULT_NAMESPACE ? name : `${namespace}/${name}`;

/** kubectl's READY, STATUS and RESTARTS. */
export function summaryColumns(summary: PodSummary, nowMs: number): [string, string, string] {
  const { status, readyContainers, totalContainers, restarts, lastRestartAt } = summary;
  const last = restarts > 0 && lastRestartAt !== null ? ` (${age(lastRestartAt, nowMs)} ago)` : "";
  return [`${readyContainers}/${totalContainers}`, status, `${restarts}${last}`];
}

/** `?a=1&b=2`, without what is `undefined`. */
export function query(values: Readonly<Record<string, string | number | boolean | undefined>>): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) parameters.set(name, String(value));
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}
