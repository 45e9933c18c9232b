/** CPU and memory of containers that run: changed in place, and read back. */
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, Pod, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import type { Action, DesiredPod, ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type CriClient, failure } from "../wire/cri-client.ts";
import { ContainerState, type ContainerStatus, RuntimeService } from "../wire/cri-messages.ts";
import type { MessageOf } from "../wire/protobuf.ts";
import { ANNOTATION } from "./labels.ts";
import { containerResources, cpusetResources, type ResourceSettings } from "./linux-resources.ts";
import type { OwnedIds } from "./owned-ids.ts";

interface UpdateComponents {
  readonly client: CriClient;
  readonly owned: OwnedIds;
  readonly settings: ResourceSettings;
}

/** The resources of a container that change in place, for its annotation. */
export function resourcesAnnotation({ resources: { requests, limits } }: Container): string {
  const own = (texts: Readonly<Record<string, string>> | undefined) =>
    texts === undefined ? undefined : { cpu: texts.cpu, memory: texts.memory };
  return JSON.stringify({ requests: own(requests), limits: own(limits) });
}

export async function updateContainer(
  { client, owned, settings }: UpdateComponents,
  { pod }: DesiredPod,
  { containerId, resources, cpuset }: Extract<Action, { kind: "updateContainer" }>,
  signal: AbortSignal,
): Promise<void> {
  const cannot = `cannot update container ${containerId}`;
  try {
    const isThere = (await owned.require(containerId, "container", signal)) !== undefined;
    const { status } = isThere ? await client.call(RuntimeService.containerStatus, { containerId }, signal) : {};
    // containerd takes the new values of one that has ended without a word.
    if (status?.state !== ContainerState.running) throw new PicoletError("not_found", "it does not run");
    const container = containerOf(pod, status.metadata?.name ?? "");
    const linux =
      resources === undefined
        ? cpusetResources(cpuset)
        : containerResources(pod, { ...container, resources }, settings, cpuset);
    await client.call(RuntimeService.updateContainerResources, { containerId, linux }, signal);
  } catch (error) {
    throw failure(error, cannot);
  }
}

function containerOf({ spec }: Pod, name: string): Container {
  const found = [...spec.containers, ...(spec.initContainers ?? [])].find((each) => each.name === name);
  if (found !== undefined) return found;
  throw new PicoletError("internal", `the pod has no container ${JSON.stringify(name)}`);
}

/** containerd tells what is in the cgroup from 1.6.9 on; what a container was made with is in its annotation. */
export function observedResources({
  annotations,
  resources,
}: MessageOf<typeof ContainerStatus>): Pick<ObservedContainer, "resources" | "cgroup"> {
  const made = resourcesIn(annotations.get(ANNOTATION.resources));
  const linux = resources?.linux;
  return {
    ...(made === undefined ? {} : { resources: made }),
    ...(linux === undefined ? {} : { cgroup: cgroupOf(linux) }),
  };
}

/** 0 is what a runtime says of what it does not know. */
function cgroupOf({
  cpuShares,
  cpuQuota,
  cpuPeriod,
  memoryLimitInBytes,
}: Readonly<Record<"cpuShares" | "cpuQuota" | "cpuPeriod" | "memoryLimitInBytes", number>>): CgroupValues {
  const known = (value: number): number | undefined => (value === 0 ? undefined : value);
  return {
    cpuShares: known(cpuShares),
    cpuQuotaUs: known(cpuQuota),
    cpuPeriodUs: known(cpuPeriod),
    memoryLimitBytes: known(memoryLimitInBytes),
  };
}

/** @returns the annotation's resources; `undefined` also for a text that another program wrote there */
function resourcesIn(text: string | undefined): ResourceRequirements | undefined {
  if (text === undefined) return undefined;
  try {
    const made: unknown = JSON.parse(text);
    if (typeof made !== "object") return undefined;
    const { requests, limits } = made as Readonly<Record<string, unknown>>;
    return {
      ...(requests === undefined ? {} : { requests: amountsIn(requests) }),
      ...(limits === undefined ? {} : { limits: amountsIn(limits) }),
    };
  } catch {
    return undefined;
  }
}

/** @throws for a value that is not a record of texts */
function amountsIn(value: unknown): Record<string, string> {
  const amounts: Record<string, string> = {};
  for (const name of ["cpu", "memory"]) {
    const text = (value as Readonly<Record<string, unknown>>)[name];
    if (text === undefined) continue;
    if (typeof text !== "string") throw new TypeError(`${name} is no text`);
    amounts[name] = text;
  }
  return amounts;
}
