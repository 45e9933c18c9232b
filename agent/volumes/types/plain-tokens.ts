/**
 * Tokens that a picolet before encryption at rest has left on the disk. Loaded at the first start after an upgrade
 * alone.
 */
import {
  closeSync,
  fstatSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { describeError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { Sealer } from "../../core/store/sealer.ts";
import { TOKENS_FOLDER } from "../files/pod-paths.ts";
import { encodeKeptToken, parseKeptToken } from "./kept-tokens.ts";

/** Seals every plain token below `rootDir`, and overwrites what it was in. Never throws. */
export function sealPlainTokens(init: { readonly rootDir: string; readonly sealer: Sealer; readonly log: Log }): void {
  const { rootDir, sealer, log } = init;
  for (const uid of namesIn(join(rootDir, "pods"))) {
    const folder = join(rootDir, "pods", uid, TOKENS_FOLDER);
    for (const name of namesIn(folder)) {
      try {
        sealFile(folder, name, uid, sealer);
      } catch (error) {
        log.warn("cannot encrypt a kept token", { file: join(folder, name), error: describeError(error) });
      }
    }
  }
}

function sealFile(folder: string, name: string, uid: string, sealer: Sealer): void {
  const path = join(folder, name);
  const text = readFileSync(path, "utf8");
  const identity = { uid, name };
  if (parseKeptToken(text, identity, sealer) !== undefined && !text.includes('"token"')) return;
  const token = parseKeptToken(text, identity, undefined);
  if (token !== undefined && name.endsWith(".json")) {
    writeFileSync(`${path}.sealed`, encodeKeptToken(token, identity, sealer), { mode: 0o600, flush: true });
    overwrite(path);
    renameSync(`${path}.sealed`, path);
    return;
  }
  // Half of a file that was being written; or the sealed one of a sweep that a power cut ended.
  overwrite(path);
  rmSync(path);
}

/** In place: on file systems that write in place nothing is left; what flash keeps of old pages is out of reach. */
function overwrite(path: string): void {
  const file = openSync(path, "r+");
  try {
    writeSync(file, Buffer.alloc(fstatSync(file).size), 0);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes(errnoOf(error))) return [];
    throw error;
  }
}
