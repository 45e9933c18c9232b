/** The part of the WebAssembly JavaScript API used here; the types of Node have no values in this namespace. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
  }
  class RuntimeError extends Error {}
}
