/** Which interfaces a pod's components are given. What is not listed here nobody grants. */
import { isWasi02, parseInterfaceName } from "./component-shape.ts";

/** With the version 0.2, any patch. */
const GRANTED: ReadonlySet<string> = new Set([
  "wasi:cli/environment",
  "wasi:cli/exit",
  "wasi:cli/stdin",
  "wasi:cli/stdout",
  "wasi:cli/stderr",
  "wasi:cli/terminal-input",
  "wasi:cli/terminal-output",
  "wasi:cli/terminal-stdin",
  "wasi:cli/terminal-stdout",
  "wasi:cli/terminal-stderr",
  "wasi:clocks/monotonic-clock",
  "wasi:clocks/wall-clock",
  "wasi:clocks/timezone",
  "wasi:filesystem/preopens",
  "wasi:filesystem/types",
  "wasi:io/error",
  "wasi:io/poll",
  "wasi:io/streams",
  "wasi:random/random",
  "wasi:random/insecure",
  "wasi:random/insecure-seed",
  // There, because adapters and standard libraries import them unasked; every use answers access-denied.
  "wasi:sockets/instance-network",
  "wasi:sockets/ip-name-lookup",
  "wasi:sockets/network",
  "wasi:sockets/tcp",
  "wasi:sockets/tcp-create-socket",
  "wasi:sockets/udp",
  "wasi:sockets/udp-create-socket",
]);

const RUN_EXPORT = "wasi:cli/run";

const isGranted = (name: string): boolean => {
  const parsed = parseInterfaceName(name);
  return parsed !== undefined && isWasi02(parsed.version) && GRANTED.has(parsed.path);
};

/** All of them, so that they can be mended at once. */
export const ungrantedImports = (imports: readonly string[]): string[] => imports.filter((name) => !isGranted(name));

export const exportsRun = (exports: readonly string[]): boolean =>
  exports.some((name) => parseInterfaceName(name)?.path === RUN_EXPORT);
