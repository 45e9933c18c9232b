/** ConfigMaps, Secrets, ServiceAccounts. */
import { configKeyProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { type FieldError, forbiddenValue, invalidValue, requiredValue, tooLongValue } from "../api/field-errors.ts";
import { immutableFields, listAt, mappingAt, sameValue, section, setDefault } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { ageColumn, column, field, nameColumn } from "../printing/columns.ts";

/** Bytes of all values of a ConfigMap or a Secret together: what etcd takes, less the object around them. */
const MAX_DATA_BYTES = MEBIBYTE;
/** As Kubernetes prints a path of which it names nothing. */
const NO_PATH = "[]";

const keyCount = (object: ApiObject, ...fields: readonly string[]): number =>
  fields.reduce((count, name) => count + Object.keys(mappingAt(object, name)).length, 0);

/** @param encoded which of the fields hold base64 */
function validateData(object: ApiObject, fields: readonly string[], encoded: readonly string[]): FieldError[] {
  const errors: FieldError[] = [];
  let bytes = 0;
  for (const name of fields) {
    for (const [key, value] of Object.entries(mappingAt(object, name))) {
      errors.push(...configKeyProblems(key).map((problem) => invalidValue(`${name}[${key}]`, key, problem)));
      bytes += Buffer.byteLength(String(value), encoded.includes(name) ? "base64" : "utf8");
    }
  }
  if (bytes > MAX_DATA_BYTES)
    errors.push(tooLongValue(fields.length === 1 ? (fields[0] ?? "") : NO_PATH, MAX_DATA_BYTES));
  return errors;
}

/** As in Kubernetes, `immutable: true` cannot be taken back. */
function immutableData(object: ApiObject, old: ApiObject, fields: readonly string[]): FieldError[] {
  if (old.immutable !== true) return [];
  const detail = "field is immutable when `immutable` is set";
  const errors = object.immutable === true ? [] : [forbiddenValue("immutable", detail)];
  for (const name of fields) {
    if (!sameValue(object[name] ?? {}, old[name] ?? {})) errors.push(forbiddenValue(name, detail));
  }
  return errors;
}

const CONFIG_DATA = ["data", "binaryData"];

export const configMapResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "configmaps",
  singular: "configmap",
  kind: "ConfigMap",
  namespaced: true,
  shortNames: ["cm"],
  model: "V1ConfigMap",
  columns: [nameColumn, column("Data", (object) => keyCount(object, ...CONFIG_DATA), "integer"), ageColumn],
  strategy: {
    validate(object) {
      const errors = validateData(object, CONFIG_DATA, ["binaryData"]);
      for (const key of Object.keys(mappingAt(object, "binaryData"))) {
        if (Object.hasOwn(mappingAt(object, "data"), key)) {
          errors.push(invalidValue(`data[${key}]`, key, "duplicate of key present in binaryData"));
        }
      }
      return errors;
    },
    validateUpdate: (object, old) => immutableData(object, old, CONFIG_DATA),
  },
};

/** The keys that a Secret of a type must have. */
const SECRET_KEYS: Readonly<Record<string, readonly string[]>> = {
  "kubernetes.io/dockercfg": [".dockercfg"],
  "kubernetes.io/dockerconfigjson": [".dockerconfigjson"],
  "kubernetes.io/tls": ["tls.crt", "tls.key"],
  "kubernetes.io/ssh-auth": ["ssh-privatekey"],
};
const ACCOUNT_TOKEN = "kubernetes.io/service-account-token";
const ACCOUNT_NAME = "kubernetes.io/service-account.name";

function validateSecret(secret: ApiObject): readonly FieldError[] {
  const type = String(secret.type);
  const errors = validateData(secret, ["data"], ["data"]);
  for (const key of SECRET_KEYS[type] ?? []) {
    const value = mappingAt(secret, "data")[key];
    if (value === undefined) errors.push(requiredValue(`data[${key}]`));
    else if (key.startsWith(".docker") && !isJson(String(value))) {
      errors.push(
        invalidValue(`data[${key}]`, "<secret contents redacted>", "invalid character looking for beginning of value"),
      );
    }
  }
  const account = secret.metadata.annotations?.[ACCOUNT_NAME] ?? "";
  if (type === ACCOUNT_TOKEN && account === "") errors.push(requiredValue(`metadata.annotations[${ACCOUNT_NAME}]`));
  return errors;
}

function isJson(base64: string): boolean {
  try {
    JSON.parse(Buffer.from(base64, "base64").toString());
    return true;
  } catch {
    return false;
  }
}

export const secretResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "secrets",
  singular: "secret",
  kind: "Secret",
  namespaced: true,
  model: "V1Secret",
  columns: [
    nameColumn,
    column("Type", field("", "type")),
    column("Data", (object) => keyCount(object, "data"), "integer"),
    ageColumn,
  ],
  selectableFields: { type: (secret) => String(secret.type ?? "") },
  strategy: {
    default(secret) {
      setDefault(secret, "type", "Opaque");
      const texts = Object.entries(mappingAt(secret, "stringData"));
      if (texts.length > 0) {
        const data = section(secret, "data");
        for (const [key, text] of texts) data[key] = Buffer.from(String(text)).toString("base64");
      }
      delete secret.stringData;
    },
    validate: validateSecret,
    validateUpdate: (secret, old) => [...immutableFields(secret, old, "type"), ...immutableData(secret, old, ["data"])],
  },
};

export const serviceAccountResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "serviceaccounts",
  singular: "serviceaccount",
  kind: "ServiceAccount",
  namespaced: true,
  shortNames: ["sa"],
  model: "V1ServiceAccount",
  subresources: [
    {
      name: "token",
      kind: { group: "authentication.k8s.io", version: "v1", kind: "TokenRequest" },
      verbs: ["create"],
    },
  ],
  columns: [nameColumn, column("Secrets", (account) => listAt(account, "secrets").length, "integer"), ageColumn],
  strategy: {},
};
