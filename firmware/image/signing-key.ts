/** The key that signs update bundles, and the certificate that boards know it by. */
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { BuildTools } from "./build-tools.ts";

export interface SigningKey {
  /** PEM. */
  readonly key: string;
  readonly certificate: string;
}

export const readSigningKey = (key: string, certificate: string): SigningKey => ({
  key: readFileSync(key, "utf8"),
  certificate: readFileSync(certificate, "utf8"),
});

/** Where a developer's own pair is kept: XDG base directory specification. */
export const developmentKeyFolder = (): string =>
  join(process.env.XDG_CONFIG_HOME ?? join(homedir(), ".config"), "picolet/firmware");

/** Makes the pair when there is none. Boards with it accept updates of this developer alone. */
export function developmentKey(tools: BuildTools, folder: string): SigningKey {
  const [key, certificate] = [join(folder, "development.key.pem"), join(folder, "development.crt.pem")];
  if (!existsSync(certificate)) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    tools.run("openssl", [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7300"],
      ...["-subj", "/O=picolet/CN=picolet development updates", "-keyout", "new.key", "-out", "new.crt"],
    ]);
    for (const [from, to] of [
      ["new.key", key],
      ["new.crt", certificate],
    ] as const)
      copyAndMove(join(tools.work, from), to);
  }
  return readSigningKey(key, certificate);
}

/** Whole or not at all, also onto another file system. */
function copyAndMove(from: string, to: string): void {
  copyFileSync(from, `${to}.new`);
  chmodSync(`${to}.new`, 0o600);
  renameSync(`${to}.new`, to);
}
