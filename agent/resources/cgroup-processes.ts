import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import { foldersWithin, readText } from "./cgroup-filesystem.ts";
import type { CgroupHierarchies } from "./cgroup-hierarchies.ts";

/** The wait between two checks of killed processes. They end in well under a millisecond unless in disk sleep. */
const KILL_WAIT: BackoffPolicy = { first: millis(2), max: millis(100) };

/** The processes of cgroups: which there are, and the end of all of them. */
export class CgroupProcesses {
  readonly #clock: Clock;
  readonly #hierarchies: CgroupHierarchies;
  readonly #mountPoints: readonly string[];

  constructor(
    components: { readonly clock: Clock },
    init: { readonly hierarchies: CgroupHierarchies; readonly mountPoints: readonly string[] },
  ) {
    this.#clock = components.clock;
    this.#hierarchies = init.hierarchies;
    this.#mountPoints = init.mountPoints;
  }

  /** Every process in `path` and below, in whichever hierarchy; those of other pid namespaces cannot be named. */
  async pids(path: string): Promise<ReadonlySet<number>> {
    const pids = new Set<number>();
    for (const mountPoint of this.#mountPoints)
      for (const folder of await foldersWithin(join(mountPoint, path)))
        for (const line of (await readText(join(folder, "cgroup.procs"))).split("\n")) {
          const pid = Number(line);
          // kill(0) would be this process's own group, 1 is init; neither is ever a pod's process.
          if (Number.isInteger(pid) && pid > 1 && pid !== process.pid) pids.add(pid);
        }
    return pids;
  }

  /** Waits until no process is left. @throws only `cancelled` */
  async kill(path: string, signal: AbortSignal): Promise<void> {
    for (let kills = 1; ; kills += 1) {
      const pids = await this.pids(path);
      if (pids.size === 0) return;
      await this.#killOnce(path, pids);
      await this.#clock.sleep(backoffDelay(KILL_WAIT, kills), signal);
    }
  }

  /** Held still while it is killed, where the kernel can, so that nothing is forked in between. */
  async #killOnce(path: string, pids: ReadonlySet<number>): Promise<void> {
    if (this.#hierarchies.kind === "v2") {
      const done = await writeFile(join(this.#hierarchies.mountPoint, path, "cgroup.kill"), "1", { flag: "r+" }).then(
        () => true,
        () => false,
      );
      if (done) return;
    }
    const freezer = this.#hierarchies.kind === "v1" ? this.#hierarchies.controllers.get("freezer") : undefined;
    const freezerState = freezer === undefined ? undefined : join(freezer, path, "freezer.state");
    if (freezerState !== undefined)
      await writeFile(freezerState, "FROZEN", { flag: "r+" }).catch(ignore("it costs the guarantee, not the kill"));
    const all = freezerState === undefined ? pids : new Set([...pids, ...(await this.pids(path))]);
    for (const pid of all) killProcess(pid);
    if (freezerState !== undefined)
      await writeFile(freezerState, "THAWED", { flag: "r+" }).catch(ignore("the next round writes it again"));
  }
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    ignore("gone already; what may not be killed shows when the cgroup does not get empty");
  }
}
