import { readFileSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";

const NAME = "picolet-hub-key";
/** `head -c 32 /dev/urandom` makes one; a shorter one could be guessed. */
const MIN_BYTES = 32;

/**
 * Reads the key that systemd decrypted for this service (`LoadCredentialEncrypted=picolet-hub-key`), by the machine's
 * TPM or its host key: `hub-keys.json` is then worth nothing on another machine. systemd.exec(5), CREDENTIALS.
 * @returns undefined when the unit names none. @throws `invalid` for one that is too short
 */
export function readCredential(environment: NodeJS.ProcessEnv): Uint8Array | undefined {
  const { CREDENTIALS_DIRECTORY: folder } = environment;
  if (folder === undefined) return undefined;
  const path = join(folder, NAME);
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw new PicoletError("failed", `cannot read the credential ${path}`, { cause: error });
  }
  if (bytes.length >= MIN_BYTES) return bytes;
  throw new PicoletError("invalid", `the credential ${NAME} has ${bytes.length} bytes, not ${MIN_BYTES} and more`);
}
