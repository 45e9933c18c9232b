/** Finds the devices that suit selectors. Runs expressions of tenants apart from decisions, and keeps their results. */
import type { Millis } from "@picolet/protocol/ports.ts";
import { SLICE_MS, type Turns } from "../../api/turns.ts";
import type { SelectorCompiler } from "../../expressions/selector-compiler.ts";
import type { RequestNeeds, Selector } from "./claim-needs.ts";
import type { DeviceSpec, PoolDevice } from "./device-pools.ts";

/** Expressions of one pod. Real pods have a handful; a pod with more is not placed. */
export const MAX_POD_EXPRESSIONS = 256;
/**
 * Expressions whose verdicts are kept, the last used: those of many pods that are evaluated at one time, so that none
 * loses its verdicts before it is placed. A verdict takes some 50 bytes for each device of the fleet that was tried.
 */
const MAX_EXPRESSIONS = 16 * MAX_POD_EXPRESSIONS;
/** One evaluation is at most 10 ms (`device-selector.ts`), so a part of the work is at most twice that. */
const PART_MS: Millis = SLICE_MS as Millis;

type Verdict = boolean | Error;

export class DeviceMatcher {
  readonly #turns: Turns;
  readonly #compiler: SelectorCompiler;
  readonly #monotonic: () => number;
  readonly #verdicts = new Map<string, WeakMap<DeviceSpec, Verdict>>();

  constructor(init: { readonly turns: Turns; readonly compiler: SelectorCompiler; readonly monotonic: () => number }) {
    this.#turns = init.turns;
    this.#compiler = init.compiler;
    this.#monotonic = init.monotonic;
  }

  /** An error names the selector that failed. @returns undefined: not known yet */
  suits({ selectors }: RequestNeeds, { spec }: PoolDevice): Verdict | undefined {
    for (const { expression, label } of selectors) {
      const verdict = this.#verdicts.get(expression)?.get(spec);
      if (verdict instanceof Error) return new Error(`${label}: CEL runtime error: ${verdict.message}`);
      if (verdict !== true) return verdict;
    }
    return true;
  }

  /**
   * Runs what is not known yet, in parts between which others work. Users take turns, however many pods they have.
   * @param user whose expressions these are
   */
  async evaluate(
    requests: readonly RequestNeeds[],
    devices: Iterable<PoolDevice>,
    user: string,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#compiler.load();
    await this.#turns.next(user);
    let start = this.#monotonic();
    for (const device of devices) {
      for (const { selectors } of requests) {
        for (const selector of selectors) {
          if (this.#monotonic() - start >= PART_MS) {
            await this.#turns.next(user);
            if (signal.aborted) return;
            start = this.#monotonic();
          }
          if (this.#verdict(selector, device) !== true) break;
        }
      }
    }
  }

  #verdict({ expression }: Selector, { driver, spec }: PoolDevice): Verdict {
    const known = this.#verdicts.get(expression) ?? new WeakMap<DeviceSpec, Verdict>();
    this.#verdicts.delete(expression);
    this.#verdicts.set(expression, known);
    for (const oldest of this.#verdicts.keys()) {
      if (this.#verdicts.size <= MAX_EXPRESSIONS) break;
      this.#verdicts.delete(oldest);
    }
    const verdict = known.get(spec) ?? this.#run(expression, driver, spec);
    known.set(spec, verdict);
    return verdict;
  }

  #run(expression: string, driver: string, spec: DeviceSpec): Verdict {
    const compiled = this.#compiler.compile(expression);
    // It was stored before expressions were validated.
    if (!compiled.ok) return new Error(compiled.problem);
    try {
      return compiled.selector.matches(driver, spec);
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }
}
