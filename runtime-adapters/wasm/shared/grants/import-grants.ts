/** The interfaces that a pod's components may import. An interface that is not listed here is not granted. */
import type { BoardInterface } from "@picolet/runtime-contract/board-services.ts";
import { isWasi02, isWasi03, parseInterfaceName } from "../binary/component-shape.ts";
import { boardInterfaceOf, INTERFACE_GRANTS, type InterfaceGrants } from "./board-grants.ts";

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

/** With the version 0.3, any patch, where the node runs such components. */
const GRANTED_03: ReadonlySet<string> = new Set([
  "wasi:cli/environment",
  "wasi:cli/exit",
  "wasi:cli/stdin",
  "wasi:cli/stdout",
  "wasi:cli/stderr",
  "wasi:cli/types",
  "wasi:cli/terminal-input",
  "wasi:cli/terminal-output",
  "wasi:cli/terminal-stdin",
  "wasi:cli/terminal-stdout",
  "wasi:cli/terminal-stderr",
  "wasi:clocks/monotonic-clock",
  "wasi:clocks/system-clock",
  "wasi:clocks/types",
  "wasi:filesystem/preopens",
  "wasi:filesystem/types",
  "wasi:random/random",
  "wasi:random/insecure",
  "wasi:random/insecure-seed",
  // As those of 0.2: without a network every use answers access-denied.
  "wasi:sockets/types",
  "wasi:sockets/ip-name-lookup",
]);

/** Granted where a component is served, or its pod has a network. The policy judges each request. */
const OUTGOING: ReadonlySet<string> = new Set(["wasi:http/outgoing-handler", "wasi:http/client"]);
const HTTP: ReadonlySet<string> = new Set(["wasi:http/types", "wasi:http/outgoing-handler"]);

/** The same of 0.3. */
const HTTP_03: ReadonlySet<string> = new Set(["wasi:http/types", "wasi:http/client"]);

const RUN_EXPORT = "wasi:cli/run";
const HANDLER_EXPORT = "wasi:http/incoming-handler";
const HANDLER_EXPORT_03 = "wasi:http/handler";

function isGranted(
  name: string,
  interfaces: readonly BoardInterface[],
  http: boolean,
  grants: InterfaceGrants,
): boolean {
  const boardInterface = boardInterfaceOf(name, grants);
  if (boardInterface !== undefined) return interfaces.includes(boardInterface);
  const parsed = parseInterfaceName(name);
  if (parsed === undefined) return false;
  if (isWasi03(parsed.version)) return GRANTED_03.has(parsed.path) || (http && HTTP_03.has(parsed.path));
  return isWasi02(parsed.version) && (GRANTED.has(parsed.path) || (http && HTTP.has(parsed.path)));
}

/**
 * All of them, so that they can be mended at once.
 * @param interfaces those of the board that the pod names
 * @param http whether wasi:http is granted
 */
export const ungrantedImports = (
  imports: readonly string[],
  interfaces: readonly BoardInterface[] = [],
  http = false,
  grants = INTERFACE_GRANTS as InterfaceGrants,
): string[] => imports.filter((name) => !isGranted(name, interfaces, http, grants));

/** @returns whether it can make requests of its own */
export const importsOutgoing = (imports: readonly string[]): boolean =>
  imports.some((name) => OUTGOING.has(parseInterfaceName(name)?.path ?? ""));

/** @returns whether it is wasi:http 0.2, which waits in another way than 0.3 */
export const isHttp02 = (name: string): boolean => {
  const parsed = parseInterfaceName(name);
  return parsed !== undefined && HTTP.has(parsed.path) && isWasi02(parsed.version);
};

export const importsHttp = (imports: readonly string[]): boolean =>
  imports.some((name) => [HTTP, HTTP_03].some((each) => each.has(parseInterfaceName(name)?.path ?? "")));

/** @returns whether it imports wasi:sockets 0.3 */
export const importsAsyncSockets = (imports: readonly string[]): boolean =>
  imports.some((name) => {
    const parsed = parseInterfaceName(name);
    return parsed !== undefined && isWasi03(parsed.version) && parsed.path.startsWith("wasi:sockets/");
  });

export const exportsHandler = (exports: readonly string[]): boolean =>
  exports.some((name) => {
    const parsed = parseInterfaceName(name);
    if (parsed === undefined) return false;
    const { path, version } = parsed;
    return isWasi03(version) ? path === HANDLER_EXPORT_03 : path === HANDLER_EXPORT && isWasi02(version);
  });

export const exportsRun = (exports: readonly string[]): boolean =>
  exports.some((name) => parseInterfaceName(name)?.path === RUN_EXPORT);
