/** The commands besides `serve`: each one request or two to the cluster, or a file. */
import { existsSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import { checkServerIdentity, connect, type PeerCertificate } from "node:tls";
import { ROTATE_KEYS_PATH } from "@picolet/hub-embedded/http/path-endpoint.ts";
import { backupStoppedStore, restoreStore } from "@picolet/hub-embedded/store/backup.ts";
import { lockDataDir } from "@picolet/hub-embedded/store/data-dir-lock.ts";
import { FleetGuard, storePathIn } from "@picolet/hub-embedded/store/fleet-guard.ts";
import { FleetKeys } from "@picolet/hub-embedded/store/fleet-keys.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { nodeNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { type Clock, NEVER } from "@picolet/protocol/ports.ts";
import { BootstrapTokens, type TokenReport } from "../identity/bootstrap-tokens.ts";
import { caHash } from "../identity/certificate-authority.ts";
import { NodeCertifier } from "../identity/node-certifier.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes } from "../identity/node-keys.ts";
import type { StoredPems } from "../identity/pem-store.ts";
import type { ClusterAccess } from "../kubernetes/cluster-access.ts";
import { loadKubeconfigAccess } from "../kubernetes/kubeconfig-access.ts";
import { kubeconfigText } from "./admin-files.ts";
import type { ClusterArguments, HubArguments, ServerName } from "./arguments.ts";
import { administratorAccess, callRunningHub, downloadBackup } from "./download-backup.ts";
import { pemStore } from "./embedded-cluster.ts";
import { HUB_NAMESPACE, openClient } from "./hub-client.ts";
import { secretPemStore } from "./kubernetes-cluster.ts";
import { runRollout } from "./rollout-commands.ts";
import { readCredential } from "./root-key-credential.ts";
import { tableText } from "./table-text.ts";

type Command = Exclude<HubArguments, { readonly command: "serve" | "help" | "version" }>;

const RANDOM = { next: Math.random };

/**
 * @param print called meanwhile by commands that follow something
 * @returns what goes to standard output
 */
export async function runCommand(args: Command, clock: Clock, print: (text: string) => void): Promise<string> {
  switch (args.command) {
    case "rollout":
      await rollout(args, clock, print);
      return "";
    case "backup":
      return await backup(args);
    case "restore":
      return restore(args, clock);
    case "keys rotate":
      return await rotateKeys(args.dataDir, clock);
    case "kubeconfig":
      return await outsideKubeconfig(args.dataDir, args.server);
    case "ca hash":
      return `${await caHashOf(args.cluster, clock)}\n`;
    default:
      return await withCluster(args, clock);
  }
}

/** Asks a running hub for its backup; copies the file of a hub that does not run. */
async function backup({ dataDir, file }: Extract<Command, { readonly command: "backup" }>): Promise<string> {
  if (existsSync(file)) throw new PicoletError("already_exists", `${file} exists already`);
  const made =
    `backed up ${storePathIn(dataDir)} to ${file}\n` +
    "its Secrets are sealed: keep a copy of hub-keys.json and hub-ca.json apart from it\n";
  try {
    await downloadBackup(dataDir, file);
    return made;
  } catch (error) {
    if (!isPicoletError(error, "unavailable")) throw error;
  }
  backupStoppedStore(storePathIn(dataDir), file);
  return made;
}

function restore(
  { dataDir, file, acceptRestoredStore: accept }: Extract<Command, { readonly command: "restore" }>,
  clock: Clock,
): string {
  using _lock = lockDataDir(dataDir);
  const guard = new FleetGuard({ clock, log: SILENT }, { dataDir, accept, credential: readCredential(process.env) });
  const path = storePathIn(dataDir);
  const { setAside, lastChangeAt } = restoreStore(file, path, clock, guard);
  return [
    `restored ${path} from ${file}${lastChangeAt === undefined ? "" : `, last changed at ${lastChangeAt.toISOString()}`}`,
    ...(setAside === undefined ? [] : [`what was there before is ${setAside}`]),
    "when the hub starts, every client lists again; boards end pods that were bound to them since the backup",
    "what else was written since is lost; keys that were revoked stay revoked",
    "",
  ].join("\n");
}

/** A hub that runs does it at once; otherwise the next one that starts. */
async function rotateKeys(dataDir: string, clock: Clock): Promise<string> {
  const path = join(dataDir, "hub-keys.json");
  try {
    await callRunningHub(dataDir, "POST", ROTATE_KEYS_PATH, "rotate its keys");
    return `the hub seals Secrets with new keys; keep a copy of ${path}\n`;
  } catch (error) {
    if (!isPicoletError(error, "unavailable")) throw error;
  }
  using _lock = lockDataDir(dataDir);
  const keys = FleetKeys.load({ path, credential: readCredential(process.env) });
  if (keys === undefined) throw new PicoletError("not_found", `cannot find ${path}: no hub has ever run on ${dataDir}`);
  keys.rotate(clock);
  return `the next hub seals Secrets with new keys; keep a copy of ${path}\n`;
}

async function rollout(
  { cluster, rollout: asked }: Extract<Command, { readonly command: "rollout" }>,
  clock: Clock,
  print: (text: string) => void,
): Promise<void> {
  await using client = openClient({ clock, random: RANDOM }, await accessTo(cluster));
  await runRollout({ client, clock, print }, asked, NEVER);
}

async function withCluster(
  args: Extract<Command, { readonly command: `token ${string}` | "node reset" }>,
  clock: Clock,
): Promise<string> {
  const access = await accessTo(args.cluster);
  await using client = openClient({ clock, random: RANDOM }, access);
  const tokens = new BootstrapTokens({ client, clock });
  switch (args.command) {
    case "token create": {
      const { ttl, description, replaceNodes, uses } = args;
      return `${await tokens.create({ ttlMs: ttl, description, replaceNodes, uses }, NEVER)}\n`;
    }
    case "token list":
      return tokenTable(await tokens.list(NEVER), clock);
    case "token delete":
      await tokens.delete(args.id, NEVER);
      return "";
    case "node reset": {
      const parts = { client, clock, random: RANDOM, log: SILENT };
      const init = { namespace: HUB_NAMESPACE };
      const revoked = new RevokedKeysInKubernetes(parts, init);
      const keys = new NodeKeysInKubernetes({ client }, init);
      const certifier = new NodeCertifier({ keys, revoked, clock, log: SILENT });
      const key = await certifier.reset(nodeNamed(args.node), NEVER);
      const what = key === undefined ? `no board has joined as ${args.node}; any certificate` : "every certificate";
      return `${what} of that name is refused from now on, and another board may join by it\n`;
    }
  }
}

/** @throws `invalid` */
function nodeNamed(name: string): string {
  const [problem] = nodeNameProblems(name);
  if (problem === undefined) return name;
  throw new PicoletError("invalid", `${JSON.stringify(name)} is no node's name: ${problem}`);
}

const SILENT = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => SILENT,
};

const accessTo = (cluster: ClusterArguments): Promise<ClusterAccess> =>
  cluster.kind === "embedded"
    ? administratorAccess(cluster.dataDir)
    : loadKubeconfigAccess(cluster.kubeconfig === undefined ? {} : { kubeconfig: cluster.kubeconfig });

async function caHashOf(cluster: ClusterArguments, clock: Clock): Promise<string> {
  const stored = await loadPems(cluster, clock);
  const certificate = stored?.files["ca.crt"];
  if (certificate !== undefined) return caHash(certificate);
  const where = cluster.kind === "embedded" ? cluster.dataDir : "this cluster";
  throw new PicoletError("not_found", `no hub has ever run on ${where}: it makes its CA when it first starts`);
}

async function loadPems(cluster: ClusterArguments, clock: Clock): Promise<StoredPems | undefined> {
  if (cluster.kind === "embedded") return await pemStore(cluster.dataDir).load();
  await using client = openClient({ clock, random: RANDOM }, await accessTo(cluster));
  return await secretPemStore(client).load(NEVER);
}

function tokenTable(reports: readonly TokenReport[], clock: Clock): string {
  const now = clock.wall().getTime();
  const rows = reports.map(({ id, expiresAtMs, description, groups, uses }) => [
    id,
    expiresAtMs === undefined ? "never" : expiresAtMs < now ? "expired" : new Date(expiresAtMs).toISOString(),
    uses === undefined ? "any" : `${uses.used}/${uses.most}`,
    groups.join(","),
    description,
  ]);
  return tableText([["ID", "EXPIRES", "BOARDS", "GROUPS", "DESCRIPTION"], ...rows]);
}

/** A hub of this machine answers in milliseconds; one that swaps takes seconds. */
const ANSWER_TIMEOUT_MS = 20_000;
const BEARER = "Bearer ";

/**
 * @param server as kubectl reaches it; the port is the hub's own where it names none
 * @throws `unavailable` when no hub runs on `dataDir`, `invalid` when its certificate does not name `server`
 */
async function outsideKubeconfig(dataDir: string, server: ServerName | undefined): Promise<string> {
  if (server === undefined) {
    const how = "name the hub as kubectl reaches it: --server NAME, or serverName in the configuration";
    throw new PicoletError("invalid", how);
  }
  const access = await administratorAccess(dataDir);
  const { tls, headers } = await access.credentials();
  const ca = String(tls.ca ?? "");
  await requireName(access, ca, server.host.replace(/^\[|\]$/g, ""));
  const port = server.port ?? new URL(access.server).port;
  const token = String(headers.authorization ?? "").slice(BEARER.length);
  return kubeconfigText({ server: `https://${server.host}:${port}`, ca, token });
}

/** Compares the certificate of the hub that runs with the name that kubectl will verify. */
async function requireName({ server }: ClusterAccess, ca: string, name: string): Promise<void> {
  const { hostname, port } = new URL(server);
  await new Promise<void>((resolve, reject) => {
    const check = (_: string, certificate: PeerCertificate): Error | undefined => {
      if (checkServerIdentity(name, certificate) === undefined) return undefined;
      const names = (certificate.subjectaltname ?? "").replaceAll(/(?:DNS|IP Address):/g, "");
      const message = `the hub's certificate does not name ${name}: start the hub with --server-name ${name}; it names ${names}`;
      return new PicoletError("invalid", message);
    };
    const socket = connect(
      {
        ...{ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port), ca, checkServerIdentity: check },
        ...(isIP(name) === 0 ? { servername: name } : {}),
      },
      () => {
        socket.destroy();
        resolve();
      },
    );
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy(new Error("no answer in time")));
    socket.once("error", (cause) => {
      if (cause instanceof PicoletError) reject(cause);
      else reject(new PicoletError("unavailable", "cannot ask the hub for its certificate", { cause }));
    });
  });
}
