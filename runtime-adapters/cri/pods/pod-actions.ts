import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Log, Millis } from "@picolet/protocol/ports.ts";
import type { Action, ContainerLaunch, DesiredPod, SandboxLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import { parseLeakedTask } from "../containerd/leaked-task.ts";
import { stopWithSignal } from "../containerd/stop-signal.ts";
import { type CriClient, failure } from "../wire/cri-client.ts";
import { ContainerState, ImageService, RuntimeService } from "../wire/cri-messages.ts";
import { GrpcStatusError } from "../wire/grpc-status.ts";
import { updateContainer } from "./container-update.ts";
import { overheadResources, sandboxResources } from "./linux-resources.ts";
import type { OomScoreAdvice } from "./oom-score-advice.ts";
import type { OwnedIds } from "./owned-ids.ts";
import {
  type ContainerConfigInput,
  containerConfig,
  findContainerByName,
  type PodConfigSettings,
  sandboxConfig,
} from "./pod-config.ts";
import type { PodInspector, ReadySandbox } from "./pod-inspector.ts";
import { type ImageUser, needsImageUser } from "./security-context.ts";

/** A sandbox waits for its network; the kubelet gives it twice the time of other calls. */
const SANDBOX_TIMEOUT_FACTOR = 2;

/** containerd's reason of a container whose start failed. */
const START_ERROR = "StartError";

/** Carries out one action. Each may be taken again after a crash, at any point. */
export class PodActions {
  readonly #client: CriClient;
  readonly #imageClient: CriClient;
  readonly #owned: OwnedIds;
  readonly #inspector: PodInspector;
  readonly #oomScore: OomScoreAdvice;
  readonly #log: Log;
  readonly #init: PodConfigSettings;

  constructor(
    components: {
      readonly client: CriClient;
      readonly imageClient: CriClient;
      readonly owned: OwnedIds;
      readonly inspector: PodInspector;
      readonly oomScore: OomScoreAdvice;
      readonly log: Log;
    },
    init: PodConfigSettings,
  ) {
    this.#client = components.client;
    this.#imageClient = components.imageClient;
    this.#owned = components.owned;
    this.#inspector = components.inspector;
    this.#oomScore = components.oomScore;
    this.#log = components.log;
    this.#init = init;
  }

  async apply(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    switch (action.kind) {
      case "createSandbox":
        await this.#createSandbox(pod, action.sandbox, signal);
        return;
      case "startContainer":
        await this.#startContainer(pod, action.container, signal);
        return;
      case "stopContainer":
        await this.#end("stop container", action.containerId, "container", signal, () =>
          this.#stopContainer(action.containerId, action.gracePeriod, signal),
        );
        return;
      case "updateContainer":
        await updateContainer({ client: this.#client, owned: this.#owned, settings: this.#init }, pod, action, signal);
        return;
      case "updateSandbox":
        await this.#end("update sandbox", action.sandboxId, "sandbox", signal, () =>
          this.#updateSandbox(pod, action.sandboxId, signal),
        );
        return;
      case "removeContainer":
        await this.#end("remove container", action.containerId, "container", signal, () =>
          this.#removeContainer(action.containerId, signal),
        );
        return;
      case "stopSandbox":
        await this.#end("stop sandbox", action.sandboxId, "sandbox", signal, () =>
          this.#stopSandbox(action.sandboxId, signal),
        );
        return;
      case "removeSandbox":
        await this.#end("remove sandbox", action.sandboxId, "sandbox", signal, async () => {
          // Removing alone would do for containerd; CRI asks for it to be stopped first.
          await this.#stopSandbox(action.sandboxId, signal);
          await this.#client.call(RuntimeService.removePodSandbox, { podSandboxId: action.sandboxId }, signal);
          this.#owned.delete(action.sandboxId);
        });
    }
  }

  async #updateSandbox({ pod }: DesiredPod, podSandboxId: string, signal: AbortSignal): Promise<void> {
    const overhead = overheadResources(pod, this.#init);
    const request = { podSandboxId, overhead, resources: sandboxResources(pod, this.#init) };
    await this.#client.callIfOffered(RuntimeService.updatePodSandboxResources, request, signal);
  }

  async reopenLog(containerId: string, signal: AbortSignal): Promise<void> {
    const cannot = `cannot reopen the log of container ${containerId}`;
    try {
      if ((await this.#owned.require(containerId, "container", signal)) === undefined) {
        throw new PicoletError("not_found", "there is no such container");
      }
      await this.#client.call(RuntimeService.reopenContainerLog, { containerId }, signal);
    } catch (error) {
      throw failure(error, cannot);
    }
  }

  async #createSandbox(pod: DesiredPod, launch: SandboxLaunch, signal: AbortSignal): Promise<void> {
    const { runtimeHandler = "", userNamespace } = launch;
    if (userNamespace !== undefined) await this.#requireUserNamespaces(runtimeHandler, signal);
    const request = { config: sandboxConfig(pod, launch, this.#init, true), runtimeHandler };
    const timeoutMs = this.#client.requestTimeoutMs * SANDBOX_TIMEOUT_FACTOR;
    try {
      const { podSandboxId } = await this.#client.call(RuntimeService.runPodSandbox, request, signal, timeoutMs);
      this.#owned.add(podSandboxId, { kind: "sandbox", uid: pod.uid });
    } catch (error) {
      if (isNameTaken(error)) {
        const ready = await this.#inspector.readySandbox(pod.uid, signal);
        if (ready?.launch.attempt === launch.attempt) return;
      }
      throw shownFailure(this.#oomScore.explain(error), "FailedCreatePodSandBox");
    }
  }

  /** @throws `invalid`, worded as the kubelet does */
  async #requireUserNamespaces(handler: string, signal: AbortSignal): Promise<void> {
    const { runtimeHandlers } = await this.#client.call(RuntimeService.status, {}, signal);
    if (runtimeHandlers.some(({ name, features }) => name === handler && features?.userNamespaces === true)) return;
    const who = handler === "" ? "runtime" : `RuntimeClass handler ${JSON.stringify(handler)}`;
    const message = `can't set \`spec.hostUsers: false\`, ${who} does not support user namespaces`;
    throw new PicoletError("invalid", message, { reason: "FailedCreatePodSandBox" });
  }

  async #startContainer(pod: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    const sandbox = await this.#inspector.readySandbox(pod.uid, signal);
    if (sandbox === undefined) {
      throw new PicoletError("not_found", `cannot start container ${launch.name}: pod ${pod.uid} has no ready sandbox`);
    }
    if (launch.attempt > 0) await this.#endLeakedRuns(pod, launch, signal);
    const id = await this.#createContainer(pod, launch, sandbox, signal);
    if (id === undefined) return;
    try {
      await this.#client.call(RuntimeService.startContainer, { containerId: id }, signal);
    } catch (error) {
      // Cancelled: what became of the start is not known, and the next one will find out.
      if (!isCancelled(error)) await this.#removeUnstarted(id, signal);
      throw shownFailure(error, "RunContainerError");
    }
  }

  /** A run before this one that is said to have failed to start may run all the same: see `leaked-task.ts`. */
  async #endLeakedRuns(pod: DesiredPod, { name }: ContainerLaunch, signal: AbortSignal): Promise<void> {
    const { containers } = await this.#inspector.inspect(pod.uid, signal);
    for (const { id, name: other, state } of containers) {
      if (other !== name || state.kind !== "exited" || state.reason !== START_ERROR) continue;
      await this.#client.containerd.endTask(id, signal);
    }
  }

  /**
   * @returns the id of one that is created and not started; `undefined` when this run of the container exists already.
   */
  async #createContainer(
    pod: DesiredPod,
    launch: ContainerLaunch,
    sandbox: ReadySandbox,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    try {
      const config = await this.#containerConfig(pod, launch, sandbox, signal);
      await mkdir(dirname(join(sandbox.launch.logDirectory, launch.logPath)), { recursive: true });
      const request = {
        podSandboxId: sandbox.id,
        config,
        sandboxConfig: sandboxConfig(pod, sandbox.launch, this.#init, false),
      };
      const create = async (): Promise<string> => {
        const { containerId } = await this.#client.call(RuntimeService.createContainer, request, signal);
        this.#owned.add(containerId, { kind: "container", uid: pod.uid });
        return containerId;
      };
      try {
        return await create();
      } catch (error) {
        if (!isNameTaken(error)) throw error;
        const found = await this.#inspector.findContainer(pod.uid, launch.name, launch.attempt, signal);
        if (found === undefined) throw error;
        if (found.state !== ContainerState.created) return undefined;
        if (found.hash === launch.hash) return found.id;
        // Left behind by one who died between two calls, and of another content by now.
        await this.#client.call(RuntimeService.removeContainer, { containerId: found.id }, signal);
        return await create();
      }
    } catch (error) {
      // A sandbox that is gone is made again; anything else that is not found is a fault of the container's.
      if (isPicoletError(error, "not_found") && /sandbox/.test(error.message)) {
        throw failure(error, `cannot create container ${launch.name} of pod ${pod.uid}`);
      }
      throw shownFailure(error, "CreateContainerError");
    }
  }

  async #containerConfig(
    pod: DesiredPod,
    launch: ContainerLaunch,
    sandbox: ReadySandbox,
    signal: AbortSignal,
  ): Promise<ContainerConfigInput> {
    const needed = needsImageUser(pod.pod, findContainerByName(pod.pod, launch.name));
    const imageUser = needed ? await this.#imageUser(launch.image.id, signal) : undefined;
    const config = containerConfig(pod, launch, { imageUser, sandbox: sandbox.launch }, this.#init);
    this.#oomScore.wanted(config.linux?.resources?.oomScoreAdj ?? 0);
    return config;
  }

  async #imageUser(id: string, signal: AbortSignal): Promise<ImageUser | undefined> {
    const { image } = await this.#imageClient.call(ImageService.imageStatus, { image: { image: id } }, signal);
    return image === undefined ? undefined : { uid: image.uid?.value, username: image.username };
  }

  /**
   * containerd leaves a container that could not be started as exited, with the reason StartError, as the kubelet shows
   * it; one that is still only created is taken away.
   */
  async #removeUnstarted(id: string, signal: AbortSignal): Promise<void> {
    try {
      if ((await this.#inspector.containerState(id, signal)) !== ContainerState.created) return;
      await this.#client.call(RuntimeService.removeContainer, { containerId: id }, signal);
    } catch (error) {
      if (!isCancelled(error)) {
        this.#log.debug("a container that could not be started stays", { id, error: describeError(error) });
      }
    }
  }

  async #stopContainer(containerId: string, gracePeriod: Millis, signal: AbortSignal): Promise<void> {
    const stopSignal = gracePeriod === 0 ? "" : await this.#inspector.unknownStopSignal(containerId, signal);
    const isSent =
      stopSignal !== "" &&
      (await stopWithSignal(this.#client.containerd, containerId, stopSignal, gracePeriod, signal));
    if (stopSignal !== "" && !isSent) {
      this.#log.warn("the runtime knows no stop signals: it ends the container as its image says", { stopSignal });
    }
    // CRI counts in seconds; a little more patience is better than less.
    const timeout = isSent ? 0 : Math.ceil(gracePeriod / 1000);
    const deadline = timeout * 1000 + this.#client.requestTimeoutMs;
    await this.#client.call(RuntimeService.stopContainer, { containerId, timeout }, signal, deadline);
  }

  async #removeContainer(containerId: string, signal: AbortSignal): Promise<void> {
    // containerd would kill it.
    if ((await this.#inspector.containerState(containerId, signal)) === ContainerState.running) {
      throw new PicoletError("conflict", "it is running");
    }
    await this.#client.call(RuntimeService.removeContainer, { containerId }, signal);
    this.#owned.delete(containerId);
  }

  async #stopSandbox(podSandboxId: string, signal: AbortSignal): Promise<void> {
    const timeoutMs = this.#client.requestTimeoutMs * SANDBOX_TIMEOUT_FACTOR;
    await this.#client.call(RuntimeService.stopPodSandbox, { podSandboxId }, signal, timeoutMs);
  }

  /** What is not there has ended already. */
  async #end(
    verb: string,
    id: string,
    kind: "sandbox" | "container",
    signal: AbortSignal,
    end: () => Promise<unknown>,
  ): Promise<void> {
    try {
      if ((await this.#owned.require(id, kind, signal)) === undefined) return;
      await end().catch(async (error: unknown) => {
        const leaked = parseLeakedTask(error);
        if (leaked === undefined) throw error;
        if ((await this.#owned.require(leaked, "container", signal)) === undefined) throw error;
        this.#log.warn("ending a process that the runtime has lost sight of", { container: leaked });
        await this.#client.containerd.endTask(leaked, signal);
        await end();
      });
    } catch (error) {
      if (isPicoletError(error, "not_found")) return;
      throw failure(error, `cannot ${verb} ${id}`);
    }
  }
}

/** containerd says `name "…" is reserved for "<id>"` with no code of its own, CRI-O `… already exists`. */
const isNameTaken = (error: unknown): boolean =>
  isPicoletError(error) &&
  (error.code === "already_exists" || /is reserved for|already exists|name is reserved/.test(error.message));

/**
 * The error that users see in events and statuses: there the kubelet has the runtime's own words, for a sandbox as its
 * gRPC library prints them. `cancelled` and errors with a reason pass unchanged.
 */
function shownFailure(error: unknown, reason: string): unknown {
  if (isCancelled(error) || !isPicoletError(error) || error.reason !== undefined) return error;
  const isStatus = error instanceof GrpcStatusError;
  const message = isStatus && reason === "FailedCreatePodSandBox" ? error.printed : error.message;
  // To the worker, not found is the sandbox.
  const code = error.code === "not_found" ? "failed" : error.code;
  const { retryable, cause } = error;
  return new PicoletError(code, message, { reason, retryable, ...(cause === undefined ? {} : { cause }) });
}
