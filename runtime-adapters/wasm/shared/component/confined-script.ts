/**
 * Runs the glue that jco generated without access to Node: of the global names it has only the language's own. The glue
 * is made from text of unknown authors (`transpile/component-names.ts`). If some of that text were more than a name, it
 * would find no `process`, no `require`, no timers, and no way to compile text
 * (`--disallow-code-generation-from-strings`).
 *
 * Node's permission model does not help here, because it takes fsync(2) and symbolic links away from components.
 */
import { compileFunction } from "node:vm";

/** ECMAScript's, WebAssembly, and what jco uses besides. */
const VISIBLE: ReadonlySet<string> = new Set([
  ...["undefined", "NaN", "Infinity", "eval", "isFinite", "isNaN", "parseFloat", "parseInt"],
  ...["Object", "Function", "Array", "Number", "Boolean", "String", "Symbol", "Date", "Promise", "RegExp", "BigInt"],
  ...["Error", "AggregateError", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"],
  ...["JSON", "Math", "Map", "Set", "WeakMap", "WeakSet", "WeakRef", "FinalizationRegistry", "Proxy", "Reflect"],
  ...["ArrayBuffer", "DataView", "Uint8Array", "Int8Array", "Uint16Array", "Int16Array", "Uint32Array", "Int32Array"],
  ...["BigUint64Array", "BigInt64Array", "Uint8ClampedArray", "Float32Array", "Float64Array", "Iterator"],
  ...["WebAssembly", "TextEncoder", "TextDecoder"],
]);

/** By the names by which they are found. */
export type Globals = Readonly<Record<string, unknown>>;

const silent = (): void => undefined;

/** Placeholders for the global objects that the glue names itself. */
const STANDINS: Readonly<Record<string, unknown>> = {
  globalThis: Object.freeze({ WebAssembly: Reflect.get(globalThis, "WebAssembly") }),
  console: Object.freeze({ debug: silent, error: silent, log: silent, warn: silent }),
};

/** Names that a CommonJS module has without their being global. */
const MODULE_NAMES = ["require", "module", "exports", "__filename", "__dirname"];

/**
 * @param body of a function, strict, that returns what is wanted.
 * @param filename for stack traces.
 * @param given more that it finds by these names
 */
export const runConfined = (body: string, filename: string, given: Globals = {}): unknown =>
  confinedScript(body, filename)(given);

/** Compiled once, and run as often as is wanted: what one run declares, or is given, no other one sees. */
export function confinedScript(body: string, filename: string): (given?: Globals) => unknown {
  const hidden = Object.getOwnPropertyNames(globalThis).filter((name) => !VISIBLE.has(name));
  const names = [...new Set([...hidden, ...MODULE_NAMES])];
  const confined = compileFunction(body, names, { filename });
  return (given = {}) => confined(...names.map((name) => given[name] ?? STANDINS[name]));
}
