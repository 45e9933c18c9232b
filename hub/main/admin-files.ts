/** Files that `picolet-hub --embedded` writes for its administrator into the data directory. */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { readOptionalFile, writeDurably } from "@picolet/hub-embedded/store/durable-file.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

const TOKEN_BYTES = 32;
const TOKEN = /^[A-Za-z0-9_-]{43}\n$/;
const CONTEXT = "picolet";
const USER = "picolet-admin";

/** Made at the first start. Any reader of the file is the administrator. */
export function adminToken(dataDir: string): string {
  const path = join(dataDir, "admin-token");
  const kept = readOptionalFile(path);
  if (kept !== undefined) {
    if (TOKEN.test(kept)) return kept.trim();
    throw new PicoletError(
      "corrupt",
      `${path} holds no token: remove the file, and a new one is made at the next start`,
    );
  }
  const token = randomBytes(TOKEN_BYTES).toString("base64url");
  writeDurably(path, `${token}\n`);
  return token;
}

export interface AdminKubeconfig {
  /** `https://host:port` */
  readonly server: string;
  /** PEM. */
  readonly ca: string;
  readonly token: string;
}

/** JSON is YAML; kubectl reads both. */
export function kubeconfigText({ server, ca, token }: AdminKubeconfig): string {
  const cluster = { server, "certificate-authority-data": Buffer.from(ca).toString("base64") };
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: CONTEXT, cluster }],
    users: [{ name: USER, user: { token } }],
    contexts: [{ name: CONTEXT, context: { cluster: CONTEXT, user: USER } }],
    "current-context": CONTEXT,
  };
  return `${JSON.stringify(config, undefined, 2)}\n`;
}
