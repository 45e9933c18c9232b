/** The commands besides `serve`: each one request or two to the cluster, or a file. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Clock } from "../../protocol/ports.ts";
import { backupStoppedStore, restoreStore } from "../embedded/store/backup.ts";
import { BootstrapTokens, type TokenReport } from "../identity/bootstrap-tokens.ts";
import { caHash } from "../identity/certificate-authority.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes, resetNode } from "../identity/node-keys.ts";
import type { StoredPems } from "../identity/pem-store.ts";
import { loadKubeconfigAccess } from "../kubernetes/kubeconfig-access.ts";
import type { ClusterArguments, HubArguments } from "./arguments.ts";
import { downloadBackup } from "./download-backup.ts";
import { pemStore } from "./embedded-cluster.ts";
import { HUB_NAMESPACE, openClient } from "./hub-client.ts";
import { secretPemStore } from "./kubernetes-cluster.ts";

type Command = Exclude<HubArguments, { readonly command: "serve" | "help" | "version" }>;

const NEVER = new AbortController().signal;
const RANDOM = { next: Math.random };

/** @returns what goes to standard output */
export async function runCommand(args: Command, clock: Clock): Promise<string> {
  switch (args.command) {
    case "backup":
      return await backup(args);
    case "restore": {
      const { setAside } = restoreStore(args.file, storePath(args.dataDir), clock);
      const before = setAside === undefined ? "" : `; what was there before is ${setAside}`;
      return `restored ${storePath(args.dataDir)}${before}\n`;
    }
    case "ca hash":
      return `${await caHashOf(args.cluster, clock)}\n`;
    default:
      return await withCluster(args, clock);
  }
}

const storePath = (dataDir: string): string => join(dataDir, "hub.db");

/** Of a hub that runs it is asked for; the file of one that does not is copied. */
async function backup({
  dataDir,
  file,
}: Extract<Command, { readonly command: "backup" | "restore" }>): Promise<string> {
  if (existsSync(file)) throw new PicoletError("already_exists", `${file} is there already`);
  const made = `backed up ${storePath(dataDir)} to ${file}\n`;
  try {
    await downloadBackup(dataDir, file);
    return made;
  } catch (error) {
    if (!isPicoletError(error, "unavailable")) throw error;
  }
  backupStoppedStore(storePath(dataDir), file);
  return made;
}

async function withCluster(
  args: Extract<Command, { readonly command: `token ${string}` | "node reset" }>,
  clock: Clock,
): Promise<string> {
  const access = await loadKubeconfigAccess(kubeconfigOf(args.cluster));
  await using client = openClient({ clock, random: RANDOM }, access);
  const tokens = new BootstrapTokens({ client, clock });
  switch (args.command) {
    case "token create": {
      const { ttl, description, replaceNodes } = args;
      return `${await tokens.create({ ttlMs: ttl, description, replaceNodes }, NEVER)}\n`;
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
      const key = await resetNode({ keys: new NodeKeysInKubernetes({ client }, init), revoked }, args.node, NEVER);
      if (key !== undefined)
        return `the board that was ${args.node} is refused from now on; another one may join by that name\n`;
      throw new PicoletError("not_found", `no board has joined as ${args.node}`);
    }
  }
}

const SILENT = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => SILENT,
};

function kubeconfigOf(cluster: ClusterArguments): { readonly kubeconfig?: string } {
  if (cluster.kind === "embedded") return { kubeconfig: join(cluster.dataDir, "admin.kubeconfig") };
  return cluster.kubeconfig === undefined ? {} : { kubeconfig: cluster.kubeconfig };
}

async function caHashOf(cluster: ClusterArguments, clock: Clock): Promise<string> {
  const stored = await loadPems(cluster, clock);
  const certificate = stored?.files["ca.crt"];
  if (certificate !== undefined) return caHash(certificate);
  throw new PicoletError("not_found", "there is no CA of the hub yet: it is made when the hub first starts");
}

async function loadPems(cluster: ClusterArguments, clock: Clock): Promise<StoredPems | undefined> {
  if (cluster.kind === "embedded") return await pemStore(cluster.dataDir).load();
  await using client = openClient({ clock, random: RANDOM }, await loadKubeconfigAccess(kubeconfigOf(cluster)));
  return await secretPemStore(client).load(NEVER);
}

function tokenTable(reports: readonly TokenReport[], clock: Clock): string {
  const now = clock.wall().getTime();
  const rows = reports.map(({ id, expiresAtMs, description, groups }) => [
    id,
    expiresAtMs === undefined ? "never" : expiresAtMs < now ? "expired" : new Date(expiresAtMs).toISOString(),
    groups.join(","),
    description,
  ]);
  const table = [["ID", "EXPIRES", "GROUPS", "DESCRIPTION"], ...rows];
  const widths = [0, 1, 2].map((column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
  return table
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
}
