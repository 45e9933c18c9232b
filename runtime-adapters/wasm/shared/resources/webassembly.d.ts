/** The part of the WebAssembly JavaScript API used here; the types of Node have no values in this namespace. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
    static imports(module: Module): { readonly module: string; readonly name: string; readonly kind: string }[];
  }
  class Instance {
    constructor(module: Module, imports?: Readonly<Record<string, Readonly<Record<string, unknown>>>>);
    readonly exports: Readonly<Record<string, unknown>>;
  }
  class Global {
    constructor(descriptor: { readonly value: "i32"; readonly mutable: boolean }, value: number);
    value: number;
  }
  class RuntimeError extends Error {}
  /** JavaScript Promise Integration: an import whose promise sets the caller's stack aside. */
  class Suspending {
    constructor(call: (...args: never[]) => unknown);
  }
  /** JavaScript Promise Integration: a call of an export on a stack that can be set aside. */
  function promising(exported: (...args: never[]) => unknown): (...args: never[]) => Promise<unknown>;
}
