/** Components that were cut off, or in which bits have changed: the store takes them or refuses them, and goes on. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { textFile } from "@picolet/test/support/unit/wasm/text-components.ts";
import fc from "fast-check";
import { ImageStore } from "./image-store.ts";

const NEVER = new AbortController().signal;
const component = readFileSync(await textFile("exit-42.wat"));

const truncated = fc.nat({ max: component.length - 1 }).map((length) => component.subarray(0, length));
const flipped = fc.array(fc.nat({ max: component.length * 8 - 1 }), { minLength: 1, maxLength: 8 }).map((bits) => {
  const bytes = Buffer.from(component);
  for (const bit of bits) bytes[bit >> 3] = (bytes[bit >> 3] ?? 0) ^ (1 << (bit & 7));
  return bytes;
});

test("the store keeps a damaged component under the name of its content, or nothing of it", async (context) => {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const onRemoved = async (): Promise<void> => undefined;
  const init = { rootDirectory: folder.at("wasm") };
  const open = () => new ImageStore({ clock: systemClock, log: new RecordedLog(), onRemoved }, init);
  let store = open();
  let [taken, refused] = [0, 0];
  await fc.assert(
    fc.asyncProperty(fc.oneof(truncated, flipped), async (bytes) => {
      writeFileSync(folder.at("file"), bytes);
      try {
        const [info] = await store.import(folder.at("file"), "app:1", NEVER);
        assert.equal(info?.id, `sha256:${createHash("sha256").update(bytes).digest("hex")}`);
        taken += 1;
      } catch (error) {
        assert.ok(isPicoletError(error) && ["invalid", "corrupt", "unimplemented"].includes(error.code), String(error));
        refused += 1;
      }
      assert.deepEqual(readdirSync(folder.at("wasm/tmp")), []);
    }),
    { numRuns: 400 },
  );
  context.diagnostic(`${taken} taken, ${refused} refused`);
  assert.ok(taken > 20 && refused > 100, `${taken} taken, ${refused} refused`);
  store = open();
  writeFileSync(folder.at("file"), component);
  await store.import(folder.at("file"), "whole:1", NEVER);
  assert.ok((await store.status("whole:1", NEVER)) !== undefined);
});
