import { joinSignals } from "../../protocol/async/abort.ts";
import {
  type CgroupSettings,
  type CgroupValues,
  cpuSharesOf,
  podCgroupPath,
  podCgroupValues,
  tierCgroupPath,
  tierCpuShares,
} from "../../protocol/cgroup-values.ts";
import { describeError, isCancelled, PicoletError } from "../../protocol/errors.ts";
import type { Pod, QosClass } from "../../protocol/pod.ts";
import { type Clock, type Log, seconds } from "../../protocol/ports.ts";
import { qosClass } from "../../protocol/qos.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import type { PodCgroupValues, PodResources } from "../core/pod-resources.ts";
import type { CgroupTree } from "./cgroup-tree.ts";

/** A killed process that is still there then hangs in the kernel; the removal is tried again later. */
const KILL_TIMEOUT = seconds(5);
const TIERS: readonly QosClass[] = ["Guaranteed", "Burstable", "BestEffort"];
const POD_PREFIX = "pod";

export interface PodCgroupsInit {
  /** Where `kubepods` is made: "/" or "" for the top of every hierarchy. */
  readonly cgroupRoot: string;
  /** False: no tiers and no pod cgroups; containers go right below `cgroupRoot`. */
  readonly cgroupsPerQOS: boolean;
  readonly settings: CgroupSettings;
  readonly nodeCpus: number;
}

/** The cgroups of pods and of their QoS tiers, where the kubelet with the cgroupfs driver has them. */
export class PodCgroups implements PodResources {
  readonly #cgroups: CgroupTree;
  readonly #pods: () => Iterable<Pod>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #init: PodCgroupsInit;
  /** What was last written into the burstable tier; `undefined`: the tiers are not made yet. */
  #burstableShares: number | undefined;

  /** @param components `pods`: every pod this node is to run; the burstable tier is weighed by what they ask for. */
  constructor(
    components: {
      readonly cgroups: CgroupTree;
      readonly pods: () => Iterable<Pod>;
      readonly clock: Clock;
      readonly log: Log;
    },
    init: PodCgroupsInit,
  ) {
    this.#cgroups = components.cgroups;
    this.#pods = components.pods;
    this.#clock = components.clock;
    this.#log = components.log;
    this.#init = init;
  }

  /** cgroupfs path such as `/kubepods/burstable/pod<uid>`; "" when there is none, known for sure after `ensure`. */
  pathOf(pod: DesiredPod): string {
    if (!this.#cgroups.usable) return "";
    if (!this.#init.cgroupsPerQOS) return this.#init.cgroupRoot.replace(/\/+$/, "");
    return podCgroupPath(this.#init.cgroupRoot, qosClass(pod.pod), checkedUid(pod.uid));
  }

  /**
   * Makes it with its tiers. The values of one in which something runs stay: they change only in step with what runs there.
   * Where there are no cgroups it does nothing.
   */
  async ensure(pod: DesiredPod): Promise<void> {
    if (!this.#init.cgroupsPerQOS) return;
    await this.#ensureTiers();
    if (!this.#cgroups.usable || (await this.#cgroups.pids(this.pathOf(pod))).size > 0) return;
    await this.#cgroups.create(this.pathOf(pod), this.wanted(pod));
  }

  wanted({ pod }: DesiredPod): CgroupValues {
    return podCgroupValues(pod, this.#init.settings);
  }

  async current(pod: DesiredPod): Promise<PodCgroupValues | undefined> {
    const path = this.pathOf(pod);
    if (path === "" || !this.#init.cgroupsPerQOS) return undefined;
    const [cpuShares, cpuQuotaUs, memoryLimitBytes] = await Promise.all([
      this.#cgroups.value(path, "cpuShares"),
      this.#cgroups.value(path, "cpuQuotaUs"),
      this.#cgroups.value(path, "memoryLimitBytes"),
    ]);
    // A kernel without one of the controllers enforces none of that.
    if (cpuShares === undefined && memoryLimitBytes === undefined) return undefined;
    return { cpuShares: cpuShares ?? 0, cpuQuotaUs: cpuQuotaUs ?? -1, memoryLimitBytes: memoryLimitBytes ?? -1 };
  }

  async write(pod: DesiredPod, values: CgroupValues): Promise<void> {
    await this.#ensureTiers();
    await this.#cgroups.create(this.pathOf(pod), values);
  }

  async memoryUsage(pod: DesiredPod, containerId?: string): Promise<number | undefined> {
    const path = this.pathOf(pod);
    if (path === "") return undefined;
    if (containerId === undefined) return await this.#cgroups.value(path, "memoryUsageBytes");
    // Runtimes put something of their own before or behind the id.
    const own = [...(await this.#cgroups.children(path))].find((name) => name.includes(containerId));
    return own === undefined ? undefined : await this.#cgroups.value(`${path}/${own}`, "memoryUsageBytes");
  }

  /**
   * Kills what is left in it and removes it.
   * @throws `deadline_exceeded` or `conflict`, to be tried again, when a process does not go
   */
  async remove(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    const path = this.pathOf(pod);
    if (path === "" || !this.#init.cgroupsPerQOS) return;
    const left = await this.#cgroups.pids(path);
    if (left.size > 0) {
      this.#log.info("killing processes that outlived their pod", { pod: pod.uid, processes: left.size });
      await this.#kill(path, signal);
    }
    await this.#cgroups.remove(path);
    if (this.#burstableShares !== undefined) await this.#ensureTiers();
  }

  /** Removes cgroups of pods that nobody knows and in which nothing runs. @returns their uids. */
  async sweep(known: Pick<ReadonlySet<string>, "has">): Promise<readonly string[]> {
    const removed: string[] = [];
    if (!this.#init.cgroupsPerQOS || !this.#cgroups.usable) return removed;
    for (const tier of TIERS) {
      const parent = tierCgroupPath(this.#init.cgroupRoot, tier);
      for (const name of await this.#cgroups.children(parent)) {
        const uid = name.startsWith(POD_PREFIX) ? name.slice(POD_PREFIX.length) : "";
        if (uid === "" || known.has(uid)) continue;
        const path = `${parent}/${name}`;
        if ((await this.#cgroups.pids(path)).size > 0) continue;
        try {
          await this.#cgroups.remove(path);
          removed.push(uid);
        } catch (error) {
          this.#log.warn("cannot remove an orphaned pod cgroup", { path, error: describeError(error) });
        }
      }
    }
    return removed;
  }

  async #ensureTiers(): Promise<void> {
    const { cgroupRoot, nodeCpus } = this.#init;
    const burstable = tierCpuShares("Burstable", [...this.#pods()]);
    if (burstable === this.#burstableShares) return;
    if (this.#burstableShares === undefined) {
      const all = { cpuShares: cpuSharesOf(BigInt(nodeCpus) * 1000n) };
      if ((await this.#cgroups.create(tierCgroupPath(cgroupRoot, "Guaranteed"), all)) === undefined) return;
      const least = { cpuShares: tierCpuShares("BestEffort", []) };
      await this.#cgroups.create(tierCgroupPath(cgroupRoot, "BestEffort"), least);
    }
    await this.#cgroups.create(tierCgroupPath(cgroupRoot, "Burstable"), { cpuShares: burstable });
    this.#burstableShares = burstable;
  }

  async #kill(path: string, signal: AbortSignal): Promise<void> {
    using limit = joinSignals(signal);
    const timer = this.#clock.sleep(KILL_TIMEOUT, limit.signal).then(
      () => limit.abort(),
      () => undefined,
    );
    try {
      await this.#cgroups.kill(path, limit.signal);
    } catch (error) {
      if (!isCancelled(error) || signal.aborted) throw error;
      throw new PicoletError("deadline_exceeded", `cannot kill what is left in cgroup ${path}`, { retryable: true });
    } finally {
      limit.abort();
      await timer;
    }
  }
}

/** A uid becomes one name in a file system. */
function checkedUid(uid: string): string {
  if (uid === "" || uid === "." || uid === ".." || /[/\0]/.test(uid))
    throw new PicoletError("invalid", `cannot name a cgroup after uid ${JSON.stringify(uid)}`);
  return uid;
}
