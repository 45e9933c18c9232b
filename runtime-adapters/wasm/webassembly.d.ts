/** The part of the WebAssembly JavaScript API used here; the types of Node have no values in this namespace. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
  }
  class Instance {
    constructor(module: Module);
    readonly exports: Readonly<Record<string, unknown>>;
  }
  class RuntimeError extends Error {}
}
