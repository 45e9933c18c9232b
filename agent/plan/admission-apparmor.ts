/** Why a pod's AppArmor profiles cannot be enforced here. Pure; the words are the kubelet's. */
import type { Container, Pod } from "../../protocol/pod.ts";

/** Of manifests older than the field; the container's name comes after it. */
const ANNOTATION = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST = "localhost/";
const UNCONFINED = "unconfined";

type Profile = NonNullable<Pod["spec"]["securityContext"]["appArmorProfile"]>;

/** @param enabled whether the kernel enforces AppArmor */
export function apparmorProblem(pod: Pod, enabled: boolean): string | undefined {
  if (!isRequired(pod)) return undefined;
  if (!enabled) return "Cannot enforce AppArmor: AppArmor is not enabled on the host";
  for (const container of containersOf(pod)) {
    const profile = profileOf(pod, container);
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
  const annotated = Object.entries(pod.metadata.annotations ?? {}).filter(([key]) => key.startsWith(ANNOTATION));
  return annotated.some(([, value]) => value !== UNCONFINED);
}

function profileOf(pod: Pod, container: Container): Profile | undefined {
  const own = container.securityContext?.appArmorProfile;
  if (own !== undefined) return own;
  const annotated = pod.metadata.annotations?.[`${ANNOTATION}${container.name}`];
  if (annotated === "runtime/default") return { type: "RuntimeDefault" };
  if (annotated === UNCONFINED) return { type: "Unconfined" };
  if (annotated?.startsWith(LOCALHOST)) {
    return { type: "Localhost", localhostProfile: annotated.slice(LOCALHOST.length) };
  }
  return pod.spec.securityContext.appArmorProfile;
}
