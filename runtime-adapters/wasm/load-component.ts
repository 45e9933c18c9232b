/** A component as the transpiler left it, ready to be instantiated as often as is wanted. */
import { readFileSync } from "node:fs";
import { PicoletError } from "../../protocol/errors.ts";
import { limitMemories } from "./binary/memory-limits.ts";
import { runConfined } from "./confined-script.ts";
import type { suspendableInstantiate } from "./host/event-loop.ts";
import type { Imports } from "./host/host.ts";
import type { TranspiledComponent } from "./launch.ts";

/** Its exports by their names: functions, and interfaces of functions. */
export type ComponentExports = Readonly<Record<string, unknown>>;

/** @param instantiateCore stands for `new WebAssembly.Instance`, where stacks are to be set aside */
export type InstantiateComponent = (
  imports: Imports,
  instantiateCore?: ReturnType<typeof suspendableInstantiate>,
) => ComponentExports;

/** What jco's script returns. */
type Instantiate = (
  getCoreModule: (name: string) => WebAssembly.Module,
  ...rest: Parameters<InstantiateComponent>
) => ComponentExports;

/** @param memoryLimitBytes that each of its memories may grow to; undefined: what it declares */
export function loadComponent(
  component: TranspiledComponent,
  memoryLimitBytes: number | undefined,
): InstantiateComponent {
  const file = (name: string): Buffer => readFileSync(`${component.directory}/${name}`);
  const modules = new Map<string, WebAssembly.Module>();
  for (const { name, memories } of component.modules) {
    const bytes = file(name);
    limitMemories(bytes, memories, memoryLimitBytes);
    modules.set(name, new WebAssembly.Module(bytes));
  }
  // Latin-1 costs half of what two-byte strings do; the transpiler writes nothing else.
  const script = file(component.script).toString("latin1");
  const instantiate = runConfined(script, component.script) as Instantiate;
  const moduleNamed = (name: string): WebAssembly.Module => {
    const module = modules.get(name);
    if (module === undefined) throw new PicoletError("corrupt", `cannot find the core module ${name}`);
    return module;
  };
  return (imports, instantiateCore) => instantiate(moduleNamed, imports, instantiateCore);
}
