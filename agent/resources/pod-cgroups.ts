import { joinSignals } from "@picolet/protocol/async/abort.ts";
import type { CgroupNames } from "@picolet/protocol/cgroup/cgroup-names.ts";
import { type CgroupSettings, type CgroupValues, podCgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { describeError, ignore, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { Pod, QosClass } from "@picolet/protocol/pod/pod.ts";
import { qosClass } from "@picolet/protocol/pod/qos.ts";
import { type Clock, type Log, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { PodCgroupValues, PodResources } from "../core/pods/pod-cgroup-ports.ts";
import type { CgroupTree } from "./cgroup-tree.ts";
import { TIERS, type TierCgroups } from "./tier-cgroups.ts";

/** A killed process that is still there then hangs in the kernel; the removal is tried again later. */
const KILL_TIMEOUT = seconds(5);

/** Bounds how long the event loop is held; a pod takes 0.1 ms on a PC and ten times that on a small board. */
const SLICE_MS = 3;

export interface PodCgroupsInit {
  /** Where the containers are when pods have no cgroups of their own: "/" or "" for the top of every hierarchy. */
  readonly cgroupRoot: string;
  readonly names: CgroupNames;
  /** False: no tiers and no pod cgroups; containers go right below `cgroupRoot`. */
  readonly cgroupsPerQOS: boolean;
  readonly settings: CgroupSettings;
}

/** The cgroups of pods, where the kubelet with the same driver has them. */
export class PodCgroups implements PodResources {
  readonly #cgroups: CgroupTree;
  readonly #tiers: TierCgroups;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #counts: NodeCounts | undefined;
  readonly #hasExclusiveCpus: ((uid: PodUid) => boolean) | undefined;
  readonly #init: PodCgroupsInit;
  /** Pods whose cgroup was put right, each said once. */
  readonly #reported = new Set<string>();
  /** Computed once for each pod, which never changes: they are compared every minute. */
  readonly #computed = new WeakMap<Pod, { readonly qos: QosClass; readonly values: CgroupValues }>();

  constructor(
    components: {
      readonly cgroups: CgroupTree;
      readonly tiers: TierCgroups;
      readonly clock: Clock;
      readonly log: Log;
      readonly counts?: NodeCounts | undefined;
      /**
       * @returns whether a container of the pod has exclusive CPUs, on which no quota is enforced. Missing: none has.
       */
      readonly hasExclusiveCpus?: ((uid: PodUid) => boolean) | undefined;
    },
    init: PodCgroupsInit,
  ) {
    this.#hasExclusiveCpus = components.hasExclusiveCpus;
    this.#cgroups = components.cgroups;
    this.#tiers = components.tiers;
    this.#clock = components.clock;
    this.#log = components.log;
    this.#counts = components.counts;
    this.#init = init;
  }

  /** cgroupfs path such as `/kubepods/burstable/pod<uid>`; "" when there is none, known for sure after `ensure`. */
  pathOf(pod: DesiredPod): string {
    if (!this.#cgroups.usable) return "";
    if (!this.#init.cgroupsPerQOS) return this.#init.cgroupRoot.replace(/\/+$/, "");
    return this.#init.names.pod(this.#of(pod.pod).qos, pod.uid);
  }

  #of(pod: Pod): { readonly qos: QosClass; readonly values: CgroupValues } {
    const known = this.#computed.get(pod);
    if (known !== undefined) return known;
    const computed = { qos: qosClass(pod), values: podCgroupValues(pod, this.#init.settings) };
    this.#computed.set(pod, computed);
    return computed;
  }

  /**
   * Makes it with its tiers. The values of one in which something runs stay: they change only in step with what runs
   * there. Where there are no cgroups it does nothing.
   */
  async ensure(pod: DesiredPod): Promise<void> {
    if (!this.#init.cgroupsPerQOS) return;
    await this.#tiers.ensure();
    if (!this.#cgroups.usable || (await this.#cgroups.pids(this.pathOf(pod))).size > 0) return;
    await this.#timed("create", () => this.#cgroups.create(this.pathOf(pod), this.wanted(pod)));
  }

  async #timed(operation: "create" | "update" | "destroy", work: () => Promise<unknown>): Promise<void> {
    const began = this.#clock.monotonic();
    await work();
    this.#counts?.observe("kubelet_cgroup_manager_duration_seconds", this.#clock.monotonic() - began, operation);
  }

  wanted({ uid, pod }: DesiredPod): CgroupValues {
    const { values } = this.#of(pod);
    const isUnlimited = values.cpuQuotaUs !== undefined && this.#hasExclusiveCpus?.(uid) === true;
    return isUnlimited ? { ...values, cpuQuotaUs: -1 } : values;
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
    await this.#tiers.ensure();
    await this.#timed("update", () => this.#cgroups.create(this.pathOf(pod), values));
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
    await this.#timed("destroy", () => this.#cgroups.remove(path));
    if (this.#tiers.isMade) await this.#tiers.ensure();
  }

  /**
   * Restores what other processes have changed in the cgroups of the tiers and of these pods.
   * @param pods the pods whose cgroups exist and are not about to change; called again before each is written
   */
  async reconcile(pods: () => readonly DesiredPod[]): Promise<void> {
    if (!this.#init.cgroupsPerQOS || !this.#cgroups.usable) return;
    await this.#tiers.reconcile();
    const current = pods();
    const uids = new Set<string>(current.map(({ uid }) => uid));
    for (const uid of this.#reported) if (!uids.has(uid)) this.#reported.delete(uid);
    let sliceFrom: number = this.#clock.monotonic();
    for (const pod of current) {
      if (this.#clock.monotonic() - sliceFrom >= SLICE_MS) {
        await new Promise<void>((resolve) => void setImmediate(resolve));
        sliceFrom = this.#clock.monotonic();
      }
      const path = this.pathOf(pod);
      const found = this.#cgroups.deviations(path, this.wanted(pod));
      if ((found !== "gone" && found.length === 0) || !pods().includes(pod)) continue;
      await this.#cgroups.create(path, this.wanted(pod));
      if (this.#reported.has(pod.uid)) continue;
      this.#reported.add(pod.uid);
      const fields = { pod: pod.uid, cgroup: path, found: found === "gone" ? "it was removed" : found.join(", ") };
      this.#log.warn("another process changed a pod's cgroup: it is restored", fields);
    }
  }

  /** Removes the cgroups of unknown pods in which nothing runs. @returns their uids */
  async sweep(known: Pick<ReadonlySet<string>, "has">): Promise<readonly string[]> {
    const removed: string[] = [];
    if (!this.#init.cgroupsPerQOS || !this.#cgroups.usable) return removed;
    for (const tier of TIERS) {
      const parent = this.#init.names.tier(tier);
      for (const name of await this.#cgroups.children(parent)) {
        const uid = this.#init.names.uidIn(name);
        if (uid === undefined || known.has(uid)) continue;
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

  async #kill(path: string, signal: AbortSignal): Promise<void> {
    using limit = joinSignals(signal);
    const timer = this.#clock
      .sleep(KILL_TIMEOUT, limit.signal)
      .then(() => limit.abort(), ignore("the processes have ended"));
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
