/** Makes a container out of a pod's wish: everything is looked at first, then its state folder stands, then it starts. */
import { createHash } from "node:crypto";
import { closeSync, fchownSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { dirname } from "node:path";
import { type CgroupSettings, containerCgroupValues, oomScoreAdj } from "../../protocol/cgroup-values.ts";
import { isPicoletError, PicoletError } from "../../protocol/errors.ts";
import type { Pod, ResourceRequirements } from "../../protocol/pod.ts";
import type { Clock, Log, Millis } from "../../protocol/ports.ts";
import type { CgroupPort } from "../contract/cgroups.ts";
import type { ContainerLaunch, DesiredPod, Mount } from "../contract/runtime-adapter.ts";
import { checkInitialMemory } from "./binary/memory-limits.ts";
import {
  argumentsOf,
  type ContainerSpec,
  checkShape,
  containerSpec,
  findContainer,
  identityOf,
  memoryLimitOf,
} from "./container-launch.ts";
import { ContainerRun, type ContainerRunComponents } from "./container-run.ts";
import type { ImageStore } from "./image/image-store.ts";
import type { RunnerLaunch, TranspiledComponent } from "./launch.ts";
import { RUNNER_FLAGS } from "./node-flags.ts";
import { refuseEphemeral } from "./refusals.ts";
import type { ContainerFile, SandboxFile } from "./state/state-files.ts";
import type { Transpiler } from "./transpile/transpiler.ts";

export interface ContainerStarterComponents extends ContainerRunComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly cgroups: CgroupPort | undefined;
  readonly images: ImageStore;
  readonly transpiler: Transpiler;
}

export interface ContainerStarterInit {
  readonly nodePath: string;
  readonly runnerPath: string;
  readonly cgroupSettings: CgroupSettings;
  readonly startTimeout: Millis;
}

export type SandboxRecord = Omit<SandboxFile, "desired"> & { stopped: boolean };

/** Everything about a container that is known before it is made. */
interface Prepared {
  readonly spec: ContainerSpec;
  /** What the pod as a whole may take. */
  readonly ofPod: Pod["spec"]["resources"];
  readonly runner: Omit<RunnerLaunch, "logPath" | "endPath">;
  readonly oomScoreAdj: number;
}

const ROOT_UID = 0;
const LOG_MODE = 0o640;
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
    const run = this.#make(pod, sandbox, launch, prepared);
    onMade(run);
    try {
      await this.#run(run, prepared, signal);
      return run;
    } catch (error) {
      // What the shell or Node itself complained of goes with the folder.
      const complaint = this.#components.state.fatal(pod.uid, run.file.id);
      await run.destroy();
      const message = `cannot start container ${launch.name}${complaint === "" ? "" : ` (${complaint})`}`;
      throw explained(error, message, "RunContainerError");
    }
  }

  /** One that an agent before this one made; `adopt` tells what became of it. */
  adopted(file: ContainerFile): ContainerRun {
    return new ContainerRun(this.#components, file);
  }

  /**
   * In place are CPU and the memory of the whole process. What a component has of its own, its linear memory, keeps the
   * limit that it was started with: more of that takes a restart, which is what `resizePolicy` is for.
   * @throws `not_found` when it does not run, `invalid` for less memory than a runner needs
   */
  async update(run: ContainerRun, { pod }: DesiredPod, resources: ResourceRequirements): Promise<void> {
    const { file } = run;
    if (run.reaper === undefined) {
      throw new PicoletError("not_found", `cannot update container ${file.id}: it does not run`);
    }
    const spec = { ...containerSpec(pod, file.name), resources };
    memoryLimitOf(pod, spec);
    await this.#makeCgroup(file, { spec, ofPod: pod.spec.resources });
    run.keep(resources);
  }

  async #prepare(desired: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<Prepared> {
    const { pod } = desired;
    refuseEphemeral(pod, launch.name);
    const spec = containerSpec(pod, launch.name);
    const memoryLimitBytes = memoryLimitOf(pod, spec);
    const identity = identityOf(desired, spec, process.getuid?.() ?? ROOT_UID);
    const { path, blob } = await this.#components.images.component(launch.image.id, signal);
    checkShape(blob, launch.image.requested);
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
      emptyDirectory: this.#components.state.emptyDirectory,
      identity,
    };
    return { spec, ofPod: pod.spec.resources, runner, oomScoreAdj: oomScoreAdj(pod, spec, totalmem()) };
  }

  async #transpiled(sha256: string, path: string, signal: AbortSignal): Promise<TranspiledComponent> {
    try {
      return await this.#components.transpiler.get(sha256, path, signal);
    } catch (error) {
      throw explained(error, "cannot make the component runnable", "CreateContainerError");
    }
  }

  #make(pod: DesiredPod, sandbox: SandboxRecord, launch: ContainerLaunch, prepared: Prepared): ContainerRun {
    const { state, clock } = this.#components;
    const createdAtMs = clock.wall().getTime();
    const id = containerId(sandbox.id, launch, createdAtMs);
    const logPath = `${sandbox.logDirectory}/${launch.logPath}`;
    const file: ContainerFile = {
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
    };
    mkdirSync(dirname(logPath), { recursive: true });
    state.writeContainer(file, { ...prepared.runner, logPath, endPath: state.endPath(pod.uid, id) });
    return new ContainerRun(this.#components, file);
  }

  async #run(run: ContainerRun, prepared: Prepared, signal: AbortSignal): Promise<void> {
    const { state, clock } = this.#components;
    const { uid, id } = run.file;
    const { nodePath, runnerPath, startTimeout: timeout } = this.#init;
    const procsFiles = await this.#makeCgroup(run.file, prepared);
    createLog(run.file);
    const reaper = {
      directory: state.container(uid, id),
      exitPath: state.exitPath(id),
      oomScoreAdj: prepared.oomScoreAdj,
      procsFiles,
      command: [nodePath, ...RUNNER_FLAGS, runnerPath, state.launchPath(uid, id)],
    };
    const onReaperEnd = (): void => void run.reaperEnded();
    // With Node's child processes: 0.7 MiB that an agent without components does not need.
    const { startRunner } = await import("./start-runner.ts");
    await startRunner(clock, { reaper, fatalFd: state.openFatal(uid, id), timeout, onReaperEnd }, signal);
    if (!run.markRunning()) throw new PicoletError("internal", "the runner started without its reaper");
    this.#lookAtOomScore(run, prepared.oomScoreAdj);
    await run.takeExit();
  }

  async #makeCgroup(
    { cgroupPath }: ContainerFile,
    { spec, ofPod }: Pick<Prepared, "spec" | "ofPod">,
  ): Promise<readonly string[]> {
    if (cgroupPath === undefined) return [];
    const values = containerCgroupValues(spec, this.#init.cgroupSettings, ofPod);
    return (await this.#components.cgroups?.create(cgroupPath, values))?.procsFiles ?? [];
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

/** All but the hosts file that every container gets: nothing of a component looks up names in it. */
function mountsOf(pod: Pod, { name, mounts }: ContainerLaunch): readonly Mount[] {
  const own = new Set(findContainer(pod, name)?.volumeMounts?.map(({ mountPath }) => mountPath));
  return mounts.filter(({ containerPath }) => containerPath !== HOSTS_FILE || own.has(HOSTS_FILE));
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

/** There before anything is written, so that who follows it finds it; the runner's own, who may not be root any more. */
export function createLog({ logPath, identity }: ContainerFile): void {
  const fd = openSync(logPath, "a", LOG_MODE);
  try {
    if (identity !== undefined) fchownSync(fd, identity.uid, identity.gid);
  } finally {
    closeSync(fd);
  }
}

function oomScoreOf(pid: number): number | undefined {
  try {
    return Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"));
  } catch {
    return undefined;
  }
}
