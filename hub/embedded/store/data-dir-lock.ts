import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import Database from "better-sqlite3";

/**
 * Keeps a data directory to one process, even if the store's file is removed meanwhile: a store that is removed while
 * its hub runs must not be replaced under it. The kernel releases the lock with any end of the process.
 * @throws `unavailable` when another process has it
 */
export function lockDataDir(dataDir: string): Disposable {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  // Node has no flock(2), SQLite has. Nothing is ever written to the file.
  const path = join(dataDir, "hub.lock");
  const database = new Database(path, { timeout: 0 });
  try {
    database.pragma("journal_mode = MEMORY");
    database.exec("BEGIN EXCLUSIVE");
  } catch (cause) {
    database.close();
    const message = `cannot use ${dataDir}: another picolet-hub runs on it; end that one first`;
    throw new PicoletError("unavailable", message, { cause });
  }
  return { [Symbol.dispose]: () => database.close() };
}
