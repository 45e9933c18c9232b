/** Shared parts of Pod Security's checks: their types, how they read a pod, and Kubernetes' wording. Pure. */
import { fieldAt, listAt, textAt } from "../api/object-fields.ts";

export interface PodView {
  readonly annotations: Readonly<Record<string, unknown>>;
  readonly spec: unknown;
}

export interface Violation {
  readonly reason: string;
  readonly detail: string;
}

export interface CheckSettings {
  /** Kubernetes' feature gate UserNamespacesPodSecurityStandards: `hostUsers: false` frees from checks of the user. */
  readonly relaxesUserNamespaces: boolean;
}

export type Evaluate = (pod: PodView, settings: CheckSettings) => Violation | undefined;

export interface CheckRevision {
  /** Minor version of Kubernetes 1.x from which it counts, until the next revision of the check. */
  readonly since: number;
  readonly evaluate: Evaluate;
  /** Checks of the level baseline that are left out where this one is evaluated. */
  readonly replaces?: readonly string[];
}

export interface PodSecurityCheck {
  readonly id: string;
  readonly level: "baseline" | "restricted";
  /** In the order of `since`. */
  readonly revisions: readonly CheckRevision[];
  /** Prefixes of the annotations that it judges: adding or changing one evaluates the pod again. */
  readonly annotations?: readonly string[];
}

/** Init, ordinary and ephemeral containers, in this order. */
export const containersOf = (spec: unknown): readonly unknown[] => [
  ...listAt(spec, "initContainers"),
  ...listAt(spec, "containers"),
  ...listAt(spec, "ephemeralContainers"),
];

export const quoteAll = (items: readonly string[]): string => items.map((item) => `"${item}"`).join(", ");

export const plural = (singular: string, several: string, count: number): string => (count === 1 ? singular : several);

/** `container "a"`, `containers "a", "b"`. */
export const containerNames = (names: readonly string[]): string =>
  `${plural("container", "containers", names.length)} ${quoteAll(names)}`;

/** `pod and containers "a", "b"`: what sets a field to a forbidden value. */
export const settersText = (isSetByPod: boolean, names: readonly string[]): string =>
  [...(isSetByPod ? ["pod"] : []), ...(names.length > 0 ? [containerNames(names)] : [])].join(" and ");

export const sortedSet = (items: Iterable<string>): readonly string[] => [...new Set(items)].sort();

export const nameOf = (container: unknown): string => textAt(container, "name");

export const isWindows = ({ spec }: PodView): boolean => textAt(spec, "os", "name") === "windows";

export const isSafeProfileType = (type: string): boolean => type === "RuntimeDefault" || type === "Localhost";

/** True when the feature gate frees this pod from checks of its user. */
export const isRelaxed = ({ spec }: PodView, { relaxesUserNamespaces }: CheckSettings): boolean =>
  relaxesUserNamespaces && fieldAt(spec, "hostUsers") === false;

/** Names of the containers for which `isForbidden`. */
export const filterContainerNames = (spec: unknown, isForbidden: (container: unknown) => boolean): readonly string[] =>
  containersOf(spec).filter(isForbidden).map(nameOf);

/** Type of the seccomp profile that a pod's spec or a container sets; undefined: none. */
export function seccompTypeOf(holder: unknown): string | undefined {
  const profile = fieldAt(holder, "securityContext", "seccompProfile");
  return profile === undefined ? undefined : textAt(profile, "type");
}
