/** Against drivers that are written with grpc-js. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { TestDraDriver } from "@picolet/test/support/unit/plugins/test-dra-driver.ts";
import { countedTimes } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { NodeCounts } from "../core/node/node-counts.ts";
import type { DraDriver } from "./dra-driver.ts";
import { DraDriverTable } from "./dra-driver-table.ts";
import { DraPlugins } from "./dra-plugins.ts";

const NEVER = new AbortController().signal;
const NAME = "gpu.example.com";
const CLAIMS = ["a", "b"].map((name) => ({ namespace: "default", uid: `uid-${name}`, name }));

for (const version of ["v1", "v1beta1"] as const) {
  test(`a driver of ${version} prepares and unprepares claims`, async () => {
    using folder = new TempFolder();
    const driver = new TestDraDriver({ rootDir: folder.path, name: NAME, version });
    await driver.start();
    try {
      const table = new DraDriverTable();
      const plugins = new DraPlugins({ clock: systemClock, table });
      const plugin = { type: "DRAPlugin", name: NAME, endpoint: driver.endpoint, socketPath: "gpu-reg.sock" };
      await plugins.register({ ...plugin, versions: [`${version}.DRAPlugin`, "v9.DRAPlugin"] });
      const devices = (name: string) => [
        { pool: "board", device: name, requests: ["one"], cdiDevices: [`example.com/gpu=${name}`] },
      ];
      assert.deepEqual(
        await table.driver(NAME)?.prepare(CLAIMS, NEVER),
        new Map(CLAIMS.map(({ uid, name }) => [uid, { error: "", devices: devices(name) }])),
      );
      driver.refusal = "no such card";
      const refused = await table.driver(NAME)?.prepare(CLAIMS.slice(0, 1), NEVER);
      assert.deepEqual(refused, new Map([["uid-a", { error: "no such card", devices: [] }]]));
      driver.refusal = "x".repeat(10_000);
      const cut = await table.driver(NAME)?.prepare(CLAIMS.slice(0, 1), NEVER);
      assert.equal(cut?.get("uid-a")?.error.length, 8192);
      driver.refusal = "";
      assert.deepEqual(await table.driver(NAME)?.unprepare(CLAIMS, NEVER), new Map(CLAIMS.map(({ uid }) => [uid, ""])));
      assert.deepEqual(driver.calls, ["prepare a,b", "prepare a", "prepare a", "unprepare a,b"]);
      await plugins.remove({ ...plugin, versions: [] });
      assert.equal(table.driver(NAME), undefined);
    } finally {
      driver.stop();
    }
  });
}

test("a driver that is killed is noticed, though its registration stays, and so is its return", async (context) => {
  const folder = new TempFolder();
  const clock = new VirtualClock();
  const driver = new TestDraDriver({ rootDir: folder.path, name: NAME });
  const table = new DraDriverTable();
  const plugin = { type: "DRAPlugin", name: NAME, endpoint: driver.endpoint, socketPath: "gpu-reg.sock" };
  await new DraPlugins({ clock, table }).register({ ...plugin, versions: ["v1.DRAPlugin"] });
  const end = new AbortController();
  const reports: boolean[] = [];
  let next = Promise.withResolvers<void>();
  const report = (isThere: boolean): void => {
    reports.push(isThere);
    next.resolve();
    next = Promise.withResolvers<void>();
  };
  await driver.start();
  let reported = next.promise;
  const following = table.driver(NAME)?.follow(report, end.signal);
  context.after(async () => {
    end.abort();
    await assert.rejects(following ?? Promise.resolve(), { code: "cancelled" });
    driver.stop();
    folder[Symbol.dispose]();
  });
  await reported;
  reported = next.promise;
  driver.kill();
  await reported;
  driver.stop();
  await driver.start();
  reported = next.promise;
  await clock.settle();
  await clock.advance(seconds(5));
  await reported;
  assert.deepEqual(reports, [true, false, true]);
});

test("calls of a driver count by their status", async (context) => {
  const folder = new TempFolder();
  const driver = new TestDraDriver({ rootDir: folder.path, name: NAME });
  const [counts, table] = [new NodeCounts(), new DraDriverTable()];
  context.after(() => {
    driver.stop();
    folder[Symbol.dispose]();
  });
  const plugin = { type: "DRAPlugin", name: NAME, endpoint: driver.endpoint, socketPath: "gpu-reg.sock" };
  await new DraPlugins({ clock: systemClock, counts, table }).register({ ...plugin, versions: ["v1.DRAPlugin"] });
  const found = table.driver(NAME);
  assert.ok(found);
  await driver.start();
  await found.prepare(CLAIMS, NEVER);
  await found.unprepare(CLAIMS, NEVER);
  driver.stop();
  await assert.rejects(found.unprepare(CLAIMS, NEVER), { code: "unavailable" });
  await assert.rejects(found.prepare(CLAIMS, AbortSignal.abort()), { code: "cancelled" });
  const service = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin";
  assert.deepEqual(countedTimes(counts, "dra_grpc_operations_duration_seconds"), {
    [`${NAME} OK ${service}/NodePrepareResources`]: 1,
    [`${NAME} OK ${service}/NodeUnprepareResources`]: 1,
    [`${NAME} Unavailable ${service}/NodeUnprepareResources`]: 1,
  });
});

test("a driver of no known version is refused", async () => {
  const plugins = new DraPlugins({ clock: systemClock, table: new DraDriverTable() });
  const plugin = { type: "DRAPlugin", name: NAME, endpoint: "/dra.sock", socketPath: "gpu-reg.sock" };
  await assert.rejects(
    plugins.register({ ...plugin, versions: ["v1alpha4"] }),
    /of \["v1.DRAPlugin","v1beta1.DRAPlugin"\] it offers none, only \["v1alpha4"\]/,
  );
});

test("of two instances of a driver the newest is used, and the older one when it goes", async () => {
  const table = new DraDriverTable();
  const driver = (): DraDriver => ({
    prepare: async () => new Map(),
    unprepare: async () => new Map(),
    follow: () => new Promise(() => undefined),
  });
  const [older, newer] = [driver(), driver()];
  table.set(NAME, "old", older);
  table.set(NAME, "new", newer);
  assert.equal(table.driver(NAME), newer);
  table.remove(NAME, "new");
  assert.equal(table.driver(NAME), older);
});
