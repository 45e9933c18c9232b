import { isDeepStrictEqual } from "node:util";
import type { DesiredSnapshot, DesiredStore } from "@picolet/agent/core/store/store-ports.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { PicoletError } from "@picolet/protocol/errors.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { ChosenRuntime, DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";

/** A DesiredStore without a disk, for tests of the sources. */
export class MemoryDesiredStore implements DesiredStore {
  readonly desired = new WatchSource<DesiredSnapshot>({
    ...{ pods: new Map(), removed: new Map(), requested: new Map(), synced: new Set() },
  });
  readonly #revisions = new Map<SourceId, number>();
  /** How often something was stored. */
  writes = 0;
  /** Thrown instead of storing. */
  failure: PicoletError | undefined;
  onChange: (snapshot: DesiredSnapshot) => void = () => undefined;

  revision(source: SourceId): number {
    return this.#revisions.get(source) ?? 0;
  }

  /** The unreadable names of the last accepted call. */
  unreadable: ReadonlySet<string> = new Set();

  replace(
    source: SourceId,
    revision: number,
    pods: readonly DesiredPod[],
    unreadable: ReadonlySet<string> = new Set(),
  ): "accepted" | "stale" | "conflict" {
    const known = this.revision(source);
    const { pods: before, removed, requested, synced } = this.desired.current;
    if (revision < known) return "stale";
    const own = new Map([...before].filter(([, each]) => each.source === source));
    const isSame = isDeepStrictEqual(own, new Map(pods.map((each) => [each.uid, each])));
    if (revision === known && !isSame) return "conflict";
    if (this.failure !== undefined) throw this.failure;
    if (revision > known) this.writes += 1;
    this.#revisions.set(source, revision);
    this.unreadable = unreadable;
    if (isSame && synced.has(source)) return "accepted";
    const others = [...before].filter(([, each]) => each.source !== source);
    const wanted = new Map<PodUid, DesiredPod>([
      ...others,
      ...pods.map((each): [PodUid, DesiredPod] => [each.uid, each]),
    ]);
    const gone = [...removed, ...before].filter(([uid]) => !wanted.has(uid));
    this.#set({ pods: wanted, removed: new Map(gone), requested, synced: new Set([...synced, source]) });
    return "accepted";
  }

  grant(): void {
    // What is wanted has been granted at once here.
  }

  choose(uid: PodUid, runtime: ChosenRuntime): void {
    const { pods: before, ...others } = this.desired.current;
    const pods = new Map([...before].map(([each, pod]) => [each, each === uid ? { ...pod, runtime } : pod]));
    this.#set({ ...others, pods });
  }

  forget(uid: PodUid): void {
    const { removed, ...others } = this.desired.current;
    this.#set({ ...others, removed: new Map([...removed].filter(([each]) => each !== uid)) });
  }

  adopt(pods: readonly DesiredPod[]): void {
    const { pods: before, ...others } = this.desired.current;
    this.#set({ ...others, pods: new Map([...before, ...pods.map((each): [PodUid, DesiredPod] => [each.uid, each])]) });
  }

  /** As after a restart of the agent. */
  forgetSynced(): void {
    this.desired.set({ ...this.desired.current, synced: new Set() });
  }

  #set(snapshot: DesiredSnapshot): void {
    this.desired.set(snapshot);
    this.onChange(snapshot);
  }
}
