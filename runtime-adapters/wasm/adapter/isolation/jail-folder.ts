/** The folders that jails are mounted on: one tree of mount points for all, and one for each container's volumes. */
import {
  chmodSync,
  closeSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { RunnerLaunch } from "../../shared/messages/launch.ts";
import {
  type Bind,
  bindLine,
  bindMounts,
  containerMounts,
  JAIL_FILES,
  JAIL_FOLDERS,
  JAIL_PATHS,
  type JailKind,
  type JailUse,
  jailMounts,
  LOADER_FILE,
  NAME_FILES,
  OWN_FILES,
  OWN_FOLDERS,
  READ_ONLY_FILE,
  toJailLaunch,
} from "./jail.ts";
import { seccompLoader } from "./seccomp-loader.ts";

export interface JailPrograms {
  readonly nodePath: string;
  readonly runnerPath: string;
  readonly densePath: string;
  readonly setprivPath: string;
  readonly umountPath: string;
}

/** Other users must traverse it, independent of the agent's umask. */
const FOLDER_MODE = 0o755;
const PROGRAM_MODE = 0o755;

export class JailFolder {
  /** The folder of all jails. */
  readonly root: string;
  /** Where a container's own part is put together before its jail shows it. */
  readonly #stage: string;
  readonly #programs: readonly Bind[];

  /** @param root made where it is not there. */
  constructor(root: string, programs: JailPrograms) {
    this.root = root;
    this.#stage = `${root}-stage`;
    this.#programs = this.#lay(programs);
  }

  /** As the jail has it. */
  command(flags: readonly string[], program: string, launchPath: string = JAIL_PATHS.launch): string[] {
    return [JAIL_PATHS.node, ...flags, `${JAIL_PATHS.runner}/${basename(program)}`, launchPath];
  }

  /** Without anything of a container. */
  mounts({ privateProc }: JailKind, network: boolean, use: JailUse["use"]): string {
    return jailMounts(this.root, [...this.#programs, ...(network ? nameFiles() : [])], privateProc, use);
  }

  /**
   * @param folder the container's; gets mount points for its volumes.
   * @returns the launch as its runner sees it, and the container's own mounts that make it so
   * @throws `not_found` for a mount whose source is not there
   */
  prepare(folder: string, launch: RunnerLaunch): { readonly launch: RunnerLaunch; readonly mounts: string } {
    const { launch: inside, binds } = toJailLaunch(launch);
    const ownLaunch: Bind = { source: `${folder}/launch.json`, target: JAIL_PATHS.launch, readOnly: true, use: "data" };
    const volumes = `${folder}/volumes`;
    mkdirSync(volumes, { mode: FOLDER_MODE });
    for (const [index, { hostPath }] of launch.mounts.entries()) mountPoint(`${volumes}/${index}`, isFolder(hostPath));
    closeSync(openSync(launch.endPath, "a", 0o600));
    const points: Bind[] = [
      { source: this.#stage + JAIL_PATHS.own, target: JAIL_PATHS.own, readOnly: true, use: "data" },
      { source: volumes, target: JAIL_PATHS.volumes, readOnly: true, use: "data" },
    ];
    const shown = [JAIL_PATHS.own, JAIL_PATHS.volumes];
    const mounts = containerMounts(this.root, this.#stage, [...points, ownLaunch, ...binds], shown);
    return { launch: inside, mounts };
  }

  /**
   * Additional mounts of a process with several containers. @param places the folder that will show its containers' own
   * mounts
   */
  denseMounts(densePath: string, own: string, places: string): string {
    const program = `${JAIL_PATHS.runner}/${basename(densePath)}`;
    return bindMounts(this.root, [
      { source: realpathSync(densePath), target: program, readOnly: true, use: "program" },
      { source: own, target: JAIL_PATHS.own, readOnly: false, use: "data" },
      { source: places, target: JAIL_PATHS.volumes, readOnly: true, use: "data" },
    ]);
  }

  /**
   * The same as `prepare` for one of several.
   * @param folder the container's; gets the mount points of all that it has
   * @param place the name of its place in the jail, which is there already
   */
  prepareDense(folder: string, place: string, launch: RunnerLaunch): ReturnType<JailFolder["prepare"]> {
    const at = `${JAIL_PATHS.volumes}/${place}`;
    const { launch: inside, binds } = toJailLaunch(launch, at);
    const stage = `${folder}/stage`;
    for (const each of ["", ...OWN_FOLDERS, JAIL_PATHS.volumes]) {
      mkdirSync(stage + each, { recursive: true, mode: FOLDER_MODE });
    }
    for (const each of OWN_FILES) mountPoint(stage + each, false);
    const volumes = `${stage}${JAIL_PATHS.volumes}`;
    for (const [index, { hostPath }] of launch.mounts.entries()) mountPoint(`${volumes}/${index}`, isFolder(hostPath));
    const points: Bind[] = [{ source: stage, target: "", readOnly: true, use: "data" }];
    const own = binds.map((bind) => ({ ...bind, target: bind.target.slice(at.length) }));
    return { launch: inside, mounts: bindMounts(stage, [...points, ...own]) + bindLine(stage, this.root + at) };
  }

  #lay({ nodePath, runnerPath, densePath, setprivPath, umountPath }: JailPrograms): Bind[] {
    for (const each of JAIL_FOLDERS) mkdirSync(this.root + each, { recursive: true, mode: FOLDER_MODE });
    mkdirSync(`${this.root}/etc`, { recursive: true, mode: FOLDER_MODE });
    for (const each of [...JAIL_FILES, ...NAME_FILES]) mountPoint(this.root + each, false);
    for (const each of OWN_FOLDERS) mkdirSync(this.#stage + each, { recursive: true, mode: FOLDER_MODE });
    for (const each of OWN_FILES) mountPoint(this.#stage + each, false);
    mountPoint(this.root + READ_ONLY_FILE, false);
    replaceFile(this.root + LOADER_FILE, seccompLoader(process.arch) ?? new Uint8Array(), PROGRAM_MODE);
    const { folders, links } = nodeLibraries();
    for (const each of folders) mkdirSync(this.root + each, { recursive: true, mode: FOLDER_MODE });
    for (const [path, target] of links) linkOnce(this.root + path, target);
    const runner = `${JAIL_PATHS.runner}/${basename(runnerPath)}`;
    for (const each of [runner, `${JAIL_PATHS.runner}/${basename(densePath)}`]) mountPoint(this.root + each, false);
    const device = { readOnly: false, use: "device" } as const;
    const program = { readOnly: true, use: "program" } as const;
    return [
      ...folders.map((each): Bind => ({ source: each, target: each, ...program })),
      { source: realpathSync(nodePath), target: JAIL_PATHS.node, ...program },
      { source: realpathSync(runnerPath), target: runner, ...program },
      ...this.#layParts(runnerPath),
      { source: realpathSync(setprivPath), target: "/setpriv", ...program },
      { source: realpathSync(umountPath), target: "/umount", ...program },
      { source: "/dev/null", target: "/dev/null", ...device },
      { source: "/dev/urandom", target: "/dev/urandom", ...device },
    ];
  }

  /** The modules that the runner loads on demand lie beside it, in a folder of its name. */
  #layParts(runnerPath: string): Bind[] {
    const source = runnerPath.replace(/\.[^./]+$/, "");
    if (source === runnerPath || !existsSync(source)) return [];
    const target = `${JAIL_PATHS.runner}/${basename(source)}`;
    mountPoint(this.root + target, true);
    return [{ source: realpathSync(source), target, readOnly: true, use: "program" }];
  }
}

const nameFiles = (): Bind[] =>
  NAME_FILES.filter(existsSync).map((target) => {
    return { source: realpathSync(target), target, readOnly: true, use: "data" };
  });

function mountPoint(path: string, isDirectory: boolean): void {
  if (isDirectory) mkdirSync(path, { recursive: true, mode: FOLDER_MODE });
  else if (!existsSync(path)) writeFileSync(path, "", { mode: 0o644 });
}

/** By a rename: a jail that is being made may have the file open as a program, which cannot be written to. */
function replaceFile(path: string, content: Uint8Array, mode: number): void {
  rmSync(`${path}.new`, { force: true });
  writeFileSync(`${path}.new`, content, { mode });
  chmodSync(`${path}.new`, mode);
  renameSync(`${path}.new`, path);
}

function linkOnce(path: string, target: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: FOLDER_MODE });
  try {
    symlinkSync(target, path);
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") throw error;
  }
}

function isFolder(hostPath: string): boolean {
  const stats = statSync(hostPath, { throwIfNoEntry: false });
  if (stats !== undefined) return stats.isDirectory();
  throw new PicoletError("not_found", `cannot mount ${hostPath}: it is not there`);
}

export interface NodeLibraries {
  /** Folders, absolute and without links in their paths. */
  readonly folders: readonly string[];
  /** Links that lead there: `/lib` and what programs name as their loader. */
  readonly links: readonly (readonly [path: string, target: string])[];
}

/** Where programs name their loader (ELF, PT_INTERP) and look for libraries. */
const LIBRARY_ROOTS = ["/lib", "/lib64"];
const LOADER = /^ld-(linux|musl)/;
const SHARED_OBJECT = /\.so(\.[\d.]+)?$/;

/** Finds the libraries that the runner's Node needs: those that this process, the same Node, has mapped. */
export function nodeLibraries(): NodeLibraries {
  const folders = new Set(mappedFolders());
  const links: [string, string][] = [];
  for (const root of LIBRARY_ROOTS) {
    const stats = lstatSync(root, { throwIfNoEntry: false });
    if (stats === undefined) continue;
    if (stats.isSymbolicLink()) links.push([root, readlinkSync(root)]);
    const real = realpathSync(root);
    for (const name of readdirSync(real).filter((each) => LOADER.test(each))) {
      const path = `${real}/${name}`;
      if (!folders.has(real)) links.push([path, realpathSync(path)]);
    }
  }
  return { folders: [...folders].filter((each) => !isBelow(each, folders)), links };
}

function mappedFolders(): string[] {
  const maps = readFileSync("/proc/self/maps", "utf8").split("\n");
  const paths = maps.map((line) => line.slice(line.indexOf("/"))).filter((path) => SHARED_OBJECT.test(path));
  // An add-on of ours is no library of Node's.
  const system = paths.filter((path) => path.startsWith("/usr/") || path.startsWith("/lib"));
  return system.map((path) => path.slice(0, path.lastIndexOf("/")));
}

const isBelow = (path: string, folders: ReadonlySet<string>): boolean =>
  [...folders].some((each) => path.startsWith(`${each}/`));
