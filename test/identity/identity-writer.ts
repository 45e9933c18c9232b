/** A process that replaces an identity as fast as it can and says on stdout which have worked, until it is killed. */
import { writeSync } from "node:fs";
import { DurableFolderOnDisk } from "@picolet/agent/security/durable-folder.ts";
import { IdentityStore } from "@picolet/agent/security/identity-store.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { storedIdentities } from "./stored-identities.ts";

const [path] = process.argv.slice(2);
if (path === undefined) throw new Error("usage: identity-writer.ts <folder>");
const store = new IdentityStore({ folder: new DurableFolderOnDisk({ path }), log: new RecordedLog() });
store.load();
const pool = storedIdentities(4);
for (let n = 0; ; n += 1) {
  const next = pool[n % pool.length];
  if (next === undefined) continue;
  store.pendingKey();
  store.replace(next);
  store.worked();
  writeSync(1, `${next.certificateChain.slice(-100, -30).replaceAll("\n", "")}\n`);
}
