/** `edgectl update` through a real socket. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { UpdateControl } from "@picolet/agent/core/node/update-control.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { UpdateStatusAnswer } from "@picolet/protocol/local-api/status.ts";
import type { UpdateProgress } from "@picolet/protocol/updates/node-updates.ts";
import { CapturedTerminal, EdgectlBench, type Outcome } from "../support/unit/agent/edgectl-bench.ts";

const NOTHING: UpdateStatusAnswer = {
  ...{ agentVersion: "0.2.0", osVersion: null, slot: null, updates: [], holds: [], hold: null, problems: "" },
};
const update = (state: UpdateProgress["state"], message = ""): UpdateProgress => ({
  ...{ kind: "os", target: "registry.example/fleet/os:1.3", state, message, since: "2026-11-20T11:00:00Z" },
});

async function withUpdates(t: TestContext, status: UpdateStatusAnswer, install?: UpdateControl["install"]) {
  const asked: unknown[] = [];
  const updates: UpdateControl = {
    status: async () => status,
    hold: async (request) => {
      asked.push(request);
      return {
        ...status,
        hold: { reason: request.reason, until: request.forMs === null ? null : "2026-11-20T14:00:00Z" },
      };
    },
    release: async () => {
      asked.push("release");
      return status;
    },
    install: async (request, signal) => {
      asked.push(request);
      return install === undefined ? { kind: "os", version: "1.3", state: "good" } : install(request, signal);
    },
  };
  const bench = await EdgectlBench.start(t, { updates });
  const run = (words: string): Promise<Outcome> => bench.run(words.split(" "), new CapturedTerminal({ columns: 80 }));
  return { run, asked, bench };
}

test("update status shows versions, updates and holds, and fails after a rollback", async (t) => {
  const message = "not running as before: default/web";
  const { run } = await withUpdates(t, {
    ...{ ...NOTHING, osVersion: "1.2", slot: "A", updates: [update("rolledBack", message)] },
    holds: ["pod default/web (filling tank 3)"],
  });
  const { code, out } = await run("update status");
  assert.equal(code, 1);
  assert.equal(
    out,
    `system 1.2 in slot A, agent 0.2.0
KIND  STATE       SINCE                 TARGET
os    rolledBack  2026-11-20T11:00:00Z  registry.example/fleet/os:1.3
os: not running as before: default/web
held by pod default/web (filling tank 3)
`,
  );
});

test("update status of a board without updates", async (t) => {
  const { run } = await withUpdates(t, NOTHING);
  assert.deepEqual(await run("update status"), { code: 0, out: "agent 0.2.0\nno update was asked for\n", error: "" });
  assert.deepEqual(JSON.parse((await run("update status -o json")).out), NOTHING);
});

test("update status names annotations that cannot be read", async (t) => {
  const { run } = await withUpdates(t, { ...NOTHING, problems: "picolet.io/update-window: wrong" });
  const { code, out } = await run("update status");
  assert.equal(code, 1);
  assert.match(out, /the Node's annotations: picolet.io\/update-window: wrong/);
});

test("update hold takes a reason and a time, update release ends it", async (t) => {
  const { run, asked } = await withUpdates(t, NOTHING);
  assert.equal(
    (await run("update hold --reason harvest --for 2h")).out,
    "updates are held until 2026-11-20T14:00:00Z\n",
  );
  assert.equal((await run("update hold")).out, "updates are held until update release\n");
  assert.equal((await run("update release")).out, "updates are released\n");
  assert.deepEqual(asked, [{ reason: "harvest", forMs: 7_200_000 }, { reason: "", forMs: null }, "release"]);
  assert.equal((await run(`update hold --reason ${"x".repeat(129)}`)).code, 1);
  assert.equal((await run("update hold --for soon")).code, 64);
});

test("update check and install name a file of the board", async (t) => {
  const { run, asked } = await withUpdates(t, NOTHING, async ({ check, path }) => {
    if (path.endsWith("wrong.raucb")) throw new PicoletError("invalid", "RAUC does not accept it: no signature");
    return check ? { kind: "os", version: "1.3", state: "good" } : { kind: "os", version: "", state: "began" };
  });
  assert.equal((await run("update check new.raucb --allow-downgrade")).out, "system 1.3 can be installed\n");
  assert.match((await run("update install /media/new.raucb")).out, /the update of the system has begun/);
  assert.deepEqual(asked, [
    { path: "/home/user/new.raucb", check: true, allowDowngrade: true },
    { path: "/media/new.raucb", check: false, allowDowngrade: false },
  ]);
  const { code, error } = await run("update check wrong.raucb");
  assert.equal(code, 1);
  assert.match(error, /RAUC does not accept it: no signature/);
  assert.equal((await run("update install")).code, 64);
});

test("an agent that updates nothing says so", async (t) => {
  const bench = await EdgectlBench.start(t);
  const { code, error } = await bench.run(["update", "status"], new CapturedTerminal({ columns: 80 }));
  assert.equal(code, 1);
  assert.match(error, /this agent updates nothing/);
});
