/** What is known of component pods: taken up from the state folder once, and changed together with it. */
import { createHash } from "node:crypto";
import { existsSync, type FSWatcher, readFileSync, watch } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Log, millis, type PodUid, podUid } from "@picolet/protocol/ports.ts";
import { HintQueue } from "@picolet/runtime-contract/hint-queue.ts";
import type {
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { fileError } from "../shared/files/durable-files.ts";
import type { Identity } from "../shared/messages/launch.ts";
import type { SandboxRecord } from "./container-starter.ts";
import type { ContainerRun } from "./containers/container-run.ts";
import type { ContainerFile } from "./state/state-files.ts";
import type { StateFolder } from "./state/state-folder.ts";

export interface PodRecordsComponents {
  readonly log: Log;
  readonly state: StateFolder;
  /** A container that an agent before this one has started. */
  readonly adopted: (file: ContainerFile) => Promise<ContainerRun>;
  /** Called for each container that exists now. */
  readonly onRun: (run: ContainerRun) => void;
  /** Adopts the processes that several pods share, empty ones included. */
  readonly settleDense: () => Promise<void>;
}

export interface PodRecord {
  readonly uid: PodUid;
  readonly sandboxes: Map<number, SandboxRecord>;
  readonly containers: Map<string, ContainerRun>;
  /** Changes with what `inspect` shows. */
  version: number;
}

/** UIDs name folders. Kubernetes' are UUIDs or hashes. */
const UID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export class PodRecords {
  readonly #components: PodRecordsComponents;
  readonly #state: StateFolder;
  /** One for each reader of hints. */
  readonly #readers = new Set<HintQueue>();
  /** The component pods on the node. */
  readonly #pods = new Map<string, PodRecord>();
  /** Given out once for each change, so that no pod ever has a version twice. */
  #lastVersion = 0;
  #opened: Promise<void> | undefined;
  #exits: FSWatcher | undefined;

  constructor(components: PodRecordsComponents) {
    this.#components = components;
    this.#state = components.state;
  }

  get(uid: string): PodRecord | undefined {
    return this.#pods.get(uid);
  }

  all(): PodRecord[] {
    return [...this.#pods.values()];
  }

  container(uid: PodUid, id: string): ContainerRun | undefined {
    return this.#pods.get(uid)?.containers.get(id);
  }

  /** The containers of all pods. */
  runs(): ContainerRun[] {
    return this.all().flatMap(({ containers }) => [...containers.values()]);
  }

  /** @param ips of all pods of components */
  async observed(uid: PodUid, ips: readonly string[]): Promise<ObservedPod> {
    const pod = this.#pods.get(uid);
    if (pod === undefined) return { uid, sandboxes: [], containers: [], manifest: undefined };
    for (const run of pod.containers.values()) await run.settled();
    const sandboxes = [...pod.sandboxes.values()].sort((one, other) => other.attempt - one.attempt);
    const containers = [...pod.containers.values()].map(observedContainer);
    const [newest] = sandboxes;
    return {
      uid,
      sandboxes: sandboxes.map(({ id, attempt, createdAtMs, stopped }) => {
        return { id, attempt, state: stopped ? "notReady" : "ready", createdAtMs, ips };
      }),
      containers: containers.sort((one, other) => other.attempt - one.attempt || other.createdAtMs - one.createdAtMs),
      manifest: newest === undefined ? undefined : this.#state.readManifest(uid, newest.attempt),
    };
  }

  /** Ends when `signal` aborts. */
  async *hints(signal: AbortSignal): AsyncGenerator<PodUid, void> {
    const queue = new HintQueue();
    this.#readers.add(queue);
    try {
      yield* queue.take(signal);
    } finally {
      this.#readers.delete(queue);
    }
  }

  changed(uid: string): void {
    const pod = this.#pods.get(uid);
    this.#lastVersion += 1;
    if (pod !== undefined) pod.version = this.#lastVersion;
    for (const reader of this.#readers) reader.add(podUid(uid));
  }

  /** @returns whether it was not there before */
  addSandbox(desired: DesiredPod, launch: SandboxLaunch, createdAtMs: number): boolean {
    if (!UID.test(desired.uid)) throw new PicoletError("invalid", `cannot use the uid ${JSON.stringify(desired.uid)}`);
    const pod = this.#pods.get(desired.uid) ?? newRecord(desired.uid);
    if (pod.sandboxes.has(launch.attempt)) return false;
    const id = sandboxId(desired.uid, launch.attempt, createdAtMs);
    const sandbox = { ...launch, id, createdAtMs };
    this.#state.writeSandbox(desired.uid, { ...sandbox, desired });
    pod.sandboxes.set(launch.attempt, { ...sandbox, stopped: false });
    this.#pods.set(desired.uid, pod);
    this.changed(desired.uid);
    return true;
  }

  /** Stops the sandbox with all containers in it. */
  async stopSandbox(uid: PodUid, id: string, signal: AbortSignal): Promise<void> {
    const pod = this.#pods.get(uid);
    const sandbox = sandboxOf(pod, id);
    if (pod === undefined || sandbox === undefined) return;
    if (!sandbox.stopped) {
      this.#state.markStopped(uid, sandbox.attempt);
      sandbox.stopped = true;
      this.changed(uid);
    }
    for (const run of pod.containers.values()) if (run.file.sandboxId === id) await run.stop(millis(0), signal);
  }

  async removeSandbox(uid: PodUid, id: string, signal: AbortSignal): Promise<void> {
    await this.stopSandbox(uid, id, signal);
    const pod = this.#pods.get(uid);
    const sandbox = sandboxOf(pod, id);
    if (pod === undefined || sandbox === undefined) return;
    for (const run of [...pod.containers.values()]) {
      if (run.file.sandboxId === id) this.#forgetContainer(uid, run.file.id);
    }
    this.#state.removeSandbox(uid, sandbox.attempt);
    pod.sandboxes.delete(sandbox.attempt);
    if (pod.sandboxes.size === 0 && pod.containers.size === 0) this.#pods.delete(uid);
    this.changed(uid);
  }

  async removeContainer(uid: PodUid, id: string): Promise<void> {
    const run = this.container(uid, id);
    if (run === undefined) return;
    await run.check("thorough");
    if (!run.hasEnded) throw new PicoletError("conflict", `cannot remove container ${id}: it runs`);
    this.#forgetContainer(uid, id);
  }

  #forgetContainer(uid: PodUid, id: string): void {
    this.#state.removeContainer(uid, id);
    this.#pods.get(uid)?.containers.delete(id);
    this.changed(uid);
  }

  /** Takes up what agents before this one left, once. */
  open(): Promise<void> {
    this.#opened ??= this.#takeUp().catch((error: unknown) => {
      this.#opened = undefined;
      throw fileError(error, `cannot use the state folder ${this.#state.path}`);
    });
    return this.#opened;
  }

  async #takeUp(): Promise<void> {
    const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const sameBoot = this.#state.open(bootId);
    this.#exits?.close();
    this.#exits = watch(this.#state.exitsDirectory, { persistent: false }, (_event, name) => {
      if (name !== null) this.#onExitFile(name);
    });
    this.#exits.on("error", (error) => {
      this.#components.log.warn("exits of components are not seen at once, only with the next list", { error });
    });
    for (const uid of this.#state.podUids()) await this.#takeUpPod(podUid(uid), sameBoot);
    // Empty processes are adopted, too.
    if (existsSync(this.#state.denseDirectory)) await this.#components.settleDense();
    this.#state.removeStrayExits(new Set(this.runs().map(({ file }) => file.id)));
    this.#state.markBoot(bootId);
  }

  async #takeUpPod(uid: PodUid, sameBoot: boolean): Promise<void> {
    const pod = newRecord(uid);
    this.#pods.set(uid, pod);
    for (const attempt of this.#state.sandboxAttempts(uid)) {
      const file = this.#state.readSandbox(uid, attempt);
      if (file === undefined) {
        this.#state.removeSandbox(uid, attempt);
        continue;
      }
      if (!sameBoot) this.#state.markStopped(uid, attempt);
      const { desired: _, ...sandbox } = file;
      pod.sandboxes.set(attempt, { ...sandbox, stopped: this.#state.isStopped(uid, attempt) });
    }
    for (const id of this.#state.containerIds(uid)) await this.#takeUpContainer(pod, id, sameBoot);
    if (pod.sandboxes.size > 0 || pod.containers.size > 0) return;
    this.#state.removePodIfEmpty(uid);
    this.#pods.delete(uid);
  }

  async #takeUpContainer(pod: PodRecord, id: string, sameBoot: boolean): Promise<void> {
    const file = this.#state.readContainer(pod.uid, id);
    const run = file === undefined ? undefined : await this.#components.adopted(file);
    if (run !== undefined && (await run.adopt(sameBoot))) {
      pod.containers.set(id, run);
      this.#components.onRun(run);
    } else this.#state.removeContainer(pod.uid, id);
  }

  #onExitFile(id: string): void {
    for (const pod of this.#pods.values()) void pod.containers.get(id)?.takeExit();
  }

  [Symbol.dispose](): void {
    this.#exits?.close();
  }
}

const newRecord = (uid: PodUid): PodRecord => ({ uid, sandboxes: new Map(), containers: new Map(), version: 0 });

const sandboxOf = (pod: PodRecord | undefined, id: string): SandboxRecord | undefined =>
  [...(pod?.sandboxes.values() ?? [])].find((each) => each.id === id);

const sandboxId = (uid: PodUid, attempt: number, createdAtMs: number): string =>
  createHash("sha256").update([uid, attempt, createdAtMs].join("\n")).digest("hex");

/** The user as container runtimes report it: the group is one of the groups. */
const userOf = ({ uid, gid, groups }: Identity): ObservedContainer["user"] => ({
  uid,
  gid,
  supplementalGroups: [...new Set([gid, ...groups])],
});

function observedContainer({ file, state }: ContainerRun): ObservedContainer {
  const { id, name, attempt, sandboxId, createdAtMs, hash, backoff, image, imageId, logPath, resources } = file;
  const user = file.identity && userOf(file.identity);
  const own = { id, name, attempt, sandboxId, createdAtMs, state, hash, backoff, image, imageId, logPath, user };
  return resources === undefined ? own : { ...own, resources };
}
