/** Lays into `/run` what is kept for it, at each boot: systemd and the other readers look there. */
import { dirname, join } from "node:path";
import type { DurableFiles } from "./durable-files.ts";
import { BOARD, HOSTNAME, KEPT_RUN, ZONE, ZONES } from "./plan/places.ts";

/** Every user may know what is there; secrets have a mode of their own. */
const FOLDER_MODE = 0o755;

interface Kept {
  /** Below `/run`. */
  readonly path: string;
  readonly content: Buffer;
  readonly mode: number;
}

/** @returns the host name, "" for none. Nothing of it must survive a power cut, so nothing is synced. */
export function layDown(files: DurableFiles, run: string): string {
  let hostname = "";
  for (const { path, content, mode } of [...keptFiles(files, "")]) {
    const target = join(run, path);
    files.makeFolder(dirname(target), FOLDER_MODE);
    files.write(target, content, mode);
    const text = content.toString("utf8").trim();
    if (path === HOSTNAME) hostname = text;
    // The read-only system's /etc/localtime leads here.
    if (path === ZONE) files.link(`${ZONES}/${text}`, join(run, BOARD, "localtime"));
  }
  return hostname;
}

function* keptFiles(files: DurableFiles, folder: string): Generator<Kept> {
  for (const name of files.list(join(KEPT_RUN, folder))) {
    // A power cut left it half written.
    if (name.startsWith(".")) continue;
    const path = join(folder, name);
    const whole = join(KEPT_RUN, path);
    if (files.isFolder(whole)) yield* keptFiles(files, path);
    else yield { path, content: files.read(whole) ?? Buffer.alloc(0), mode: files.modeOf(whole) ?? FOLDER_MODE };
  }
}
