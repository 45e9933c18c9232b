/**
 * All traces of pods on a machine, of one agent and its containerd: a line for each object of a kubelet, a runtime and
 * a network plugin. Two equal lists mean that nothing was left behind.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import Database from "better-sqlite3";
import type { Containerd } from "../containerd/containerd.ts";
import { entriesBelow, entriesIn } from "../unit/machine/folder-tree.ts";
import { runningProcesses } from "../unit/machine/processes.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { cgroupFolders, SPARE_CGROUP } from "../unit/machine/test-cgroups.ts";
import type { AgentNode } from "./agent-process.ts";

/** The folders of containerd with an entry for each sandbox, container or task. It empties the snapshots' later. */
const CONTAINERD_FOLDERS = [
  "root/io.containerd.grpc.v1.cri/containers",
  "root/io.containerd.grpc.v1.cri/sandboxes",
  "root/io.containerd.runtime.v2.task/k8s.io",
  "state",
  "runc/k8s.io",
];
/** libcni's records of each sandbox, of all networks of the machine. */
const NETWORK_RECORDS = "/var/lib/cni/results";
/** Tables whose rows stay on purpose: events are kept until they are old; numbers and cursors are the store's own. */
const LASTING_TABLES: ReadonlySet<string> = new Set(["events", "meta", "sources", "cursor"]);
/**
 * Files that stay on purpose: the store's own, the node's key, which images were pulled, components made ready to run.
 */
const LASTING_FILES = /^(picolet\.db.*|(identity|image_manager|wasm\/(images|components|transpiled))(\/.*)?)$/;

export interface Machine {
  readonly node: AgentNode;
  readonly containerd: Containerd;
}

/** Sorted, each `what: which`. */
export function leftovers({ node, containerd }: Machine): readonly string[] {
  const root = join(node.directory, "root");
  const found: Record<string, readonly string[]> = {
    mount: mountsBelow(node.directory, containerd.directory),
    cgroup: cgroupsBelow(node.cgroupRoot),
    "process in a cgroup": processesIn(node.cgroupRoot),
    process: processesNaming(node.directory, containerd.directory),
    "agent's file": filesBelow(root).filter((path) => !LASTING_FILES.test(path)),
    log: filesBelow(join(node.directory, "logs")),
    "link to a log": filesBelow(join(node.directory, "containers")),
    manifest: filesBelow(node.manifests),
    "containerd's file": CONTAINERD_FOLDERS.flatMap((folder) => namesBelow(containerd.directory, folder)),
    container: listed(containerd, "containers", "list", "--quiet"),
    task: listed(containerd, "tasks", "list", "--quiet"),
    snapshot: listed(containerd, "snapshots", "list").map((line) => line.split(/\s+/)[0] ?? ""),
    lease: listed(containerd, "leases", "list", "--quiet"),
    veth: interfacesOf(containerd.bridge),
    address: addressesOf(containerd),
    "network record": namesIn(NETWORK_RECORDS).filter((name) => name.startsWith(`${containerd.bridge}-`)),
    "packet filter": packetFilterRules(containerd),
    row: rowsOf(join(root, "picolet.db")),
  };
  return Object.entries(found)
    .flatMap(([what, all]) => all.map((which) => `${what}: ${which}`))
    .sort();
}

const namesIn = (folder: string): string[] => entriesIn(folder).map(({ name }) => name);

const namesBelow = (directory: string, folder: string): string[] => {
  const depth = folder === "state" ? 3 : 1;
  return namesToDepth(join(directory, folder), depth).map((name) => `${folder}/${name}`);
};

function namesToDepth(folder: string, depth: number): string[] {
  if (depth === 0) return [];
  return entriesIn(folder).flatMap((entry) => [
    entry.name,
    ...(entry.isDirectory()
      ? namesToDepth(join(folder, entry.name), depth - 1).map((name) => `${entry.name}/${name}`)
      : []),
  ]);
}

/** Folders too. */
const filesBelow = (folder: string): string[] => entriesBelow(folder).map(({ path }) => path);

const mountsBelow = (...directories: readonly string[]): string[] =>
  readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .map((line) => line.split(" "))
    .filter((words) => directories.some((directory) => words[4]?.startsWith(`${directory}/`)))
    .map(
      (words) =>
        `${words[4]} (${words
          .slice(words.indexOf("-") + 1)
          .join(" ")
          .slice(0, 100)})`,
    );

function cgroupsBelow(path: string): string[] {
  return cgroupFolders(path).filter((each) => basename(each) !== SPARE_CGROUP);
}

const readIfThere = (path: string): string => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
};

const processesIn = (cgroup: string): string[] =>
  runningProcesses()
    .filter(({ pid }) => readIfThere(`/proc/${pid}/cgroup`).includes(cgroup))
    .map(({ pid, words }) => `${pid} ${words.join(" ")}`);

/** Without their numbers: agents come and go. */
const processesNaming = (...directories: readonly string[]): string[] =>
  runningProcesses()
    .map(({ words }) => words.join(" "))
    .filter((command) => directories.some((directory) => command.includes(directory)));

const listed = (containerd: Containerd, ...command: readonly string[]): string[] =>
  containerd
    .ctr(...command)
    .split("\n")
    .filter((line) => line.trim() !== "");

const interfacesOf = (bridge: string): string[] => namesIn(`/sys/class/net/${bridge}/brif`);

const addressesOf = ({ directory, bridge }: Containerd): string[] =>
  namesIn(join(directory, "cni/ipam", bridge)).filter((name) => /^\d/.test(name));

/**
 * By the network's name in comments, and by the addresses of its pods, which the rules of each pod's own chain hold.
 */
function packetFilterRules({ bridge, subnet }: Containerd): string[] {
  const prefix = subnet.replace(/0\/24$/, "");
  const rules = execFileSync("iptables-save").toString().split("\n");
  return rules.filter((rule) => rule.includes(bridge) || rule.includes(` ${prefix}`));
}

/** Reads a copy: the agent has its store for itself, and writes nothing while it is at rest. */
function rowsOf(path: string): string[] {
  using folder = new TempFolder();
  for (const ending of ["", "-wal"]) {
    if (existsSync(path + ending)) copyFileSync(path + ending, folder.at(`copy.db${ending}`));
  }
  const database = new Database(folder.at("copy.db"));
  try {
    const tables = database
      .prepare<[], { name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'")
      .all()
      .map(({ name }) => name)
      .filter((name) => !name.startsWith("sqlite_") && !LASTING_TABLES.has(name));
    return tables.flatMap((table) => {
      const rows = database.prepare<[], Record<string, unknown>>(`SELECT * FROM ${table}`).all();
      return rows.map((row) => `${table} ${row.key ?? `${row.namespace ?? row.source}/${row.name ?? row.uid}`}`);
    });
  } finally {
    database.close();
  }
}
