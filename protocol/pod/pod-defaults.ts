/**
 * Defaults as Kubernetes' API server applies them to a Pod on creation (pkg/apis/core/v1/defaults.go of Kubernetes
 * 1.34). The namespace is the caller's. Applying them twice is applying them once.
 */
import { formatQuantity, parseQuantity, roundToMilli } from "../kubernetes/quantity.ts";
import { applyDivisorDefaults, pullPolicyOf } from "./fields/field-defaults.ts";
import type { PodDraft } from "./pod.ts";
import { aggregateRequests, isPodLevelResource } from "./pod-resources.ts";
import { volumeModels } from "./volumes/volume-models.ts";

type SpecDraft = PodDraft["spec"];
type ContainerDraft = SpecDraft["containers"][number];
type VolumeDraft = NonNullable<SpecDraft["volumes"]>[number];
type ProbeDraft = NonNullable<ContainerDraft["livenessProbe"]>;
type HandlerDraft = Pick<ProbeDraft, "httpGet">;
type QuantitiesDraft = Record<string, string | number>;

/** Fills `pod`, the caller's own copy, in place. */
export function applyPodDefaults(pod: PodDraft): void {
  const { spec } = pod;
  spec.restartPolicy ||= "Always";
  spec.dnsPolicy ||= "ClusterFirst";
  spec.schedulerName ||= "default-scheduler";
  spec.terminationGracePeriodSeconds ??= 30;
  if (spec.terminationGracePeriodSeconds < 0) spec.terminationGracePeriodSeconds = 1;
  spec.securityContext ??= {};
  spec.enableServiceLinks ??= true;
  spec.serviceAccountName ||= spec.serviceAccount;
  if (spec.serviceAccountName === undefined) delete spec.serviceAccountName;
  for (const volume of spec.volumes ?? []) defaultVolume(volume);
  for (const container of [...(spec.initContainers ?? []), ...spec.containers]) {
    defaultContainer(container);
    requestsFromLimits(container);
    if (spec.hostNetwork === true) for (const port of container.ports ?? []) port.hostPort ||= port.containerPort;
  }
  for (const container of spec.ephemeralContainers ?? []) defaultContainer(container);
  normalizeQuantities(spec.overhead);
  defaultPodResources(spec);
}

function defaultContainer(container: ContainerDraft): void {
  container.imagePullPolicy ||= pullPolicyOf(container.image);
  container.terminationMessagePath ||= "/dev/termination-log";
  container.terminationMessagePolicy ||= "File";
  container.resources ??= {};
  normalizeQuantities(container.resources.limits);
  normalizeQuantities(container.resources.requests);
  for (const port of container.ports ?? []) port.protocol ||= "TCP";
  for (const { valueFrom } of container.env ?? []) {
    if (valueFrom?.fieldRef !== undefined) valueFrom.fieldRef.apiVersion ||= "v1";
    if (valueFrom?.resourceFieldRef !== undefined) applyDivisorDefaults(valueFrom.resourceFieldRef);
  }
  for (const probe of [container.livenessProbe, container.readinessProbe, container.startupProbe]) {
    if (probe !== undefined) defaultProbe(probe);
  }
  if (container.lifecycle?.postStart !== undefined) defaultHandler(container.lifecycle.postStart);
  if (container.lifecycle?.preStop !== undefined) defaultHandler(container.lifecycle.preStop);
}

function defaultProbe(probe: ProbeDraft): void {
  defaultHandler(probe);
  if (probe.grpc !== undefined) probe.grpc.service ??= "";
  probe.timeoutSeconds ||= 1;
  probe.periodSeconds ||= 10;
  probe.successThreshold ||= 1;
  probe.failureThreshold ||= 3;
}

function defaultHandler({ httpGet }: HandlerDraft): void {
  if (httpGet === undefined) return;
  httpGet.path ||= "/";
  httpGet.scheme ||= "HTTP";
}

function defaultVolume(volume: VolumeDraft): void {
  // With any other field there, a source that we do not know was meant: validation names it.
  if (Object.keys(volume).every((key) => key === "name")) volume.emptyDir = {};
  for (const [kind, model] of volumeModels) {
    const source = volume[kind as keyof VolumeDraft];
    if (source !== undefined && source !== null) model.applyDefaults?.(source);
  }
}

function normalizeQuantities(quantities: QuantitiesDraft | undefined): void {
  for (const [name, value] of Object.entries(quantities ?? {})) {
    const parsed = parseQuantity(String(value));
    if (quantities) quantities[name] = parsed.ok ? formatQuantity(roundToMilli(parsed.quantity)) : String(value);
  }
}

function requestsFromLimits({ resources }: ContainerDraft): void {
  if (resources.limits === undefined) return;
  resources.requests = { ...resources.limits, ...resources.requests };
}

/** Requests of the pod as a whole (KEP 2837): what its containers ask for, else its limits. */
function defaultPodResources(spec: SpecDraft): void {
  const { resources } = spec;
  if (resources === undefined) return;
  normalizeQuantities(resources.limits);
  normalizeQuantities(resources.requests);
  if (resources.limits === undefined || Object.keys(resources.limits).length === 0) return;
  const requests = { ...resources.requests };
  for (const [name, quantity] of aggregateRequests(spec)) {
    if (isPodLevelResource(name) && !name.startsWith("hugepages-")) requests[name] ??= formatQuantity(quantity);
  }
  for (const [name, limit] of Object.entries(resources.limits)) {
    if (isPodLevelResource(name)) requests[name] ??= limit;
  }
  resources.requests = requests;
}
