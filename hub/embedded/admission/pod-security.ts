/**
 * Kubernetes' admission plugin PodSecurity (1.34). It judges pods by the labels of their namespace: `enforce` refuses,
 * `warn` answers with a `Warning` header, `audit` writes into the hub's log. Templates of pods are never refused.
 *
 * Reads: the namespace of the object; pods of a namespace whose labels change. Writes: warnings of the request, the
 * log. Runs after the object's validation, so that what it reads has the types of the schema.
 */
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { fieldAt, mappingAt, textAt } from "../api/object-fields.ts";
import { type ApiObject, resourceName } from "../api/resource-definition.ts";
import { forbidden, invalidObject } from "../api/status-error.ts";
import { controllerOf } from "../api/typed-objects.ts";
import type { Admission, AdmissionRequest } from "../service/resource-request.ts";
import type { PodSecurityConfiguration } from "./pod-security-configuration.ts";
import {
  compareLevels,
  describeViolations,
  isPrivileged,
  isSamePolicy,
  JUDGED_ANNOTATION_PREFIXES,
  LABEL_PREFIX,
  type Labels,
  type LevelVersion,
  levelText,
  PodSecurityEvaluator,
  type Policy,
  policyOf,
} from "./pod-security-standards.ts";
import { containersOf, nameOf, type PodView, type Violation } from "./pod-security-view.ts";

export interface PodSecurityComponents {
  /** Undefined: there is no such namespace, or it has no labels. */
  readonly namespaceLabels: (namespace: string) => Labels | undefined;
  /** JSON texts of the pods of a namespace, read one by one. */
  readonly podBodies: (namespace: string) => Iterable<{ readonly body: string }>;
  readonly clock: Clock;
  readonly log: Log;
}

/** Finds the violations of a level by one pod. */
type Judge = (level: LevelVersion) => readonly Violation[];

/** Existing pods checked against a namespace's new labels, and how long that may take. As Kubernetes. */
const MAX_PODS_CHECKED = 3000;
const MAX_CHECK_MS = 1000;
/** Bounds a text in the log: names of containers are the client's, and a pod may have thousands. */
const MAX_LOGGED_LENGTH = 2048;

/** Subresources of pods that change nothing a check of Kubernetes reads. Any other one is judged as the pod is. */
const IGNORED_SUBRESOURCES: ReadonlySet<string> = new Set([
  ...["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"],
]);

/** Path of the pod template in each resource that has one; by its `resourceName`. */
export const POD_TEMPLATES: Readonly<Record<string, readonly string[]>> = {
  podtemplates: ["template"],
  "daemonsets.apps": ["spec", "template"],
};

export function podSecurity(components: PodSecurityComponents, configuration: PodSecurityConfiguration): Admission {
  const admission = new PodSecurityAdmission(components, configuration);
  return (request) => admission.admit(request);
}

class PodSecurityAdmission {
  readonly #components: PodSecurityComponents;
  readonly #configuration: PodSecurityConfiguration;
  readonly #evaluator: PodSecurityEvaluator;

  constructor(components: PodSecurityComponents, configuration: PodSecurityConfiguration) {
    this.#components = components;
    this.#configuration = configuration;
    this.#evaluator = new PodSecurityEvaluator(configuration);
  }

  /** @throws StatusError 403 for a pod that its namespace does not allow, 422 for labels that mean nothing */
  admit(admission: AdmissionRequest): void {
    const { operation, request, object, old } = admission;
    if (operation === "DELETE" || object === undefined) return;
    const resource = resourceName(request.definition);
    if (resource === "pods") this.#admitPod(admission, object);
    else if (request.subresource !== "") return;
    else if (resource === "namespaces") this.#admitNamespace(admission, object, old);
    else if (Object.hasOwn(POD_TEMPLATES, resource)) {
      this.#admitTemplate(admission, fieldAt(object, ...(POD_TEMPLATES[resource] ?? [])));
    }
  }

  #admitPod(admission: AdmissionRequest, pod: ApiObject): void {
    const { request, old } = admission;
    if (old !== undefined && !isSignificantUpdate(request.subresource, pod, old)) return;
    const labels = this.#labelsToJudge(admission);
    if (labels === "exempt") return;
    const { policy, errors } = policyOf(labels, this.#configuration.defaults);
    if (errors.length === 0 && isPrivileged(policy)) return;
    if (this.#isExemptRuntimeClass(pod.spec, admission)) return;
    const view = { annotations: mappingAt(pod.metadata, "annotations"), spec: pod.spec };
    const judge = this.#judgeOf(view);
    const violations = judge(policy.enforce);
    this.#audit(admission, judge, policy);
    if (violations.length > 0) {
      const why = `violates PodSecurity ${JSON.stringify(levelText(policy.enforce))}: ${describeViolations(violations)}`;
      throw forbidden(request.definition, pod.metadata.name, why);
    }
    this.#warn(admission, judge, policy);
  }

  #admitTemplate(admission: AdmissionRequest, template: unknown): void {
    if (template === undefined) return;
    const labels = this.#labelsToJudge(admission);
    if (labels === "exempt") return;
    const { policy } = policyOf(labels, this.#configuration.defaults);
    if (policy.warn.level === "privileged" && policy.audit.level === "privileged") return;
    const spec = fieldAt(template, "spec");
    if (this.#isExemptRuntimeClass(spec, admission)) return;
    const view = { annotations: mappingAt(template, "metadata", "annotations"), spec };
    const judge = this.#judgeOf(view);
    this.#audit(admission, judge, policy);
    this.#warn(admission, judge, policy);
  }

  /** Evaluates each level and version once: most namespaces have the same one for all modes. */
  #judgeOf(view: PodView): Judge {
    const judged = new Map<string, readonly Violation[]>();
    return (level) => {
      const key = levelText(level);
      const violations = judged.get(key) ?? this.#evaluator.evaluate(view, level);
      judged.set(key, violations);
      return violations;
    };
  }

  /** Undefined: the namespace is not there, which the writer answers, or has no labels. */
  #labelsToJudge(admission: AdmissionRequest): Labels | "exempt" | undefined {
    const { user, namespace } = admission.request;
    const { exemptions } = this.#configuration;
    const reason = exemptions.namespaces.includes(namespace)
      ? "namespace"
      : exemptions.usernames.includes(user.name)
        ? "user"
        : undefined;
    if (reason !== undefined) {
      this.#logExemption(admission, reason);
      return "exempt";
    }
    return this.#components.namespaceLabels(namespace);
  }

  #isExemptRuntimeClass(spec: unknown, admission: AdmissionRequest): boolean {
    const name = textAt(spec, "runtimeClassName");
    if (name === "" || !this.#configuration.exemptions.runtimeClasses.includes(name)) return false;
    this.#logExemption(admission, "runtimeClass");
    return true;
  }

  #logExemption({ request, operation }: AdmissionRequest, exempt: string): void {
    const { user, namespace, definition } = request;
    const fields = { user: user.name, operation, resource: resourceName(definition), namespace, exempt };
    this.#components.log.debug("pod security exemption", fields);
  }

  #audit(admission: AdmissionRequest, judge: Judge, { audit }: Policy): void {
    const text = wouldViolate(judge, audit);
    if (text === undefined) return;
    const { operation, request, object } = admission;
    const { user, namespace, definition, subresource } = request;
    this.#components.log.info("pod security audit", {
      ...{ user: user.name, operation, resource: resourceName(definition), subresource, namespace },
      ...{ name: object?.metadata.name ?? "", auditViolations: text.slice(0, MAX_LOGGED_LENGTH) },
    });
  }

  #warn({ request }: AdmissionRequest, judge: Judge, { warn }: Policy): void {
    const text = wouldViolate(judge, warn);
    if (text !== undefined) request.warnings.push(text);
  }

  #admitNamespace(admission: AdmissionRequest, namespace: ApiObject, old: ApiObject | undefined): void {
    const { definition, warnings } = admission.request;
    const { defaults } = this.#configuration;
    const { name, labels } = namespace.metadata;
    const { policy, errors } = policyOf(labels, defaults);
    const before = old === undefined ? undefined : policyOf(old.metadata.labels, defaults);
    // Labels that were wrong already, under an older version or other defaults, do not keep others from changing.
    const isNew = errors.length > 0 && JSON.stringify(errors) !== JSON.stringify(before?.errors ?? []);
    if (isNew) throw invalidObject(definition, name, errors);
    const { enforce } = policy;
    if (before !== undefined && !isTightened(enforce, before.policy.enforce)) return;
    if (this.#configuration.exemptions.namespaces.includes(name)) {
      const warning = exemptWarning(name, policy, defaults, labels ?? {});
      if (warning !== undefined) warnings.push(warning);
      return;
    }
    if (before === undefined) return;
    warnings.push(...this.#judgeExisting(name, enforce));
  }

  /** Finds pods of a namespace that its new labels would refuse; they stay. */
  #judgeExisting(namespace: string, enforce: LevelVersion): readonly string[] {
    const { clock } = this.#components;
    const deadline = clock.monotonic() + MAX_CHECK_MS;
    const { pods, unread } = this.#prioritized(namespace);
    const violators = new Map<string, string[]>();
    let checked = 0;
    for (const pod of pods) {
      checked += 1;
      const view = { annotations: mappingAt(pod.metadata, "annotations"), spec: pod.spec };
      const violations = this.#evaluator.evaluate(view, enforce);
      if (violations.length > 0) {
        const reasons = violations.map(({ reason }) => reason).join(", ");
        violators.set(reasons, [...(violators.get(reasons) ?? []), pod.metadata.name]);
      }
      if (clock.monotonic() >= deadline) break;
    }
    const warnings: string[] = [];
    const total = pods.length + unread;
    if (checked < total) {
      warnings.push(
        `new PodSecurity enforce level only checked against the first ${checked} of ${total} existing pods`,
      );
    }
    if (violators.size > 0) {
      const level = JSON.stringify(levelText(enforce));
      warnings.push(`existing pods in namespace "${namespace}" violate the new PodSecurity enforce level ${level}`);
    }
    return [...warnings, ...[...violators].map(([reasons, names]) => `${namesText(names)}: ${reasons}`).sort()];
  }

  /**
   * One pod of each controller before the others. Differs from Kubernetes in that only the first MAX_PODS_CHECKED pods
   * are read, since this does not leave the event loop to others.
   */
  #prioritized(namespace: string): { readonly pods: readonly ApiObject[]; readonly unread: number } {
    const first: ApiObject[] = [];
    const more: ApiObject[] = [];
    const controllers = new Set<string>();
    let unread = 0;
    let read = 0;
    for (const stored of this.#components.podBodies(namespace)) {
      read += 1;
      if (read > MAX_PODS_CHECKED) {
        unread += 1;
        continue;
      }
      const pod = JSON.parse(stored.body) as ApiObject;
      if (this.#configuration.exemptions.runtimeClasses.includes(textAt(pod.spec, "runtimeClassName"))) continue;
      const controller = controllerOf(pod.metadata)?.uid;
      const isRepeated = controller !== undefined && controllers.has(controller);
      (isRepeated ? more : first).push(pod);
      if (controller !== undefined) controllers.add(controller);
    }
    return { pods: [...first, ...more], unread };
  }
}

function wouldViolate(judge: Judge, level: LevelVersion): string | undefined {
  const violations = judge(level);
  if (violations.length === 0) return undefined;
  return `would violate PodSecurity ${JSON.stringify(levelText(level))}: ${describeViolations(violations)}`;
}

/** True when pods that `before` allowed may violate `now`. */
const isTightened = (now: LevelVersion, before: LevelVersion): boolean =>
  now.level !== "privileged" &&
  !isSamePolicy(now, before) &&
  (now.version !== before.version || compareLevels(now.level, before.level) > 0);

/** `a`, `a (and 2 other pods)`. */
function namesText(names: readonly string[]): string {
  const [first = ""] = [...names].sort();
  const others = names.length - 1;
  if (others === 0) return first;
  return others === 1 ? `${first} (and 1 other pod)` : `${first} (and ${others} other pods)`;
}

/**
 * Kubernetes evaluates changes of images and new ephemeral containers. picolet's own annotations may be changed through
 * every subresource, `status` and `binding` too, and the AppArmor profile is read from one.
 */
function isSignificantUpdate(subresource: string, pod: ApiObject, old: ApiObject): boolean {
  if (changesJudgedAnnotation(pod, old)) return true;
  if (IGNORED_SUBRESOURCES.has(subresource)) return false;
  const images = new Map(containersOf(old.spec).map((each) => [nameOf(each), textAt(each, "image")]));
  const containers = containersOf(pod.spec);
  if (containers.length !== images.size) return true;
  return containers.some((each) => images.get(nameOf(each)) !== textAt(each, "image"));
}

function changesJudgedAnnotation({ metadata: { annotations = {} } }: ApiObject, old: ApiObject): boolean {
  const before = old.metadata.annotations ?? {};
  return Object.entries(annotations).some(
    ([key, value]) => before[key] !== value && JUDGED_ANNOTATION_PREFIXES.some((prefix) => key.startsWith(prefix)),
  );
}

/** Undefined when the labels ask for nothing that is ignored. */
function exemptWarning(name: string, policy: Policy, defaults: Policy, labels: Labels): string | undefined {
  const isEqual = (["enforce", "audit", "warn"] as const).every(
    (mode) =>
      isSamePolicy(policy[mode], defaults[mode]) ||
      (policy[mode].level === "privileged" && defaults[mode].level === "privileged"),
  );
  if (isPrivileged(policy) || isEqual) return undefined;
  const asked = (["enforce", "audit", "warn"] as const)
    .filter((mode) => policy[mode].level !== "privileged")
    .filter((mode) => [mode, `${mode}-version`].some((label) => labels[LABEL_PREFIX + label] !== undefined))
    .map((mode) => `${mode}=${levelText(policy[mode])}`);
  return `namespace "${name}" is exempt from Pod Security, and the policy (${asked.join(", ")}) will be ignored`;
}
