import { closeSync, copyFileSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { PicoletError } from "../../../protocol/errors.ts";
import type { Clock } from "../../../protocol/ports.ts";
import { copyDatabase, openDatabase } from "./schema.ts";

/**
 * What a restore adds to the revision: more than any hub can have given out since the backup (a thousand a second for
 * thirty years), so that every watcher's revision is behind the floor and none is met again. Room for 9,000 restores.
 */
const REVISION_STEP = 1_000_000_000_000;

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
  /** Where the store is that was there before; undefined: there was none. */
  readonly setAside: string | undefined;
}

/**
 * Puts a backup in the place of a store. No hub may have it open. Every client lists anew afterwards: whatever was
 * written since the backup is no longer true. The backup file stays as it is.
 * @throws `corrupt`, `invalid` for a file that is no whole backup; `unavailable` when a hub is running; the store is
 *   then as it was
 */
export function restoreStore(backup: string, path: string, clock: Clock): Restored {
  requireFile(backup);
  const fresh = `${path}.restoring`;
  removeDatabase(fresh);
  try {
    copyFileSync(backup, fresh);
    moveForward(fresh);
    const setAside = existsSync(path) ? setStoreAside(path, clock) : undefined;
    renameSync(fresh, path);
    syncFolder(path);
    return { setAside };
  } finally {
    removeDatabase(fresh);
  }
}

/** Checks it, too. */
function moveForward(path: string): void {
  const database = openDatabase(path);
  try {
    const revision = Number(database.prepare("SELECT value FROM meta WHERE name = 'revision'").pluck().get());
    const next = revision + REVISION_STEP;
    database.transaction(() => {
      database.prepare("UPDATE meta SET value = ? WHERE name = 'revision'").run(next);
      database.exec("DELETE FROM history; DELETE FROM floors");
      // The resource "" stands for all of them.
      database.prepare("INSERT INTO floors VALUES ('', ?)").run(next);
    })();
    // Everything into the one file that is then renamed.
    database.pragma("journal_mode = DELETE");
  } finally {
    database.close();
  }
  const file = openSync(path, "r+");
  fsyncSync(file);
  closeSync(file);
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

function syncFolder(path: string): void {
  const folder = openSync(dirname(path), "r");
  fsyncSync(folder);
  closeSync(folder);
}
