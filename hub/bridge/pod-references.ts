/** Which Secrets and ConfigMaps a pod names: all that a node may read, and all that it is sent. Pure. */
import { type ObjectKey, objectKey } from "../../protocol/tunnel/messages.ts";

/** Of a hostile manifest; a real pod names some ten. What is beyond is not sent, and the pod lacks it. */
const MAX_REFERENCES = 1024;

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const at = (value: unknown, field: string): unknown => (isFields(value) ? value[field] : undefined);
const list = (value: unknown, field: string): readonly unknown[] => {
  const found = at(value, field);
  return Array.isArray(found) ? found : [];
};

/** Sorted, each once. */
export function podReferences(namespace: string, spec: unknown): readonly ObjectKey[] {
  const found = new Set<ObjectKey>();
  const add = (kind: "Secret" | "ConfigMap", name: unknown): void => {
    if (typeof name === "string" && name !== "") found.add(objectKey(kind, namespace, name));
  };
  for (const secret of list(spec, "imagePullSecrets")) add("Secret", at(secret, "name"));
  for (const field of ["containers", "initContainers", "ephemeralContainers"]) {
    for (const container of list(spec, field)) addEnvironment(container, add);
  }
  for (const volume of list(spec, "volumes")) addVolume(volume, add);
  return [...found].sort().slice(0, MAX_REFERENCES);
}

type Add = (kind: "Secret" | "ConfigMap", name: unknown) => void;

function addEnvironment(container: unknown, add: Add): void {
  for (const source of list(container, "envFrom")) {
    add("Secret", at(at(source, "secretRef"), "name"));
    add("ConfigMap", at(at(source, "configMapRef"), "name"));
  }
  for (const variable of list(container, "env")) {
    const from = at(variable, "valueFrom");
    add("Secret", at(at(from, "secretKeyRef"), "name"));
    add("ConfigMap", at(at(from, "configMapKeyRef"), "name"));
  }
}

function addVolume(volume: unknown, add: Add): void {
  add("Secret", at(at(volume, "secret"), "secretName"));
  add("ConfigMap", at(at(volume, "configMap"), "name"));
  for (const source of list(at(volume, "projected"), "sources")) {
    add("Secret", at(at(source, "secret"), "name"));
    add("ConfigMap", at(at(source, "configMap"), "name"));
  }
}
