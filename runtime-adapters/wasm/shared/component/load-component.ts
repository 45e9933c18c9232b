/** A component as the transpiler left it, ready to be instantiated as often as is wanted. */
import { readFileSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { limitMemories } from "../binary/memory-limits.ts";
import type { Imports } from "../host/host.ts";
import type { TranspiledComponent, TranspiledModule } from "../messages/launch.ts";
import type { suspendableInstantiate } from "../resources/event-loop.ts";
import { WaitingCalls } from "../resources/waiting-calls.ts";
import { confinedScript, type Globals } from "./confined-script.ts";

/** Its exports by their names: functions, and interfaces of functions. */
export type ComponentExports = Readonly<Record<string, unknown>>;

type InstantiateCore = ReturnType<typeof suspendableInstantiate>;

/** @param instantiateCore replaces `new WebAssembly.Instance` where stacks have to be set aside */
export type InstantiateComponent = (imports: Imports, instantiateCore?: InstantiateCore) => ComponentExports;

/** Each call gives a glue of its own around the same code. @param globals that it needs beside the language's */
export type GlueMaker = (globals?: Globals) => InstantiateComponent;

/** The function that jco's script returns. */
type Instantiate = (
  getCoreModule: (name: string) => WebAssembly.Module,
  imports: Imports,
  instantiateCore?: ReturnType<typeof knowing>,
) => ComponentExports;

/** @param memoryLimitBytes that each of its memories may grow to; undefined: what it declares */
export function compiledComponent(component: TranspiledComponent, memoryLimitBytes: number | undefined): GlueMaker {
  const file = (name: string): Buffer => readFileSync(`${component.directory}/${name}`);
  const modules = new Map<string, WebAssembly.Module>();
  for (const { name, memories } of component.modules) {
    const bytes = file(name);
    limitMemories(bytes, memories, memoryLimitBytes);
    modules.set(name, new WebAssembly.Module(bytes));
  }
  // Latin-1 costs half of what two-byte strings do; the transpiler writes nothing else.
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
      return instantiate(moduleNamed, imports, knowing(instantiateCore, { lifted, functions, calls }));
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
function knowing(
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
