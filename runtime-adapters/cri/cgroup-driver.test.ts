import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { answer, refuse, ScriptedCri } from "@picolet/test/support/unit/cri/scripted-cri.ts";
import { runtimeCgroupDriver } from "./cgroup-driver.ts";
import { RuntimeService } from "./wire/cri-messages.ts";

const NEVER = new AbortController().signal;
const told = RuntimeService.runtimeConfig.response;

/** @param body undefined: the runtime does not know the call */
async function ask(context: TestContext, body: Buffer | undefined) {
  const runtime = await ScriptedCri.start((method, stream) => {
    if (method === "RuntimeConfig" && body !== undefined) answer(stream, body);
    else refuse(stream, 12);
  });
  context.after(() => runtime[Symbol.dispose]());
  return await runtimeCgroupDriver(
    { clock: systemClock },
    { endpoint: runtime.endpoint, requestTimeoutMs: 60_000 },
    NEVER,
  );
}

test("a runtime's cgroup driver is reported, or unknown", async (context) => {
  assert.equal(await ask(context, told.encode({ linux: { cgroupDriver: 0 } })), "systemd");
  assert.equal(await ask(context, told.encode({ linux: { cgroupDriver: 1 } })), "cgroupfs");
  assert.equal(await ask(context, told.encode({})), undefined);
  assert.equal(await ask(context, undefined), undefined);
});

test("a runtime that is not there is an error", async () => {
  const init = { endpoint: "/nonexistent/socket", requestTimeoutMs: 60_000 };
  await assert.rejects(runtimeCgroupDriver({ clock: systemClock }, init, NEVER), (error) =>
    isPicoletError(error, "unavailable"),
  );
});
