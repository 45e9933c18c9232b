import { existsSync, writeFileSync } from "node:fs";
import { rmdir, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { SLICE } from "@picolet/protocol/cgroup/cgroup-names.ts";
import type { CgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, type Log, millis, NEVER } from "@picolet/protocol/ports.ts";
import type { CgroupPort, CreatedCgroup } from "@picolet/runtime-contract/cgroup-port.ts";
import type { CgroupUnits } from "../core/node/cgroup-units.ts";
import { type CgroupFile, isWritten, V1_READINGS, V2_READINGS, v1Files, v2Files } from "./cgroup-files.ts";
import { counter, exists, foldersWithin, readText, readTextSync, subfolders } from "./cgroup-filesystem.ts";
import { CgroupFolders } from "./cgroup-folders.ts";
import type { CgroupHierarchies } from "./cgroup-hierarchies.ts";
import { CgroupProcesses } from "./cgroup-processes.ts";
import { unitProperties } from "./unit-properties.ts";

/** rmdir gives EBUSY for some milliseconds after the last process has left. Together about 0.6 s, then `conflict`. */
const REMOVE_ATTEMPTS = 7;
const REMOVE_WAIT_FIRST_MS = 5;
type Access = "untried" | "granted" | "refused";

/** In a container's cgroup right below a slice, what its processes are in. */
const INNER = "processes";

/**
 * Manages cgroups by their cgroupfs path, which is the same below every mounted hierarchy. Where cgroups are missing,
 * or this process may not make any, that is reported once and every call does nothing.
 *
 * With systemd, cgroups whose name ends with `.slice` are its units. Cgroups below a slice stay ours: a scope needs a
 * process that exists already, and takes the kernel's counters with it when that process ends. systemd removes
 * controllers from a slice in which no unit needs them, except while a child delegates them; so on v2 processes are one
 * level further down.
 */
export class CgroupTree implements CgroupPort {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #hierarchies: CgroupHierarchies;
  readonly #mountPoints: readonly string[];
  /** With those where only runtimes make cgroups. */
  readonly #allMountPoints: readonly string[];
  readonly #units: CgroupUnits | undefined;
  readonly #folders: CgroupFolders;
  readonly #processes: CgroupProcesses;
  #access: Access = "untried";
  /** Files this kernel does not have, each said once. At most as many as `cgroup-files.ts` knows. */
  readonly #unsupported = new Set<string>();

  constructor(
    components: { readonly log: Log; readonly clock: Clock },
    init: { readonly hierarchies: CgroupHierarchies; readonly units?: CgroupUnits | undefined },
  ) {
    this.#log = components.log;
    this.#clock = components.clock;
    this.#hierarchies = init.hierarchies;
    this.#units = init.units;
    this.#mountPoints = mountPointsOf(init.hierarchies);
    const { clock } = components;
    this.#folders = new CgroupFolders(init.hierarchies);
    this.#processes = new CgroupProcesses({ clock }, { hierarchies: init.hierarchies, mountPoints: this.#mountPoints });
    const runtimesOwn = init.hierarchies.kind === "v1" ? init.hierarchies.runtimesOwn : [];
    this.#allMountPoints = [...this.#mountPoints, ...runtimesOwn];
  }

  /** True unless cgroups are known to be unusable; before the first `create` only their mounts are known. */
  get usable(): boolean {
    return this.#access !== "refused" && this.#mountPoints.length > 0;
  }

  get hierarchies(): CgroupHierarchies {
    return this.#hierarchies;
  }

  async create(path: string, values: CgroupValues): Promise<CreatedCgroup | undefined> {
    const segments = segmentsOf(path);
    if (this.#access === "refused") return undefined;
    if (this.#hierarchies.kind === "none") {
      this.#refuse(this.#hierarchies.why, undefined);
      return undefined;
    }
    let joined = path;
    try {
      if (this.#units !== undefined && isSlice(path)) {
        await this.#units.ensureSlice(basename(path), unitProperties(values, this.#hierarchies.kind));
      }
      const made = this.#mountPoints.map((each) => this.#folders.make(each, join(each, ...segments)));
      await this.#write(path, values, made.every(Boolean));
      if (this.#needsInner(path)) {
        joined = join(path, INNER);
        for (const mountPoint of this.#mountPoints) this.#folders.make(mountPoint, join(mountPoint, joined));
      }
      // Not before: folders that another user made are there already, and may be all that this one can have.
      this.#access = "granted";
    } catch (error) {
      // Once granted, a refusal is a fault of this one cgroup and must be seen.
      if (this.#access === "untried" && isRefusal(error)) {
        this.#refuse("this process may not make cgroups (it needs root)", error);
        return undefined;
      }
      throw new PicoletError("failed", `cannot create cgroup ${path}`, { cause: error, retryable: true });
    }
    return { procsFiles: this.#mountPoints.map((mountPoint) => join(mountPoint, joined, "cgroup.procs")) };
  }

  #needsInner(path: string): boolean {
    return this.#units !== undefined && this.#hierarchies.kind === "v2" && !isSlice(path) && isSlice(dirname(path));
  }

  /** Lists the values that another process has changed. `"gone"`: the cgroup does not exist in some hierarchy. */
  deviations(path: string, values: CgroupValues): "gone" | readonly string[] {
    for (const mountPoint of this.#mountPoints) if (!existsSync(`${mountPoint}${path}`)) return "gone";
    const found: string[] = [];
    for (const wanted of this.#filesOf(values)) {
      const mountPoint = this.#mountPointOf(wanted.controller);
      const text = mountPoint === undefined ? "" : readTextSync(`${mountPoint}${path}/${wanted.file}`).trim();
      if (text !== "" && !isWritten(wanted, text)) found.push(`${wanted.file} ${text}`);
    }
    return found;
  }

  /** Where one that must be there is not: paths on v1, controllers that it does not have on v2. */
  async missing(path: string): Promise<readonly string[]> {
    if (this.#hierarchies.kind !== "v2") {
      const needed = new Set([...KUBELETS].map((controller) => this.#mountPointOf(controller)));
      const folders = [...needed].flatMap((mountPoint) => (mountPoint === undefined ? [] : [join(mountPoint, path)]));
      const there = await Promise.all(folders.map(exists));
      return folders.filter((_, index) => there[index] !== true);
    }
    const text = await readText(join(this.#hierarchies.mountPoint, path, "cgroup.controllers"));
    const enabled = new Set(text.split(/\s+/));
    return [...this.#hierarchies.controllers].filter((name) => KUBELETS.has(name) && !enabled.has(name));
  }

  async kill(path: string, signal: AbortSignal): Promise<void> {
    segmentsOf(path);
    await this.#processes.kill(path, signal);
  }

  async remove(path: string): Promise<void> {
    const segments = segmentsOf(path);
    if (segments.length === 0) throw new PicoletError("invalid", "cannot remove the root cgroup");
    if (this.#units !== undefined && isSlice(path)) {
      // systemd ends all processes in a slice that it stops.
      if ((await this.pids(path)).size > 0)
        throw new PicoletError("conflict", `cannot remove cgroup ${path}: processes are in it`, { retryable: true });
      await this.#units.removeSlice(basename(path));
    }
    let wait = REMOVE_WAIT_FIRST_MS;
    for (let attempt = 1; ; attempt += 1) {
      const busy = await this.#removeEverywhere(path);
      if (busy === undefined) return;
      if (attempt === REMOVE_ATTEMPTS || (await this.pids(path)).size > 0)
        throw new PicoletError("conflict", `cannot remove cgroup ${path}`, { cause: busy, retryable: true });
      await this.#clock.sleep(millis(wait), NEVER);
      wait *= 2;
    }
  }

  async oomKills(path: string): Promise<number> {
    segmentsOf(path);
    if (this.#hierarchies.kind === "v2")
      return counter(await readText(join(this.#hierarchies.mountPoint, path, "memory.events")), "oom_kill");
    const memory = this.#hierarchies.kind === "v1" ? this.#hierarchies.controllers.get("memory") : undefined;
    if (memory === undefined) return 0;
    // v1 counts in the cgroup of the process alone, v2 in those above it too.
    let kills = 0;
    for (const folder of await foldersWithin(join(memory, path)))
      kills += counter(await readText(join(folder, "memory.oom_control")), "oom_kill");
    return kills;
  }

  /** Names of the cgroups right below `path`, in whichever hierarchy they are. */
  async children(path: string): Promise<ReadonlySet<string>> {
    const names = new Set<string>();
    for (const mountPoint of this.#allMountPoints)
      for (const name of await subfolders(join(mountPoint, path))) names.add(name);
    return names;
  }

  /** Every process in `path` and below, in whichever hierarchy; those of other pid namespaces cannot be named. */
  pids(path: string): Promise<ReadonlySet<number>> {
    return this.#processes.pids(path);
  }

  /** One value back from the file system, `undefined` where the file is not there. `-1` for no limit. */
  async read(path: string, controller: string, file: string): Promise<string | undefined> {
    const mountPoint = this.#mountPointOf(controller);
    if (mountPoint === undefined) return undefined;
    const text = await readText(join(mountPoint, path, file));
    return text === "" ? undefined : text.trim();
  }

  /** One of the values that a cgroup has, in v1's units, -1 for no limit; `undefined` where it cannot be read. */
  async value(path: string, name: keyof typeof V1_READINGS): Promise<number | undefined> {
    const { controller, file, parse } = (this.#hierarchies.kind === "v2" ? V2_READINGS : V1_READINGS)[name];
    const text = await this.read(path, controller, file);
    return text === undefined ? undefined : parse(text);
  }

  /**
   * @param isNew for a cgroup without processes: no limit makes the kernel reclaim memory, which the writer would wait
   * for
   */
  async #write(path: string, values: CgroupValues, isNew: boolean): Promise<void> {
    for (const each of this.#filesOf(values)) {
      const mountPoint = this.#mountPointOf(each.controller);
      if (mountPoint !== undefined) await this.#writeValue(join(mountPoint, path), each, isNew);
    }
  }

  #filesOf(values: CgroupValues): readonly CgroupFile[] {
    return this.#hierarchies.kind === "v2" ? v2Files(values) : v1Files(values);
  }

  /** A file that this kernel does not have (no CFS bandwidth, say) is left out; a value it does not take fails. */
  async #writeValue(folder: string, value: CgroupFile, isNew: boolean): Promise<void> {
    const { file, content, isOptional = false } = value;
    const path = join(folder, file);
    try {
      if (isNew) writeFileSync(path, content);
      else await writeFile(path, content);
    } catch (error) {
      if ((await exists(path)) || !(await exists(folder)))
        throw new PicoletError("failed", `cannot write ${content} to ${path}`, { cause: error });
      if (isOptional || this.#unsupported.has(file)) return;
      this.#unsupported.add(file);
      this.#log.warn("this kernel has no such cgroup value: it is not enforced", { file });
    }
  }

  #mountPointOf(controller: string): string | undefined {
    switch (this.#hierarchies.kind) {
      case "v1":
        return this.#hierarchies.controllers.get(controller);
      case "v2":
        return this.#hierarchies.controllers.has(controller) ? this.#hierarchies.mountPoint : undefined;
      case "none":
        return undefined;
    }
  }

  /** @returns what was in the way, `undefined` when all is gone. */
  async #removeEverywhere(path: string): Promise<unknown> {
    let busy: unknown;
    for (const mountPoint of this.#allMountPoints)
      for (const folder of (await foldersWithin(join(mountPoint, path))).reverse()) {
        const failure = await rmdir(folder).then(
          () => undefined,
          (error: unknown) => error,
        );
        if (failure !== undefined && errnoOf(failure) !== "ENOENT") busy = failure;
      }
    return busy;
  }

  #refuse(why: string, error: unknown): void {
    this.#access = "refused";
    this.#log.warn("no cgroups here: pods run without resource limits", {
      why,
      ...(error !== undefined && { error: systemErrorCode(error) }),
    });
  }
}

/** The controllers that the kubelet requires of cgroups that it limits. */
const KUBELETS: ReadonlySet<string> = new Set(["cpu", "cpuset", "memory", "pids", "hugetlb"]);
const isSlice = (path: string): boolean => path.endsWith(SLICE);
function mountPointsOf(hierarchies: CgroupHierarchies): readonly string[] {
  switch (hierarchies.kind) {
    case "v1":
      return [...new Set(hierarchies.controllers.values())];
    case "v2":
      return [hierarchies.mountPoint];
    case "none":
      return [];
  }
}

/** @throws `invalid` for a path that could lead out of the hierarchy. */
function segmentsOf(path: string): string[] {
  const segments = path.split("/").filter((segment) => segment !== "");
  if (!path.startsWith("/") || path.includes("\0") || segments.some((each) => each === "." || each === ".."))
    throw new PicoletError("invalid", `cannot use cgroup path ${JSON.stringify(path)}`);
  return segments;
}

const isRefusal = (error: unknown): boolean => ["EACCES", "EPERM", "EROFS"].includes(systemErrorCode(error));

/** The code of the system call, also when the error of a write wraps it. */
const systemErrorCode = (error: unknown): string => errnoOf(isPicoletError(error) ? error.cause : error);
