/**
 * The container image of picolet-hub: the C and C++ libraries of Debian, Node, and the hub. It has no shell and no
 * package manager, runs as user 65532, and writes to its state folder alone.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { HUB_ENVIRONMENT, HUB_FLAGS } from "@picolet/scripts/build/build.ts";
import { type FetchedPackage, fetchDebianPackages } from "./debian-files.ts";
import type { ImageParts } from "./oci-layout.ts";

/** Debian 13, which has security support until 2028. */
const SUITE = "trixie";
/** The libraries that Node and the hub's addon are linked with; the last package has the copyright file of GCC's libraries. */
const PACKAGES = ["libc6", "libgcc-s1", "libstdc++6", "gcc-14-base"];
/** Converters and profilers of glibc, which nothing here loads. */
const LEFT_OUT =
  /^\.\/usr\/(?:lib\/[^/]+\/(?:gconv|audit)\/|share\/(?!doc\/[^/]+\/copyright$|doc\/lib\w+(?:\+\+)?[^/]*$))/;
const USER = 65532;
const PROGRAM = "/usr/lib/picolet-hub/bin/picolet-hub";
const LIBRARY = "/usr/lib/picolet-hub/lib";
const STATE = "/var/lib/picolet-hub";
const TAR_LIMIT_BYTES = 512 * MEBIBYTE;

export const ARCHITECTURES = { "linux-x64": "amd64", "linux-arm64": "arm64" } as const;
export type ImagePlatform = keyof typeof ARCHITECTURES;

export const LABELS = {
  "org.opencontainers.image.title": "picolet-hub",
  "org.opencontainers.image.description": "Hub of a fleet of picolet boards, for Kubernetes or by itself",
  "org.opencontainers.image.version": VERSION,
  "org.opencontainers.image.licenses": "Apache-2.0",
  "org.opencontainers.image.vendor": "picolet developers",
} as const;

/** Asks the hub's own port, whose certificate has another CA than Node knows. */
const HEALTH = `require("https").get({port:10270,path:"/readyz",rejectUnauthorized:false},r=>process.exit(r.statusCode===200?0:1)).on("error",()=>process.exit(1))`;

/** A program of its own, as a shell is missing: \`docker exec hub picolet-hub token create\`. */
const COMMAND = `#!${LIBRARY}/node\nimport("${LIBRARY}/picolet-hub.mjs");\n`;

export interface HubImageInit {
  readonly platform: ImagePlatform;
  /** The distribution of the hub that was built for it. */
  readonly distribution: string;
  readonly packages: readonly FetchedPackage[];
  /** Seconds of Unix time, of all files. */
  readonly epoch: number;
}

/** The Debian packages that are in the image. */
export const basePackages = (platform: ImagePlatform): readonly FetchedPackage[] =>
  fetchDebianPackages({ suite: SUITE, architecture: ARCHITECTURES[platform], packages: PACKAGES });

export function hubImage({ platform, distribution, packages, epoch }: HubImageInit): ImageParts {
  const architecture = ARCHITECTURES[platform];
  const created = `${new Date(epoch * 1000).toISOString().slice(0, 19)}Z`;
  const environment = HUB_ENVIRONMENT.replaceAll(/^export /gm, "")
    .trim()
    .split(/\s+/);
  return {
    architecture,
    created,
    layers: [
      {
        tar: baseLayer(packages, epoch),
        comment: `Debian ${SUITE}: ${packages.map(({ name, version }) => `${name} ${version}`).join(", ")}`,
      },
      { tar: nodeLayer(distribution, epoch), comment: "Node" },
      { tar: hubLayer(distribution, epoch), comment: `picolet-hub ${VERSION}` },
    ],
    config: {
      User: `${USER}:${USER}`,
      ExposedPorts: { "10270/tcp": {}, "6443/tcp": {} },
      Env: ["PATH=/usr/bin", ...environment],
      Entrypoint: [`${LIBRARY}/node`, ...HUB_FLAGS.trim().split(" "), `${LIBRARY}/picolet-hub.mjs`],
      Cmd: ["serve"],
      Volumes: { [STATE]: {} },
      WorkingDir: "/",
      Labels: LABELS,
      StopSignal: "SIGTERM",
      Healthcheck: { Test: ["CMD", `${LIBRARY}/node`, "-e", HEALTH], Interval: 30e9, Timeout: 5e9, StartPeriod: 60e9 },
    },
    annotations: { ...LABELS, "org.opencontainers.image.created": created },
  };
}

/** Runs `fill` on a new folder. @returns the folder as a tar archive, all of it root's */
function layerOf(epoch: number, fill: (root: string) => void): Buffer {
  const root = mkdtempSync(join(tmpdir(), "picolet-layer-"));
  try {
    fill(root);
    return tarOf(root, ".", epoch, 0);
  } finally {
    rmSync(root, { recursive: true });
  }
}

/** @param mode that all files can be read, and programs run by everyone */
function tarOf(root: string, member: string, epoch: number, owner: number, mode = "u=rwX,go=rX"): Buffer {
  const flags = ["--sort=name", `--mtime=@${epoch}`, `--owner=${owner}`, `--group=${owner}`, "--numeric-owner"];
  return execFileSync("tar", [...flags, "--format=ustar", `--mode=${mode}`, "-C", root, "-cf", "-", member], {
    maxBuffer: TAR_LIMIT_BYTES,
  });
}

function baseLayer(packages: readonly FetchedPackage[], epoch: number): Buffer {
  return layerOf(epoch, (root) => {
    for (const [link, target] of [
      ["lib", "usr/lib"],
      ["lib64", "usr/lib64"],
    ] as const)
      symlinkSync(target, join(root, link));
    for (const folder of ["usr/lib", "usr/lib64", "etc", "var/lib/dpkg/status.d"])
      mkdirSync(join(root, folder), { recursive: true });
    for (const { name, file, control } of packages) {
      const tar = execFileSync("dpkg-deb", ["--fsys-tarfile", file], { maxBuffer: TAR_LIMIT_BYTES });
      const members = execFileSync("tar", ["-t"], { input: tar, encoding: "utf8" });
      const wanted = members.split("\n").filter((each) => /[^/]$/.test(each) && !LEFT_OUT.test(each));
      execFileSync("tar", ["-x", "-C", root, "--no-same-owner", "--keep-directory-symlink", ...wanted], { input: tar });
      // Where scanners of images find what a package manager would know.
      writeFileSync(join(root, "var/lib/dpkg/status.d", name), control);
    }
    const release = `PRETTY_NAME="picolet-hub ${VERSION}"\nID=debian\nVERSION_CODENAME=${SUITE}\nVERSION_ID="13"\n`;
    writeFileSync(join(root, "etc/os-release"), release);
    writeFileSync(
      join(root, "etc/passwd"),
      accounts((name, id) => `${name}:x:${id}:${id}::/:/usr/sbin/nologin`),
    );
    writeFileSync(
      join(root, "etc/group"),
      accounts((name, id) => `${name}:x:${id}:`),
    );
    writeFileSync(join(root, "etc/nsswitch.conf"), "hosts: files dns\n");
  });
}

const accounts = (line: (name: string, id: number) => string): string =>
  `${line("root", 0)}\n${line("picolet-hub", USER)}\n`;

const nodeLayer = (distribution: string, epoch: number): Buffer =>
  layerOf(epoch, (root) => {
    mkdirSync(join(root, LIBRARY), { recursive: true });
    cpSync(join(distribution, "lib/node"), join(root, LIBRARY, "node"));
  });

/** The program, and at the end the folders that its user may write to. A tar archive. */
export function hubLayer(distribution: string, epoch: number): Buffer {
  const program = layerOf(epoch, (root) => {
    const place = (from: string, to: string): void => {
      mkdirSync(dirname(join(root, to)), { recursive: true });
      cpSync(join(distribution, from), join(root, to), { recursive: true, dereference: true });
    };
    for (const name of readdirSync(join(distribution, "lib")).filter((each) => each !== "node"))
      place(`lib/${name}`, `${LIBRARY}/${name}`);
    for (const path of [PROGRAM, "/usr/bin/picolet-hub"]) mkdirSync(dirname(join(root, path)), { recursive: true });
    // Not among the library's files: the parts of the program are in a folder of the same name.
    writeFileSync(join(root, PROGRAM), COMMAND, { mode: 0o755 });
    symlinkSync(`..${PROGRAM.slice("/usr".length)}`, join(root, "usr/bin/picolet-hub"));
    mkdirSync(join(root, "etc/picolet-hub"), { recursive: true });
    for (const name of ["LICENSE", "THIRD-PARTY-LICENSES", "sbom.cdx.json"])
      place(name, `/usr/share/doc/picolet-hub/${name}`);
  });
  const state = mkdtempSync(join(tmpdir(), "picolet-layer-"));
  try {
    mkdirSync(join(state, STATE), { recursive: true });
    mkdirSync(join(state, "tmp"));
    return joinTars(program, tarOf(state, `.${STATE}`, epoch, USER, "u=rwx,go="), tarOf(state, "./tmp", epoch, USER));
  } finally {
    rmSync(state, { recursive: true });
  }
}

const BLOCK = 512;
/** GNU tar fills its last record up to this. */
const RECORD = 20 * BLOCK;

/** One archive of several: the zero blocks at the end of all are taken away, and one end is written. */
function joinTars(...tars: readonly Buffer[]): Buffer {
  const contents = tars.map((tar) => {
    let end = tar.length;
    while (end > 0 && tar.subarray(end - BLOCK, end).every((byte) => byte === 0)) end -= BLOCK;
    return tar.subarray(0, end);
  });
  const length = contents.reduce((sum, each) => sum + each.length, 2 * BLOCK);
  const padding = Math.ceil(length / RECORD) * RECORD - length;
  return Buffer.concat([...contents, Buffer.alloc(2 * BLOCK + padding)]);
}

/** A distribution's bill of materials with the Debian packages of the image. */
export function imageBillOfMaterials(distribution: string, packages: readonly FetchedPackage[], architecture: string) {
  const bill = JSON.parse(readFileSync(join(distribution, "sbom.cdx.json"), "utf8")) as { components: object[] };
  const debian = packages.map(({ name, version, sha256 }) => ({
    ...{ type: "library", "bom-ref": `debian/${name}`, name, version },
    purl: `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=${architecture}&distro=${SUITE}`,
    hashes: [{ alg: "SHA-256", content: sha256 }],
    // The text is in the image, as Debian writes it: an expression would be our reading of it.
    licenses: [{ license: { name: `/usr/share/doc/${name}/copyright` } }],
  }));
  return { ...bill, components: [...bill.components, ...debian] };
}
