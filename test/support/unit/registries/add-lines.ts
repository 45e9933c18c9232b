/**
 * Loads modules as if their tables had more lines, to prove that a table is all that a new entry needs. For a process
 * of its own: modules that it has loaded before stay as they are.
 */
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";

export interface AddedLine {
  /** URL of the table's module. */
  readonly module: string;
  /** The line of the table above the new one. */
  readonly after: string;
  readonly line: string;
  /** The import that the new line needs, if any. */
  readonly imports?: string;
}

export function addLines(added: readonly AddedLine[]): void {
  registerHooks({
    load(url, context, next) {
      const lines = added.filter(({ module }) => module === url);
      if (lines.length === 0) return next(url, context);
      let source = readFileSync(fileURLToPath(url), "utf8");
      for (const { after, line, imports = "" } of lines) {
        const [before, rest, ...others] = source.split(`${after}\n`);
        if (rest === undefined || others.length > 0) throw new Error(`${url} has not exactly one line ${after}`);
        source = `${imports}\n${before}${after}\n${line}\n${rest}`;
      }
      return { format: "module-typescript", source, shortCircuit: true };
    },
  });
}
