/**
 * A runtime in memory, on an injected clock. It outlives the adapters attached to it, as containerd outlives the agent.
 * `FakeAdapter` is what the agent talks to; this class is the world behind it, with hands for the test.
 */
import { wokenOrAborted } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, millis, type PodUid } from "@picolet/protocol/ports.ts";
import type {
  Action,
  ContainerLaunch,
  ContainerState,
  Cpuset,
  DesiredPod,
  ImageInfo,
  ObservedContainer,
  ObservedPod,
  ObservedSandbox,
  PodListing,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { type FakeFaults, noFaults } from "./fake-faults.ts";
import { type FakeLine, type FakeProgram, fakeProgramOf } from "./fake-program.ts";

/** A change in the runtime. The list of them, in order, is for checking invariants. */
export type FakeChange =
  | {
      readonly kind: "sandboxCreated" | "sandboxStopped" | "sandboxRemoved";
      readonly pod: DesiredPod;
      readonly id: string;
    }
  | {
      readonly kind:
        | "containerCreated"
        | "containerStarted"
        | "containerUpdated"
        | "containerExited"
        | "containerRemoved";
      readonly pod: DesiredPod;
      readonly container: ObservedContainer;
    };

export interface FakeRuntimeInit {
  readonly programOf?: (launch: ContainerLaunch, pod: DesiredPod) => FakeProgram;
  readonly onChange?: (change: FakeChange) => void;
}

export interface FakeHintListener {
  hint(uid: PodUid): void;
  /** The runtime went away. */
  ended(): void;
}

interface FakeSandbox {
  readonly pod: DesiredPod;
  readonly launch: SandboxLaunch;
  readonly ips: readonly string[];
  observed: ObservedSandbox;
}

interface FakeContainer {
  readonly pod: DesiredPod;
  readonly launch: ContainerLaunch;
  readonly program: FakeProgram;
  readonly exited: Set<() => void>;
  /** Ends what the process has under way: its own end, its reaction to SIGTERM, its counting. */
  readonly process: AbortController;
  cpuset: Cpuset | undefined;
  logPath: string;
  lines: number;
  observed: ObservedContainer;
}

type ContainerUpdate = Extract<Action, { kind: "updateContainer" }>;

interface FakePod {
  version: number;
  /** Newest first, both. */
  readonly sandboxes: FakeSandbox[];
  readonly containers: FakeContainer[];
}

const SIGNAL_NUMBERS = { SIGKILL: 9, SIGTERM: 15 } as const;
/** The size of an image that has none in the script. */
const IMAGE_SIZE_BYTES = 1_000_000;

export class FakeRuntime implements Disposable {
  readonly faults: FakeFaults = noFaults();
  /** Log files by path. */
  readonly files = new Map<string, string>();
  /** By id. What is here is on the node; `registry` is what can be pulled. */
  readonly images = new Map<string, ImageInfo>();
  readonly registry = new Map<string, ImageInfo>();
  readonly clock: Clock;
  readonly #init: FakeRuntimeInit;
  readonly #pods = new Map<PodUid, FakePod>();
  readonly #listeners = new Set<FakeHintListener>();
  readonly #life = new AbortController();
  #ids = 0;
  #gone: PicoletError | undefined;

  constructor(components: { readonly clock: Clock }, init: FakeRuntimeInit = {}) {
    this.clock = components.clock;
    this.#init = init;
  }

  /** Makes every call fail, as if the socket were gone; containers run on. */
  goAway(): void {
    this.#gone = new PicoletError("unavailable", "cannot reach the fake runtime", { retryable: true });
    for (const listener of [...this.#listeners]) listener.ended();
  }

  comeBack(): void {
    this.#gone = undefined;
  }

  get gone(): PicoletError | undefined {
    return this.#gone;
  }

  addImage(name: string, where: "node" | "registry" = "node"): ImageInfo {
    const id = `sha256:${name}`;
    const image = { id, tags: [name], digests: [`${name}@${id}`], sizeBytes: IMAGE_SIZE_BYTES, pinned: false };
    (where === "node" ? this.images : this.registry).set(where === "node" ? id : name, image);
    return image;
  }

  findImage(reference: string): ImageInfo | undefined {
    const byId = this.images.get(reference);
    if (byId !== undefined) return byId;
    return [...this.images.values()].find((each) => each.tags.includes(reference));
  }

  list(): PodListing[] {
    return [...this.#pods].map(([uid, pod]) => ({ uid, version: String(pod.version) }));
  }

  inspect(uid: PodUid): ObservedPod {
    const pod = this.#pods.get(uid);
    return {
      uid,
      sandboxes: pod?.sandboxes.map((each) => each.observed) ?? [],
      containers: pod?.containers.map((each) => each.observed) ?? [],
      manifest: pod?.sandboxes[0]?.pod,
    };
  }

  /** Called for every pod in which something changed, through `faults.hintDelays`. */
  onHint(listener: FakeHintListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  createSandbox(pod: DesiredPod, launch: SandboxLaunch): void {
    const known = this.#pods.get(pod.uid);
    if (known?.sandboxes.some((each) => each.launch.attempt === launch.attempt)) return;
    const home = known ?? { version: 0, sandboxes: [], containers: [] };
    this.#pods.set(pod.uid, home);
    const id = this.#newId("sandbox");
    const ips = pod.pod.spec.hostNetwork === true ? [] : [`10.88.${this.#ids >> 8}.${this.#ids & 255}`];
    const observed: ObservedSandbox = { id, attempt: launch.attempt, state: "ready", createdAtMs: this.#now(), ips };
    home.sandboxes.push({ pod, launch, ips, observed });
    home.sandboxes.sort((a, b) => b.launch.attempt - a.launch.attempt);
    this.#changed(pod, { kind: "sandboxCreated", pod, id });
  }

  /** @returns the container's id; `undefined` when that attempt has been started before. */
  createContainer(pod: DesiredPod, launch: ContainerLaunch): string | undefined {
    const home = this.#pods.get(pod.uid);
    const sandbox = home?.sandboxes.find((each) => each.observed.state === "ready");
    if (home === undefined || sandbox === undefined) {
      throw new PicoletError("not_found", `cannot find a ready sandbox of pod ${pod.uid}`);
    }
    const same = home.containers.find(
      (each) => each.launch.name === launch.name && each.launch.attempt === launch.attempt,
    );
    if (same !== undefined && same.observed.state.kind !== "created") return undefined;
    if (same !== undefined) this.removeContainer(same.observed.id);
    const image = this.images.get(launch.image.id);
    if (image === undefined) throw new PicoletError("not_found", `cannot find image ${launch.image.id}`);
    const program = (this.#init.programOf ?? fakeProgramOf)(launch, pod);
    const logPath = `${sandbox.launch.logDirectory}/${launch.logPath}`;
    const { name, attempt, hash, backoff } = launch;
    const observed: ObservedContainer = {
      ...{ id: this.#newId("container"), name, attempt, hash, backoff, logPath },
      sandboxId: sandbox.observed.id,
      createdAtMs: this.#now(),
      state: { kind: "created" },
      image: launch.image.requested,
      imageId: image.id,
      ...resourcesOf(pod, name),
    };
    const { cpuset } = launch;
    const container = { pod, launch, program, exited: new Set<() => void>(), cpuset, logPath, lines: 0, observed };
    home.containers.push({ ...container, process: new AbortController() });
    home.containers.sort((a, b) => b.launch.attempt - a.launch.attempt);
    this.#changed(pod, { kind: "containerCreated", pod, container: observed });
    return observed.id;
  }

  startContainer(id: string): void {
    const container = this.#container(id);
    if (container === undefined) throw new PicoletError("not_found", `cannot find container ${id}`);
    if (container.observed.state.kind !== "created") return;
    if (this.#sandbox(container.observed.sandboxId)?.sandbox.observed.state !== "ready") {
      throw new PicoletError("failed", `cannot start container ${id}: its sandbox is dead`, { retryable: true });
    }
    container.observed = { ...container.observed, state: { kind: "running", startedAtMs: this.#now() } };
    this.#changed(container.pod, { kind: "containerStarted", pod: container.pod, container: container.observed });
    for (const line of container.program.prints) this.#print(container, line);
    const { runsFor, exitCode, countsEvery } = container.program;
    if (runsFor === 0) this.#exit(container, exitCode);
    else if (runsFor !== undefined)
      this.#later(runsFor, container.process.signal, () => this.#exit(container, exitCode));
    if (countsEvery !== undefined) this.#count(container, countsEvery);
  }

  updateContainer(pod: DesiredPod, { containerId, resources, cpuset }: ContainerUpdate): void {
    const container = this.#container(containerId);
    if (container?.observed.state.kind !== "running") {
      throw new PicoletError("not_found", `cannot find a running container ${containerId}`);
    }
    container.cpuset = cpuset ?? container.cpuset;
    if (resources !== undefined) container.observed = { ...container.observed, resources };
    this.#changed(pod, { kind: "containerUpdated", pod, container: container.observed });
  }

  /** The CPU set that it was started with or moved to; undefined: it runs anywhere. */
  cpusetOf(id: string): Cpuset | undefined {
    return this.#container(id)?.cpuset;
  }

  /** Sends a signal to the workload, from any sender. */
  kill(id: string, signal: keyof typeof SIGNAL_NUMBERS): void {
    const container = this.#container(id);
    if (container?.observed.state.kind !== "running") return;
    const exitCode = 128 + SIGNAL_NUMBERS[signal];
    const after = signal === "SIGKILL" ? millis(0) : container.program.endsAfterTerm;
    if (after === 0) this.#exit(container, exitCode);
    else if (after !== undefined) this.#later(after, container.process.signal, () => this.#exit(container, exitCode));
  }

  /**
   * The runtime hears that the kernel has killed a process of it, which may be after it has shown the container's end.
   */
  reportOomKill(id: string): void {
    const container = this.#container(id);
    if (container?.observed.state.kind !== "exited") return;
    container.observed = { ...container.observed, state: { ...container.observed.state, reason: "OOMKilled" } };
    this.#notify(container.pod.uid);
  }

  /** Resolves when the container does not run, or `signal` aborts. */
  async exitOf(id: string, signal: AbortSignal): Promise<void> {
    const container = this.#container(id);
    if (container?.observed.state.kind !== "running") return;
    await wokenOrAborted(signal, (wake) => {
      container.exited.add(wake);
      return () => container.exited.delete(wake);
    });
  }

  removeContainer(id: string): void {
    const container = this.#container(id);
    const home = container && this.#pods.get(container.pod.uid);
    if (container === undefined || home === undefined) return;
    if (container.observed.state.kind === "running") {
      throw new PicoletError("conflict", `cannot remove container ${id}: it is running`);
    }
    home.containers.splice(home.containers.indexOf(container), 1);
    this.#changed(container.pod, { kind: "containerRemoved", pod: container.pod, container: container.observed });
  }

  stopSandbox(id: string): void {
    const found = this.#sandbox(id);
    if (found === undefined || found.sandbox.observed.state === "notReady") return;
    for (const each of found.home.containers) {
      if (each.observed.sandboxId !== id) continue;
      each.process.abort();
      this.#showExit(each, 128 + SIGNAL_NUMBERS.SIGKILL, this.#now());
    }
    found.sandbox.observed = { ...found.sandbox.observed, state: "notReady", ips: [] };
    this.#changed(found.sandbox.pod, { kind: "sandboxStopped", pod: found.sandbox.pod, id });
  }

  removeSandbox(id: string): void {
    const found = this.#sandbox(id);
    if (found === undefined) return;
    this.stopSandbox(id);
    for (const each of [...found.home.containers]) {
      if (each.observed.sandboxId === id) this.removeContainer(each.observed.id);
    }
    const { pod } = found.sandbox;
    found.home.sandboxes.splice(found.home.sandboxes.indexOf(found.sandbox), 1);
    if (found.home.sandboxes.length === 0) this.#pods.delete(pod.uid);
    this.#changed(pod, { kind: "sandboxRemoved", pod, id });
  }

  reopenLog(id: string): void {
    const container = this.#container(id);
    if (container?.observed.state.kind !== "running") {
      throw new PicoletError("not_found", `cannot find a running container ${id}`);
    }
    container.logPath = container.observed.logPath;
  }

  renameFile(from: string, to: string): void {
    this.files.set(to, this.files.get(from) ?? "");
    this.files.delete(from);
    for (const pod of this.#pods.values()) {
      for (const each of pod.containers) if (each.logPath === from) each.logPath = to;
    }
  }

  /** Ends all that is under way in it. */
  [Symbol.dispose](): void {
    this.#life.abort();
    for (const pod of this.#pods.values()) for (const each of pod.containers) each.process.abort();
  }

  #newId(kind: string): string {
    this.#ids += 1;
    return `${kind}-${this.#ids}`;
  }

  #now(): number {
    return this.clock.wall().getTime();
  }

  #container(id: string): FakeContainer | undefined {
    for (const pod of this.#pods.values()) {
      const found = pod.containers.find((each) => each.observed.id === id);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #sandbox(id: string): { readonly home: FakePod; readonly sandbox: FakeSandbox } | undefined {
    for (const home of this.#pods.values()) {
      const sandbox = home.sandboxes.find((each) => each.observed.id === id);
      if (sandbox !== undefined) return { home, sandbox };
    }
    return undefined;
  }

  #exit(container: FakeContainer, exitCode: number): void {
    if (container.observed.state.kind !== "running" || container.process.signal.aborted) return;
    container.process.abort();
    const finishedAtMs = this.#now();
    const lag = this.faults.exitLag(container.pod.uid);
    if (lag === 0) {
      this.#showExit(container, exitCode, finishedAtMs);
      this.#notify(container.pod.uid);
      return;
    }
    this.#notify(container.pod.uid);
    this.#later(lag, this.#life.signal, () => this.#showExit(container, exitCode, finishedAtMs));
  }

  #showExit(container: FakeContainer, exitCode: number, finishedAtMs: number): void {
    if (container.observed.state.kind !== "running") return;
    const { startedAtMs } = container.observed.state;
    const reason = exitCode === 0 ? "Completed" : "Error";
    const state: ContainerState = {
      ...{ kind: "exited", startedAtMs, exitCode, reason, message: "" },
      finishedAtMs: Math.max(finishedAtMs, startedAtMs),
    };
    container.observed = { ...container.observed, state };
    this.#note(container.pod, { kind: "containerExited", pod: container.pod, container: container.observed });
    for (const tell of [...container.exited]) tell();
  }

  #count(container: FakeContainer, every: Millis): void {
    this.#later(every, container.process.signal, () => {
      this.#print(container, { stream: "stdout", text: `line ${container.lines}` });
      container.lines += 1;
      this.#count(container, every);
    });
  }

  #print(container: FakeContainer, line: FakeLine): void {
    const written = `${this.clock.wall().toISOString()} ${line.stream} F ${line.text}\n`;
    this.files.set(container.logPath, (this.files.get(container.logPath) ?? "") + written);
  }

  #changed(pod: DesiredPod, change: FakeChange): void {
    this.#note(pod, change);
    this.#notify(pod.uid);
  }

  #note(pod: DesiredPod, change: FakeChange): void {
    const home = this.#pods.get(pod.uid);
    if (home !== undefined) home.version += 1;
    this.#init.onChange?.(change);
  }

  #notify(uid: PodUid): void {
    for (const delay of this.faults.hintDelays(uid)) {
      if (delay === 0) this.#hint(uid);
      else this.#later(delay, this.#life.signal, () => this.#hint(uid));
    }
  }

  #hint(uid: PodUid): void {
    for (const listener of [...this.#listeners]) listener.hint(uid);
  }

  #later(delay: Millis, signal: AbortSignal, act: () => void): void {
    this.clock.sleep(delay, signal).then(act, ignore("its container or runtime has gone"));
  }
}

function resourcesOf({ pod: { spec } }: DesiredPod, name: string): Pick<ObservedContainer, "resources"> {
  const found = [...spec.containers, ...(spec.initContainers ?? [])].find((each) => each.name === name);
  return found === undefined ? {} : { resources: found.resources };
}
