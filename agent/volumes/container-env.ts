import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container, ContainerEnvVar } from "@picolet/protocol/pod/pod.ts";
import type { EnvVar } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../core/hub/cluster-objects.ts";
import { configError } from "./values/config-error.ts";
import { expandReferences } from "./values/expand.ts";
import { type FieldContext, fieldValue } from "./values/field-values.ts";
import { type KeyedKind, keyedData, objectNotFound } from "./values/keyed-data.ts";
import { resourceValue } from "./values/resource-values.ts";
import { serviceEnv } from "./values/service-env.ts";

export interface EnvContext extends FieldContext {
  /** The node's allocatable by resource name: the limit of a container that has none of its own. */
  readonly allocatable: Readonly<Record<string, string>>;
  readonly objects: Pick<ClusterObjects, "object" | "keys">;
}

type ValueSource = NonNullable<ContainerEnvVar["valueFrom"]>;

/**
 * The container's environment in the order of its first naming, the Services' last; the last value of a name counts,
 * and the container's own before a Service's. A reference sees the variables before it and those of the Services.
 * @throws PicoletError with the reason `CreateContainerConfigError`
 */
export function containerEnv(container: Container, context: EnvContext): readonly EnvVar[] {
  const { metadata, spec } = context.pod.pod;
  const services = new Map(
    serviceEnv(context.objects, metadata.namespace, spec.enableServiceLinks).map(({ name, value }) => [name, value]),
  );
  const values = new Map<string, string>();
  for (const { prefix = "", configMapRef, secretRef } of container.envFrom ?? []) {
    if (configMapRef !== undefined) addAll(values, prefix, "ConfigMap", configMapRef, context);
    if (secretRef !== undefined) addAll(values, prefix, "Secret", secretRef, context);
  }
  for (const { name, value, valueFrom } of container.env ?? []) {
    const found =
      value !== undefined && value !== ""
        ? expandReferences(value, (each) => values.get(each) ?? services.get(each))
        : valueFrom === undefined
          ? ""
          : sourceValue(valueFrom, container, context);
    // An optional source that is not there leaves the variable out; one of that name from before stays.
    if (found !== undefined) values.set(name, found);
  }
  for (const [name, value] of services) if (!values.has(name)) values.set(name, value);
  return [...values].map(([name, value]) => ({ name, value }));
}

function sourceValue(source: ValueSource, container: Container, context: EnvContext): string | undefined {
  const { fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef } = source;
  if (fieldRef !== undefined) return fieldValue(fieldRef.fieldPath, context);
  if (resourceFieldRef !== undefined)
    return resourceValue(resourceFieldRef, container, context.pod.pod, context.allocatable);
  if (configMapKeyRef !== undefined) return keyValue("ConfigMap", configMapKeyRef, context);
  if (secretKeyRef !== undefined) return keyValue("Secret", secretKeyRef, context);
  if (fileKeyRef !== undefined) {
    if (fileKeyRef.optional === true) return undefined;
    throw configError("environment variables from files (fileKeyRef) are not supported");
  }
  return "";
}

interface ObjectReference {
  readonly name: string;
  readonly optional?: boolean | undefined;
}

/** Names of variables that Kubernetes 1.34 accepts (RelaxedEnvironmentVariableValidation). */
const VARIABLE_NAME = /^[\x20-\x3c\x3e-\x7e]+$/;

/** Every key that can be the name of a variable, as one; others are left out. */
function addAll(
  values: Map<string, string>,
  prefix: string,
  kind: KeyedKind,
  reference: ObjectReference,
  context: EnvContext,
): void {
  const data = keyedData(context.objects, kind, context.pod.pod.metadata.namespace, reference.name, "texts");
  if (data === undefined && reference.optional !== true) throw missing(kind, reference.name);
  for (const [key, value] of data ?? []) {
    const name = `${prefix}${key}`;
    if (VARIABLE_NAME.test(name)) values.set(name, value.toString("utf8"));
  }
}

function keyValue(
  kind: KeyedKind,
  reference: ObjectReference & { readonly key: string },
  context: EnvContext,
): string | undefined {
  const { namespace } = context.pod.pod.metadata;
  const data = keyedData(context.objects, kind, namespace, reference.name, "texts");
  const value = data?.get(reference.key);
  if (value !== undefined) return value.toString("utf8");
  if (reference.optional === true) return undefined;
  if (data === undefined) throw missing(kind, reference.name);
  const message = `couldn't find key ${reference.key} in ${kind} ${namespace}/${reference.name}`;
  throw new PicoletError("not_found", message, { reason: "CreateContainerConfigError", retryable: true });
}

const missing = (kind: KeyedKind, name: string): PicoletError =>
  new PicoletError("not_found", objectNotFound(kind, name).message, {
    reason: "CreateContainerConfigError",
    retryable: true,
  });
