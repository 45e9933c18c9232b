/** A process that changes a bucket as fast as it can and prints each acknowledged change, until it is killed. */
import { writeSync } from "node:fs";
import { KeyvalueService } from "@picolet/agent/store/keyvalue/keyvalue-service.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { KEYVALUE_PEER } from "./keyvalue-peer.ts";

const [path] = process.argv.slice(2);
if (path === undefined) throw new Error("usage: keyvalue-writer.ts <database>");
const service = new KeyvalueService(
  {
    clock: systemClock,
    log: new RecordedLog(),
    namedBy: () => [],
    isClockSet: () => true,
    onDamage: (reason) => {
      throw new Error(reason);
    },
  },
  { path },
);
const call = (method: string, value: object, ...bytes: Uint8Array[]) =>
  service.call(KEYVALUE_PEER, method, { value: { bucket: "b", ...value }, bytes });
let observed = (await call("observe", { key: "c" })).value as { readonly state: string | null };
for (;;) {
  // Several at once, so that they share commits; each of the pair is set with the other.
  const { value } = await call("increment", { key: "n", delta: "1" });
  const text = Buffer.from(String(value));
  const others = [0, 1, 2].map((n) => call("set", { key: `k${n}` }, text));
  const swap = call("swap-observed", { key: "c", state: observed.state }, text);
  await Promise.all([...others, call("set-many", { keys: ["a", "z"] }, text, text), swap]);
  if ((await swap).value !== "swapped") throw new Error("nobody else changes it");
  observed = (await call("observe", { key: "c" })).value as { readonly state: string | null };
  writeSync(1, `${value}\n`);
}
