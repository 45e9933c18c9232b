/**
 * Ingresses and their classes, with Kubernetes' defaults, rules and columns. They are stored for tools that expect
 * them, and served by no part of picolet: a warning says so.
 */
import {
  dnsSubdomainProblems,
  ipProblems,
  portNameProblems,
  portNumberProblems,
  serviceNameProblems,
  wildcardProblems,
} from "@picolet/protocol/kubernetes/name-rules.ts";
import {
  type FieldError,
  forbiddenValue,
  invalidValue,
  notSupportedValue,
  requiredValue,
  tooLongValue,
} from "../api/field-errors.ts";
import { fieldAt, immutableFields, listAt, mappingAt, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition, StrategyContext } from "../api/resource-definition.ts";
import { ageColumn, column, field, NONE, nameColumn } from "../printing/columns.ts";

const PATH_TYPES = ["Exact", "ImplementationSpecific", "Prefix"];
const SCOPES = ["Cluster", "Namespace"];
const FORBIDDEN_PARTS = ["//", "/./", "/../", "%2f", "%2F"];
const FORBIDDEN_ENDS = ["/..", "/."];
const MAX_CONTROLLER_BYTES = 250;
/** The annotation by which Ingresses named their class before the field existed. */
const CLASS_ANNOTATION = "kubernetes.io/ingress.class";
const DEFAULT_CLASS_ANNOTATION = "ingressclass.kubernetes.io/is-default-class";

/** As Kubernetes shows them: three at most, "*" for all hosts. */
function hostsText(ingress: ApiObject): string {
  const hosts = listAt(ingress, "spec", "rules").flatMap((rule) => textAt(rule, "host") || []);
  const [shown, more] = [hosts.slice(0, 3), hosts.length - 3];
  if (hosts.length === 0) return "*";
  return more > 0 ? `${shown.join(",")} + ${more} more...` : shown.join(",");
}

const addressText = (ingress: ApiObject): string =>
  listAt(ingress, "status", "loadBalancer", "ingress")
    .map((each) => textAt(each, "ip") || textAt(each, "hostname"))
    .join(",");

/** A name, or one whose first label is "*". */
function hostErrors(host: string, path: string): readonly FieldError[] {
  if (host === "") return [];
  if (ipProblems(host).length === 0) return [invalidValue(path, host, "must be a DNS name, not an IP address")];
  const problems = host.includes("*") ? wildcardProblems(host) : dnsSubdomainProblems(host);
  return problems.map((problem) => invalidValue(path, host, problem));
}

function pathErrors(each: unknown, path: string): readonly FieldError[] {
  const [text, type] = [textAt(each, "path"), textAt(each, "pathType")];
  if (type === "") return [requiredValue(`${path}.pathType`, "pathType must be specified")];
  if (!PATH_TYPES.includes(type)) return [notSupportedValue(`${path}.pathType`, type, PATH_TYPES)];
  const invalid = (detail: string): FieldError => invalidValue(`${path}.path`, text, detail);
  const isStrict = type !== "ImplementationSpecific";
  return [
    ...((isStrict || text !== "") && !text.startsWith("/") ? [invalid("must be an absolute path")] : []),
    ...(isStrict ? FORBIDDEN_PARTS.filter((part) => text.includes(part)) : []).map((part) =>
      invalid(`must not contain '${part}'`),
    ),
    ...(isStrict ? FORBIDDEN_ENDS.filter((end) => text.endsWith(end)) : []).map((end) =>
      invalid(`cannot end with '${end}'`),
    ),
  ];
}

function backendErrors(backend: unknown, path: string): readonly FieldError[] {
  const [service, resource] = [fieldAt(backend, "service"), fieldAt(backend, "resource")];
  if (service !== undefined && resource !== undefined)
    return [invalidValue(path, "", "cannot set both resource and service backends")];
  if (resource !== undefined)
    return ["kind", "name"].flatMap((name) =>
      textAt(resource, name) === "" ? [requiredValue(`${path}.resource.${name}`)] : [],
    );
  if (service === undefined) return [invalidValue(path, "", "resource or service backend is required")];
  const [name, portName] = [textAt(service, "name"), textAt(service, "port", "name")];
  const number = Number(fieldAt(service, "port", "number") ?? 0);
  return [
    ...(name === "" ? [requiredValue(`${path}.service.name`)] : []),
    ...(name === "" ? [] : serviceNameProblems(name)).map((each) => invalidValue(`${path}.service.name`, name, each)),
    ...(portName !== "" && number !== 0 ? [invalidValue(path, "", "cannot set both port name & port number")] : []),
    ...(portName === "" && number === 0 ? [requiredValue(path, "port name or number is required")] : []),
    ...(portName === "" ? [] : portNameProblems(portName)).map((each) =>
      invalidValue(`${path}.service.port.name`, portName, each),
    ),
    ...(number === 0 ? [] : portNumberProblems(number)).map((each) =>
      invalidValue(`${path}.service.port.number`, number, each),
    ),
  ];
}

function ruleErrors(rule: unknown, path: string): readonly FieldError[] {
  const http = fieldAt(rule, "http");
  const paths = listAt(http, "paths");
  return [
    ...hostErrors(textAt(rule, "host"), `${path}.host`),
    ...(http !== undefined && paths.length === 0 ? [requiredValue(`${path}.http.paths`)] : []),
    ...paths.flatMap((each, index) => [
      ...pathErrors(each, `${path}.http.paths[${index}]`),
      ...backendErrors(fieldAt(each, "backend"), `${path}.http.paths[${index}].backend`),
    ]),
  ];
}

function tlsErrors(tls: unknown, path: string): readonly FieldError[] {
  const secretName = textAt(tls, "secretName");
  const problems = secretName === "" ? [] : dnsSubdomainProblems(secretName);
  return [
    ...listAt(tls, "hosts").flatMap((host, index) => hostErrors(String(host), `${path}.hosts[${index}]`)),
    ...problems.map((problem) => invalidValue(`${path}.secretName`, secretName, problem)),
  ];
}

function ingressErrors(ingress: ApiObject): readonly FieldError[] {
  const spec = fieldAt(ingress, "spec");
  const [rules, backend] = [listAt(spec, "rules"), fieldAt(spec, "defaultBackend")];
  const className = textAt(spec, "ingressClassName");
  return [
    ...(rules.length === 0 && backend === undefined
      ? [invalidValue("spec", fieldAt(spec, "rules") ?? null, "either `defaultBackend` or `rules` must be specified")]
      : []),
    ...(backend === undefined ? [] : backendErrors(backend, "spec.defaultBackend")),
    ...rules.flatMap((rule, index) => ruleErrors(rule, `spec.rules[${index}]`)),
    ...listAt(spec, "tls").flatMap((tls, index) => tlsErrors(tls, `spec.tls[${index}]`)),
    ...(className === "" ? [] : dnsSubdomainProblems(className)).map((each) =>
      invalidValue("spec.ingressClassName", className, each),
    ),
  ];
}

/** As the admission plugin DefaultIngressClass: the newest of the default classes. */
function giveClass(ingress: ApiObject, { lookup }: StrategyContext): void {
  const spec = section(ingress, "spec");
  if (spec.ingressClassName !== undefined || ingress.metadata.annotations?.[CLASS_ANNOTATION] !== undefined) return;
  const defaults = lookup
    .list("ingressclasses.networking.k8s.io", "")
    .filter(({ metadata }) => metadata.annotations?.[DEFAULT_CLASS_ANNOTATION] === "true")
    .map(({ metadata }) => ({ name: metadata.name, made: String(metadata.creationTimestamp ?? "") }))
    .sort((one, other) =>
      one.made === other.made ? (one.name < other.name ? -1 : 1) : one.made > other.made ? -1 : 1,
    );
  if (defaults[0] !== undefined) spec.ingressClassName = defaults[0].name;
}

function classMismatch({ metadata, spec }: ApiObject): readonly FieldError[] {
  const [annotated, named] = [metadata.annotations?.[CLASS_ANNOTATION], textAt(spec, "ingressClassName")];
  if (annotated === undefined || named === "" || annotated === named) return [];
  const detail = "must match `ingressClassName` when both are specified";
  return [invalidValue(`annotations.${CLASS_ANNOTATION}`, annotated, detail)];
}

export const ingressResource: ResourceDefinition = {
  group: "networking.k8s.io",
  version: "v1",
  plural: "ingresses",
  singular: "ingress",
  kind: "Ingress",
  namespaced: true,
  shortNames: ["ing"],
  model: "V1Ingress",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [
    nameColumn,
    column("Class", field(NONE, "spec", "ingressClassName")),
    column("Hosts", hostsText),
    column("Address", addressText),
    column("Ports", (ingress) => (listAt(ingress, "spec", "tls").length > 0 ? "80, 443" : "80")),
    ageColumn,
  ],
  strategy: {
    hasGeneration: true,
    prepareForCreate(ingress, context) {
      ingress.status = { loadBalancer: {} };
      giveClass(ingress, context);
    },
    validate: (ingress, { subresource }) => (subresource === "" ? ingressErrors(ingress) : []),
    validateCreate: classMismatch,
    warnings: () => [
      "boards have no ingress controller of their own: nothing serves this Ingress unless a pod of yours does",
    ],
  },
};

function classErrors(ingressClass: ApiObject): readonly FieldError[] {
  const controller = textAt(ingressClass, "spec", "controller");
  const parameters = fieldAt(ingressClass, "spec", "parameters");
  const [scope, namespace] = [textAt(parameters, "scope"), textAt(parameters, "namespace")];
  const [prefix = "", ...rest] = controller.split("/");
  const path = rest.join("/");
  const at = "spec.parameters";
  return [
    ...(controller === "" ? [requiredValue("spec.controller")] : []),
    ...(controller !== "" && (prefix === "" || path === "")
      ? [invalidValue("spec.controller", controller, 'must be a domain-prefixed path (such as "acme.io/foo")')]
      : []),
    ...(prefix === "" || path === "" ? [] : dnsSubdomainProblems(prefix)).map((problem) =>
      invalidValue("spec.controller", prefix, problem),
    ),
    ...(controller.length > MAX_CONTROLLER_BYTES ? [tooLongValue("spec.controller", MAX_CONTROLLER_BYTES)] : []),
    ...(parameters === undefined
      ? []
      : [
          ...["kind", "name"].flatMap((name) =>
            textAt(parameters, name) === "" ? [requiredValue(`${at}.${name}`)] : [],
          ),
          ...(SCOPES.includes(scope) ? [] : [notSupportedValue(`${at}.scope`, scope, SCOPES)]),
          ...(scope === "Namespace" && namespace === ""
            ? [requiredValue(`${at}.namespace`, "`parameters.scope` is set to 'Namespace'")]
            : []),
          ...(scope === "Cluster" && namespace !== ""
            ? [forbiddenValue(`${at}.namespace`, "`parameters.scope` is set to 'Cluster'")]
            : []),
        ]),
  ];
}

function parametersText(ingressClass: ApiObject): string {
  const { apiGroup, kind, name } = mappingAt(ingressClass, "spec", "parameters");
  if (kind === undefined) return NONE;
  return `${String(kind)}${apiGroup === undefined ? "" : `.${String(apiGroup)}`}/${String(name)}`;
}

export const ingressClassResource: ResourceDefinition = {
  group: "networking.k8s.io",
  version: "v1",
  plural: "ingressclasses",
  singular: "ingressclass",
  kind: "IngressClass",
  namespaced: false,
  model: "V1IngressClass",
  columns: [
    nameColumn,
    column("Controller", field("", "spec", "controller")),
    column("Parameters", parametersText),
    ageColumn,
  ],
  strategy: {
    hasGeneration: true,
    default(ingressClass) {
      const spec = section(ingressClass, "spec");
      if (spec.parameters !== undefined) setDefault(section(spec, "parameters"), "scope", "Cluster");
    },
    validate: classErrors,
    validateUpdate: (ingressClass, old) => immutableFields(ingressClass, old, "spec.controller"),
  },
};
