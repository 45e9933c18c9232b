/** Validation of the parts of device classes and claims that say which devices they take. */
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { type FieldError, forbiddenValue, invalidValue, requiredValue, tooLongValue } from "../api/field-errors.ts";
import { listAt, textAt } from "../api/object-fields.ts";
import { MAX_EXPRESSION_BYTES, type SelectorCompiler } from "../expressions/selector-compiler.ts";

/** Kubernetes' limit of one list of selectors. */
const MAX_SELECTORS = 32;
/**
 * Expressions of one object together. It takes a core 5 ms to compile a KiB, so this bounds a write to 80 ms, as the
 * worst body does. Kubernetes bounds each expression alone; real claims have 0.2 KiB.
 */
const MAX_EXPRESSIONS_BYTES = 16 * KIBIBYTE;

/** Compiles the selectors of one object. */
export class SelectorProblems {
  readonly #compiler: SelectorCompiler;
  #bytes = 0;

  constructor(compiler: SelectorCompiler) {
    this.#compiler = compiler;
  }

  /** @param object has `selectors`; @param at its field, `spec.devices.requests[0].exactly` */
  of(object: unknown, at: string): readonly FieldError[] {
    const selectors = listAt(object, "selectors");
    if (selectors.length > MAX_SELECTORS)
      return [invalidValue(`${at}.selectors`, selectors.length, `must have at most ${MAX_SELECTORS} items`)];
    return selectors.flatMap((selector, index) => this.#problem(selector, `${at}.selectors[${index}].cel`));
  }

  #problem(selector: unknown, at: string): readonly FieldError[] {
    const expression = textAt(selector, "cel", "expression");
    if (expression === "") return [requiredValue(textAt(selector, "cel") === "" ? at : `${at}.expression`)];
    const bytes = Buffer.byteLength(expression);
    if (bytes > MAX_EXPRESSION_BYTES) return [tooLongValue(`${at}.expression`, MAX_EXPRESSION_BYTES)];
    this.#bytes += bytes;
    if (this.#bytes > MAX_EXPRESSIONS_BYTES) {
      const detail = `the expressions of one object must have at most ${MAX_EXPRESSIONS_BYTES} bytes together`;
      return [forbiddenValue(`${at}.expression`, detail)];
    }
    const compiled = this.#compiler.compile(expression);
    if (compiled.ok) return [];
    return compiled.kind === "costly"
      ? [forbiddenValue(`${at}.expression`, compiled.problem)]
      : [invalidValue(`${at}.expression`, expression, compiled.problem)];
  }
}
