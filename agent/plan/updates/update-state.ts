/** The progress of a board's updates, as it is kept on disk before each step. Pure. */
import type { UpdateKind } from "@picolet/protocol/updates/node-updates.ts";

/** Nothing of the board has changed until `trial`. */
export type UpdatePhase =
  /** The program that fetches is due; with `failures` it is tried again later. */
  | { readonly kind: "fetching"; readonly isInstalling: boolean; readonly failures: number }
  /** The other slot, the package or the configuration is on disk and verified. */
  | { readonly kind: "prepared"; readonly version: string; readonly slot: string }
  /** The boot check owns it until it has written a result. */
  | { readonly kind: "trial"; readonly version: string; readonly slot: string; readonly id: string }
  | { readonly kind: "good"; readonly version: string }
  /** It was tried, and the version of before runs again. */
  | { readonly kind: "rolledBack" }
  /** It never ran. */
  | { readonly kind: "failed" };

export interface UpdateRecord {
  readonly kind: UpdateKind;
  /** As in `UpdateProgress`; `file:/…` for a file on this board. */
  readonly target: string;
  /** The target that the Node asked for when this one began; "" for none. Another one begins another update. */
  readonly asked: string;
  /** Set for a file on this board; else the Node says it. */
  readonly allowDowngrade?: boolean | undefined;
  readonly phase: UpdatePhase;
  /** Why it waits or failed; "" for nothing to say. */
  readonly message: string;
  readonly sinceMs: number;
}

export type UpdateRecords = ReadonlyMap<UpdateKind, UpdateRecord>;

export type TrialOutcome = "good" | "rolledBack" | "failed";

export type UpdateEvent =
  | { readonly kind: "installing" }
  | { readonly kind: "prepared"; readonly version: string; readonly slot: string }
  /** What is asked for runs already. */
  | { readonly kind: "current"; readonly version: string }
  | { readonly kind: "attemptFailed"; readonly message: string; readonly isFinal: boolean }
  | { readonly kind: "trialBegan"; readonly id: string }
  | { readonly kind: "trialEnded"; readonly outcome: TrialOutcome; readonly reason: string };

/** An event that means nothing in a phase leaves the record as it is. */
export function transition(record: UpdateRecord, event: UpdateEvent, nowMs: number): UpdateRecord {
  const { phase } = record;
  const to = (next: UpdatePhase, message = ""): UpdateRecord => ({ ...record, phase: next, message, sinceMs: nowMs });
  switch (event.kind) {
    case "installing":
      return phase.kind === "fetching" && !phase.isInstalling ? to({ ...phase, isInstalling: true }) : record;
    case "prepared":
      if (phase.kind !== "fetching") return record;
      return to({ kind: "prepared", version: event.version, slot: event.slot });
    case "current":
      return phase.kind === "fetching" ? to({ kind: "good", version: event.version }) : record;
    case "attemptFailed":
      if (phase.kind !== "fetching") return record;
      if (event.isFinal) return to({ kind: "failed" }, event.message);
      return to({ kind: "fetching", isInstalling: false, failures: phase.failures + 1 }, event.message);
    case "trialBegan":
      if (phase.kind !== "prepared") return record;
      return to({ kind: "trial", version: phase.version, slot: phase.slot, id: event.id });
    case "trialEnded":
      if (phase.kind !== "trial") return record;
      if (event.outcome === "good") return to({ kind: "good", version: phase.version });
      return to({ kind: event.outcome }, event.reason);
  }
}

export const isOver = ({ phase: { kind } }: UpdateRecord): boolean =>
  kind === "good" || kind === "rolledBack" || kind === "failed";

/** Another update of this kind, from its beginning. */
export const begin = (kind: UpdateKind, target: string, asked: string, nowMs: number): UpdateRecord => ({
  ...{ kind, target, asked, message: "", sinceMs: nowMs },
  phase: { kind: "fetching", isInstalling: false, failures: 0 },
});
