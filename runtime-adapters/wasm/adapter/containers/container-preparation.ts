import { randomBytes } from "node:crypto";
import { totalmem } from "node:os";
import { oomScoreAdj } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { ContainerLaunch, Cpuset, DesiredPod, Mount } from "@picolet/runtime-contract/runtime-adapter.ts";
import { asyncNames, type ComponentShape, refuseAsync } from "../../shared/binary/component-shape.ts";
import { checkInitialMemory } from "../../shared/binary/memory-limits.ts";
import { importsAsyncSockets, importsHttp, importsOutgoing } from "../../shared/grants/import-grants.ts";
import { allowsHttps, podGrants } from "../../shared/grants/pod-grants.ts";
import type { LogLimitLaunch, RunnerLaunch, TranspiledComponent } from "../../shared/messages/launch.ts";
import type { ImageStore } from "../images/image-store.ts";
import type { Transpiler } from "../images/transpiler.ts";
import type { Isolation } from "../isolation/isolation.ts";
import type { StateFolder } from "../state/state-folder.ts";
import {
  argumentsOf,
  boardLaunchOf,
  type ContainerSpec,
  checkShape,
  containerSpec,
  findContainer,
  identityOf,
  infers,
  leastMemory,
  MIN_INFERRING_MEMORY_LIMIT_BYTES,
  MIN_SERVED_MEMORY_LIMIT_BYTES,
  memoryLimitOf,
  needsAgent,
  needsDevices,
  peerOf,
  serveOptionsOf,
} from "./container-launch.ts";
import { refuseDense, refuseEphemeral } from "./refusals.ts";
import { asRefusal, withReason } from "./start-errors.ts";
import type { TrustedAuthorities } from "./trusted-authorities.ts";

export interface ContainerPreparationComponents {
  readonly clock: Clock;
  readonly images: ImageStore;
  readonly transpiler: Transpiler;
  readonly isolation: Isolation;
  readonly authorities: TrustedAuthorities;
  readonly state: StateFolder;
}

export interface ContainerPreparationInit {
  /** The runner's program; packages are found beside it. */
  readonly runnerPath: string;
  /** True when components of WASI 0.3 may run. */
  readonly p3: boolean;
  /** The limit of each container's log; undefined: it grows without end. */
  readonly logLimit: LogLimitLaunch | undefined;
}

/** Everything about a container that is known before it is made. */
export interface Prepared {
  /** True when it shares a process with others. */
  readonly dense: boolean;
  readonly pod: Pod;
  readonly spec: ContainerSpec;
  readonly cpuset: Cpuset | undefined;
  readonly runner: Omit<RunnerLaunch, "logPath" | "endPath">;
  /** True when it may reach the node's network. */
  readonly network: boolean;
  readonly oomScoreAdj: number;
  readonly peer: ReturnType<typeof peerOf>;
}

/** A clock that is set may still be corrected by this much. */
const CLOCK_TOLERANCE_MS = 120_000;
const ROOT_UID = 0;
const TOKEN_BYTES = 32;
const HOSTS_FILE = "/etc/hosts";

/** Checks everything before anything of a container is made. */
export class ContainerPreparation {
  readonly #components: ContainerPreparationComponents;
  readonly #init: ContainerPreparationInit;

  constructor(components: ContainerPreparationComponents, init: ContainerPreparationInit) {
    this.#components = components;
    this.#init = init;
  }

  /** @throws with the reasons that a kubelet gives */
  async prepare(desired: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<Prepared> {
    const { pod } = desired;
    refuseEphemeral(pod, launch.name);
    const spec = containerSpec(pod, launch.name);
    const grants = podGrants(pod);
    const memoryLimitBytes = memoryLimitOf(pod, spec, leastMemory(grants.dense));
    const identity = identityOf(desired, spec, {
      ownUid: process.getuid?.() ?? ROOT_UID,
      extraGroups: launch.extraGroups,
    });
    const { path, blob } = await this.#components.images.component(launch.image.id, signal);
    const image = launch.image.requested;
    if (!this.#init.p3) asRefusal(() => refuseAsync(blob));
    const p3 = asyncNames(blob).length > 0;
    const serve = serveOptionsOf(blob, image, grants.http, findContainer(pod, launch.name) ?? {});
    // Only in a process of its own: a shared one is not bounded by the container's limit.
    if (serve !== undefined && !grants.dense) memoryLimitOf(pod, spec, MIN_SERVED_MEMORY_LIMIT_BYTES, "to serve HTTP");
    const computes = infers(blob);
    if (computes && !grants.dense) memoryLimitOf(pod, spec, MIN_INFERRING_MEMORY_LIMIT_BYTES, "to compute models");
    if (serve !== undefined) {
      const { refuseTakenPort } = await import("./served-ports.ts");
      await refuseTakenPort(pod, launch.name, serve.port, grants.http, (each) => this.#shapeOf(each, signal));
    }
    const network = grants.network !== undefined || serve !== undefined;
    checkShape(blob, image, grants.interfaces, network);
    if (grants.dense) {
      const unjailed = await this.#components.isolation.unjailed(identity);
      const ownCpus = launch.cpuset?.exclusive === true;
      refuseDense({ ownCpus, devices: needsDevices(blob), infers: computes, p3, unjailed });
    }
    const asksAgent = needsAgent(blob);
    const token = asksAgent ? randomBytes(TOKEN_BYTES).toString("hex") : undefined;
    const board = boardLaunchOf(desired, launch.name, grants, token);
    const asksHttps = importsOutgoing(blob.imports) && allowsHttps(grants);
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
        inferencePath: computes ? await this.#inferencePath() : undefined,
      },
      network: grants.network,
      http: serve !== undefined || importsHttp(blob.imports),
      authorities,
      serve,
      p3,
      sockets: importsAsyncSockets(blob.imports),
      logLimit: this.#init.logLimit,
      emptyDirectory: this.#components.state.emptyDirectory,
      identity,
    };
    const score = oomScoreAdj(pod, spec, totalmem());
    const peer = peerOf(desired, launch.name, grants);
    return { dense: grants.dense, pod, spec, runner, peer, network, cpuset: launch.cpuset, oomScoreAdj: score };
  }

  /** The shape of another container's image; its errors are reported when that container starts. */
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
    const { deviceAddon } = await import("../../shared/devices/runner-packages.ts");
    return deviceAddon(this.#init.runnerPath);
  }

  /** @throws `unimplemented` where nothing computes models. */
  async #inferencePath(): Promise<string> {
    const { inferenceFolder } = await import("../../shared/devices/runner-packages.ts");
    return inferenceFolder(this.#init.runnerPath);
  }

  async #transpiled(sha256: string, path: string, signal: AbortSignal): Promise<TranspiledComponent> {
    try {
      return await this.#components.transpiler.get(sha256, path, signal);
    } catch (error) {
      throw withReason(error, "cannot make the component runnable", "CreateContainerError");
    }
  }
}

/** All but the hosts file that every container gets: nothing of a component looks up names in it. */
function mountsOf(pod: Pod, { name, mounts }: ContainerLaunch): readonly Mount[] {
  const own = new Set(findContainer(pod, name)?.volumeMounts?.map(({ mountPath }) => mountPath));
  return mounts.filter(({ containerPath }) => containerPath !== HOSTS_FILE || own.has(HOSTS_FILE));
}
