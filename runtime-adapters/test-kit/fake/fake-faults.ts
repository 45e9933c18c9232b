/** Faults of calls to the fake runtime. */
import type { PicoletError } from "@picolet/protocol/errors.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { Action } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface FakeCall {
  readonly kind:
    | Action["kind"]
    | "list"
    | "inspect"
    | "status"
    | "hints"
    | "reopenLog"
    | "stream"
    | "execSync"
    | "imageList"
    | "imageStatus"
    | "imagePull"
    | "imageRemove"
    | "imageImport";
  /** The UID of the pod concerned, if there is one. */
  readonly uid: PodUid | undefined;
}

export type FakeFault =
  /** Refused, with nothing done; at once unless `after`. */
  | { readonly kind: "refuse"; readonly error: PicoletError; readonly after?: Millis }
  /** Carried out, but the answer is this error. */
  | { readonly kind: "loseAnswer"; readonly error: PicoletError }
  /** Does not answer until the caller gives up; one that does not heed the signal never answers at all. */
  | { readonly kind: "hang"; readonly heedsSignal: boolean };

/** Asked at every call. All of it may be changed while the runtime runs. */
export interface FakeFaults {
  fault: (call: FakeCall) => FakeFault | undefined;
  /** The duration of a call, drawn again before and after it takes effect. */
  latency: (call: FakeCall) => Millis;
  /** When each copy of a hint arrives: `[0]` at once, `[]` lost, `[0, 500]` doubled. */
  hintDelays: (uid: PodUid) => readonly Millis[];
  /** How long after an exit, and its hint, it still shows as running; containerd needs some 10 ms. */
  exitLag: (uid: PodUid) => Millis;
}

export const noFaults = (): FakeFaults => ({
  fault: () => undefined,
  latency: () => 0 as Millis,
  hintDelays: () => [0 as Millis],
  exitLag: () => 0 as Millis,
});
