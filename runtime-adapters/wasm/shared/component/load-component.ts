/** Loads a component that the transpiler made. It can then be instantiated any number of times. */
import { readFileSync } from "node:fs";
import { compileFunction } from "node:vm";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { limitMemories } from "../binary/memory-limits.ts";
import type { Imports } from "../host/host.ts";
import type { TranspiledComponent, TranspiledModule } from "../messages/launch.ts";
import type { suspendableInstantiate } from "../resources/event-loop.ts";
import { WaitingCalls } from "../resources/waiting-calls.ts";

/** Its exports by their names: functions, and interfaces of functions. */
export type ComponentExports = Readonly<Record<string, unknown>>;

type InstantiateCore = ReturnType<typeof suspendableInstantiate>;

/** @param instantiateCore replaces `new WebAssembly.Instance` where stacks have to be set aside */
export type InstantiateComponent = (imports: Imports, instantiateCore?: InstantiateCore) => ComponentExports;

/** Global values by name. */
export type Globals = Readonly<Record<string, unknown>>;

/** Each call makes a glue of its own around the same code. @param globals that it needs beside the language's */
export type GlueMaker = (globals?: Globals) => InstantiateComponent;

/** The function that jco's script returns. */
type Instantiate = (
  getCoreModule: (name: string) => WebAssembly.Module,
  imports: Imports,
  instantiateCore?: ReturnType<typeof instantiateWithFacts>,
) => ComponentExports;

/** @param memoryLimitBytes bounds each of its memories; undefined: as it declares */
export function compiledComponent(component: TranspiledComponent, memoryLimitBytes: number | undefined): GlueMaker {
  const file = (name: string): Buffer => readFileSync(`${component.directory}/${name}`);
  const modules = new Map<string, WebAssembly.Module>();
  for (const { name, memories } of component.modules) {
    const bytes = file(name);
    limitMemories(bytes, memories, memoryLimitBytes);
    modules.set(name, new WebAssembly.Module(bytes));
  }
  // A Latin-1 string takes half of the memory of a two-byte string. The transpiler writes only Latin-1.
  const script = file(component.script).toString("latin1");
  const run = confinedScript(script, component.script);
  const moduleNamed = (name: string): WebAssembly.Module => {
    const module = modules.get(name);
    if (module === undefined) throw new PicoletError("corrupt", `cannot find the core module ${name}`);
    return module;
  };
  const functions = new Map(component.modules.map((each) => [modules.get(each.name), each.functions]));
  const calls = new WaitingCalls();
  let lifted: ReadonlySet<string> | undefined;
  return (globals) => {
    const instantiate = run(globals) as Instantiate;
    return (imports, instantiateCore) => {
      if (instantiateCore === undefined) return instantiate(moduleNamed, imports);
      lifted ??= liftedExports(script);
      return instantiate(moduleNamed, imports, instantiateWithFacts(instantiateCore, { lifted, functions, calls }));
    };
  };
}

/**
 * Exports of core modules that the component itself exports: `<number of the instance> <name>`. The component's author
 * chose the names; only those that wit-component made begin with the name of the interface.
 */
function liftedExports(script: string): ReadonlySet<string> {
  const assigned = script.matchAll(
    /^(?!memory|realloc|postReturn|table)\w+ = exports(\d+)(?:\.([\w$]+)|\['([^'\n]*)'\]);$/gm,
  );
  return new Set([...assigned].map(([, instance, name, quoted]) => `${instance} ${name ?? quoted}`));
}

interface ComponentFacts {
  readonly lifted: ReadonlySet<string>;
  readonly functions: ReadonlyMap<WebAssembly.Module | undefined, TranspiledModule["functions"]>;
  readonly calls: WaitingCalls;
}

/** The glue instantiates them in the order of their numbers. */
function instantiateWithFacts(
  instantiateCore: InstantiateCore,
  { lifted, functions, calls }: ComponentFacts,
): (module: WebAssembly.Module, imports?: Parameters<InstantiateCore>[1]) => ReturnType<InstantiateCore> {
  let instances = 0;
  return (module, imports) => {
    const instance = instances;
    instances += 1;
    const isLifted = (name: string): boolean => lifted.has(`${instance} ${name}`);
    return instantiateCore(module, imports, { isLifted, functions: functions.get(module) ?? [], calls });
  };
}

/** Global names of ECMAScript, WebAssembly, and others that jco uses. */
const VISIBLE: ReadonlySet<string> = new Set([
  ...["undefined", "NaN", "Infinity", "eval", "isFinite", "isNaN", "parseFloat", "parseInt"],
  ...["Object", "Function", "Array", "Number", "Boolean", "String", "Symbol", "Date", "Promise", "RegExp", "BigInt"],
  ...["Error", "AggregateError", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"],
  ...["JSON", "Math", "Map", "Set", "WeakMap", "WeakSet", "WeakRef", "FinalizationRegistry", "Proxy", "Reflect"],
  ...["ArrayBuffer", "DataView", "Uint8Array", "Int8Array", "Uint16Array", "Int16Array", "Uint32Array", "Int32Array"],
  ...["BigUint64Array", "BigInt64Array", "Uint8ClampedArray", "Float32Array", "Float64Array", "Iterator"],
  ...["WebAssembly", "TextEncoder", "TextDecoder"],
]);

const silent = (): void => undefined;

/** Placeholders for the global objects that the glue names itself. */
const PLACEHOLDERS: Readonly<Record<string, unknown>> = {
  globalThis: Object.freeze({ WebAssembly: Reflect.get(globalThis, "WebAssembly") }),
  console: Object.freeze({ debug: silent, error: silent, log: silent, warn: silent }),
};

/** Names that a CommonJS module has beside the global ones. */
const MODULE_NAMES = ["require", "module", "exports", "__filename", "__dirname"];

/**
 * Compiles and runs a script once.
 * @param body body of a strict function
 * @param filename for stack traces
 * @param given further values by name
 */
export const runConfined = (body: string, filename: string, given: Globals = {}): unknown =>
  confinedScript(body, filename)(given);

/**
 * Compiles the glue that jco generated without access to Node: of the global names it has only the language's own. The
 * glue is made from text of unknown authors (`transpile/component-names.ts`). If some of that text were more than a
 * name, it would find no `process`, no `require`, no timers, and no way to compile text
 * (`--disallow-code-generation-from-strings`).
 *
 * Node's permission model does not help here, because it takes fsync(2) and symbolic links away from components.
 * @returns runs the glue. No run sees the declarations or values of another one.
 */
function confinedScript(body: string, filename: string): (given?: Globals) => unknown {
  const hidden = Object.getOwnPropertyNames(globalThis).filter((name) => !VISIBLE.has(name));
  const names = [...new Set([...hidden, ...MODULE_NAMES])];
  const confined = compileFunction(body, names, { filename });
  return (given = {}) => confined(...names.map((name) => given[name] ?? PLACEHOLDERS[name]));
}
