/** Services and endpoints. Addresses are given out; nothing is proxied. */
import {
  dnsLabelProblems,
  dnsSubdomainProblems,
  portNameProblems,
  portNumberProblems,
} from "@picolet/protocol/kubernetes/name-rules.ts";
import {
  duplicateValue,
  type FieldError,
  invalidValue,
  notSupportedValue,
  requiredValue,
} from "../api/field-errors.ts";
import { fieldAt, immutableFields, listAt, mappingAt, section, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, ResourceDefinition } from "../api/resource-definition.ts";
import { ageColumn, column, field, labelsText, NONE, nameColumn, orNone, wideColumn } from "../printing/columns.ts";
import { addressErrors, assignAddress } from "./service-address.ts";

const ADDRESS_TYPES = ["IPv4", "IPv6", "FQDN"];
const AFFINITIES = ["ClientIP", "None"];
const PROTOCOLS = ["SCTP", "TCP", "UDP"];
const TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

function externalIp(service: ApiObject): string {
  const addresses = [
    ...listAt(service, "status", "loadBalancer", "ingress").map(
      (each) => textAt(each, "ip") || textAt(each, "hostname"),
    ),
    ...listAt(service, "spec", "externalIPs").map(String),
  ];
  if (addresses.length > 0) return addresses.join(",");
  switch (textAt(service, "spec", "type")) {
    case "ExternalName":
      return textAt(service, "spec", "externalName");
    case "LoadBalancer":
      return "<pending>";
    default:
      return NONE;
  }
}

function portsText(service: ApiObject): string {
  const ports = listAt(service, "spec", "ports").map((each) => {
    const nodePort = textAt(each, "nodePort");
    return `${textAt(each, "port")}${["", "0"].includes(nodePort) ? "" : `:${nodePort}`}/${textAt(each, "protocol")}`;
  });
  return orNone(ports.join(","));
}

function validateService(service: ApiObject): readonly FieldError[] {
  const type = textAt(service, "spec", "type");
  const affinity = textAt(service, "spec", "sessionAffinity");
  const ports = listAt(service, "spec", "ports");
  const isHeadless = textAt(service, "spec", "clusterIP") === "None";
  const name = textAt(service, "spec", "externalName");
  const isExternal = type === "ExternalName";
  const names = new Set<string>();
  return [
    ...(ports.length === 0 && !isHeadless && !isExternal ? [requiredValue("spec.ports")] : []),
    ...(isExternal && name === "" ? [requiredValue("spec.externalName")] : []),
    ...(isExternal && name !== ""
      ? dnsSubdomainProblems(name).map((problem) => invalidValue("spec.externalName", name, problem))
      : []),
    ...ports.flatMap((_, index) => portErrors(ports, index, names)),
    ...(AFFINITIES.includes(affinity) ? [] : [notSupportedValue("spec.sessionAffinity", affinity, AFFINITIES)]),
    ...(TYPES.includes(type) ? [] : [notSupportedValue("spec.type", type, TYPES)]),
  ];
}

/** @param names of the ports before this one; its own is added */
function portErrors(ports: readonly unknown[], index: number, names: Set<string>): readonly FieldError[] {
  const path = `spec.ports[${index}]`;
  const [port, targetPort] = ["port", "targetPort"].map((name) => fieldAt(ports[index], name));
  const [name = "", protocol = ""] = ["name", "protocol"].map((field) => textAt(ports[index], field));
  const isTaken = name !== "" && names.has(name);
  names.add(name);
  const target = typeof targetPort === "string" ? portNameProblems(targetPort) : portNumberProblems(Number(targetPort));
  return [
    ...(name === "" && ports.length > 1 ? [requiredValue(`${path}.name`)] : []),
    ...(name === "" ? [] : dnsLabelProblems(name).map((problem) => invalidValue(`${path}.name`, name, problem))),
    ...(isTaken ? [duplicateValue(`${path}.name`, name)] : []),
    ...portNumberProblems(Number(port)).map((problem) => invalidValue(`${path}.port`, port, problem)),
    ...(PROTOCOLS.includes(protocol) ? [] : [notSupportedValue(`${path}.protocol`, protocol, PROTOCOLS)]),
    ...target.map((problem) => invalidValue(`${path}.targetPort`, targetPort, problem)),
  ];
}

export const serviceResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "services",
  singular: "service",
  kind: "Service",
  namespaced: true,
  shortNames: ["svc"],
  categories: ["all"],
  nameRule: "label",
  model: "V1Service",
  subresources: [{ name: "status", verbs: ["get", "patch", "update"] }],
  columns: [
    nameColumn,
    column("Type", field("", "spec", "type")),
    column("Cluster-IP", field(NONE, "spec", "clusterIP")),
    column("External-IP", externalIp),
    column("Port(s)", portsText),
    ageColumn,
    wideColumn("Selector", (service) => labelsText(mappingAt(service, "spec", "selector"))),
  ],
  selectableFields: {
    "spec.clusterIP": (service) => textAt(service, "spec", "clusterIP"),
    "spec.type": (service) => textAt(service, "spec", "type"),
  },
  strategy: {
    default(service) {
      const spec = section(service, "spec");
      setDefault(spec, "type", "ClusterIP");
      setDefault(spec, "sessionAffinity", "None");
      if (spec.type !== "ExternalName") {
        setDefault(spec, "internalTrafficPolicy", "Cluster");
        setDefault(spec, "ipFamilies", ["IPv4"]);
        setDefault(spec, "ipFamilyPolicy", "SingleStack");
      }
      if (spec.type === "NodePort" || spec.type === "LoadBalancer")
        setDefault(spec, "externalTrafficPolicy", "Cluster");
      if (spec.type === "LoadBalancer") setDefault(spec, "allocateLoadBalancerNodePorts", true);
      for (const port of listAt(spec, "ports")) {
        setDefault(port as Record<string, unknown>, "protocol", "TCP");
        setDefault(port as Record<string, unknown>, "targetPort", (port as Record<string, unknown>).port);
      }
    },
    prepareForCreate(service, context) {
      service.status = { loadBalancer: {} };
      assignAddress(service, context);
    },
    prepareForUpdate(service, old, context) {
      service.status = old.status;
      assignAddress(service, context, old);
    },
    validate: (service, { subresource }) => (subresource === "" ? validateService(service) : []),
    validateUpdate: (service, old) => addressErrors(service, old),
  },
};

/** Shown of a list of endpoints before "more". */
const MAX_SHOWN_ENDPOINTS = 3;

function endpointsText(endpoints: ApiObject): string {
  const all = listAt(endpoints, "subsets").flatMap((subset) => {
    const ports = listAt(subset, "ports");
    return listAt(subset, "addresses").flatMap((address) => {
      const ip = textAt(address, "ip");
      const shown = ip.includes(":") ? `[${ip}]` : ip;
      return ports.length === 0 ? [ip] : ports.map((port) => `${shown}:${textAt(port, "port")}`);
    });
  });
  return orNone(shortened(all));
}

function slicePorts(slice: ApiObject): string {
  const ports = listAt(slice, "ports").map((each) => textAt(each, "port") || "*");
  return ports.length === 0 ? "<unset>" : shortened(ports);
}

function shortened(all: readonly string[]): string {
  const more = all.length - MAX_SHOWN_ENDPOINTS;
  const shown = all.slice(0, MAX_SHOWN_ENDPOINTS).join(",");
  return more > 0 ? `${shown} + ${more} more...` : shown;
}

export const endpointSliceResource: ResourceDefinition = {
  group: "discovery.k8s.io",
  version: "v1",
  plural: "endpointslices",
  singular: "endpointslice",
  kind: "EndpointSlice",
  namespaced: true,
  model: "V1EndpointSlice",
  columns: [
    nameColumn,
    column("AddressType", field("", "addressType")),
    column("Ports", slicePorts),
    column("Endpoints", (slice) => {
      const addresses = listAt(slice, "endpoints").flatMap((each) => listAt(each, "addresses").map(String));
      return addresses.length === 0 ? "<unset>" : shortened(addresses);
    }),
    ageColumn,
  ],
  strategy: {
    hasGeneration: true,
    default(slice) {
      for (const endpoint of listAt(slice, "endpoints")) section(endpoint as object, "conditions");
      for (const port of listAt(slice, "ports")) {
        setDefault(port as Record<string, unknown>, "name", "");
        setDefault(port as Record<string, unknown>, "protocol", "TCP");
      }
    },
    validate: (slice) =>
      ADDRESS_TYPES.includes(textAt(slice, "addressType"))
        ? []
        : [notSupportedValue("addressType", textAt(slice, "addressType"), ADDRESS_TYPES)],
    validateUpdate: (slice, old) => immutableFields(slice, old, "addressType"),
  },
};

export const endpointsResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "endpoints",
  singular: "endpoints",
  kind: "Endpoints",
  namespaced: true,
  shortNames: ["ep"],
  model: "V1Endpoints",
  columns: [nameColumn, column("Endpoints", endpointsText), ageColumn],
  strategy: {},
};
