import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Plan, type PlanAction, stepOf } from "../../plan/pod-view.ts";
import { identityOf } from "./pod-steps.ts";
import { NO_EFFECT, type StepFailures } from "./step-failures.ts";

const NOTHING: ReadonlySet<string> = new Set();

/**
 * Actions that were carried out in the round before. One that is planned again had no effect; it is not repeated
 * without end.
 */
export class PreviousSteps {
  readonly #failures: StepFailures;
  #done = NOTHING;

  constructor(failures: StepFailures) {
    this.#failures = failures;
  }

  /** @param done by `identityOf`; missing: nothing */
  were(done = NOTHING): void {
    this.#done = done;
  }

  /** What is to be done before the first that was in vain, which becomes a failure. */
  withoutVain(plan: Plan): readonly PlanAction[] {
    const vain = plan.actions.findIndex((action) => action.kind !== "prepare" && this.#done.has(identityOf(action)));
    const action = plan.actions[vain];
    if (action === undefined) return plan.actions;
    const step = stepOf(action);
    this.#failures.add(step, new PicoletError("failed", `cannot see any effect of ${step}`), NO_EFFECT);
    return plan.actions.slice(0, vain);
  }
}
