/**
 * The checks of the level restricted of Kubernetes' Pod Security Standards (1.34), which come on top of those of
 * baseline. A new check is one entry of `restrictedChecks`. Pure; texts are Kubernetes' own, since clients print them.
 */
import { volumeModels } from "@picolet/protocol/pod/volumes/volume-models.ts";
import { fieldAt, listAt } from "../api/object-fields.ts";
import { seccompProfile } from "./baseline-checks.ts";
import {
  type CheckRevision,
  containerNames,
  containersOf,
  type Evaluate,
  filterContainerNames,
  isRelaxed,
  isWindows,
  nameOf,
  type PodSecurityCheck,
  plural,
  quoteAll,
  seccompTypeOf,
  settersText,
  sortedSet,
} from "./pod-security-view.ts";

const contextOf = (holder: unknown, field: string): unknown => fieldAt(holder, "securityContext", field);

const allowPrivilegeEscalation: Evaluate = ({ spec }) => {
  const names = filterContainerNames(spec, (container) => contextOf(container, "allowPrivilegeEscalation") !== false);
  if (names.length === 0) return undefined;
  return {
    reason: "allowPrivilegeEscalation != false",
    detail: `${containerNames(names)} must set securityContext.allowPrivilegeEscalation=false`,
  };
};

const capabilitiesRestricted: Evaluate = ({ spec }) => {
  const listed = (container: unknown, list: "add" | "drop"): readonly string[] =>
    listAt(container, "securityContext", "capabilities", list).map(String);
  const added = (container: unknown): readonly string[] =>
    listed(container, "add").filter((name) => name !== "NET_BIND_SERVICE");
  const missing = filterContainerNames(spec, (container) => !listed(container, "drop").includes("ALL"));
  const adding = filterContainerNames(spec, (container) => added(container).length > 0);
  const details: string[] = [];
  if (missing.length > 0) {
    details.push(`${containerNames(missing)} must set securityContext.capabilities.drop=["ALL"]`);
  }
  if (adding.length > 0) {
    const names = quoteAll(sortedSet(containersOf(spec).flatMap(added)));
    details.push(`${containerNames(adding)} must not include ${names} in securityContext.capabilities.add`);
  }
  return details.length === 0 ? undefined : { reason: "unrestricted capabilities", detail: details.join("; ") };
};

const kindsOf = (isRestricted: boolean): readonly string[] =>
  volumeModels.filter(([, model]) => (model.isRestricted ?? false) === isRestricted).map(([kind]) => kind);

/** Volumes that bring in neither the node nor another machine by themselves. */
const ALLOWED_VOLUMES = kindsOf(false);
/** The others that Kubernetes' API knows, in the order in which one of several is named. */
const RESTRICTED_VOLUMES = kindsOf(true);

const restrictedVolumes: Evaluate = ({ spec }) => {
  const has = (volume: unknown, type: string): boolean => fieldAt(volume, type) !== undefined;
  const forbidden = listAt(spec, "volumes").filter((volume) => !ALLOWED_VOLUMES.some((type) => has(volume, type)));
  if (forbidden.length === 0) return undefined;
  const names = forbidden.map(nameOf);
  const typeOf = (volume: unknown): string => RESTRICTED_VOLUMES.find((type) => has(volume, type)) ?? "unknown";
  const types = sortedSet(forbidden.map(typeOf));
  const volumes = `${plural("volume", "volumes", names.length)} ${quoteAll(names)}`;
  const what = plural("restricted volume type", "restricted volume types", types.length);
  return {
    reason: "restricted volume types",
    detail: `${volumes} ${plural("uses", "use", names.length)} ${what} ${quoteAll(types)}`,
  };
};

const runAsNonRoot: Evaluate = (pod, settings) => {
  if (isRelaxed(pod, settings)) return undefined;
  const { spec } = pod;
  const reason = "runAsNonRoot != true";
  const isRoot = (holder: unknown): boolean => contextOf(holder, "runAsNonRoot") === false;
  const who = settersText(isRoot(spec), filterContainerNames(spec, isRoot));
  if (who !== "") return { reason, detail: `${who} must not set securityContext.runAsNonRoot=false` };
  if (contextOf(spec, "runAsNonRoot") === true) return undefined;
  const silent = filterContainerNames(spec, (container) => contextOf(container, "runAsNonRoot") === undefined);
  if (silent.length === 0) return undefined;
  return { reason, detail: `pod or ${containerNames(silent)} must set securityContext.runAsNonRoot=true` };
};

const runAsUser: Evaluate = (pod, settings) => {
  if (isRelaxed(pod, settings)) return undefined;
  const { spec } = pod;
  const isRoot = (holder: unknown): boolean => contextOf(holder, "runAsUser") === 0;
  const who = settersText(isRoot(spec), filterContainerNames(spec, isRoot));
  return who === "" ? undefined : { reason: "runAsUser=0", detail: `${who} must not set runAsUser=0` };
};

const seccompRestricted: Evaluate = (pod, settings) => {
  const forbidden = seccompProfile(pod, settings);
  if (forbidden !== undefined) return forbidden;
  const { spec } = pod;
  if (seccompTypeOf(spec) !== undefined) return undefined;
  const silent = filterContainerNames(spec, (container) => seccompTypeOf(container) === undefined);
  if (silent.length === 0) return undefined;
  const types = '"RuntimeDefault" or "Localhost"';
  return {
    reason: "seccompProfile",
    detail: `pod or ${containerNames(silent)} must set securityContext.seccompProfile.type to ${types}`,
  };
};

/** Windows has no such thing: validation refuses it there, and 1.25 ceased to ask for it. */
const unlessWindows =
  (evaluate: Evaluate): Evaluate =>
  (pod, settings) =>
    isWindows(pod) ? undefined : evaluate(pod, settings);

function linuxOnly(since: number, evaluate: Evaluate, replaces: readonly string[] = []): readonly CheckRevision[] {
  return [
    { since, evaluate, replaces },
    { since: 25, evaluate: unlessWindows(evaluate), replaces },
  ];
}

const restricted = (id: string, revisions: readonly CheckRevision[]): PodSecurityCheck => ({
  id,
  level: "restricted",
  revisions,
});

export const restrictedChecks: readonly PodSecurityCheck[] = [
  restricted("allowPrivilegeEscalation", linuxOnly(8, allowPrivilegeEscalation)),
  restricted("capabilities_restricted", linuxOnly(22, capabilitiesRestricted, ["capabilities_baseline"])),
  restricted("restrictedVolumes", [{ since: 0, evaluate: restrictedVolumes, replaces: ["hostPathVolumes"] }]),
  restricted("runAsNonRoot", [{ since: 0, evaluate: runAsNonRoot }]),
  restricted("runAsUser", [{ since: 23, evaluate: runAsUser }]),
  restricted("seccompProfile_restricted", linuxOnly(19, seccompRestricted, ["seccompProfile_baseline"])),
];
