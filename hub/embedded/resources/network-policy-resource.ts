/** NetworkPolicies, with Kubernetes' defaults and rules. Stored, and enforced by no part of picolet: a warning says so. */
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import {
  ipProblems,
  labelValueProblems,
  portNameProblems,
  portNumberProblems,
  qualifiedNameProblems,
} from "@picolet/protocol/kubernetes/name-rules.ts";
import {
  type FieldError,
  forbiddenValue,
  invalidValue,
  notSupportedValue,
  requiredValue,
} from "../api/field-errors.ts";
import { fieldAt, listAt, mappingAt, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { ageColumn, column, labelsText, nameColumn } from "../printing/columns.ts";
import { validateLabelSelector } from "./pods/placement-validation.ts";

const PROTOCOLS = ["TCP", "UDP", "SCTP"];
const TYPES = ["Ingress", "Egress"];
/** The directions of a policy, and where its peers are. */
const DIRECTIONS = [
  ["ingress", "from"],
  ["egress", "to"],
] as const;

interface Network {
  readonly bytes: Uint8Array;
  readonly prefix: number;
}

/** Undefined: it is none. */
function networkOf(text: string): Network | undefined {
  const [address = "", length = "", ...more] = text.split("/");
  if (more.length > 0 || ipProblems(address).length > 0 || !/^(?:0|[1-9]\d{0,2})$/.test(length)) return undefined;
  const bytes = addressBytes(address);
  return Number(length) <= bytes.length * 8 ? { bytes, prefix: Number(length) } : undefined;
}

const bitAt = ({ bytes }: Network, index: number): number => ((bytes[index >> 3] ?? 0) >> (7 - (index & 7))) & 1;

/** True when all of `inner` is in `outer`, and more is. */
function isStrictlyWithin(inner: Network, outer: Network): boolean {
  if (inner.bytes.length !== outer.bytes.length || inner.prefix <= outer.prefix) return false;
  for (let index = 0; index < outer.prefix; index += 1) if (bitAt(inner, index) !== bitAt(outer, index)) return false;
  return true;
}

const selectorErrors = (selector: unknown, path: string): readonly FieldError[] => [
  ...Object.entries(mappingAt(selector, "matchLabels")).flatMap(([key, value]) => [
    ...qualifiedNameProblems(key).map((problem) => invalidValue(`${path}.matchLabels`, key, problem)),
    ...labelValueProblems(String(value)).map((problem) => invalidValue(`${path}.matchLabels`, value, problem)),
  ]),
  ...validateLabelSelector(selector, path),
];

const NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

function blockErrors(block: unknown, path: string): readonly FieldError[] {
  const cidr = textAt(block, "cidr");
  if (cidr === "") return [requiredValue(`${path}.cidr`)];
  const network = networkOf(cidr);
  if (network === undefined) return [invalidValue(`${path}.cidr`, cidr, NO_NETWORK)];
  return listAt(block, "except").flatMap((each, index) => {
    const [text, at] = [String(each), `${path}.except[${index}]`];
    const inner = networkOf(text);
    if (inner === undefined) return [invalidValue(at, text, NO_NETWORK)];
    return isStrictlyWithin(inner, network) ? [] : [invalidValue(at, text, "must be a strict subset of `cidr`")];
  });
}

function peerErrors(peer: unknown, path: string): readonly FieldError[] {
  const names = ["podSelector", "namespaceSelector"].filter((name) => fieldAt(peer, name) !== undefined);
  const block = fieldAt(peer, "ipBlock");
  return [
    ...names.flatMap((name) => selectorErrors(fieldAt(peer, name), `${path}.${name}`)),
    ...(block === undefined ? [] : blockErrors(block, `${path}.ipBlock`)),
    ...(names.length === 0 && block === undefined ? [requiredValue(path, "must specify a peer")] : []),
    ...(names.length > 0 && block !== undefined
      ? [forbiddenValue(path, "may not specify both ipBlock and another peer")]
      : []),
  ];
}

function portErrors(each: unknown, path: string): readonly FieldError[] {
  const [port, end] = [fieldAt(each, "port"), fieldAt(each, "endPort")];
  const protocol = textAt(each, "protocol");
  const isName = typeof port === "string";
  const problems = port === undefined ? [] : isName ? portNameProblems(port) : portNumberProblems(Number(port));
  return [
    ...(PROTOCOLS.includes(protocol) ? [] : [notSupportedValue(`${path}.protocol`, protocol, PROTOCOLS)]),
    ...problems.map((problem) => invalidValue(`${path}.port`, port, problem)),
    ...(end === undefined ? [] : endErrors(Number(end), port, `${path}.endPort`)),
  ];
}

function endErrors(end: number, port: unknown, path: string): readonly FieldError[] {
  if (port === undefined) return [invalidValue(path, end, "may not be specified when `port` is not specified")];
  if (typeof port === "string") return [invalidValue(path, end, "may not be specified when `port` is non-numeric")];
  return [
    ...(end < Number(port) ? [invalidValue(path, port, "must be greater than or equal to `port`")] : []),
    ...portNumberProblems(end).map((problem) => invalidValue(path, end, problem)),
  ];
}

function policyErrors(policy: ApiObject): readonly FieldError[] {
  const types = listAt(policy, "spec", "policyTypes").map(String);
  return [
    ...selectorErrors(fieldAt(policy, "spec", "podSelector"), "spec.podSelector"),
    ...DIRECTIONS.flatMap(([direction, peers]) =>
      listAt(policy, "spec", direction).flatMap((rule, index) => {
        const at = `spec.${direction}[${index}]`;
        return [
          ...listAt(rule, "ports").flatMap((each, port) => portErrors(each, `${at}.ports[${port}]`)),
          ...listAt(rule, peers).flatMap((each, peer) => peerErrors(each, `${at}.${peers}[${peer}]`)),
        ];
      }),
    ),
    ...(types.length > TYPES.length
      ? [invalidValue("spec.policyTypes", types, "may not specify more than two policyTypes")]
      : types.flatMap((type, index) =>
          TYPES.includes(type) ? [] : [notSupportedValue(`spec.policyTypes[${index}]`, type, TYPES)],
        )),
  ];
}

/** As Kubernetes shows a selector: `a=b,c in (d,e),!f`. */
function selectorText(policy: ApiObject): string {
  const selector = fieldAt(policy, "spec", "podSelector");
  const expressions = listAt(selector, "matchExpressions");
  const labels = mappingAt(selector, "matchLabels");
  if (expressions.length === 0) return labelsText(labels);
  const equal = Object.entries(labels).map(([key, value]) => `${key}=${String(value)}`);
  return [...equal, ...expressions.map(expressionText)].sort().join(",");
}

function expressionText(expression: unknown): string {
  const [key, values] = [textAt(expression, "key"), listAt(expression, "values").map(String).sort().join(",")];
  switch (textAt(expression, "operator")) {
    case "Exists":
      return key;
    case "DoesNotExist":
      return `!${key}`;
    case "NotIn":
      return `${key} notin (${values})`;
    default:
      return `${key} in (${values})`;
  }
}

export const networkPolicyResource: ResourceDefinition = {
  group: "networking.k8s.io",
  version: "v1",
  plural: "networkpolicies",
  singular: "networkpolicy",
  kind: "NetworkPolicy",
  namespaced: true,
  shortNames: ["netpol"],
  model: "V1NetworkPolicy",
  columns: [nameColumn, column("Pod-Selector", selectorText), ageColumn],
  strategy: {
    hasGeneration: true,
    default(policy) {
      const spec = section(policy, "spec");
      section(spec, "podSelector");
      for (const [direction] of DIRECTIONS)
        for (const rule of listAt(spec, direction))
          for (const port of listAt(rule, "ports")) setDefault(port as Record<string, unknown>, "protocol", "TCP");
      if (listAt(spec, "policyTypes").length === 0)
        spec.policyTypes = ["Ingress", ...(listAt(spec, "egress").length > 0 ? ["Egress"] : [])];
    },
    validate: policyErrors,
    warnings: () => [
      "boards enforce no NetworkPolicy of their own: it has an effect only where a board's CNI plugin enforces it",
    ],
  },
};
