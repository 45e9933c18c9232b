/** Security contexts of pods and containers, as pkg/apis/core/validation of Kubernetes 1.34 judges them. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import { descendingPathProblems } from "../fields/path-validation.ts";
import type { Pod, PodSecurityContext, SecurityContext } from "../pod.ts";

const MAX_ID = 2_147_483_647;
const MAX_SYSCTL_LENGTH = 253;
const SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
const SYSCTL = `^(${SYSCTL_SEGMENT}[\\./])*${SYSCTL_SEGMENT}$`;
/** PATH_MAX without its final NUL. */
const MAX_PROFILE_LENGTH = 4095;
const PROFILE_TYPES = ["Localhost", "RuntimeDefault", "Unconfined"];

type CommonContext = Pick<
  PodSecurityContext,
  "runAsUser" | "runAsGroup" | "runAsNonRoot" | "seccompProfile" | "appArmorProfile" | "windowsOptions"
>;
type Profile = NonNullable<CommonContext["seccompProfile"]>;

function validateId(id: number | undefined, path: string, problems: FieldProblems): void {
  if (id !== undefined && (id < 0 || id > MAX_ID))
    problems.invalid(path, id, `must be between 0 and ${MAX_ID}, inclusive`);
}

function validateCommon(context: CommonContext, path: string, problems: FieldProblems): void {
  validateId(context.runAsUser, `${path}.runAsUser`, problems);
  validateId(context.runAsGroup, `${path}.runAsGroup`, problems);
  if (context.seccompProfile) validateSeccomp(context.seccompProfile, `${path}.seccompProfile`, problems);
  if (context.appArmorProfile) validateAppArmor(context.appArmorProfile, `${path}.appArmorProfile`, problems);
  if (context.windowsOptions !== undefined) {
    problems.forbidden(`${path}.windowsOptions`, "windows options cannot be set for a linux pod");
  }
}

function validateProfileType(type: string, path: string, field: string, problems: FieldProblems): void {
  if (type === "") problems.required(`${path}.type`, `type is required when ${field} is set`);
  else if (!PROFILE_TYPES.includes(type)) problems.unsupported(`${path}.type`, type, PROFILE_TYPES);
}

function validateSeccomp({ type, localhostProfile }: Profile, path: string, problems: FieldProblems): void {
  validateProfileType(type, path, "seccompProfile", problems);
  const profilePath = `${path}.localhostProfile`;
  if (type === "Localhost") {
    if (localhostProfile === undefined) problems.required(profilePath, "must be set when seccomp type is Localhost");
    else problems.invalidAll(profilePath, localhostProfile, descendingPathProblems(localhostProfile));
  } else if (localhostProfile !== undefined) {
    problems.invalid(profilePath, localhostProfile, "can only be set when seccomp type is Localhost");
  }
}

function validateAppArmor({ type, localhostProfile }: Profile, path: string, problems: FieldProblems): void {
  validateProfileType(type, path, "appArmorProfile", problems);
  const profilePath = `${path}.localhostProfile`;
  if (type !== "Localhost") {
    if (localhostProfile !== undefined) {
      problems.invalid(profilePath, localhostProfile, "can only be set when AppArmor type is Localhost");
    }
    return;
  }
  const profile = localhostProfile ?? "";
  if (profile.trim() === "") problems.required(profilePath, "must be set when AppArmor type is Localhost");
  else if (profile.trim() !== profile) problems.invalid(profilePath, profile, "must not be padded with whitespace");
  if (profile.length > MAX_PROFILE_LENGTH) problems.tooLong(profilePath, MAX_PROFILE_LENGTH);
}

export function validatePodSecurity(pod: Pod, problems: FieldProblems): void {
  const { securityContext: context, hostPID, shareProcessNamespace } = pod.spec;
  const path = "spec.securityContext";
  validateCommon(context, path, problems);
  validateId(context.fsGroup, `${path}.fsGroup`, problems);
  (context.supplementalGroups ?? []).forEach((group, index) => {
    validateId(group, `${path}.supplementalGroups[${index}]`, problems);
  });
  if (shareProcessNamespace === true && hostPID === true) {
    problems.invalid("spec.shareProcessNamespace", true, "ShareProcessNamespace and HostPID cannot both be enabled");
  }
  validateSysctls(pod, `${path}.sysctls`, problems);
  const choices = [
    ["fsGroupChangePolicy", ["Always", "OnRootMismatch"]],
    ["supplementalGroupsPolicy", ["Merge", "Strict"]],
    ["seLinuxChangePolicy", ["MountOption", "Recursive"]],
  ] as const;
  for (const [field, supported] of choices) {
    if (context[field] !== undefined) problems.oneOf(`${path}.${field}`, context[field], supported);
  }
}

function validateSysctls(pod: Pod, path: string, problems: FieldProblems): void {
  const { securityContext, hostNetwork, hostIPC } = pod.spec;
  const seen = new Set<string>();
  (securityContext.sysctls ?? []).forEach(({ name }, index) => {
    const each = `${path}[${index}].name`;
    if (name === "") problems.required(each);
    else if (name.length > MAX_SYSCTL_LENGTH || !new RegExp(SYSCTL).test(name)) {
      problems.invalid(each, name, `must have at most ${MAX_SYSCTL_LENGTH} characters and match regex ${SYSCTL}`);
    } else if (seen.has(name)) problems.duplicate(each, name);
    seen.add(name);
    const dotted = name.replaceAll("/", ".");
    if (hostNetwork === true && dotted.startsWith("net.")) {
      problems.invalid(each, name, "may not be specified when 'hostNetwork' is true");
    }
    if (hostIPC === true && /^(?:kernel\.(?:shm|msg|sem)|fs\.mqueue\.)/.test(dotted)) {
      problems.invalid(each, name, "may not be specified when 'hostIPC' is true");
    }
  });
}

export function validateContainerSecurity(
  context: SecurityContext,
  hostUsers: boolean,
  path: string,
  problems: FieldProblems,
): void {
  validateCommon(context, path, problems);
  if (context.procMount !== undefined) {
    problems.oneOf(`${path}.procMount`, context.procMount, ["Default", "Unmasked"]);
    if (context.procMount === "Unmasked" && hostUsers) {
      problems.invalid(`${path}.procMount`, context.procMount, "`hostUsers` must be false to use `Unmasked`");
    }
  }
  if (context.allowPrivilegeEscalation !== false) return;
  if (context.privileged === true) {
    problems.invalid(path, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
  }
  if ((context.capabilities?.add ?? []).includes("CAP_SYS_ADMIN")) {
    problems.invalid(
      path,
      context,
      "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
    );
  }
}
