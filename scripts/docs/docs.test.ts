import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { ResourceDefinition } from "@picolet/hub-embedded/api/resource-definition.ts";
import { ensureInitialObjects } from "@picolet/hub-embedded/controllers/cluster/initial-objects.ts";
import { FleetGuard, storePathIn } from "@picolet/hub-embedded/store/fleet-guard.ts";
import { parseKubeletPath } from "@picolet/kubelet-api/serving/kubelet-path.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { ADMIN_USER, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { committed } from "./docs.ts";
import { ABSENT_RESOURCES, ABSENT_SUBRESOURCES, API_PATHS, type ApiCaller, KUBELET_PATHS } from "./hub-api-paths.ts";
import { kindsReference } from "./kinds-reference.ts";

/** With the keys that a hub has beside its store. */
async function start(folder: TempFolder): Promise<TestApiServer> {
  const guard = new FleetGuard({ clock: systemClock, log: new RecordedLog() }, { dataDir: folder.path });
  const server = await TestApiServer.start({ storePath: storePathIn(folder.path), guard });
  await ensureInitialObjects(server.server.client(ADMIN_USER), new AbortController().signal);
  return server;
}

test("the committed references are what the code says", () => {
  const stale = [...committed()].filter(([path, text]) => readFileSync(path, "utf8") !== text);
  assert.deepEqual(
    stale.map(([path]) => path),
    [],
    "run npm run docs",
  );
});

test("the table of kinds has a row for each resource that the embedded API server stores", () => {
  const lights = { plural: "lights", strategy: {} } as ResourceDefinition;
  assert.throws(() => kindsReference([lights]), /has no row for lights/);
  assert.throws(() => kindsReference([{ ...lights, plural: "jobs" }]), /has no row for jobs/);
  assert.match(kindsReference([]), /\n\| `jobs` \| no \| no \| the cluster's controllers/);
});

/** Statuses without a token, for a user without a role and for an administrator. */
const STATUSES: Readonly<Record<ApiCaller, readonly [number, number, number]>> = {
  anyone: [200, 200, 200],
  authenticated: [403, 200, 200],
  administrator: [403, 403, 200],
};

test("each documented path of the API is answered to the callers that the document names, and to no others", async () => {
  using folder = new TempFolder();
  await using server = await start(folder);
  for (const { method, path, caller } of API_PATHS) {
    const statuses: number[] = [];
    for (const token of ["", "joe", "admin"]) statuses.push((await server.ask(method, path, { token })).status);
    assert.deepEqual(statuses, STATUSES[caller], `${method} ${path}`);
  }
  for (const path of ["/metrics", "/logs", "/debug/pprof", "/configz"]) {
    assert.equal((await server.ask("GET", path)).status, 404, path);
    assert.equal((await server.ask("GET", path, { token: "joe" })).status, 403, path);
  }
  const documented = new Set(API_PATHS.map(({ path }) => path));
  const { paths } = (await server.ask("GET", "/")).body as { readonly paths: readonly string[] };
  const missing = paths.filter((each) => !documented.has(each) && !/^\/apis\/[^/]+\/v1$/.test(each));
  assert.deepEqual(missing, []);
});

test("what the document calls absent is answered as it says", async () => {
  using folder = new TempFolder();
  await using server = await start(folder);
  for (const { apiVersion, plurals } of ABSENT_RESOURCES) {
    for (const plural of plurals) {
      const path = `/${apiVersion.includes("/") ? "apis" : "api"}/${apiVersion}/${plural}`;
      const { status, body } = await server.ask("GET", path);
      assert.equal(status, 404, path);
      assert.equal(body.reason, "NotFound", path);
      assert.equal(body.message, "the server could not find the requested resource", path);
      assert.equal((await server.ask("GET", path, { token: "joe" })).status, 403, path);
    }
  }
  for (const subresource of ABSENT_SUBRESOURCES) {
    const [plural, name] = subresource.split("/");
    assert.equal((await server.ask("GET", `/api/v1/namespaces/default/${plural}/x/${name}`)).status, 404, subresource);
  }
  assert.equal((await server.ask("DELETE", "/api/v1/namespaces")).status, 405);
  const { body } = await server.ask("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
  assert.deepEqual(body.items, []);
});

test("each documented path of a kubelet is one", () => {
  for (const { path } of KUBELET_PATHS) {
    const query = /^\/(exec|attach)/.test(path) ? "?output=1" : "";
    assert.ok(parseKubeletPath(`${path}${query}`), path);
  }
});
