/**
 * Records of pulls that a picolet before encryption at rest has left. Loaded at the first start after an upgrade alone.
 */
import { describeError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { RecordFiles } from "./pull-records.ts";

/**
 * Takes the plain SHA-256 of credentials out of records: with it a weak password can be guessed from the disk. Whose
 * Secret opened an image stays known by the Secret's name. Never throws.
 */
export function dropPlainHashes(files: RecordFiles, names: readonly string[], log: Log): void {
  for (const name of names) {
    if (!name.startsWith("pulled-")) continue;
    try {
      const text = files.read(name);
      const bare = text?.replaceAll(/"credentialHash":"[0-9a-f]{64}"/g, '"credentialHash":""');
      if (text === undefined || bare === undefined || bare === text) continue;
      files.write(`${name}.new`, bare);
      files.rename(`${name}.new`, name);
      files.sync();
    } catch (error) {
      log.warn("cannot take the hash of credentials out of a record", { file: name, error: describeError(error) });
    }
  }
}
