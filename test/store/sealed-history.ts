/** The objects that a hub has sent by each revision, and a store as the agent opens it: keys on the disk beside it. */
import { join } from "node:path";
import type { DataKeys } from "@picolet/agent/keys/data-keys.ts";
import { makeKeyProviders } from "@picolet/agent/keys/key-providers.ts";
import { unlockDataKeys } from "@picolet/agent/keys/unlock.ts";
import { DurableFolderOnDisk } from "@picolet/agent/security/durable-folder.ts";
import { Store } from "@picolet/agent/store/store.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { remoteObject, samplePod } from "../support/unit/store/store-samples.ts";

const NEVER = new AbortController().signal;

/** In every Secret. */
export const MARK = "this-is-in-every-secret-of-this-history";
/** Enough for several batches of sealing. */
export const SECRETS = 100;

const textOf = (n: number, revision: number): string => `${MARK}-${n}-of-${revision}-`.padEnd(300, "x");

const secretOf = (n: number, revision: number): RemoteObject =>
  remoteObject("Secret", `s-${n}`, { kind: "Secret", data: { text: textOf(n, revision) } });

/** Revision 1 brings all; each later one changes one, and takes another away or brings it back. */
export function sealedChange(revision: number): {
  readonly upserts: readonly RemoteObject[];
  readonly deletes: readonly string[];
  readonly wanted: readonly DesiredPod[];
} {
  const wanted = [samplePod("kept", { source: "api", origin: "" })];
  if (revision === 1)
    return { upserts: Array.from({ length: SECRETS }, (_, n) => secretOf(n, 1)), deletes: [], wanted };
  const changed = secretOf(revision % SECRETS, revision);
  const gone = `Secret/default/s-${(revision + 50) % SECRETS}`;
  return { upserts: [changed], deletes: [gone], wanted };
}

/** Text by key once `revision` has been applied. */
export function sealedContents(revision: number): ReadonlyMap<string, string> {
  const contents = new Map<string, string>();
  for (let each = 1; each <= revision; each += 1) {
    const { upserts, deletes } = sealedChange(each);
    for (const key of deletes) contents.delete(key);
    for (const { key, object } of upserts) contents.set(key, (object as { data: { text: string } }).data.text);
  }
  return contents;
}

export async function openSealedStore(
  folder: string,
  clock: Clock,
): Promise<{ readonly store: Store; readonly keys: DataKeys }> {
  const log = new RecordedLog();
  const folderAt = (path: string): DurableFolderOnDisk => new DurableFolderOnDisk({ path });
  const none = { tpmDevice: "/nonexistent", systemdFolder: "/nonexistent", nvmemFolder: "/nonexistent" };
  const providers = makeKeyProviders({ ...none, rootDir: folder, keyFile: join(folder, "store.key"), folderAt });
  const keys = await unlockDataKeys({ clock, log, folder: folderAt(folder), providers }, { choice: "auto" }, NEVER);
  return { store: new Store({ clock, log, sealer: keys }, { path: join(folder, "picolet.db") }), keys };
}
