/**
 * The request that `edgectl wasm …` sends to the component tool (`agent/main/component-tool`): JSON on its command
 * line.
 */
export interface ComponentToolRequest {
  readonly command: "check" | "run";
  /** Absolute; `-` for standard input. */
  readonly file: string;
  /** Absolute path of a manifest with one pod; undefined: a pod of this component alone. */
  readonly manifest: string | undefined;
  /** The name of one of the manifest's containers; undefined for its only one. */
  readonly container: string | undefined;
  /** Arguments of the component; they take the place of the manifest's. */
  readonly args: readonly string[];
  /** Added to the manifest's. `NAME=value` each. */
  readonly env: readonly string[];
  /** Added to the manifest's. `name=value` each; the prefix of picolet's own may be left out. */
  readonly annotations: readonly string[];
  /** Limits as a pod has them. */
  readonly memory: string | undefined;
  readonly cpu: string | undefined;
  /** `HOST:CONTAINER` or `HOST:CONTAINER:ro` each, paths absolute. */
  readonly directories: readonly string[];
  /** Ends the component after this many milliseconds. */
  readonly timeoutMs: number | undefined;
  /** PEM of authorities that its https requests trust besides; absolute. */
  readonly caFile: string | undefined;
  readonly json: boolean;
  /** True to check as a node that runs components of WASI 0.3. */
  readonly p3: boolean;
  /** The node's `wasm.maxComponentSize`; undefined: its default. */
  readonly maxComponentBytes: number | undefined;
}

/** `edgectl wasm check -o json`. */
export interface ComponentReport {
  readonly file: string;
  readonly sizeBytes: number;
  /** `sha256:…` */
  readonly digest: string;
  readonly imports: readonly ComponentImport[];
  readonly exports: readonly string[];
  readonly runs: boolean;
  /** All of it, when it would not run. */
  readonly problems: readonly string[];
}

export interface ComponentImport {
  readonly name: string;
  /** True when the pod grants it. */
  readonly granted: boolean;
}

/** Signals by which a terminal ends a program: they end the component, and then the tool. */
export const ENDING_SIGNALS = ["SIGHUP", "SIGINT", "SIGTERM"] as const satisfies readonly NodeJS.Signals[];
