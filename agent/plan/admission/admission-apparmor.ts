/** Why a pod's AppArmor profiles cannot be enforced here. Pure; the words are the kubelet's. */
import { APPARMOR_ANNOTATION, APPARMOR_UNCONFINED, appArmorProfile } from "@picolet/protocol/pod/apparmor-profile.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";

/** @param enabled whether the kernel enforces AppArmor */
export function apparmorProblem(pod: Pod, enabled: boolean): string | undefined {
  if (!isRequired(pod)) return undefined;
  if (!enabled) return "Cannot enforce AppArmor: AppArmor is not enabled on the host";
  for (const container of containersOf(pod)) {
    const profile = appArmorProfile(pod, container);
    if (profile?.type === "Localhost" && (profile.localhostProfile ?? "").trim() === "") {
      return `Cannot enforce AppArmor: invalid empty AppArmor profile name: "${profile.localhostProfile ?? ""}"`;
    }
  }
  return undefined;
}

const containersOf = ({ spec }: Pod): readonly Container[] => [
  ...(spec.initContainers ?? []),
  ...spec.containers,
  ...(spec.ephemeralContainers ?? []),
];

function isRequired(pod: Pod): boolean {
  const contexts = [pod.spec.securityContext, ...containersOf(pod).map((each) => each.securityContext)];
  const types = contexts.map((each) => each?.appArmorProfile?.type).filter((type) => type !== undefined);
  if (types.some((type) => type !== "Unconfined")) return true;
  const annotated = Object.entries(pod.metadata.annotations ?? {}).filter(([key]) =>
    key.startsWith(APPARMOR_ANNOTATION),
  );
  return annotated.some(([, value]) => value !== APPARMOR_UNCONFINED);
}
