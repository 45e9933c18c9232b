/**
 * The annotations `wasm.picolet.io/…` by which a pod grants its components more than volumes and environment. Nothing
 * else is granted. Pure.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { BoardInterface, BucketGrant, DeviceGrant } from "@picolet/runtime-contract/board-services.ts";
import { parseBuckets } from "../board/keyvalue/grant.ts";
import { DEFAULT_LOG_LEVEL, type LogLevel, parseLogLevel } from "../board/logging/grant.ts";
import { type NetworkRules, parseNetworkRules } from "../network/network-rules.ts";
import { ANNOTATION_PREFIX } from "./annotation-prefix.ts";
import { INTERFACE_GRANTS, type InterfaceGrants, parseInterfaces } from "./board-grants.ts";
import { deviceMismatches, parseDevices } from "./device-grants.ts";
import { type HttpOptions, parseHttpOptions } from "./http-options.ts";
import { parseVolumeName } from "./syntax/volume-name.ts";

export interface PodGrants {
  /** True when its containers may share a process with those of other pods of its namespace. */
  readonly dense: boolean;
  /** True when its components may wait for more than time and files. */
  readonly eventLoop: boolean;
  /** Undefined: no network at all. */
  readonly network: NetworkRules | undefined;
  /** Options of components that are served; undefined: the pod sets none. */
  readonly http: HttpOptions | undefined;
  /** Interfaces of the board, beside WASI. */
  readonly interfaces: readonly BoardInterface[];
  readonly buckets: readonly BucketGrant[];
  /** The volume whose files `config` gives; undefined: none. */
  readonly configVolume: string | undefined;
  /** The volume whose models `nn` loads by name; undefined: none. */
  readonly modelVolume: string | undefined;
  /** Messages below it are dropped. */
  readonly logLevel: LogLevel;
  readonly devices: readonly DeviceGrant[];
}

/** @returns the problems of one annotation's value */
type Check = (value: string) => readonly string[];

/** A process for each container, or one for those of a namespace. */
const MODES: readonly string[] = ["isolated", "dense"];

/** Checks of all annotations with the prefix that have a meaning, by the rest of their name. */
const checksOf = (grants: InterfaceGrants): Readonly<Record<string, Check>> => ({
  network: (value) => parseNetworkRules(value).problems,
  http: (value) => parseHttpOptions(value).problems,
  interfaces: (value) => parseInterfaces(value, grants).problems,
  ...Object.assign({}, ...Object.values(grants).map(({ annotations }) => annotations)),
  devices: (value) => parseDevices(value, grants).problems,
  // These two are the agent's, which has read them before.
  prefer: (value) => (value === "component" || value === "container" ? [] : ["it has to be component or container"]),
  "under-pressure": (value) => (value === "component" ? [] : ["it has to be component"]),
  mode: (value) => (MODES.includes(value) ? [] : [`${JSON.stringify(value)} is none of ${MODES.join(", ")}`]),
});

/** @throws `invalid` with all that is wrong, and CreateContainerConfigError */
export function podGrants({ metadata }: Pod, grants: InterfaceGrants = INTERFACE_GRANTS): PodGrants {
  const checks = checksOf(grants);
  const known = Object.keys(checks).map((name) => ANNOTATION_PREFIX + name);
  const problems: string[] = [];
  for (const [name, value] of Object.entries(metadata.annotations ?? {})) {
    if (!name.startsWith(ANNOTATION_PREFIX)) continue;
    const check = checks[name.slice(ANNOTATION_PREFIX.length)];
    if (check === undefined) problems.push(`${name}: there is no such annotation; known are ${known.join(", ")}`);
    else problems.push(...check(value).map((each) => `${name}: ${each}`));
  }
  const board = boardGrants(metadata.annotations ?? {}, grants);
  // Problems of single annotations are reported first.
  if (problems.length === 0) problems.push(...deviceMismatches(board.interfaces, board.devices, grants));
  if (problems.length > 0) {
    throw new PicoletError("invalid", `cannot grant what the pod's annotations ask for: ${problems.join("; ")}`, {
      reason: "CreateContainerConfigError",
    });
  }
  const network = networkOf(metadata.annotations?.[`${ANNOTATION_PREFIX}network`]);
  const http = httpOf(metadata.annotations?.[`${ANNOTATION_PREFIX}http`]);
  const dense = metadata.annotations?.[`${ANNOTATION_PREFIX}mode`] === "dense";
  return { dense, eventLoop: dense || network !== undefined, network, http, ...board };
}

/**
 * @returns whether its components share a process. Problems of the annotations are reported when a container starts.
 */
export function isDense(pod: Pod): boolean {
  try {
    return podGrants(pod).dense;
  } catch {
    return false;
  }
}

/** @returns whether a rule of its network is for https */
export const allowsHttps = ({ network }: Pick<PodGrants, "network">): boolean =>
  network?.connect.some(({ protocol }) => protocol === "https") ?? false;

function boardGrants(annotations: Readonly<Record<string, string>>, grants: InterfaceGrants) {
  const value = (name: string): string | undefined => annotations[ANNOTATION_PREFIX + name];
  const volume = (name: string): string | undefined => {
    const text = value(name);
    return text === undefined ? undefined : parseVolumeName(text).value;
  };
  const level = value("log-level");
  return {
    interfaces: parseInterfaces(value("interfaces") ?? "", grants).value,
    buckets: parseBuckets(value("keyvalue") ?? "").value,
    configVolume: volume("config"),
    modelVolume: volume("nn"),
    devices: parseDevices(value("devices") ?? "", grants).value,
    logLevel: level === undefined ? DEFAULT_LOG_LEVEL : parseLogLevel(level).value,
  };
}

/** Undefined when nothing is granted by it. */
function networkOf(value: string | undefined): NetworkRules | undefined {
  const { rules } = parseNetworkRules(value ?? "");
  return rules.connect.length + rules.listen.length > 0 ? rules : undefined;
}

const httpOf = (value: string | undefined): HttpOptions | undefined =>
  value === undefined ? undefined : parseHttpOptions(value).options;
