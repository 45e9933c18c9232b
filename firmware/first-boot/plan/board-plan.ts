/** The files that a valid `picolet.yaml` makes. Pure. */
import type { Configuration } from "@picolet/agent/config/configuration.ts";
import { hostFile } from "./agent-fields.ts";
import { type BoardFile, keyLines } from "./board-file-fields.ts";
import { networkFiles, type PlannedFile } from "./network-files.ts";
import {
  AGENT_CONFIGURATION,
  AUTHORIZED_KEYS,
  CERTIFICATES,
  CONSOLE_ACCESS,
  CONSOLE_OFF,
  HOSTNAME,
  JOIN_TOKEN,
  KEPT_RUN,
  MANIFESTS,
  PRELOAD,
  PROXY,
  REGISTRY_CAS,
  REGISTRY_CREDENTIALS,
  SSH_ACCESS,
  TIMESYNCD,
  WATCHDOG,
  ZONE,
} from "./places.ts";

export type { PlannedFile } from "./network-files.ts";

const READABLE = 0o644;
const SECRET = 0o600;
/** A label of DNS, which a host name must be. */
const MAX_HOSTNAME_LENGTH = 63;

export interface ReadBoard {
  readonly file: BoardFile;
  readonly nodeName: string;
  /** Undefined: the file gives the name itself. */
  readonly nameRule: string | undefined;
  /** The text of the agent's configuration. */
  readonly configuration: string;
  readonly owned: readonly (readonly string[])[];
  /** The configuration as the agent reads it. */
  readonly agent: Configuration;
}

/** By absolute path. */
export type BoardPlan = ReadonlyMap<string, PlannedFile>;

export function planBoard(board: ReadBoard): BoardPlan {
  const plan = new Map<string, PlannedFile>();
  for (const [path, file] of runFiles(board)) plan.set(`${KEPT_RUN}/${path}`, file);
  const { file } = board;
  const token = file.hub?.token ?? "";
  if (token !== "") plan.set(JOIN_TOKEN, { content: `${token}\n`, mode: SECRET });
  for (const manifest of file.staticPods ?? []) {
    const { name, namespace = "default" } = manifest.metadata as { readonly name: string; readonly namespace?: string };
    plan.set(`${MANIFESTS}/first-boot-${namespace}-${name}.yaml`, {
      // JSON is YAML. It may hold what was written as a secret.
      content: `${JSON.stringify(manifest, undefined, 2)}\n`,
      mode: SECRET,
    });
  }
  const credentials = credentialsOf(file.registries ?? []);
  if (credentials !== undefined) plan.set(REGISTRY_CREDENTIALS, { content: credentials, mode: SECRET });
  // The last, so that all that it names is there.
  plan.set(AGENT_CONFIGURATION, { content: board.configuration, mode: SECRET });
  return plan;
}

/** By path below `/run`. */
function runFiles({ file, nodeName }: ReadBoard): ReadonlyMap<string, PlannedFile> {
  const files = new Map(networkFiles(file.network ?? {}));
  const add = (path: string, lines: readonly string[], mode = READABLE): void => {
    files.set(path, { content: `${lines.join("\n")}\n`, mode });
  };
  const hostname = file.network?.hostname ?? nodeName.split(".")[0]?.slice(0, MAX_HOSTNAME_LENGTH) ?? "";
  if (hostname !== "") add(HOSTNAME, [hostname]);
  const { time, ssh, proxy, watchdog, registries = [] } = file;
  if ((time?.servers ?? []).length > 0) add(TIMESYNCD, ["[Time]", `NTP=${time?.servers?.join(" ")}`]);
  if ((time?.zone ?? "") !== "") add(ZONE, [time?.zone ?? ""]);
  const keys = keyLines(ssh?.authorizedKeys ?? []);
  if (keys.length > 0) add(AUTHORIZED_KEYS, keys);
  const variables = proxyVariables(proxy);
  // It may hold a user and a password.
  if (variables.length > 0) add(PROXY, variables, SECRET);
  if (file.preload !== undefined) add(PRELOAD, [JSON.stringify(file.preload)]);
  if (file.console?.login === false) add(CONSOLE_OFF, ["console.login is false in picolet.yaml"]);
  if (file.console?.access !== undefined) add(CONSOLE_ACCESS, [file.console.access]);
  if (ssh?.access !== undefined) add(SSH_ACCESS, [ssh.access]);
  if (watchdog?.timeout !== undefined)
    add(WATCHDOG, [
      "[Manager]",
      `RuntimeWatchdogSec=${watchdog.timeout === 0 ? "off" : `${watchdog.timeout / 1000}s`}`,
    ]);
  for (const registry of registries) {
    const hosts = hostsOf(registry);
    if (hosts.length > 0) add(`${CERTIFICATES}/${registry.host}/hosts.toml`, hosts);
    if (registry.ca !== undefined) add(caFile(registry), [registry.ca.trim()]);
  }
  return files;
}

function proxyVariables(proxy: BoardFile["proxy"]): readonly string[] {
  if (proxy === undefined) return [];
  const { httpProxy = "", httpsProxy = "", noProxy = [] } = proxy;
  const values = { HTTP_PROXY: httpProxy, HTTPS_PROXY: httpsProxy, NO_PROXY: noProxy.join(",") };
  // EnvironmentFile= of systemd takes double quotes, and a backslash before what is special in them.
  return Object.entries(values)
    .filter(([, value]) => value !== "")
    .map(([name, value]) => `${name}="${value.replaceAll(/["\\$`]/g, "\\$&")}"`);
}

type Registry = NonNullable<BoardFile["registries"]>[number];

const caFile = ({ host }: Registry): string => `${REGISTRY_CAS}/${hostFile(host)}.pem`;

/** For containerd: `hosts.toml`, whose texts are those of JSON. */
function hostsOf(registry: Registry): readonly string[] {
  const { host, mirrors = [], insecure, ca } = registry;
  if (mirrors.length === 0 && insecure !== true && ca === undefined) return [];
  const server = `${insecure === true ? "http" : "https"}://${host === "docker.io" ? "registry-1.docker.io" : host}`;
  const blocks = [...mirrors, server].flatMap((url) => [
    ...["", `[host.${JSON.stringify(url)}]`, '  capabilities = ["pull", "resolve"]'],
    ...(ca !== undefined && url === server ? [`  ca = ${JSON.stringify(`/run/${caFile(registry)}`)}`] : []),
  ]);
  return [`server = ${JSON.stringify(server)}`, ...blocks];
}

/** As Docker writes them. */
function credentialsOf(registries: readonly Registry[]): string | undefined {
  const auths = registries
    .filter(({ username }) => username !== undefined)
    .map(({ host, username, password }) => {
      const auth = Buffer.from(`${username}:${password}`).toString("base64");
      return [host === "docker.io" ? "https://index.docker.io/v1/" : host, { auth }] as const;
    });
  return auths.length === 0 ? undefined : `${JSON.stringify({ auths: Object.fromEntries(auths) }, undefined, 2)}\n`;
}
