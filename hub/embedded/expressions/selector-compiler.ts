/** Compiles selectors on demand: the library is loaded with the first object that may have one. */
import type { CompiledSelector, SelectorEnvironment } from "./device-selector.ts";

/** Kubernetes' limit of an expression, in bytes. */
export const MAX_EXPRESSION_BYTES = 10 * 1024;
/** Compiled expressions that are kept, the last used. Each takes some KiB; a fleet has a handful. */
const MAX_COMPILED = 256;

export interface SelectorCompiler {
  /** Must have resolved before the first `compile`. */
  load(): Promise<void>;
  compile(expression: string): CompiledSelector;
}

export class CachingSelectorCompiler implements SelectorCompiler {
  readonly #compiled = new Map<string, CompiledSelector>();
  #loading: Promise<void> | undefined;
  #environment: SelectorEnvironment | undefined;

  load(): Promise<void> {
    this.#loading ??= import("./device-selector.ts").then(({ SelectorEnvironment }) => {
      this.#environment = new SelectorEnvironment();
    });
    return this.#loading;
  }

  compile(expression: string): CompiledSelector {
    if (this.#environment === undefined) throw new Error("the compiler of selectors is not loaded");
    const compiled = this.#compiled.get(expression) ?? this.#environment.compile(expression);
    this.#compiled.delete(expression);
    this.#compiled.set(expression, compiled);
    for (const oldest of this.#compiled.keys()) {
      if (this.#compiled.size <= MAX_COMPILED) break;
      this.#compiled.delete(oldest);
    }
    return compiled;
  }
}
