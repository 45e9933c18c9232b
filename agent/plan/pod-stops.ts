/** How what runs of a pod is ended, in the kubelet's order (pkg/kubelet/kuberuntime, killContainersWithSyncResult). */
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import type { ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { sidecarsOf } from "./container-roles.ts";
import { gracePeriodOf } from "./grace-period.ts";
import type { PodView, StopContainer } from "./pod-view.ts";

/**
 * One for each that runs. Sidecars serve the others and one another, so each ends after all regular containers and
 * after the sidecars that started later; those it waits for come before it in the list.
 */
export function stopsOf(view: PodView, observed: ObservedPod): StopContainer[] {
  const { pod } = view.desired;
  const running = observed.containers.filter((each) => each.state.kind === "running");
  const sidecars = new Set(sidecarsOf(pod).map(({ name }) => name));
  const regular = new Set(pod.spec.containers.map(({ name }) => name));
  const gracePeriod = graceIn(view);
  const after = running.filter(({ name }) => regular.has(name)).map(({ id }) => id);
  const stops = running.filter(({ name }) => !sidecars.has(name)).map((run) => stopOf(run, gracePeriod, []));
  for (const name of [...sidecars].reverse()) {
    for (const run of running.filter((each) => each.name === name)) {
      stops.push(stopOf(run, gracePeriod, [...after]));
      after.push(run.id);
    }
  }
  return stops;
}

function graceIn({ desired, end, leaving }: PodView): Millis {
  const own = gracePeriodOf(desired.pod);
  const given = end?.gracePeriod ?? leaving?.gracePeriod;
  return given === undefined ? own : millis(Math.min(own, given));
}

const stopOf = (run: ObservedContainer, gracePeriod: Millis, after: readonly string[]): StopContainer => ({
  ...{ kind: "stopContainer", containerId: run.id, name: run.name, gracePeriod, running: true, after },
  replaces: undefined,
  message: `Stopping container ${run.name}`,
});
