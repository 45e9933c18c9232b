/** The agent's request to a transpile child, and the child's result. */
import type { TranspiledModule } from "./launch.ts";

/**
 * A part of the cache's key. Bump the last number when generated files change. The rest is the version of jco-transpile
 * in package.json; a test compares them.
 */
export const TRANSPILER_VERSION = "jco-transpile-0.15.0-13";

/** On the child's command line, as JSON. */
export interface TranspileRequest {
  /** Absolute. */
  readonly componentPath: string;
  /** 64 hexadecimal digits that the component's SHA-256 must be. */
  readonly sha256: string;
  /** An empty folder for the result. */
  readonly outputDirectory: string;
}

/** One line of JSON on the child's stdout. */
export type TranspileAnswer =
  | { readonly kind: "done"; readonly peakRssKiB: number; readonly isLean: boolean; readonly missed: readonly string[] }
  | { readonly kind: "failed"; readonly code: "invalid" | "corrupt" | "failed"; readonly message: string };

/** `manifest.json`, written last: a folder without it is half-made. */
export interface CacheManifest {
  readonly transpiler: string;
  readonly script: string;
  readonly modules: readonly TranspiledModule[];
  readonly files: readonly CachedFile[];
}

export interface CachedFile {
  readonly name: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

export const MANIFEST_NAME = "manifest.json";
export const SCRIPT_NAME = "component.js";
