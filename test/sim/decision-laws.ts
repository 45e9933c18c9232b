/** The law of the black box: each change of a pod's life has a record that explains it. */
import { recordedOutcome } from "@picolet/agent/plan/outcome.ts";
import type { Plan, PodView } from "@picolet/agent/plan/pod-view.ts";
import type { Decision, DecisionKind } from "@picolet/protocol/decisions/decision-kinds.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

interface Debt {
  readonly what: string;
  readonly kinds: readonly DecisionKind[];
}

interface PodBook {
  /** Containers that were seen running. */
  readonly running: Set<string>;
  /** All that was recorded of the pod in this life. */
  readonly recorded: Set<DecisionKind>;
  wasAlive: boolean;
}

export class DecisionLaws {
  readonly #broken: (what: string) => void;
  readonly #books = new Map<PodUid, PodBook>();
  /** What the last plan owes: the worker records it before anything else happens. */
  #debts: { readonly uid: PodUid; readonly debts: Debt[] } | undefined;

  constructor(broken: (what: string) => void) {
    this.#broken = broken;
  }

  lifeBegan(): void {
    this.#books.clear();
    this.#debts = undefined;
  }

  planned(view: PodView, plan: Plan): void {
    this.#settle();
    const { uid } = view.desired;
    const book = this.#bookOf(uid);
    if (plan.next.kind === "terminating" && book.wasAlive && !book.recorded.has("removed")) {
      this.#broken(`${uid} is to go without a record that explains it`);
    }
    book.wasAlive = plan.next.kind === "waiting" || plan.next.kind === "active";
    const debts = [...debtsOf(view, plan), ...exitsOf(view, plan, book)];
    for (const { id, state } of view.observed?.containers ?? []) if (state.kind === "running") book.running.add(id);
    this.#debts = { uid, debts };
  }

  recorded({ kind }: Decision, { uid }: DesiredPod): void {
    this.#bookOf(uid).recorded.add(kind);
    if (this.#debts?.uid !== uid) return;
    const { debts } = this.#debts;
    const paid = debts.findIndex(({ kinds }) => kinds.includes(kind));
    if (paid >= 0) debts.splice(paid, 1);
  }

  forgotten(uid: PodUid): void {
    if (!this.#bookOf(uid).recorded.has("gone")) this.#broken(`${uid} is gone without a record that explains it`);
    this.#books.delete(uid);
  }

  #settle(): void {
    const last = this.#debts;
    this.#debts = undefined;
    for (const { what } of last?.debts ?? []) this.#broken(`${last?.uid} ${what} without a record that explains it`);
  }

  #bookOf(uid: PodUid): PodBook {
    const known = this.#books.get(uid);
    if (known !== undefined) return known;
    const book: PodBook = { running: new Set(), recorded: new Set(), wasAlive: false };
    this.#books.set(uid, book);
    return book;
  }
}

function debtsOf({ worker, observed, previous, rejection }: PodView, { next }: Plan): readonly Debt[] {
  if (observed === undefined || (worker.kind !== "waiting" && worker.kind !== "active")) return [];
  const debts: Debt[] = [];
  const isNothing = observed.sandboxes.length + observed.containers.length === 0;
  const runs = observed.containers.some(({ state }) => state.kind === "running");
  if (next.kind === "waiting") {
    const isNews = worker.kind === "waiting" && next.for !== undefined && worker.for !== next.for;
    return isNews ? [{ what: "waits for another pod", kinds: ["blocked"] }] : [];
  }
  if (worker.kind === "waiting" && next.kind === "active") {
    if (runs) debts.push({ what: "is taken over", kinds: ["takenOver"] });
    else if (isNothing && previous?.startTime === undefined) debts.push({ what: "begins", kinds: ["accepted"] });
  }
  if (next.kind === "finished") {
    // The agent before this one has decided, and recorded, it.
    const isKnown = rejection === undefined && worker.kind === "waiting" && recordedOutcome(previous) !== undefined;
    if (!isKnown) debts.push({ what: "ends", kinds: ["finished", "deadline", "refused"] });
  }
  return debts;
}

/** Containers that ran in this life and have ended, unless the pod's end explains it. */
function exitsOf({ worker, observed }: PodView, { next }: Plan, { running }: PodBook): readonly Debt[] {
  if (worker.kind !== "active" || next.kind !== "active") return [];
  const seen = new Set<string>();
  return (observed?.containers ?? []).flatMap(({ id, name, state }) => {
    const isNewest = !seen.has(name);
    seen.add(name);
    if (!isNewest || state.kind !== "exited" || !running.delete(id)) return [];
    return [{ what: `has ${name} ended`, kinds: ["exited"] as const }];
  });
}
