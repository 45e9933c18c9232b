import { PicoletError } from "@picolet/protocol/errors.ts";
import { FIELD_DESCRIPTIONS_FILE, type FieldDescription } from "@picolet/protocol/local-api/field-description.ts";
import type { Context } from "./context.ts";

/** The fields of the agent's configuration, which the build puts beside edgectl. */
export function readFields(readBeside: Context["readBeside"]): readonly FieldDescription[] {
  try {
    return JSON.parse(readBeside(FIELD_DESCRIPTIONS_FILE)) as readonly FieldDescription[];
  } catch (cause) {
    const message = `this edgectl came without ${FIELD_DESCRIPTIONS_FILE}: install picolet whole`;
    throw new PicoletError("failed", message, { cause });
  }
}
