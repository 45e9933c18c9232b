/**
 * Functions of the board's interfaces whose host side may wait, though their types do not say so. A component of WASI
 * 0.3 is transpiled so that its stack is set aside in them; what is not named here cannot wait there.
 */
import { parseInterfaceName } from "../shared/binary/component-shape.ts";

const BUCKET = ["get", "set", "delete", "exists", "list-keys"];
/** Opened by the agent, and read by the interfaces of WASI 0.2. */
const DEVICES: readonly string[] = ["picolet:board/gpio", "picolet:board/i2c", "picolet:board/serial"];
const MANY = ["get-many", "set-many", "delete-many"];

const methods = (resource: string, names: readonly string[]): string[] =>
  names.map((name) => `[method]${resource}.${name}`);

/** Functions that wait, by interface of any version, with their names in WIT. */
const WAITING: Readonly<Record<string, readonly string[]>> = {
  "picolet:board/keyvalue": ["open", ...methods("bucket", [...BUCKET, "increment", "swap", ...MANY])],
  "picolet:board/node-info": ["this-node"],
  "picolet:board/telemetry": ["write", "emit"],
  "picolet:board/gpio": ["lines", "open-input", "open-output"],
  "picolet:board/i2c": ["open"],
  "picolet:board/serial": ["open", "[method]port.send-break"],
  "wasi:keyvalue/store": ["open", ...methods("bucket", BUCKET)],
  "wasi:keyvalue/batch": MANY,
  "wasi:keyvalue/atomics": ["increment", "swap", "[static]cas.new", "[method]cas.current"],
};

/**
 * The same, of a component that has devices. Elsewhere they wait for time alone, and may be called where no stack can
 * be set aside.
 */
const WAITING_FOR_DEVICES: typeof WAITING = {
  "wasi:io/poll": ["poll", "[method]pollable.block"],
  "wasi:io/streams": [
    ...methods("input-stream", ["blocking-read", "blocking-skip"]),
    ...methods("output-stream", ["blocking-write-and-flush", "blocking-flush", "blocking-write-zeroes-and-flush"]),
    ...methods("output-stream", ["blocking-splice"]),
  ],
};

const pathOf = (name: string): string => parseInterfaceName(name)?.path ?? "";

/**
 * @param imports of a component, by their names. @returns `interface@version#function`, as the transpiler asks for them
 */
export function waitingFunctions(imports: readonly string[]): string[] {
  const hasDevices = imports.some((name) => DEVICES.includes(pathOf(name)));
  const waiting = new Map(Object.entries(hasDevices ? { ...WAITING, ...WAITING_FOR_DEVICES } : WAITING));
  return imports.flatMap((name) => (waiting.get(pathOf(name)) ?? []).map((each) => `${name}#${each}`));
}
