/** What is in the packages: a distribution of `npm run build` below /usr/lib, and what Debian has its own places for. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { VERSION } from "@picolet/protocol/version.ts";
import { type DebianPackage, gzipped, MAINTAINER, type PackageFile } from "./debian-package.ts";

const ARCHITECTURES = { "linux-x64": "amd64", "linux-arm64": "arm64" } as const;
export type PackagePlatform = keyof typeof ARCHITECTURES;

/**
 * The newest symbols that the native parts need: glibc 2.34 and libstdc++ of GCC 11 (better-sqlite3), which Debian 12
 * and Ubuntu 22.04 have. A test compares them with the files.
 */
export const LIBRARIES = { glibc: "2.34", libstdcxx: "11" } as const;
const DEPENDS = `libc6 (>= ${LIBRARIES.glibc}), libstdc++6 (>= ${LIBRARIES.libstdcxx}), libgcc-s1, adduser, init-system-helpers (>= 1.54~)`;

interface Contents {
  readonly name: string;
  readonly programs: readonly string[];
  readonly fields: Readonly<Record<string, string>>;
  readonly synopsis: string;
  readonly description: readonly string[];
  /** Files of `NAME/` by where they are installed. */
  readonly files: Readonly<Record<string, string>>;
  readonly folders?: readonly string[];
  readonly conffiles?: readonly string[];
}

const BOARD: Contents = {
  name: "picolet",
  programs: ["picolet", "edgectl"],
  fields: {
    "Pre-Depends": "init-system-helpers (>= 1.54~)",
    Depends: DEPENDS,
    Recommends:
      "containerd (>= 1.6) | containerd.io | cri-o, runc | crun | containerd.io, containernetworking-plugins, iptables, ca-certificates",
    Suggests: "picolet-hub, tpm2-tools, bash-completion",
    Section: "admin",
    Priority: "optional",
  },
  synopsis: "kubelet for small boards",
  description: [
    "picolet runs Kubernetes pods on boards that are short of memory, far away and often offline: as containers through a CRI runtime such as containerd, or as WebAssembly components without one. It stores the pods that it is to run, works with static pods and with the last pods it knew, and syncs with a hub through one WebSocket.",
    "This package has the agent, edgectl and the Node that runs them.",
  ],
  files: {
    "picolet.service": "/usr/lib/systemd/system/picolet.service",
    "picolet.tmpfiles": "/usr/lib/tmpfiles.d/picolet.conf",
    "../../updates/boot-check": "/usr/lib/picolet/updates/boot-check",
    "../../updates/picolet-boot-check.service": "/usr/lib/systemd/system/picolet-boot-check.service",
    "config.yaml": "/usr/share/doc/picolet/examples/config.yaml",
    "picolet.openrc": "/usr/share/doc/picolet/examples/picolet.openrc",
    inittab: "/usr/share/doc/picolet/examples/inittab",
  },
  folders: ["/etc/picolet/manifests", "/etc/picolet/update-keys"],
};

const HUB: Contents = {
  name: "picolet-hub",
  programs: ["picolet-hub"],
  fields: {
    "Pre-Depends": "init-system-helpers (>= 1.54~)",
    Depends: DEPENDS,
    Section: "admin",
    Priority: "optional",
  },
  synopsis: "hub of a fleet of picolet boards",
  description: [
    "picolet-hub connects boards that run picolet to a Kubernetes cluster, or is an API server for them by itself: boards dial it through NAT, and get pods, log, exec and port-forward over one WebSocket.",
  ],
  files: {
    "picolet-hub.service": "/usr/lib/systemd/system/picolet-hub.service",
    default: "/etc/default/picolet-hub",
  },
  conffiles: ["/etc/default/picolet-hub"],
};

const SCRIPTS = ["postinst", "prerm", "postrm"];
/** Where Debian's shells look for what a package brings. */
const COMPLETIONS: Readonly<Record<string, string>> = {
  bash: "/usr/share/bash-completion/completions",
  zsh: "/usr/share/zsh/vendor-completions",
  fish: "/usr/share/fish/vendor_completions.d",
};

const ownFile = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const readOwn = (path: string): string => readFileSync(ownFile(path), "utf8");

/** @param folder of the distribution that was built for `platform` */
export const boardPackage = (folder: string, platform: PackagePlatform, epoch: number): DebianPackage =>
  debianPackage(BOARD, folder, platform, epoch);

export const hubPackage = (folder: string, platform: PackagePlatform, epoch: number): DebianPackage =>
  debianPackage(HUB, folder, platform, epoch);

function debianPackage(contents: Contents, folder: string, platform: PackagePlatform, epoch: number): DebianPackage {
  const { name, fields, synopsis, description, conffiles = [] } = contents;
  return {
    ...{ name, version: VERSION, architecture: ARCHITECTURES[platform], fields, synopsis, description, conffiles },
    files: new Map([...programFiles(contents, folder), ...documents(contents, folder, epoch), ...ownFiles(contents)]),
    scripts: Object.fromEntries(SCRIPTS.map((script) => [script, readOwn(`${name}/${script}`)])),
  };
}

function* programFiles({ name, programs }: Contents, folder: string): Generator<[string, PackageFile]> {
  const library = `/usr/lib/${name}`;
  for (const part of ["bin", "lib", "wit"].filter((each) => existsSync(`${folder}/${each}`)))
    yield [`${library}/${part}`, { source: `${folder}/${part}` }];
  for (const program of programs) yield [`/usr/bin/${program}`, { link: `../lib/${name}/bin/${program}` }];
}

function* documents({ name }: Contents, folder: string, epoch: number): Generator<[string, PackageFile]> {
  const place = `/usr/share/doc/${name}`;
  for (const section of readdirSync(`${folder}/share/man`))
    for (const page of readdirSync(`${folder}/share/man/${section}`))
      yield [
        `/usr/share/man/${section}/${page}.gz`,
        gzipped(readFileSync(`${folder}/share/man/${section}/${page}`, "utf8")),
      ];
  const completions = `${folder}/share/completions`;
  for (const shell of existsSync(completions) ? readdirSync(completions) : [])
    for (const script of readdirSync(`${completions}/${shell}`))
      yield [`${COMPLETIONS[shell]}/${script}`, { content: readFileSync(`${completions}/${shell}/${script}`) }];
  yield [`${place}/copyright`, { content: readOwn("copyright") }];
  yield [`${place}/changelog.gz`, gzipped(changelog(name, epoch))];
  yield [`${place}/THIRD-PARTY-LICENSES.gz`, gzipped(readFileSync(`${folder}/THIRD-PARTY-LICENSES`, "utf8"))];
  yield [`${place}/sbom.cdx.json.gz`, gzipped(readFileSync(`${folder}/sbom.cdx.json`, "utf8"))];
  yield [`/usr/share/lintian/overrides/${name}`, { content: readOwn(`${name}/lintian-overrides`) }];
}

function* ownFiles({ name, files, folders = [] }: Contents): Generator<[string, PackageFile]> {
  for (const [source, path] of Object.entries(files)) yield [path, { content: readOwn(`${name}/${source}`) }];
  for (const path of folders) yield [path, { folder: true }];
}

/** Debian's form of it: what changed is in CHANGELOG.md of the project. */
const changelog = (name: string, epoch: number): string =>
  `${name} (${VERSION}) unstable; urgency=medium\n\n  * Release ${VERSION}.\n\n` +
  ` -- ${MAINTAINER}  ${new Date(epoch * 1000).toUTCString().replace("GMT", "+0000")}\n`;
