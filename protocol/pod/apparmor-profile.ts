import type { Container, Pod, SecurityContext } from "./pod.ts";

/** The annotation of manifests that are older than the field; the container's name follows it. */
export const APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/";
export const APPARMOR_UNCONFINED = "unconfined";
const RUNTIME_DEFAULT = "runtime/default";
const LOCALHOST = "localhost/";

export type AppArmorProfile = NonNullable<SecurityContext["appArmorProfile"]>;

/**
 * The container's own, that of its annotation (static pods may have it alone), that of the pod; `undefined`: none is
 * asked for.
 */
export function appArmorProfile(
  pod: Pod,
  container: Pick<Container, "name" | "securityContext">,
): AppArmorProfile | undefined {
  const own = container.securityContext?.appArmorProfile;
  if (own !== undefined) return own;
  const annotated = pod.metadata.annotations?.[`${APPARMOR_ANNOTATION}${container.name}`];
  if (annotated === RUNTIME_DEFAULT) return { type: "RuntimeDefault" };
  if (annotated === APPARMOR_UNCONFINED) return { type: "Unconfined" };
  if (annotated?.startsWith(LOCALHOST)) {
    return { type: "Localhost", localhostProfile: annotated.slice(LOCALHOST.length) };
  }
  return pod.spec.securityContext.appArmorProfile;
}
