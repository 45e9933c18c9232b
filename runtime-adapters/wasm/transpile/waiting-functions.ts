/**
 * Functions whose host side may wait although their WIT type is synchronous. A component of WASI 0.3 is transpiled so
 * that its stack is set aside in these functions, and can wait in no others.
 */
import { parseInterfaceName } from "../shared/binary/component-shape.ts";
import { INTERFACE_GRANTS, importsBoard } from "../shared/grants/board-grants.ts";
import { methods } from "../shared/grants/syntax/interface-grant.ts";

/** By path of the interface. Without devices these functions wait for time alone, without setting a stack aside. */
const WAITING_FOR_DEVICES: Readonly<Record<string, readonly string[]>> = {
  "wasi:io/poll": ["poll", "[method]pollable.block"],
  "wasi:io/streams": [
    ...methods("input-stream", ["blocking-read", "blocking-skip"]),
    ...methods("output-stream", ["blocking-write-and-flush", "blocking-flush", "blocking-write-zeroes-and-flush"]),
    ...methods("output-stream", ["blocking-splice"]),
  ],
};

/**
 * @param imports names of a component's imports
 * @returns `interface@version#function`, as the transpiler expects them
 */
export function waitingFunctions(imports: readonly string[]): string[] {
  const hasDevices = importsBoard(imports, ({ device }) => device !== undefined);
  const waiting = new Map(Object.entries(hasDevices ? WAITING_FOR_DEVICES : {}));
  for (const grant of Object.values(INTERFACE_GRANTS)) {
    for (const [path, functions] of Object.entries(grant.waiting ?? {})) waiting.set(path, functions);
  }
  return imports.flatMap((name) => {
    const functions = waiting.get(parseInterfaceName(name)?.path ?? "") ?? [];
    return functions.map((each) => `${name}#${each}`);
  });
}
