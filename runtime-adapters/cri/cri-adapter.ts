import type { CgroupDriver } from "@picolet/protocol/cgroup/cgroup-names.ts";
import type { CgroupSettings } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { Clock, Log, Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { KilledContainers } from "@picolet/runtime-contract/killed-containers.ts";
import type {
  Action,
  DesiredPod,
  ExecResult,
  ObservedPod,
  PodListing,
  RuntimeAdapter,
  RuntimeHandler,
  RuntimeStatus,
  RuntimeStream,
  StreamRequest,
  WritableLayer,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { CriImageMounts } from "./containerd/image-mounts.ts";
import { CriImages } from "./cri-images.ts";
import { CriStreams } from "./pods/cri-streams.ts";
import { OomScoreAdvice } from "./pods/oom-score-advice.ts";
import { OwnedIds } from "./pods/owned-ids.ts";
import { PodActions } from "./pods/pod-actions.ts";
import { PodInspector } from "./pods/pod-inspector.ts";
import { RuntimeHints } from "./pods/runtime-hints.ts";
import { type RuntimeMachine, readRuntimeMachine } from "./pods/runtime-machine.ts";
import { type CallObserver, CriClient, failure } from "./wire/cri-client.ts";
import { listPodsOfSandboxes, RuntimeService } from "./wire/cri-messages.ts";
import type { MessageOf } from "./wire/protobuf.ts";

export interface CriAdapterComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** Asked where the runtime knows of no kill; without it the runtime's word is all there is. */
  readonly killed?: KilledContainers | undefined;
  /** Called after each call of CRI. */
  readonly observe?: CallObserver | undefined;
}

export interface CriAdapterInit {
  /**
   * `unix:///run/containerd/containerd.sock`, or the path alone. It need not be there yet, and may go and come back.
   */
  readonly endpoint: string;
  /** The image service's socket, when it is another one. */
  readonly imageEndpoint?: string;
  /**
   * Marks the sandboxes of this agent: several agents can share a runtime. It must not change during the life of the
   * node, or its pods become orphans; at most 63 characters, as labels are.
   */
  readonly owner: string;
  /** The kubelet's `runtimeRequestTimeout`, of every call but pulls, and stops with their grace. */
  readonly requestTimeoutMs: number;
  readonly pullTimeoutMs?: number;
  readonly cgroups: CgroupSettings;
  /** Whose names the pods' cgroups have; default cgroupfs. It must be the runtime's own (`runtimeCgroupDriver`). */
  readonly cgroupDriver?: CgroupDriver | undefined;
  /** The node's memory; OOM scores are shares of it. */
  readonly memoryCapacityBytes: number;
  /** The kubelet's `memorySwap.swapBehavior` is LimitedSwap; default false: pods do not swap. */
  readonly limitedSwap?: boolean;
  /** The kubelet's setting; default false: with cgroup v2 a container is killed as a whole when it is out of memory. */
  readonly singleProcessOomKill?: boolean;
  /** Where the runtime is; this machine unless given. */
  readonly machine?: RuntimeMachine;
  /** The folder that `localhostProfile` of a seccomp profile is relative to. */
  readonly seccompProfileRoot: string;
  /** The kubelet's `seccompDefault`. */
  readonly seccompDefault: boolean;
}

/** The lease that is made to be given up. */
const FREEING = "picolet.io/free-removed";
/** A large image over a slow uplink; a pull that takes longer has hung. */
const DEFAULT_PULL_TIMEOUT_MS = 6 * 3_600_000;

/**
 * Pods as containers, through the Container Runtime Interface: containerd, CRI-O. What it makes carries the kubelet's
 * labels and ours; sandboxes and containers of other clients of the runtime are neither seen nor touched.
 */
export class CriAdapter implements RuntimeAdapter {
  readonly name = "cri";
  readonly images: CriImages;
  readonly imageMounts: CriImageMounts;
  readonly #clients: readonly CriClient[];
  readonly #client: CriClient;
  readonly #inspector: PodInspector;
  readonly #actions: PodActions;
  readonly #hints: RuntimeHints;
  readonly #streams: CriStreams;

  /** @throws `invalid` for an endpoint that is no unix socket. */
  constructor({ clock, log, killed, observe }: CriAdapterComponents, init: CriAdapterInit) {
    const { endpoint, imageEndpoint = endpoint, requestTimeoutMs, owner } = init;
    const client = new CriClient({ clock, observe }, { endpoint, requestTimeoutMs });
    const imageClient =
      imageEndpoint === endpoint
        ? client
        : new CriClient({ clock, observe }, { endpoint: imageEndpoint, requestTimeoutMs });
    const owned = new OwnedIds(client, owner);
    const inspector = new PodInspector({ client, owned, killed }, { owner });
    const pullTimeoutMs = init.pullTimeoutMs ?? DEFAULT_PULL_TIMEOUT_MS;
    const oomScore = new OomScoreAdvice({ log });
    this.#client = client;
    this.#clients = imageClient === client ? [client] : [client, imageClient];
    this.#inspector = inspector;
    const { limitedSwap = false, singleProcessOomKill = false, machine = readRuntimeMachine() } = init;
    this.#actions = new PodActions(
      { client, imageClient, owned, inspector, oomScore, log },
      { ...init, limitedSwap, singleProcessOomKill, machine },
    );
    this.#hints = new RuntimeHints({ client, owned, inspector, clock, log }, { owner });
    this.#streams = new CriStreams({ client, owned });
    this.images = new CriImages({ client: imageClient, runtimeClient: client, clock }, { pullTimeoutMs });
    this.imageMounts = new CriImageMounts({ client, imageClient });
  }

  async status(signal: AbortSignal): Promise<RuntimeStatus> {
    try {
      const [version, { status, runtimeHandlers, features }] = await Promise.all([
        this.#client.call(RuntimeService.version, {}, signal),
        this.#client.call(RuntimeService.status, {}, signal),
      ]);
      return {
        runtime: version.runtimeName,
        version: version.runtimeVersion,
        conditions: (status?.conditions ?? []).map(({ type, status, reason, message }) => ({
          type,
          status,
          reason,
          message,
        })),
        ...(runtimeHandlers.length === 0 ? {} : { handlers: runtimeHandlers.map(handlerOf) }),
        ...(features === undefined ? {} : { supplementalGroupsPolicy: features.supplementalGroupsPolicy }),
      };
    } catch (error) {
      throw failure(error, "cannot get the container runtime's status");
    }
  }

  /**
   * True when the runtime applies CDI devices itself. containerd 1.6 does not know them, 1.7 has them off; both start a
   * container without its devices, and report nothing.
   */
  async appliesCdi(signal: AbortSignal): Promise<boolean> {
    try {
      const [{ runtimeName, runtimeVersion }, { info }] = await Promise.all([
        this.#client.call(RuntimeService.version, {}, signal),
        this.#client.call(RuntimeService.status, { verbose: true }, signal),
      ]);
      const isOne = runtimeName === "containerd" && /^v?1\./.test(runtimeVersion);
      return cdiSettingIn(info.get("config")) ?? !isOne;
    } catch (error) {
      throw failure(error, "cannot ask the container runtime for its settings");
    }
  }

  /** The one call for which containerd and CRI-O take no lock and read nothing. */
  async ping(signal: AbortSignal): Promise<void> {
    try {
      await this.#client.call(RuntimeService.version, {}, signal);
    } catch (error) {
      throw failure(error, "cannot get an answer from the container runtime");
    }
  }

  disconnected(signal: AbortSignal): Promise<void> {
    return this.#client.grpc.disconnected(signal);
  }

  async list(signal: AbortSignal): Promise<readonly PodListing[]> {
    try {
      return await this.#inspector.list(signal);
    } catch (error) {
      throw failure(error, "cannot list the container runtime's pods");
    }
  }

  async inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod> {
    try {
      return await this.#inspector.inspect(uid, signal);
    } catch (error) {
      throw failure(error, `cannot inspect pod ${uid}`);
    }
  }

  apply(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    return this.#actions.apply(pod, action, signal);
  }

  async writtenLayers(signal: AbortSignal): Promise<ReadonlyMap<string, WritableLayer>> {
    try {
      return await this.#inspector.writtenLayers(signal);
    } catch (error) {
      throw failure(error, "cannot ask how much containers have written");
    }
  }

  async everyPod(signal: AbortSignal): Promise<ReadonlySet<string>> {
    try {
      const { items } = await this.#client.call(listPodsOfSandboxes, {}, signal);
      return new Set(items.map(({ metadata }) => metadata?.uid ?? ""));
    } catch (error) {
      throw failure(error, "cannot list the container runtime's sandboxes");
    }
  }

  /** Other runtimes than containerd free it in their own time. */
  async freeRemoved(signal: AbortSignal): Promise<void> {
    try {
      await this.#client.containerd.collect(FREEING, signal);
    } catch (error) {
      throw failure(error, "cannot have containerd collect what has been removed");
    }
  }

  /** Ends shims that containerd has lost sight of. @returns their pids */
  async endLeakedShims(signal: AbortSignal): Promise<readonly number[]> {
    const { endLeakedShims } = await import("./containerd/leaked-shims.ts");
    return await endLeakedShims(this.#client, signal);
  }

  hints(signal: AbortSignal): AsyncIterable<PodUid> {
    return this.#hints.hints(signal);
  }

  tryHints(signal: AbortSignal): Promise<boolean> {
    return this.#hints.echo(signal);
  }

  reopenLog(_uid: PodUid, containerId: string, signal: AbortSignal): Promise<void> {
    return this.#actions.reopenLog(containerId, signal);
  }

  stream(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream> {
    return this.#streams.open(uid, request, signal);
  }

  execSync(
    uid: PodUid,
    containerId: string,
    command: readonly string[],
    timeout: Millis,
    signal: AbortSignal,
  ): Promise<ExecResult> {
    return this.#streams.execSync(uid, containerId, command, timeout, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) client[Symbol.dispose]();
  }
}

/** @param config containerd's; undefined: the setting is not in it */
function cdiSettingIn(config: string | undefined): boolean | undefined {
  try {
    const { enableCDI } = JSON.parse(config ?? "{}") as { readonly enableCDI?: unknown };
    return typeof enableCDI === "boolean" ? enableCDI : undefined;
  } catch {
    return undefined;
  }
}

type Handler = MessageOf<(typeof RuntimeService.status)["response"]>["runtimeHandlers"][number];

const handlerOf = ({ name, features }: Handler): RuntimeHandler => ({
  name,
  recursiveReadOnlyMounts: features?.recursiveReadOnlyMounts ?? false,
  userNamespaces: features?.userNamespaces ?? false,
});
