/**
 * Addresses and node ports of services, given out when a service is made or changed, as Kubernetes' allocators do.
 * Nothing proxies them here: they are what the environment of containers and those who bring a proxy go by.
 */
import type { FieldError } from "../api/field-errors.ts";
import { invalidValue } from "../api/field-errors.ts";
import { fieldAt, listAt, section, textAt } from "../api/object-fields.ts";
import type { ApiObject, StrategyContext } from "../api/resource-definition.ts";
import { invalidObject } from "../api/status-error.ts";

/** Address of `default/kubernetes`; the first of the range, as everywhere. */
export const API_SERVICE_ADDRESS = "10.96.0.1";
const RANGE = "10.96.0.0/16";
const RANGE_START = 0x0a_60_00_00;
const RANGE_SIZE = 0x1_00_00;
/** Kubernetes' `--service-node-port-range`. */
const FIRST_NODE_PORT = 30_000;
const NODE_PORTS = 2768;

type Fields = Record<string, unknown>;

const SERVICE = { group: "", kind: "Service" };

export function assignAddress(service: ApiObject, context: StrategyContext, old?: ApiObject): void {
  const spec = section(service, "spec");
  const before = section(old ?? { spec: {} }, "spec");
  const type = textAt(spec, "type");
  if (type === "ExternalName") {
    for (const field of ["clusterIP", "clusterIPs", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy"])
      delete spec[field];
    return;
  }
  // A client that sends a service back without its assigned fields means to keep them.
  if (textAt(spec, "clusterIP") === "" && textAt(before, "type") !== "ExternalName") spec.clusterIP = before.clusterIP;
  const others = context.lookup.list("services", "").filter((each) => !isSame(each, service));
  if (textAt(spec, "clusterIP") === "")
    spec.clusterIP = String(listAt(spec, "clusterIPs")[0] ?? "") || freeAddress(others, context);
  else if (spec.clusterIP !== before.clusterIP) claimAddress(service, spec, others);
  spec.clusterIPs = [spec.clusterIP];
  if (type === "NodePort" || type === "LoadBalancer") assignNodePorts(spec, before, others, context);
  else for (const port of listAt(spec, "ports")) delete (port as Fields).nodePort;
}

const isSame = ({ metadata: left }: ApiObject, { metadata: right }: ApiObject): boolean =>
  left.name === right.name && left.namespace === right.namespace;

const addressText = (offset: number): string => {
  const value = RANGE_START + offset;
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff).join(".");
};

function freeAddress(others: readonly ApiObject[], { random }: StrategyContext): string {
  const taken = new Set([API_SERVICE_ADDRESS, ...others.map((each) => textAt(each, "spec", "clusterIP"))]);
  const start = Math.floor(random.next() * RANGE_SIZE);
  for (let step = 0; step < RANGE_SIZE; step += 1) {
    const offset = (start + step) % RANGE_SIZE;
    const address = addressText(offset);
    // The first is the network's, the last its broadcast.
    if (offset !== 0 && offset !== RANGE_SIZE - 1 && !taken.has(address)) return address;
  }
  throw refusal("", "range is full");
}

/** One that was asked for by name. */
function claimAddress(service: ApiObject, spec: Fields, others: readonly ApiObject[]): void {
  const address = String(spec.clusterIP);
  if (address === "None") return;
  const isInRange = /^10\.96\.(\d{1,3})\.(\d{1,3})$/.test(address);
  const { name, namespace } = service.metadata;
  if (!isInRange) {
    throw refusal(
      name,
      `failed to allocate IP ${address}: the provided IP (${address}) is not in the valid range. The range of valid IPs is ${RANGE}`,
      address,
    );
  }
  const isApi = address === API_SERVICE_ADDRESS && !(name === "kubernetes" && namespace === "default");
  if (isApi || others.some((each) => textAt(each, "spec", "clusterIP") === address)) {
    throw refusal(name, `failed to allocate IP ${address}: provided IP is already allocated`, address);
  }
}

const refusal = (name: string, detail: string, address?: string): Error =>
  invalidObject(SERVICE, name, [invalidValue("spec.clusterIPs", address === undefined ? [] : [address], detail)]);

function assignNodePorts(
  spec: Fields,
  before: Fields,
  others: readonly ApiObject[],
  { random }: StrategyContext,
): void {
  const taken = new Set(
    others.flatMap((each) => listAt(each, "spec", "ports").map((port) => textAt(port, "nodePort"))),
  );
  const identityOf = (port: unknown): string => JSON.stringify([fieldAt(port, "port"), fieldAt(port, "protocol")]);
  const ports = listAt(before, "ports").map((each): [string, unknown] => [identityOf(each), each]);
  // The first of several counts.
  const known = new Map(ports.toReversed());
  let isFull = false;
  for (const port of listAt(spec, "ports") as readonly Fields[]) {
    const same = known.get(identityOf(port));
    if (["", "0"].includes(textAt(port, "nodePort"))) port.nodePort = fieldAt(same, "nodePort");
    const start = Math.floor(random.next() * NODE_PORTS);
    for (let step = 0; step < NODE_PORTS && port.nodePort === undefined && !isFull; step += 1) {
      const candidate = FIRST_NODE_PORT + ((start + step) % NODE_PORTS);
      if (!taken.has(String(candidate))) port.nodePort = candidate;
    }
    isFull = port.nodePort === undefined;
    taken.add(textAt(port, "nodePort"));
  }
}

/** Assigned fields of a service stay as long as it has an address at all. */
export function addressErrors(service: ApiObject, old: ApiObject): readonly FieldError[] {
  const types = [old, service].map((each) => textAt(each, "spec", "type"));
  if (types.includes("ExternalName")) return [];
  const [before, after] = [old, service].map((each) => listAt(each, "spec", "clusterIPs"));
  if (before?.[0] === after?.[0] || before?.[0] === undefined) return [];
  return [invalidValue("spec.clusterIPs[0]", after, "may not change once set")];
}
