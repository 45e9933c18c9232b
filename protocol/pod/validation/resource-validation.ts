/** Requests, limits, claims and overhead, as pkg/apis/core/validation of Kubernetes 1.34 judges them. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import { qualifiedNameProblems } from "../../kubernetes/name-rules.ts";
import { compareQuantities, formatQuantity, parseQuantity, type Quantity } from "../../kubernetes/quantity.ts";
import { validateQuantity } from "../fields/quantity-validation.ts";
import type { Pod, ResourceRequirements } from "../pod.ts";
import { aggregateRequests, isExtendedResource, isNativeResource, isPodLevelResource } from "../pod-resources.ts";

type Texts = Readonly<Record<string, string>> | undefined;

const STANDARD_RESOURCES: ReadonlySet<string> = new Set(["cpu", "memory", "ephemeral-storage"]);
const POD_LEVEL_NAMES = ["cpu", "hugepages-", "memory"];

const isHugePages = (name: string): boolean => name.startsWith("hugepages-");
/** @returns whether a limit may be above the request */
const allowsOvercommit = (name: string): boolean => isNativeResource(name) && !isHugePages(name);

function validateName(name: string, path: string, problems: FieldProblems): void {
  const found = qualifiedNameProblems(name);
  problems.invalidAll(path, name, found);
  if (found.length > 0) return;
  if (!name.includes("/")) {
    if (!STANDARD_RESOURCES.has(name) && !isHugePages(name)) {
      problems.invalid(path, name, "must be a standard resource type or fully qualified");
      problems.invalid(path, name, "must be a standard resource for containers");
    }
  } else if (
    !isNativeResource(name) &&
    (!isExtendedResource(name) || qualifiedNameProblems(`requests.${name}`).length > 0)
  ) {
    problems.invalid(path, name, "doesn't follow extended resource name standard");
  }
}

function validateList(texts: Texts, path: string, problems: FieldProblems): Map<string, Quantity> {
  const quantities = new Map<string, Quantity>();
  for (const [name, text] of Object.entries(texts ?? {})) {
    validateName(name, `${path}[${name}]`, problems);
    const quantity = validateQuantity(text, `${path}[${name}]`, problems, isExtendedResource(name));
    if (quantity !== undefined) quantities.set(name, quantity);
  }
  return quantities;
}

/** Leaves out the requests that the defaults took from limits that are no quantities, which are reported as limits. */
const withoutBrokenLimits = ({ requests = {}, limits = {} }: ResourceRequirements): Texts =>
  Object.fromEntries(
    Object.entries(requests).filter(([name, text]) => text !== limits[name] || parseQuantity(text).ok),
  );

/** @param claims names of `spec.resourceClaims`; undefined where none may be used. */
export function validateResources(
  resources: ResourceRequirements,
  claims: ReadonlySet<string> | undefined,
  path: string,
  problems: FieldProblems,
): void {
  const limits = validateList(resources.limits, `${path}.limits`, problems);
  const requests = validateList(withoutBrokenLimits(resources), `${path}.requests`, problems);
  for (const [name, request] of requests) {
    const limit = limits.get(name);
    const text = resources.requests?.[name] ?? "";
    if (limit === undefined) {
      if (!allowsOvercommit(name)) {
        problems.required(`${path}.limits`, "Limit must be set for non overcommitable resources");
      }
    } else if (!allowsOvercommit(name) && compareQuantities(request, limit) !== 0) {
      problems.invalid(`${path}.requests`, text, `must be equal to ${name} limit of ${formatQuantity(limit)}`);
    } else if (compareQuantities(request, limit) > 0) {
      problems.invalid(
        `${path}.requests`,
        text,
        `must be less than or equal to ${name} limit of ${formatQuantity(limit)}`,
      );
    }
  }
  validateClaims(resources.claims ?? [], claims, `${path}.claims`, problems);
}

function validateClaims(
  used: NonNullable<ResourceRequirements["claims"]>,
  claims: ReadonlySet<string> | undefined,
  path: string,
  problems: FieldProblems,
): void {
  const seen = new Set<string>();
  used.forEach(({ name, request = "" }, index) => {
    const each = `${path}[${index}]`;
    const key = request === "" ? name : `${name}/${request}`;
    if (name === "") problems.required(`${each}.name`);
    else if (seen.has(key)) problems.duplicate(each, key);
    else if (claims?.has(name) !== true) problems.notFound(`${each}.name`, name);
    seen.add(key);
  });
}

/** `spec.resources` (KEP 2837): no less than the containers ask for, no container's limit above it. */
export function validatePodResources(pod: Pod, problems: FieldProblems): void {
  const { resources, containers } = pod.spec;
  if (resources === undefined) return;
  const path = "spec.resources";
  if (resources.claims !== undefined) {
    problems.forbidden(`${path}.claims`, "claims cannot be set for Resources at pod-level");
  }
  for (const part of ["limits", "requests"] as const) {
    for (const name of Object.keys(resources[part] ?? {})) {
      if (!isPodLevelResource(name)) problems.unsupported(`${path}.${part}[${name}]`, name, POD_LEVEL_NAMES);
    }
  }
  validateResources({ limits: resources.limits, requests: resources.requests }, undefined, path, problems);
  for (const [name, needed] of aggregateRequests(pod.spec)) {
    const text = resources.requests?.[name] ?? "0";
    const request = parseQuantity(text);
    if (isPodLevelResource(name) && request.ok && compareQuantities(needed, request.quantity) > 0) {
      const detail = `must be greater than or equal to aggregate container requests of ${formatQuantity(needed)}`;
      problems.invalid(`${path}.requests[${name}]`, text, detail);
    }
  }
  containers.forEach((container, index) => {
    for (const [name, text] of Object.entries(container.resources.limits ?? {})) {
      const own = parseQuantity(text);
      const whole = parseQuantity(resources.limits?.[name] ?? "");
      if (own.ok && whole.ok && compareQuantities(own.quantity, whole.quantity) > 0) {
        const detail = `must be less than or equal to pod limits of ${formatQuantity(whole.quantity)}`;
        problems.invalid(`spec.containers[${index}].resources.limits[${name}]`, text, detail);
      }
    }
  });
}
