import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { EnvVar } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";

/** As a pod sees a Service; those without an address of their own are not seen. */
interface VisibleService {
  readonly name: string;
  readonly clusterIP: string;
  readonly ports: readonly ServicePort[];
}

interface ServicePort {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
}

/** Every pod has the API server's variables, also with `enableServiceLinks: false`. */
const API_SERVER = { namespace: "default", name: "kubernetes" } as const;

/**
 * The variables by which a container finds Services: `WEB_SERVICE_HOST`, `WEB_SERVICE_PORT`, `WEB_SERVICE_PORT_HTTP`
 * and those of Docker's links, `WEB_PORT_80_TCP` and so on. In the order of the Services' names.
 * @param all also of the pod's own namespace, as `enableServiceLinks` asks
 */
export function serviceEnv(
  objects: Pick<ClusterObjects, "object" | "keys">,
  namespace: string,
  all: boolean,
): readonly EnvVar[] {
  const keys = new Set(all ? objects.keys("Service", namespace) : []);
  const apiServer = objectKey("Service", API_SERVER.namespace, API_SERVER.name);
  // One of the same name in the pod's namespace stands behind it only where the other is missing.
  const own = objectKey("Service", namespace, API_SERVER.name);
  const isThere = visibleService(objects.object(apiServer), API_SERVER.name) !== undefined;
  if (isThere) {
    keys.delete(own);
    keys.add(apiServer);
  }
  return [...keys]
    .map((key) => visibleService(objects.object(key), key.slice(key.lastIndexOf("/") + 1)))
    .filter((service) => service !== undefined)
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap(variablesOf);
}

function variablesOf({ name, clusterIP, ports }: VisibleService): EnvVar[] {
  const prefix = variableName(name);
  const [first] = ports;
  const variables: EnvVar[] = [{ name: `${prefix}_SERVICE_HOST`, value: clusterIP }];
  if (first === undefined) return variables;
  variables.push({ name: `${prefix}_SERVICE_PORT`, value: String(first.port) });
  for (const port of ports) {
    if (port.name === "") continue;
    variables.push({ name: `${prefix}_SERVICE_PORT_${variableName(port.name)}`, value: String(port.port) });
  }
  for (const port of ports) variables.push(...linkVariables(prefix, clusterIP, port, port === first));
  return variables;
}

/** The variables of Docker's links. */
function linkVariables(prefix: string, address: string, { port, protocol }: ServicePort, isFirst: boolean): EnvVar[] {
  const scheme = protocol.toLowerCase();
  const url = `${scheme}://${address.includes(":") ? `[${address}]` : address}:${port}`;
  const link = `${prefix}_PORT_${port}_${protocol.toUpperCase()}`;
  return [
    ...(isFirst ? [{ name: `${prefix}_PORT`, value: url }] : []),
    { name: link, value: url },
    { name: `${link}_PROTO`, value: scheme },
    { name: `${link}_PORT`, value: String(port) },
    { name: `${link}_ADDR`, value: address },
  ];
}

const variableName = (name: string): string => name.replaceAll("-", "_").toUpperCase();

/** Undefined for headless ones, for those that are an alias of a name, and for what is no Service. */
function visibleService(
  object: Readonly<Record<string, unknown>> | undefined,
  name: string,
): VisibleService | undefined {
  const { clusterIP, ports } = fieldsOf(object?.spec);
  if (typeof clusterIP !== "string" || clusterIP === "" || clusterIP === "None") return undefined;
  return { name, clusterIP, ports: Array.isArray(ports) ? ports.flatMap(portOf) : [] };
}

function portOf(value: unknown): ServicePort[] {
  const { name, port, protocol } = fieldsOf(value);
  if (typeof port !== "number") return [];
  const spoken = typeof protocol === "string" && protocol !== "" ? protocol : "TCP";
  return [{ name: typeof name === "string" ? name : "", port, protocol: spoken }];
}

const fieldsOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
