/**
 * Functions of the board's interfaces whose host side may wait, though their types do not say so. A component of WASI 0.3 is
 * transpiled so that its stack is set aside in them; what is not named here cannot wait there.
 */
import { parseInterfaceName } from "./component-shape.ts";

const BUCKET = ["get", "set", "delete", "exists", "list-keys"];
const MANY = ["get-many", "set-many", "delete-many"];

const methods = (resource: string, names: readonly string[]): string[] =>
  names.map((name) => `[method]${resource}.${name}`);

/** By interface, whatever its version: as WIT has them. */
const WAITING: Readonly<Record<string, readonly string[]>> = {
  "picolet:board/keyvalue": ["open", ...methods("bucket", [...BUCKET, "increment", "swap", ...MANY])],
  "picolet:board/node-info": ["this-node"],
  "picolet:board/telemetry": ["write", "emit"],
  "wasi:keyvalue/store": ["open", ...methods("bucket", BUCKET)],
  "wasi:keyvalue/batch": MANY,
  "wasi:keyvalue/atomics": ["increment", "swap", "[static]cas.new", "[method]cas.current"],
};

/** @param imports of a component, by their names. @returns `interface@version#function`, as the transpiler asks for them */
export const waitingFunctions = (imports: readonly string[]): string[] =>
  imports.flatMap((name) => {
    const path = parseInterfaceName(name)?.path ?? "";
    const waiting = Object.hasOwn(WAITING, path) ? WAITING[path] : undefined;
    return (waiting ?? []).map((each) => `${name}#${each}`);
  });
