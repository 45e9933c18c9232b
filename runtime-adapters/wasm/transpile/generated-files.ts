/** What jco makes of a component: its core modules, and the script around them. */
import { PicoletError } from "../../../protocol/errors.ts";
import { replaceShim } from "./bindgen-host.ts";
import { SCRIPT_NAME } from "./request.ts";

/** @throws `invalid` for what jco refuses */
export async function generatedFiles(
  component: Uint8Array,
): Promise<readonly (readonly [name: string, content: Uint8Array])[]> {
  replaceShim();
  const bindgen = await import("@bytecodealliance/jco-transpile/component");
  await bindgen.$init;
  try {
    const { files } = bindgen.generate(component, {
      name: SCRIPT_NAME.slice(0, -".js".length),
      instantiation: { tag: "sync" },
      map: [],
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
