/** The kinds of containers in a pod, and when each kind is restarted. */
import type { Container, EphemeralContainer, Pod, RestartPolicy } from "@picolet/protocol/pod/pod.ts";

export type ContainerRole = "init" | "sidecar" | "regular" | "ephemeral";

export type AnyContainer = Container | EphemeralContainer;

export const roleOf = ({ spec }: Pod, container: AnyContainer): ContainerRole => {
  if (spec.initContainers?.includes(container)) return container.restartPolicy === "Always" ? "sidecar" : "init";
  return spec.ephemeralContainers?.includes(container) ? "ephemeral" : "regular";
};

/** All kinds, in the order in which they start. */
export const containersOf = ({ spec }: Pod): readonly AnyContainer[] => [
  ...(spec.initContainers ?? []),
  ...spec.containers,
  ...(spec.ephemeralContainers ?? []),
];

export const sidecarsOf = (pod: Pod): readonly Container[] =>
  (pod.spec.initContainers ?? []).filter((each) => roleOf(pod, each) === "sidecar");

/** The container's own rules come first, then its own policy, then that of the pod (KEP 5307). */
export function isRestartedAfterExit(
  pod: Pod,
  container: AnyContainer,
  role: ContainerRole,
  exitCode: number,
): boolean {
  if (role === "ephemeral" || (role === "init" && exitCode === 0)) return false;
  if (container.restartPolicy !== undefined && restartRuleMatches(container, exitCode)) return true;
  switch (policyOf(pod, container)) {
    case "Always":
      return true;
    case "OnFailure":
      return exitCode !== 0;
    case "Never":
      return false;
  }
}

/** After a failed probe the exit code does not matter. */
export const isRestartedAfterProbe = (pod: Pod, container: AnyContainer, role: ContainerRole): boolean =>
  role === "sidecar" || policyOf(pod, container) !== "Never";

const policyOf = ({ spec }: Pod, container: AnyContainer): RestartPolicy =>
  container.restartPolicy ?? spec.restartPolicy;

function restartRuleMatches({ restartPolicyRules = [] }: AnyContainer, exitCode: number): boolean {
  const matching = restartPolicyRules.find(({ exitCodes }) => {
    if (exitCodes === undefined) return false;
    const isListed = (exitCodes.values ?? []).includes(exitCode);
    return exitCodes.operator === "In" ? isListed : !isListed;
  });
  return matching?.action === "Restart";
}
