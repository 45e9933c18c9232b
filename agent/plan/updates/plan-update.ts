/** Decides the next step of a board's updates. Pure: all that it depends on is gathered before. */
import type { UpdateKind } from "@picolet/protocol/updates/node-updates.ts";
import { formatWindow, minutesUntil, type UpdateWindow } from "@picolet/protocol/updates/update-window.ts";
import { begin, isOver, type UpdateRecord, type UpdateRecords } from "./update-state.ts";

/** The system first: it may bring what the others need. */
export const UPDATE_ORDER: readonly UpdateKind[] = ["os", "agent", "configuration"];

export interface UpdateFacts {
  /** The target of each kind that the Node asks for; "" for none. Undefined: its annotations cannot be read. */
  readonly asked: Readonly<Record<UpdateKind, string>> | undefined;
  readonly records: UpdateRecords;
  /** Why this board cannot be updated so; "" for a kind that it can. */
  readonly obstacles: Readonly<Record<UpdateKind, string>>;
  readonly window: UpdateWindow | undefined;
  /** Minutes since midnight, by the board's time zone. */
  readonly minute: number;
  /** Pods, files and users that keep the board from restarting, each with its reason. */
  readonly holds: readonly string[];
  /** Why nothing large may be written now; "" for nothing. */
  readonly shortage: string;
  /** Kinds whose last attempt failed a short while ago. */
  readonly backingOff: ReadonlySet<UpdateKind>;
  readonly nowMs: number;
}

export type UpdateStep =
  /** Becomes the record, on disk, before anything else is done. `began`: another update than before. */
  | { readonly kind: "record"; readonly record: UpdateRecord; readonly began: boolean }
  /** The wish was taken back before anything was tried. */
  | { readonly kind: "drop"; readonly of: UpdateKind }
  | { readonly kind: "fetch"; readonly record: UpdateRecord }
  | { readonly kind: "restart"; readonly record: UpdateRecord }
  | { readonly kind: "judge"; readonly record: UpdateRecord }
  | {
      readonly kind: "wait";
      readonly record: UpdateRecord;
      readonly state: "held" | "waiting" | "fetching";
      readonly message: string;
    }
  | { readonly kind: "nothing" };

export function planUpdate(facts: UpdateFacts): UpdateStep {
  const records = UPDATE_ORDER.flatMap((kind) => facts.records.get(kind) ?? []);
  // One trial at a time: of two that fail together neither could be named.
  const tried = records.find(({ phase }) => phase.kind === "trial");
  if (tried !== undefined) return { kind: "judge", record: tried };
  for (const kind of UPDATE_ORDER) {
    const change = changeOf(kind, facts);
    if (change !== undefined) return change;
  }
  const fetching = records.filter(({ phase }) => phase.kind === "fetching");
  const due = fetching.find(({ kind }) => !facts.backingOff.has(kind));
  // A configuration is small: no shortage holds it up.
  if (due !== undefined && (facts.shortage === "" || due.kind === "configuration"))
    return { kind: "fetch", record: due };
  const prepared = records.find(({ phase }) => phase.kind === "prepared");
  if (prepared !== undefined) return restartOf(prepared, facts);
  if (due !== undefined) return { kind: "wait", record: due, state: "fetching", message: facts.shortage };
  const [failing] = fetching;
  if (failing !== undefined) return { kind: "wait", record: failing, state: "fetching", message: failing.message };
  return { kind: "nothing" };
}

/** How the record of a kind follows what the Node asks for. Annotations that cannot be read change nothing. */
function changeOf(kind: UpdateKind, { asked: all, records, obstacles, nowMs }: UpdateFacts): UpdateStep | undefined {
  const record = records.get(kind);
  if (all === undefined) return undefined;
  const asked = all[kind];
  if (asked === (record?.asked ?? "")) return undefined;
  if (asked !== "") {
    const fresh = begin(kind, asked, asked, nowMs);
    const obstacle = obstacles[kind];
    if (obstacle === "") return { kind: "record", record: fresh, began: true };
    return { kind: "record", record: { ...fresh, phase: { kind: "failed" }, message: obstacle }, began: true };
  }
  if (record === undefined) return undefined;
  if (!isOver(record)) return { kind: "drop", of: kind };
  // The last one stays shown; asked for again, it is tried again.
  return { kind: "record", record: { ...record, asked: "" }, began: false };
}

const MAX_SHOWN_HOLDS = 3;

/** Messages do not change while nothing does: each change is reported to the hub. */
function restartOf(record: UpdateRecord, { asked, holds, window, minute }: UpdateFacts): UpdateStep {
  const isLocal = record.asked === "";
  if (!isLocal && asked === undefined)
    return { kind: "wait", record, state: "waiting", message: "the annotations of the Node cannot be read" };
  if (!isLocal && window !== undefined && minutesUntil(window, minute) > 0)
    return { kind: "wait", record, state: "waiting", message: `waits for its window, ${formatWindow(window)}` };
  if (holds.length === 0) return { kind: "restart", record };
  const more = holds.length > MAX_SHOWN_HOLDS ? ` and ${holds.length - MAX_SHOWN_HOLDS} more` : "";
  return {
    kind: "wait",
    record,
    state: "held",
    message: `held by ${holds.slice(0, MAX_SHOWN_HOLDS).join(", ")}${more}`,
  };
}
