/** What jco makes of a component: its core modules, and the script around them. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { asyncNames, isWasi03, parseInterfaceName, readComponentShape } from "../shared/binary/component-shape.ts";
import { SCRIPT_NAME } from "../shared/messages/transpile-request.ts";
import { replaceShim } from "./bindgen-host.ts";
import { waitingFunctions } from "./waiting-functions.ts";

/** @throws `invalid` for what jco refuses */
export async function generatedFiles(
  component: Uint8Array,
): Promise<readonly (readonly [name: string, content: Uint8Array])[]> {
  replaceShim();
  const bindgen = await import("@bytecodealliance/jco-transpile/component");
  await bindgen.$init;
  const read = (offset: number, length: number): Uint8Array => component.subarray(offset, offset + length);
  const shape = readComponentShape(read, component.length);
  const { imports } = shape;
  try {
    const { files } = bindgen.generate(component, {
      name: SCRIPT_NAME.slice(0, -".js".length),
      instantiation: { tag: "sync" },
      map: imports.flatMap(asyncName),
      ...(asyncNames(shape).length > 0 && { asyncMode: waitingIn(imports) }),
      noTypescript: true,
      noNodejsCompat: true,
      noNamespacedExports: false,
      base64Cutoff: 0,
    });
    return files;
  } catch (error) {
    throw new PicoletError("invalid", "jco refuses the component", { cause: error });
  }
}

/** One of 0.2 is called anew by its host instead: `shared/resources/event-loop.ts`. */
const waitingIn = (imports: readonly string[]) => ({
  tag: "jspi" as const,
  val: { imports: waitingFunctions(imports), exports: [] },
});

/** The glue names interfaces without their version; those of WASI 0.3 are others than those of 0.2. */
function asyncName(name: string): [string, string][] {
  const parsed = parseInterfaceName(name);
  return parsed !== undefined && isWasi03(parsed.version) ? [[name, `${parsed.path}@0.3`]] : [];
}
