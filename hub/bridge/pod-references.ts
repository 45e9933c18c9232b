/** What a pod names: all that its node may read of such objects, and all that it is sent. Pure. */
import { type ObjectKey, objectKey } from "../../protocol/tunnel/messages.ts";
import type { KubeObject } from "../core/kube-client.ts";

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

type Add = (kind: "Secret" | "ConfigMap" | "PersistentVolumeClaim", name: unknown) => void;

/** Sorted, each once. */
export function podReferences({ metadata, spec }: KubeObject): readonly ObjectKey[] {
  const found = new Set<ObjectKey>();
  const addIn = (kind: string, namespace: string, name: unknown): void => {
    if (typeof name === "string" && name !== "") found.add(objectKey(kind, namespace, name));
  };
  const add: Add = (kind, name) => addIn(kind, metadata.namespace ?? "", name);
  addIn("RuntimeClass", "", at(spec, "runtimeClassName"));
  for (const secret of list(spec, "imagePullSecrets")) add("Secret", at(secret, "name"));
  for (const field of ["containers", "initContainers", "ephemeralContainers"]) {
    for (const container of list(spec, field)) addEnvironment(container, add);
  }
  for (const volume of list(spec, "volumes")) addVolume(volume, metadata.name, add);
  return [...found].sort().slice(0, MAX_REFERENCES);
}

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

/** Kinds of volumes that are opened with a Secret, and their field for it. */
const SECRET_FIELDS: readonly (readonly [kind: string, field: string])[] = [
  ["csi", "nodePublishSecretRef"],
  ["flexVolume", "secretRef"],
  ["iscsi", "secretRef"],
  ["cephfs", "secretRef"],
  ["rbd", "secretRef"],
];

function addVolume(volume: unknown, pod: string, add: Add): void {
  add("Secret", at(at(volume, "secret"), "secretName"));
  add("ConfigMap", at(at(volume, "configMap"), "name"));
  for (const source of list(at(volume, "projected"), "sources")) {
    add("Secret", at(at(source, "secret"), "name"));
    add("ConfigMap", at(at(source, "configMap"), "name"));
  }
  for (const [kind, field] of SECRET_FIELDS) add("Secret", at(at(at(volume, kind), field), "name"));
  add("PersistentVolumeClaim", at(at(volume, "persistentVolumeClaim"), "claimName"));
  const own = at(volume, "name");
  if (isFields(at(volume, "ephemeral")) && typeof own === "string") add("PersistentVolumeClaim", `${pod}-${own}`);
}
