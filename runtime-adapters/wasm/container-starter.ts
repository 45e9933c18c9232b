/** Makes a container out of a pod's wish: everything is looked at first, then its state folder stands, then it starts. */
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { dirname } from "node:path";
import {
  type CgroupSettings,
  type CgroupValues,
  containerCgroupValues,
  oomScoreAdj,
} from "../../protocol/cgroup-values.ts";
import { isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Pod } from "../../protocol/pod.ts";
import type { Clock, Log, Millis } from "../../protocol/ports.ts";
import type { CgroupPort } from "../contract/cgroups.ts";
import type { Action, ContainerLaunch, Cpuset, DesiredPod, Mount } from "../contract/runtime-adapter.ts";
import { asyncNames, type ComponentShape, refuseAsync } from "./binary/component-shape.ts";
import { importsAsyncSockets, importsHttp, importsOutgoing } from "./binary/grants.ts";
import { checkInitialMemory } from "./binary/memory-limits.ts";
import {
  argumentsOf,
  boardLaunchOf,
  type ContainerSpec,
  checkShape,
  containerSpec,
  findContainer,
  identityOf,
  MIN_DENSE_LIMIT_BYTES,
  MIN_SERVED_MEMORY_LIMIT_BYTES,
  memoryLimitOf,
  needsAgent,
  needsDevices,
  peerOf,
  servedAs,
} from "./container-launch.ts";
import { createLog } from "./container-log.ts";
import { ContainerRun, type ContainerRunComponents } from "./container-run.ts";
import { refuseDense } from "./dense/dense-refusals.ts";
import type { DenseStarts } from "./dense/dense-starts.ts";
import type { ImageStore } from "./image/image-store.ts";
import type { Isolation } from "./isolation/isolation.ts";
import type { RunnerLaunch, TranspiledComponent } from "./launch.ts";
import { mayAskHttps, podGrants } from "./pod-grants.ts";
import { refuseEphemeral } from "./refusals.ts";
import type { SparePool } from "./spare/spare-pool.ts";
import type { SpareRunner } from "./spare/spare-runner.ts";
import type { ContainerFile, SandboxFile } from "./state/state-files.ts";
import type { Transpiler } from "./transpile/transpiler.ts";
import type { TrustedAuthorities } from "./trusted-authorities.ts";

export interface ContainerStarterComponents extends ContainerRunComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly images: ImageStore;
  readonly transpiler: Transpiler;
  readonly isolation: Isolation;
  readonly spares: SparePool;
  readonly authorities: TrustedAuthorities;
  /** Of containers that share a process; loaded with the first of them. */
  readonly dense: () => Promise<DenseStarts>;
}

export interface ContainerStarterInit {
  readonly cgroupSettings: CgroupSettings;
  readonly startTimeout: Millis;
  /** Beside which packages are found. */
  readonly runnerPath: string;
  /** Whether components of WASI 0.3 are run. */
  readonly p3: boolean;
}

export type SandboxRecord = Omit<SandboxFile, "desired"> & { stopped: boolean };

/** Everything about a container that is known before it is made. */
export interface Prepared {
  /** Whether it shares a process with others. */
  readonly dense: boolean;
  readonly pod: Pod;
  readonly spec: ContainerSpec;
  readonly cpuset: Cpuset | undefined;
  readonly runner: Omit<RunnerLaunch, "logPath" | "endPath">;
  /** Whether it reaches anything of the node's network. */
  readonly network: boolean;
  readonly oomScoreAdj: number;
  readonly peer: ReturnType<typeof peerOf>;
}

type Update = Pick<Extract<Action, { kind: "updateContainer" }>, "resources" | "cpuset">;

/** What is not said is as it is in the cgroup above. */
const cpusetValues = (cpuset: Cpuset | undefined): CgroupValues => ({
  cpusetCpus: cpuset?.cpus || undefined,
  cpusetMems: cpuset?.mems || undefined,
});

/** A clock that is set may still be corrected by this much. */
const CLOCK_TOLERANCE_MS = 120_000;
const ROOT_UID = 0;
/** Threads and processes of a container: Node has some ten, and the shell and what makes the jail come before it. */
const MAX_TASKS = 64;
const TOKEN_BYTES = 32;
const HOSTS_FILE = "/etc/hosts";

export class ContainerStarter {
  readonly #components: ContainerStarterComponents;
  readonly #init: ContainerStarterInit;
  #oomScoreRefused = false;

  constructor(components: ContainerStarterComponents, init: ContainerStarterInit) {
    this.#components = components;
    this.#init = init;
  }

  /**
   * @param onMade is given the container as soon as it stands, before it runs.
   * @throws with the reasons that a kubelet gives; nothing is left of the container then.
   */
  async start(
    pod: DesiredPod,
    sandbox: SandboxRecord,
    launch: ContainerLaunch,
    onMade: (run: ContainerRun) => void,
    signal: AbortSignal,
  ): Promise<ContainerRun> {
    const prepared = await this.#prepare(pod, launch, signal);
    if (prepared.dense) {
      const newFile = (): ContainerFile => this.#newFile(pod, sandbox, launch, prepared);
      return (await this.#components.dense()).start(newFile, prepared, onMade, signal);
    }
    const attempt = async (spare?: SpareRunner): Promise<ContainerRun | undefined> => {
      const run = this.#make(pod, sandbox, launch, prepared);
      onMade(run);
      try {
        if (await this.#run(run, prepared, spare, signal)) return run;
        await run.destroy();
        return undefined;
      } catch (error) {
        // What the shell or Node itself complained of goes with the folder.
        const complaint = this.#components.state.fatal(pod.uid, run.file.id);
        await run.destroy();
        throw cannotStart(launch.name, error, complaint);
      }
    };
    // A first start may take its time; what has ended is to run again.
    const spare = launch.attempt > 0 ? await this.#spare(prepared) : undefined;
    // Nobody else knows of it any more, and nothing that it is told reaches one that runs.
    const warm = spare && (await attempt(spare).finally(() => spare.giveUp()));
    const run = warm ?? (await attempt());
    if (run === undefined) throw new PicoletError("internal", "a runner of its own cannot be the wrong one");
    this.#components.spares.refill(prepared.network);
    return run;
  }

  async #spare({ runner, network }: Prepared): Promise<SpareRunner | undefined> {
    const { isolation, spares } = this.#components;
    return (await isolation.canBeSpare(runner.identity)) ? spares.take(network) : undefined;
  }

  /** All that a start looks at before anything of the container is made. @throws as `start` would */
  async check(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    await this.#prepare(pod, launch, signal);
  }

  /** One that an agent before this one made; `adopt` tells what became of it. */
  async adopted(file: ContainerFile): Promise<ContainerRun> {
    return file.dense === undefined
      ? new ContainerRun(this.#components, file)
      : (await this.#components.dense()).adopted(file, file.dense.host);
  }

  /**
   * In place are CPU and the memory of the whole process. What a component has of its own, its linear memory, keeps the
   * limit that it was started with: more of that takes a restart, which is what `resizePolicy` is for.
   * @throws `not_found` when it does not run, `invalid` for less memory than a runner needs
   */
  async update(run: ContainerRun, { pod }: DesiredPod, { resources, cpuset }: Update): Promise<void> {
    const { file } = run;
    if (run.reaper === undefined) {
      throw new PicoletError("not_found", `cannot update container ${file.id}: it does not run`);
    }
    if (resources === undefined) {
      if (file.cgroupPath !== undefined) await this.#components.cgroups?.create(file.cgroupPath, cpusetValues(cpuset));
      return;
    }
    const spec = { ...containerSpec(pod, file.name), resources };
    memoryLimitOf(pod, spec, leastMemory(file.dense !== undefined));
    if (file.dense === undefined) {
      await this.#makeCgroup(file, { spec, pod, cpuset });
      run.keep({ resources });
    } else {
      const dense = { host: file.dense.host, values: containerCgroupValues(spec, this.#init.cgroupSettings, pod) };
      run.keep({ resources, dense });
      await (await this.#components.dense()).update(dense.host);
    }
  }

  async #prepare(desired: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<Prepared> {
    const { pod } = desired;
    refuseEphemeral(pod, launch.name);
    const spec = containerSpec(pod, launch.name);
    const grants = podGrants(pod);
    const memoryLimitBytes = memoryLimitOf(pod, spec, leastMemory(grants.dense));
    const identity = identityOf(desired, spec, process.getuid?.() ?? ROOT_UID);
    const { path, blob } = await this.#components.images.component(launch.image.id, signal);
    const image = launch.image.requested;
    if (!this.#init.p3) refused(() => refuseAsync(blob));
    const p3 = asyncNames(blob).length > 0;
    const serve = servedAs(blob, image, grants.http, findContainer(pod, launch.name) ?? {});
    // Of a process of its own; one that is shared is not bounded by the container's limit.
    if (serve !== undefined && !grants.dense) memoryLimitOf(pod, spec, MIN_SERVED_MEMORY_LIMIT_BYTES, "to serve HTTP");
    if (serve !== undefined) {
      const { refuseTakenPort } = await import("./served-ports.ts");
      await refuseTakenPort(pod, launch.name, serve.port, grants.http, (each) => this.#shapeOf(each, signal));
    }
    const network = grants.network !== undefined || serve !== undefined;
    checkShape(blob, image, grants.interfaces, network);
    if (grants.dense) {
      const unjailed = await this.#components.isolation.unjailed(identity);
      refuseDense({ ownCpus: launch.cpuset?.exclusive === true, devices: needsDevices(blob), p3, unjailed });
    }
    const asksAgent = needsAgent(blob);
    const token = asksAgent ? randomBytes(TOKEN_BYTES).toString("hex") : undefined;
    const board = boardLaunchOf(desired, launch.name, grants, token);
    const asksHttps = importsOutgoing(blob.imports) && mayAskHttps(grants);
    const authorities = asksHttps ? await this.#components.authorities.read() : undefined;
    const component = await this.#transpiled(blob.sha256, path, signal);
    if (memoryLimitBytes !== undefined) {
      checkInitialMemory(
        component.modules.flatMap((each) => each.memories),
        memoryLimitBytes,
      );
    }
    const runner = {
      component,
      memoryLimitBytes,
      args: argumentsOf(launch),
      env: launch.env.map(({ name, value }) => [name, value] as const),
      workingDir: launch.workingDir === "" ? undefined : launch.workingDir,
      mounts: mountsOf(pod, launch).map(({ containerPath, hostPath, readOnly }) => ({
        guestPath: containerPath,
        hostPath,
        readOnly,
      })),
      timeFloorMs: this.#components.clock.wall().getTime() - CLOCK_TOLERANCE_MS,
      eventLoop: !p3 && (grants.eventLoop || asksAgent || serve !== undefined),
      board: board && {
        ...board,
        serviceDirectory: this.#components.state.servicesDirectory,
        addonPath: needsDevices(blob) ? await this.#addonPath() : undefined,
      },
      network: grants.network,
      http: serve !== undefined || importsHttp(blob.imports),
      authorities,
      serve,
      p3,
      sockets: importsAsyncSockets(blob.imports),
      emptyDirectory: this.#components.state.emptyDirectory,
      identity,
    };
    const score = oomScoreAdj(pod, spec, totalmem());
    const peer = peerOf(desired, launch.name, grants);
    return { dense: grants.dense, pod, spec, runner, peer, network, cpuset: launch.cpuset, oomScoreAdj: score };
  }

  /** Of another container's image; what is wrong with it is said when that starts. */
  async #shapeOf(image: string, signal: AbortSignal): Promise<ComponentShape | undefined> {
    try {
      const info = await this.#components.images.status(image, signal);
      return info && (await this.#components.images.component(info.id, signal)).blob;
    } catch (error) {
      if (isPicoletError(error, "cancelled")) throw error;
      return undefined;
    }
  }

  /** @throws `unimplemented` where nothing can be opened. */
  async #addonPath(): Promise<string> {
    const { deviceAddon } = await import("./devices/device-addon.ts");
    return deviceAddon(this.#init.runnerPath);
  }

  async #transpiled(sha256: string, path: string, signal: AbortSignal): Promise<TranspiledComponent> {
    try {
      return await this.#components.transpiler.get(sha256, path, signal);
    } catch (error) {
      throw explained(error, "cannot make the component runnable", "CreateContainerError");
    }
  }

  #make(pod: DesiredPod, sandbox: SandboxRecord, launch: ContainerLaunch, prepared: Prepared): ContainerRun {
    const file = this.#newFile(pod, sandbox, launch, prepared);
    mkdirSync(dirname(file.logPath), { recursive: true });
    this.#components.state.writeContainer(file);
    return new ContainerRun(this.#components, file);
  }

  /** With an id of its own each time. */
  #newFile(pod: DesiredPod, sandbox: SandboxRecord, launch: ContainerLaunch, prepared: Prepared): ContainerFile {
    const { clock } = this.#components;
    const createdAtMs = clock.wall().getTime();
    const id = containerId(sandbox.id, launch, createdAtMs);
    const logPath = `${sandbox.logDirectory}/${launch.logPath}`;
    return {
      id,
      uid: pod.uid,
      name: launch.name,
      attempt: launch.attempt,
      sandboxId: sandbox.id,
      createdAtMs,
      hash: launch.hash,
      backoff: launch.backoff,
      image: launch.image.requested,
      imageId: launch.image.id,
      logPath,
      identity: prepared.runner.identity,
      cgroupPath: sandbox.cgroupParent === "" ? undefined : `${sandbox.cgroupParent}/${id}`,
      resources: prepared.spec.resources,
      services: servicesOf(id, prepared),
    };
  }

  /** @returns false when the spare could not become its runner */
  async #run(
    run: ContainerRun,
    prepared: Prepared,
    spare: SpareRunner | undefined,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { state, clock, isolation } = this.#components;
    const { uid, id } = run.file;
    const { startTimeout: timeout } = this.#init;
    createLog(run.file);
    const folder = state.container(uid, id);
    const whole = { ...prepared.runner, logPath: run.file.logPath, endPath: state.endPath(uid, id) };
    const place = { directory: folder, exitPath: state.exitPath(id), oomScoreAdj: prepared.oomScoreAdj };
    const reaper = async () => ({ ...place, procsFiles: await this.#makeCgroup(run.file, prepared) });
    const onReaperEnd = (): void => void run.reaperEnded();
    if (spare === undefined) {
      const { command, launch } = await isolation.runner(whole, { folder, network: prepared.network });
      state.writeLaunch(uid, id, launch);
      // With Node's child processes: 0.7 MiB that an agent without components does not need.
      const { startRunner } = await import("./start-runner.ts");
      const start = {
        reaper: { ...(await reaper()), command },
        fatalFd: state.openFatal(uid, id),
        timeout,
        onReaperEnd,
      };
      await startRunner(clock, start, signal);
    } else {
      const { fstab, launch } = await isolation.furnish(whole, folder);
      state.writeLaunch(uid, id, launch);
      const given = { reaper, fstab, fatalPath: state.fatalPath(uid, id), timeout, onReaperEnd };
      if (!(await spare.become(clock, given, signal).finally(() => spare.giveUp()))) return false;
    }
    if (!run.markRunning()) throw new PicoletError("internal", "the runner started without its reaper");
    this.#lookAtOomScore(run, prepared.oomScoreAdj);
    await run.takeExit();
    return true;
  }

  async #makeCgroup(
    { cgroupPath }: ContainerFile,
    { spec, pod, cpuset }: Pick<Prepared, "spec" | "pod" | "cpuset">,
  ): Promise<readonly string[]> {
    if (cgroupPath === undefined) return [];
    const values = containerCgroupValues(spec, this.#init.cgroupSettings, pod);
    const own = { ...values, ...cpusetValues(cpuset), pidsLimit: MAX_TASKS };
    const isUnlimited = cpuset?.exclusive === true && values.cpuQuotaUs !== undefined;
    const group = await this.#components.cgroups?.create(cgroupPath, isUnlimited ? { ...own, cpuQuotaUs: -1 } : own);
    return group?.procsFiles ?? [];
  }

  /** Without CAP_SYS_RESOURCE it cannot be lowered, which is worth one word and no failure. */
  #lookAtOomScore(run: ContainerRun, wanted: number): void {
    if (this.#oomScoreRefused || run.reaper === undefined) return;
    const actual = oomScoreOf(run.reaper.pid);
    if (actual === undefined || actual === wanted) return;
    this.#oomScoreRefused = true;
    this.#components.log.warn("oom_score_adj cannot be set: the kernel chooses for itself whom it kills first", {
      wanted,
      actual,
    });
  }
}

const leastMemory = (dense: boolean): number | undefined => (dense ? MIN_DENSE_LIMIT_BYTES : undefined);

/** @param complaint of Node or the shell; "": none */
export const cannotStart = (name: string, error: unknown, complaint: string): PicoletError =>
  explained(error, `cannot start container ${name}${complaint === "" ? "" : ` (${complaint})`}`, "RunContainerError");

function servicesOf(containerId: string, { runner, peer }: Prepared): ContainerFile["services"] {
  const token = runner.board?.token;
  return token === undefined ? undefined : { token, peer: { ...peer, containerId } };
}

/** All but the hosts file that every container gets: nothing of a component looks up names in it. */
function mountsOf(pod: Pod, { name, mounts }: ContainerLaunch): readonly Mount[] {
  const own = new Set(findContainer(pod, name)?.volumeMounts?.map(({ mountPath }) => mountPath));
  return mounts.filter(({ containerPath }) => containerPath !== HOSTS_FILE || own.has(HOSTS_FILE));
}

/** As what is wrong with an image is told. */
function refused(check: () => void): void {
  try {
    check();
  } catch (error) {
    throw explained(error, "this node does not run the component", "CreateContainerConfigError");
  }
}

/** With the reason that a kubelet shows for it. */
function explained(error: unknown, message: string, reason: string): PicoletError {
  if (!isPicoletError(error)) return new PicoletError("failed", message, { cause: error, reason });
  if (error.code === "cancelled") return error;
  return new PicoletError(error.code, message, { cause: error, retryable: error.retryable, reason });
}

/** Of one attempt and no other, also when an attempt's number comes again after a reboot. */
function containerId(sandboxId: string, launch: ContainerLaunch, createdAtMs: number): string {
  const identity = [sandboxId, launch.name, launch.attempt, createdAtMs].join("\n");
  return createHash("sha256").update(identity).digest("hex");
}

function oomScoreOf(pid: number): number | undefined {
  try {
    return Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"));
  } catch {
    return undefined;
  }
}
