import { PicoletError } from "../../protocol/errors.ts";
import type { Container, ContainerEnvVar } from "../../protocol/pod.ts";
import type { EnvVar } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { configError } from "./config-error.ts";
import { expandReferences } from "./expand.ts";
import { type FieldContext, fieldValue } from "./field-values.ts";
import { resourceValue } from "./resource-values.ts";

export interface EnvContext extends FieldContext {
  /** What a container without a limit can have at most, by resource name: the node's allocatable. */
  readonly allocatable: Readonly<Record<string, string>>;
}

type ValueSource = NonNullable<ContainerEnvVar["valueFrom"]>;

/**
 * The container's environment in the order of its first naming; the last value of a name counts. A reference sees
 * the variables before it.
 * @throws PicoletError with the reason `CreateContainerConfigError`
 */
export function containerEnv(container: Container, context: EnvContext): readonly EnvVar[] {
  for (const { configMapRef, secretRef } of container.envFrom ?? []) {
    if (configMapRef !== undefined && configMapRef.optional !== true) throw missing("configmap", configMapRef.name);
    if (secretRef !== undefined && secretRef.optional !== true) throw missing("secret", secretRef.name);
  }
  const values = new Map<string, string>();
  for (const { name, value, valueFrom } of container.env ?? []) {
    const found =
      value !== undefined && value !== ""
        ? expandReferences(value, (each) => values.get(each))
        : valueFrom === undefined
          ? ""
          : sourceValue(valueFrom, container, context);
    // An optional source that is not there leaves the variable out; one of that name from before stays.
    if (found !== undefined) values.set(name, found);
  }
  return [...values].map(([name, value]) => ({ name, value }));
}

function sourceValue(source: ValueSource, container: Container, context: EnvContext): string | undefined {
  const { fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef } = source;
  if (fieldRef !== undefined) return fieldValue(fieldRef.fieldPath, context);
  if (resourceFieldRef !== undefined)
    return resourceValue(resourceFieldRef, container, context.pod.pod, context.allocatable);
  if (configMapKeyRef !== undefined) return absent("configmap", configMapKeyRef);
  if (secretKeyRef !== undefined) return absent("secret", secretKeyRef);
  if (fileKeyRef !== undefined) {
    if (fileKeyRef.optional === true) return undefined;
    throw configError("environment variables from files (fileKeyRef) are not supported");
  }
  return "";
}

/** No source of this node brings ConfigMaps and Secrets yet: one that is named is not found. */
function absent(
  kind: "configmap" | "secret",
  reference: { readonly name: string; readonly optional?: boolean | undefined },
): undefined {
  if (reference.optional === true) return undefined;
  throw missing(kind, reference.name);
}

const missing = (kind: "configmap" | "secret", name: string): PicoletError =>
  new PicoletError("not_found", `${kind} ${JSON.stringify(name)} not found`, {
    reason: "CreateContainerConfigError",
    retryable: true,
  });
