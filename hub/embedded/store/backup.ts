import { closeSync, copyFileSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { checkIntegrity, copyDatabase, openDatabase } from "./database.ts";
import { syncFolderOf } from "./durable-file.ts";
import { advanceRevision, type FleetGuard, markOf } from "./fleet-guard.ts";

/** A copy of a store that no hub has open. While one runs, `ObjectStore.backup` makes it. @param to must not exist */
export function backupStoppedStore(path: string, to: string): void {
  requireFile(path);
  const database = openDatabase(path);
  try {
    copyDatabase(database, to);
  } finally {
    database.close();
  }
}

export interface Restored {
  /** Path of the store that was there before; undefined: there was none. */
  readonly setAside: string | undefined;
  /** Time of the backup's last change; undefined: it has no change. */
  readonly lastChangeAt: Date | undefined;
}

/**
 * Puts a backup in the place of a store. No hub may have it open. Every client must list again afterwards: changes
 * since the backup are lost. The backup file stays as it is.
 * @param guard of the data directory; undefined: the store belongs to no fleet
 * @throws `corrupt`, `invalid` for a file that is no whole backup; `conflict` for one of another fleet; `unavailable`
 * when a hub is running; the store is then as it was
 */
export function restoreStore(backup: string, path: string, clock: Clock, guard?: FleetGuard): Restored {
  requireFile(backup);
  const fresh = `${path}.restoring`;
  removeDatabase(fresh);
  try {
    copyFileSync(backup, fresh);
    const lastChangeAt = prepare(fresh, backup, guard);
    const setAside = existsSync(path) ? setStoreAside(path, clock) : undefined;
    renameSync(fresh, path);
    syncFolderOf(path);
    return { setAside, lastChangeAt };
  } finally {
    removeDatabase(fresh);
  }
}

/** Checks the copy, and moves its revisions forward. @returns when it was changed last */
function prepare(path: string, backup: string, guard: FleetGuard | undefined): Date | undefined {
  const database = openDatabase(path);
  let lastChange: unknown;
  try {
    checkIntegrity(database, backup);
    lastChange = database.prepare("SELECT max(at) FROM history").pluck().get();
    if (guard === undefined) database.transaction(() => advanceRevision(database, markOf(database).revision))();
    else guard.admitBackup(backup, database);
    // Everything into the one file that is then renamed.
    database.pragma("journal_mode = DELETE");
  } finally {
    database.close();
  }
  const file = openSync(path, "r+");
  fsyncSync(file);
  closeSync(file);
  return typeof lastChange === "number" ? new Date(lastChange) : undefined;
}

/** A damaged store is set aside as well: that it cannot be opened is the reason for the restore. */
function setStoreAside(path: string, clock: Clock): string {
  try {
    openDatabase(path).close();
  } catch (error) {
    if (error instanceof PicoletError && error.code === "unavailable") throw error;
  }
  const stamp = clock
    .wall()
    .toISOString()
    .replace(/[-:]|\.\d+/g, "");
  const aside = `${path}.before-restore-${stamp}`;
  for (const ending of ["-wal", "-shm", ""]) {
    if (existsSync(`${path}${ending}`)) renameSync(`${path}${ending}`, `${aside}${ending}`);
  }
  return aside;
}

function requireFile(path: string): void {
  if (!existsSync(path)) throw new PicoletError("not_found", `cannot find ${path}`);
}

function removeDatabase(path: string): void {
  for (const ending of ["-wal", "-shm", "-journal", ""]) rmSync(`${path}${ending}`, { force: true });
}
