/**
 * The RuntimeAdapter over a FakeRuntime: one object for each life of the agent, with the runtime's faults on every
 * call.
 */
import { checkCancelled, joinSignals, onAbort, rejectOnAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type {
  Action,
  ContainerLaunch,
  DesiredPod,
  ExecResult,
  ImageInfo,
  ImageService,
  ObservedContainer,
  ObservedPod,
  PodListing,
  PullOptions,
  RuntimeAdapter,
  RuntimeStatus,
  RuntimeStream,
  StreamRequest,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { FakeCall } from "./fake-faults.ts";
import { fakeProgramOf } from "./fake-program.ts";
import type { FakeRuntime } from "./fake-runtime.ts";

const cancelled = (what: string): PicoletError => new PicoletError("cancelled", `${what} was cancelled`);

export class FakeAdapter implements RuntimeAdapter {
  readonly name: string;
  readonly images: ImageService;
  readonly #runtime: FakeRuntime;

  constructor(runtime: FakeRuntime, name = "fake") {
    this.#runtime = runtime;
    this.name = name;
    this.images = this.#imageService();
  }

  status(signal: AbortSignal): Promise<RuntimeStatus> {
    const ready = (type: string) => ({ type, status: true, reason: "", message: "" });
    const conditions = [ready("RuntimeReady"), ready("NetworkReady")];
    return this.#call({ kind: "status", uid: undefined }, signal, () => ({
      runtime: "fake",
      version: "1",
      conditions,
    }));
  }

  list(signal: AbortSignal): Promise<readonly PodListing[]> {
    return this.#call({ kind: "list", uid: undefined }, signal, () => this.#runtime.list());
  }

  inspect(uid: PodUid, signal: AbortSignal): Promise<ObservedPod> {
    return this.#call({ kind: "inspect", uid }, signal, () => this.#runtime.inspect(uid));
  }

  apply(pod: DesiredPod, action: Action, signal: AbortSignal): Promise<void> {
    const call = { kind: action.kind, uid: pod.uid };
    return this.#call(call, signal, () => this.#carryOut(pod, action, call, signal));
  }

  async *hints(signal: AbortSignal): AsyncIterable<PodUid> {
    const dirty = new Set<PodUid>();
    let wake = (): void => undefined;
    using _end = onAbort(signal, () => wake());
    using _subscription = this.#runtime.onHint({
      hint: (uid) => {
        dirty.add(uid);
        wake();
      },
      ended: () => wake(),
    });
    while (!signal.aborted) {
      if (this.#runtime.gone !== undefined) throw this.#runtime.gone;
      const [next] = dirty;
      if (next === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        continue;
      }
      dirty.delete(next);
      yield next;
    }
  }

  reopenLog(uid: PodUid, containerId: string, signal: AbortSignal): Promise<void> {
    return this.#call({ kind: "reopenLog", uid }, signal, () => this.#runtime.reopenLog(containerId));
  }

  /** Only what a log can give: there is no network here. */
  stream(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream> {
    return this.#call({ kind: "stream", uid }, signal, () => {
      if (request.kind !== "attach" || request.stdin || request.tty) {
        throw new PicoletError("unimplemented", `the fake runtime has no ${request.kind} of this kind`);
      }
      return { kind: "log", logPath: this.#running(uid, request.containerId).logPath };
    });
  }

  /** A command in the fake's little language; one that runs for ever is cut off. */
  execSync(
    uid: PodUid,
    containerId: string,
    command: readonly string[],
    timeout: Millis,
    signal: AbortSignal,
  ): Promise<ExecResult> {
    return this.#call({ kind: "execSync", uid }, signal, async () => {
      this.#running(uid, containerId);
      const { runsFor = timeout, exitCode, prints } = fakeProgramOf({ command, args: [], env: [] });
      await this.#pass(runsFor < timeout ? runsFor : timeout, signal);
      if (runsFor >= timeout) throw new PicoletError("deadline_exceeded", "the command took too long");
      const textOf = (stream: string): Buffer =>
        Buffer.from(prints.map((line) => (line.stream === stream ? `${line.text}\n` : "")).join(""));
      return { exitCode, stdout: textOf("stdout"), stderr: textOf("stderr") };
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }

  #running(uid: PodUid, containerId: string): ObservedContainer {
    const found = this.#runtime.inspect(uid).containers.find((each) => each.id === containerId);
    if (found?.state.kind === "running") return found;
    throw new PicoletError("not_found", `container ${containerId} does not run`);
  }

  async #carryOut(pod: DesiredPod, action: Action, call: FakeCall, signal: AbortSignal): Promise<void> {
    switch (action.kind) {
      case "createSandbox":
        return this.#runtime.createSandbox(pod, action.sandbox);
      case "startContainer":
        return this.#start(pod, action.container, call, signal);
      case "stopContainer":
        return this.#stop(action.containerId, action.gracePeriod, signal);
      case "updateContainer":
        return this.#runtime.updateContainer(pod, action);
      // A call that `onCall` can refuse, and no more: there is no machine of a sandbox.
      case "updateSandbox":
        return;
      case "removeContainer":
        return this.#runtime.removeContainer(action.containerId);
      case "stopSandbox":
        return this.#runtime.stopSandbox(action.sandboxId);
      case "removeSandbox":
        return this.#runtime.removeSandbox(action.sandboxId);
    }
  }

  /** Two steps, as in CRI; an agent that dies between them leaves a container that was created only. */
  async #start(pod: DesiredPod, launch: ContainerLaunch, call: FakeCall, signal: AbortSignal): Promise<void> {
    const id = this.#runtime.createContainer(pod, launch);
    if (id === undefined) return;
    await this.#pass(this.#runtime.faults.latency(call), signal);
    this.#runtime.startContainer(id);
  }

  async #stop(id: string, gracePeriod: Millis, signal: AbortSignal): Promise<void> {
    if (gracePeriod > 0) {
      this.#runtime.kill(id, "SIGTERM");
      using patience = joinSignals(signal);
      const giveUp = (): void => patience.abort();
      this.#runtime.clock.sleep(gracePeriod, patience.signal).then(giveUp, ignore("the container has exited in time"));
      await this.#runtime.exitOf(id, patience.signal);
      patience.abort();
      checkCancelled(signal, "the stop");
    }
    this.#runtime.kill(id, "SIGKILL");
    await this.#runtime.exitOf(id, signal);
    checkCancelled(signal, "the stop");
  }

  async #call<T>(call: FakeCall, signal: AbortSignal, act: () => T | Promise<T>): Promise<T> {
    if (signal.aborted) throw cancelled(call.kind);
    const fault = this.#runtime.faults.fault(call);
    await this.#pass(this.#runtime.faults.latency(call), signal);
    if (fault?.kind === "hang") await hang(fault.heedsSignal ? signal : undefined);
    if (this.#runtime.gone !== undefined) throw this.#runtime.gone;
    if (fault?.kind === "refuse") {
      await this.#pass(fault.after ?? (0 as Millis), signal);
      throw fault.error;
    }
    const result = await act();
    await this.#pass(this.#runtime.faults.latency(call), signal);
    if (fault?.kind === "loseAnswer") throw fault.error;
    return result;
  }

  async #pass(duration: Millis, signal: AbortSignal): Promise<void> {
    if (duration > 0) await this.#runtime.clock.sleep(duration, signal);
  }

  #imageService(): ImageService {
    const runtime = this.#runtime;
    return {
      list: (signal) => this.#call({ kind: "imageList", uid: undefined }, signal, () => [...runtime.images.values()]),
      status: (reference, signal) =>
        this.#call({ kind: "imageStatus", uid: undefined }, signal, () => runtime.findImage(reference)),
      pull: (reference, _options: PullOptions, signal) =>
        this.#call({ kind: "imagePull", uid: undefined }, signal, () => this.#pull(reference)),
      remove: (id, signal) =>
        this.#call({ kind: "imageRemove", uid: undefined }, signal, () => {
          runtime.images.delete(id);
        }),
      import: (path, _name, signal) =>
        this.#call({ kind: "imageImport", uid: undefined }, signal, () => {
          throw new PicoletError("unimplemented", `cannot import ${path}`);
        }),
    };
  }

  #pull(reference: string): ImageInfo {
    const found = this.#runtime.registry.get(reference);
    if (found === undefined) {
      throw new PicoletError("not_found", `cannot find ${reference} in the registry`, { reason: "ErrImagePull" });
    }
    this.#runtime.images.set(found.id, found);
    return found;
  }
}

/** @param signal when there is none, for ever. */
function hang(signal: AbortSignal | undefined): Promise<never> {
  const never = new Promise<never>(() => undefined);
  return signal === undefined ? never : rejectOnAbort(never, signal, "the call");
}
