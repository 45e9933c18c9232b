import assert from "node:assert/strict";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { DescriptorListener, descriptorsIn, SECRET_BYTES, takeDescriptors } from "../shared/devices/descriptors.ts";
import { deviceAddon } from "../shared/devices/runner-packages.ts";
import { SystemCalls } from "../shared/devices/system-calls.ts";

const SECRET = "5".repeat(SECRET_BYTES);
const addonPath = deviceAddon(import.meta.filename);

/** Takes them in another thread, as a runner does. */
const TAKER = `
const { workerData, parentPort } = require("node:worker_threads");
const { readFileSync } = require("node:fs");
(async () => {
  const { takeDescriptors } = await import(workerData.descriptors);
  const { SystemCalls } = await import(workerData.systemCalls);
  const calls = new SystemCalls(workerData.addonPath);
  const said = [];
  for (const secret of workerData.secrets) {
    try {
      said.push(takeDescriptors(calls, workerData.path, secret).map((fd) => readFileSync(fd, "utf8")).join());
    } catch (error) {
      said.push(String(error.message));
    }
  }
  parentPort.postMessage(said);
})();
`;

test("open files go to who knows the secret, and to nobody else", async () => {
  const folder = mkdtempSync(join(tmpdir(), "picolet-descriptors-"));
  const calls = new SystemCalls(addonPath);
  try {
    const files = ["one", "two"].map((name) => {
      writeFileSync(join(folder, name), name);
      return openSync(join(folder, name), "r");
    });
    const path = join(folder, "socket");
    const listener = new DescriptorListener(calls, path);
    const worker = new Worker(TAKER, {
      trackUnmanagedFds: false,
      eval: true,
      workerData: {
        ...{ path, addonPath, secrets: ["4".repeat(SECRET_BYTES), "short", SECRET, SECRET] },
        descriptors: import.meta.resolve("../shared/devices/descriptors.ts"),
        systemCalls: import.meta.resolve("../shared/devices/system-calls.ts"),
      },
    });
    const said = new Promise<string[]>((resolve) => worker.once("message", resolve));
    const owner = openSync("/dev/ptmx", "r+");
    // Blocks this thread, as it does the child's.
    assert.equal(listener.give(SECRET, files, owner), true);
    listener[Symbol.dispose]();
    const [wrong, short, right, late] = await said;
    assert.match(wrong ?? "", /has not come with the answer|ECONNRESET|EPIPE/);
    assert.match(short ?? "", /has not come with the answer|ECONNRESET|EPIPE/);
    assert.equal(right, "one,two");
    assert.match(late ?? "", /ECONNREFUSED|ECONNRESET|EPIPE|has not come/);
    for (const fd of [...files, owner]) closeSync(fd);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("whatever comes in place of a message with open files is found out", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 104, maxLength: 104 }), (bytes) => {
      try {
        assert.ok(descriptorsIn(Buffer.from(bytes)).length <= 2);
      } catch (error) {
        assert.ok(isPicoletError(error, "corrupt"), String(error));
      }
    }),
  );
});

test("a socket's name that is too long is said, not cut", () => {
  const calls = new SystemCalls(addonPath);
  assert.throws(() => takeDescriptors(calls, `/tmp/${"x".repeat(200)}`, SECRET), /too long/);
  assert.equal(readFileSync(addonPath).subarray(1, 4).toString(), "ELF");
});
