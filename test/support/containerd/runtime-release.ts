/**
 * Releases of containerd with an OCI runtime that tests run against: that of this machine, and those of Debian's newer
 * suites, extracted into a tree of their own and run on this kernel.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { keepTree, makeDebianTree } from "../debian/debian-tree.ts";

const CACHE = "node_modules/.cache/picolet/runtimes";
/** cgroup v2, where v1 is mounted beside it. */
const HYBRID_CGROUPS = "/sys/fs/cgroup/unified";

interface Release {
  /** Debian's suite; undefined: the packages that this machine has. */
  readonly suite?: string;
  readonly ociRuntime: "runc" | "crun";
}

/** By the name that `npm run conformance -- --runtime` and PICOLET_RUNTIME give. */
export const RUNTIME_RELEASES = {
  installed: { ociRuntime: "runc" },
  "containerd-1.7": { suite: "trixie", ociRuntime: "runc" },
  "containerd-1.7-crun": { suite: "trixie", ociRuntime: "crun" },
  "containerd-2": { suite: "sid", ociRuntime: "runc" },
  "containerd-2-crun": { suite: "sid", ociRuntime: "crun" },
} as const satisfies Readonly<Record<string, Release>>;

export type RuntimeReleaseName = keyof typeof RUNTIME_RELEASES;

export const RUNTIME_RELEASE_NAMES = Object.keys(RUNTIME_RELEASES) as readonly RuntimeReleaseName[];

const isRuntimeReleaseName = (name: string): name is RuntimeReleaseName => name in RUNTIME_RELEASES;

/** The release of all runtimes that name none. @throws when PICOLET_RUNTIME names one that is not known */
export function defaultRelease(): RuntimeReleaseName {
  const name = process.env.PICOLET_RUNTIME ?? "installed";
  if (!isRuntimeReleaseName(name))
    throw new Error(`PICOLET_RUNTIME=${name} is none of ${RUNTIME_RELEASE_NAMES.join(", ")}`);
  return name;
}

export interface RuntimePrograms {
  readonly containerd: string;
  readonly ctr: string;
  readonly ociRuntime: string;
  /** Has containerd's shim first. */
  readonly path: string;
}

/** Takes 5 to 10 s the first time, for a release that this machine does not have. */
export function runtimePrograms(name: RuntimeReleaseName): RuntimePrograms {
  const { suite, ociRuntime }: Release = RUNTIME_RELEASES[name];
  const path = process.env.PATH ?? "";
  if (suite === undefined) return { containerd: "containerd", ctr: "ctr", ociRuntime: "/usr/sbin/runc", path };
  const root = runtimeTree(suite);
  const programs = join(root, "usr/bin");
  return {
    containerd: join(programs, "containerd"),
    ctr: join(programs, "ctr"),
    ociRuntime: join(programs, ociRuntime),
    path: `${programs}:${path}`,
  };
}

/**
 * The program for containerd's configuration. crun refuses a machine with cgroup v1 and v2 side by side: there each
 * call of it gets a mount namespace of its own that has v1 alone.
 * @param folder takes the script that does so
 */
export function ociRuntimeFor({ ociRuntime }: RuntimePrograms, folder: string): string {
  if (basename(ociRuntime) !== "crun" || !existsSync(HYBRID_CGROUPS)) return ociRuntime;
  const script = join(folder, "crun");
  const withoutV2 = `mount --make-private ${dirname(HYBRID_CGROUPS)} && umount ${HYBRID_CGROUPS} && exec "$0" "$@"`;
  const line = `exec unshare --mount --propagation unchanged /bin/sh -c '${withoutV2}' '${ociRuntime}' "$@"`;
  writeFileSync(script, `#!/bin/sh\n${line}\n`, { mode: 0o755 });
  return script;
}

/** Where the tree was when its programs were bound to its libraries. */
const PLACE_FILE = "picolet-place";

function runtimeTree(suite: string): string {
  const isUsable = (tree: string): boolean => {
    const place = join(tree, PLACE_FILE);
    return existsSync(place) && readFileSync(place, "utf8") === tree;
  };
  return keepTree(join(process.cwd(), CACHE), suite, isUsable, (making, tree) => {
    makeRuntimeTree(making, suite, tree, "amd64");
    writeFileSync(join(making, PLACE_FILE), tree);
  });
}

const LOADERS = {
  amd64: "x86_64-linux-gnu/ld-linux-x86-64.so.2",
  arm64: "aarch64-linux-gnu/ld-linux-aarch64.so.1",
} as const;

/**
 * Extracts containerd, runc and crun of a suite.
 * @param place where the tree is for its programs
 */
export function makeRuntimeTree(tree: string, suite: string, place: string, architecture: keyof typeof LOADERS): void {
  makeDebianTree(tree, { variant: "extract", release: suite, packages: ["containerd", "runc", "crun"], architecture });
  const loader = join(place, "usr/lib", LOADERS[architecture]);
  const links = ["--set-interpreter", loader, "--force-rpath", "--set-rpath", dirname(loader)];
  // Written in Go or C for a newer C library than the machine's. They execute themselves, so a loader in front of them
  // would not do.
  for (const program of ["runc", "crun"])
    execFileSync("patchelf", [...links, join(tree, "usr/bin", program)], { stdio: ["ignore", "ignore", "pipe"] });
}

/** Reports whether containerd has this version or a later one. */
export function isAtLeast({ containerd }: RuntimePrograms, major: number, minor: number): boolean {
  const text = execFileSync(containerd, ["--version"], { encoding: "utf8" });
  const [, ...found] = / v?(\d+)\.(\d+)\./.exec(text) ?? [];
  if (found.length !== 2) throw new Error(`cannot read the version of ${containerd}: ${text}`);
  const [ownMajor = 0, ownMinor = 0] = found.map(Number);
  return ownMajor > major || (ownMajor === major && ownMinor >= minor);
}
