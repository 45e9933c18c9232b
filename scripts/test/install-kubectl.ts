/**
 * kubectl of two ages for the tests, from Debian's own packages, beside the machine's own and without touching it: 1.20
 * of bookworm and 1.32 of trixie. The package sources are the machine's, with the suite replaced.
 */
import { spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const CACHE = "node_modules/.cache/picolet";

/** By the version that the tests speak of: the Debian suite, and its name for the package. */
const PACKAGES = {
  "1.20": { suite: "bookworm", name: "kubernetes-client" },
  "1.32": { suite: "trixie", name: "kubectl" },
} as const;
export type KubectlVersion = keyof typeof PACKAGES;
export const KUBECTL_VERSIONS = Object.keys(PACKAGES) as readonly KubectlVersion[];

/** Where `installKubectl` puts it. */
export const kubectlPath = (version: KubectlVersion): string =>
  join(process.cwd(), CACHE, `kubectl-${version}`, "usr/bin/kubectl");

/** Does nothing where it is already, or where this is not Debian: the tests that need it skip then and say so. */
export function installKubectl(): void {
  for (const version of KUBECTL_VERSIONS) if (!existsSync(kubectlPath(version))) install(version);
}

function install(version: KubectlVersion): void {
  const { suite, name } = PACKAGES[version];
  const sources = debianSources(suite);
  if (sources === "") {
    console.error(`no Debian package source on this machine: the tests that need kubectl ${version} are skipped`);
    return;
  }
  console.error(`fetching kubectl ${version} for the tests`);
  const work = mkdtempSync(join(tmpdir(), "picolet-kubectl-"));
  try {
    for (const folder of ["parts", "lists/partial", "cache/archives/partial", "tree"]) {
      mkdirSync(join(work, folder), { recursive: true });
    }
    writeFileSync(join(work, "parts/debian.sources"), sources);
    const options = [
      ["Dir::Etc::SourceList", "/dev/null"],
      ["Dir::Etc::SourceParts", join(work, "parts")],
      ["Dir::State::Lists", join(work, "lists")],
      ["Dir::Cache", join(work, "cache")],
      ["APT::Sandbox::User", "root"],
    ].flatMap(([name, value]) => ["-o", `${name}=${value}`]);
    run("apt-get", [...options, "-qq", "update"], work);
    run("apt-get", [...options, "-qq", "download", `${name}/${suite}`], work);
    const archive = readdirSync(work).find((each) => each.endsWith(".deb"));
    if (archive === undefined) throw new Error(`apt-get download ${name} brought nothing`);
    run("dpkg-deb", ["-x", archive, "tree"], work);
    const target = join(CACHE, `kubectl-${version}`);
    mkdirSync(target, { recursive: true });
    rmSync(target, { recursive: true });
    moveTree(join(work, "tree"), target);
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** The temporary folder may be on another file system. */
function moveTree(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch {
    run("cp", ["-a", from, to], process.cwd());
  }
}

function run(command: string, args: readonly string[], directory: string): void {
  const { status } = spawnSync(command, args, {
    cwd: directory,
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
  });
  if (status !== 0) throw new Error(`cannot get kubectl for the tests: ${command} ${args.at(-1)} failed`);
}

/** The machine's Debian sources for `suite`, in the deb822 form of sources.list(5); "" where there are none. */
function debianSources(suite: string): string {
  const codename = /^VERSION_CODENAME=(\w+)$/m.exec(read("/etc/os-release"))?.[1];
  if (codename === undefined || !existsSync("/usr/bin/apt-get")) return "";
  const folder = "/etc/apt/sources.list.d";
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const files = ["/etc/apt/sources.list", ...names.map((name) => join(folder, name))];
  const stanzas = files.flatMap((path) =>
    path.endsWith(".sources")
      ? fromStanzas(read(path), codename)
      : path.endsWith(".list")
        ? fromLines(read(path), codename)
        : [],
  );
  return stanzas.map((stanza) => `Types: deb\nSuites: ${suite}\nComponents: main\n${stanza}\n`).join("\n");
}

function fromStanzas(text: string, codename: string): string[] {
  return text.split(/\n\s*\n/).flatMap((stanza) => {
    const field = (name: string): string => new RegExp(`^${name}:(.*)$`, "im").exec(stanza)?.[1]?.trim() ?? "";
    if (!field("Suites").split(/\s+/).includes(codename) || !field("Types").includes("deb")) return [];
    const signed = field("Signed-By");
    return [`URIs: ${field("URIs")}${signed === "" ? "" : `\nSigned-By: ${signed}`}`];
  });
}

function fromLines(text: string, codename: string): string[] {
  return [...text.matchAll(/^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s/gm)].flatMap(([, options = "", uri, suite]) => {
    if (suite !== codename) return [];
    const signed = /signed-by=(\S+)/.exec(options)?.[1];
    return [`URIs: ${uri}${signed === undefined ? "" : `\nSigned-By: ${signed}`}`];
  });
}

function read(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

if (import.meta.main) installKubectl();
