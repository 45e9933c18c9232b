/** Quotas of boards, users and the hub itself, against a server in this process on virtual time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeClient, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { ADMIN_USER, type Json, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { UserInfo } from "../api/resource-definition.ts";
import { StatusError } from "../api/status-error.ts";

const never = new AbortController().signal;
const core = (plural: string, kind: string, namespaced: boolean): ResourceType => ({
  ...{ group: "", version: "v1", plural, kind, namespaced },
});
const EVENTS = core("events", "Event", true);
const NODES = core("nodes", "Node", false);
const REQUESTS: ResourceType = {
  ...{ group: "certificates.k8s.io", version: "v1", plural: "certificatesigningrequests" },
  ...{ kind: "CertificateSigningRequest", namespaced: false },
};
const REVIEWS: ResourceType = {
  ...{ group: "authorization.k8s.io", version: "v1", plural: "subjectaccessreviews" },
  ...{ kind: "SubjectAccessReview", namespaced: false },
};
const board = (name: string): UserInfo => ({
  ...{ name: `system:node:${name}`, uid: "", groups: ["system:nodes", "system:authenticated"], extra: {} },
});

interface Bench extends AsyncDisposable {
  readonly server: TestApiServer;
  readonly clock: VirtualClock;
  readonly admin: KubeClient;
  as(user: UserInfo): KubeClient;
}

async function start(init: Parameters<typeof TestApiServer.start>[0] = {}): Promise<Bench> {
  const clock = new VirtualClock();
  const server = await TestApiServer.start({ clock, ...init });
  const as = (user: UserInfo): KubeClient => server.server.client(user);
  return { server, clock, admin: as(ADMIN_USER), as, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

const event = (name: string, node: string, more: Json = {}): Json => ({
  ...{ apiVersion: "v1", kind: "Event", metadata: { name }, reason: "Pulled", type: "Normal", message: "pulled it" },
  involvedObject: { kind: "Pod", namespace: "default", name: "web" },
  source: { component: "kubelet", host: node },
  ...more,
});

const makeEvent = (client: KubeClient, name: string, more: Json = {}): Promise<unknown> =>
  client.create(EVENTS, { namespace: "default", name: "" }, event(name, "a", more), {}, never);

/** A refusal as a client sees it. */
async function refusal(task: Promise<unknown>): Promise<{ code: number; message: string; after: number | undefined }> {
  try {
    await task;
  } catch (error) {
    if (!(error instanceof StatusError)) throw error;
    return { code: error.statusCode, message: error.message, after: error.details?.retryAfterSeconds };
  }
  throw new Error("it was not refused");
}

/** Does `task` until it is refused. @returns how often it was done */
async function until429(task: (n: number) => Promise<unknown>): Promise<{ done: number; message: string }> {
  for (let done = 0; done < 20_000; done += 1) {
    try {
      await task(done);
    } catch (error) {
      if (!(error instanceof StatusError) || error.statusCode !== 429) throw error;
      assert.ok((error.details?.retryAfterSeconds ?? 0) >= 1);
      return { done, message: error.message };
    }
  }
  throw new Error("it was never refused");
}

const csr = (name: string, request: string, more: Json = {}): Json => ({
  ...{ apiVersion: "certificates.k8s.io/v1", kind: "CertificateSigningRequest", metadata: { name } },
  spec: { request, signerName: "example.com/signer", usages: ["client auth"], ...more },
});
const PEM = Buffer.from("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n").toString(
  "base64",
);
const makeRequest = (client: KubeClient, name: string, request = PEM, more: Json = {}): Promise<unknown> =>
  client.create(REQUESTS, { namespace: "", name: "" }, csr(name, request, more), {}, never);

test("a board's events have a burst and a pace of their own, which another board's do not touch", async () => {
  await using bench = await start();
  const [a, b] = [bench.as(board("a")), bench.as(board("b"))];
  const { done, message } = await until429((n) => makeEvent(a, `e${n}`));
  assert.equal(done, 500);
  assert.equal(message, "limit reached on type User for key system:node:a: 10 events a second");
  await makeEvent(b, "of-b");
  await makeEvent(bench.admin, "of-admin");
  // A repeat is an event as well.
  const repeat = a.patch(EVENTS, { namespace: "default", name: "e1" }, "merge", { count: 2 }, {}, never);
  assert.equal((await refusal(repeat)).code, 429);
  await bench.clock.advance(seconds(2));
  assert.equal((await until429((n) => makeEvent(a, `later${n}`))).done, 20);
});

test("the service accounts of a namespace have a few budgets together, and those of another their own", async () => {
  await using bench = await start();
  const { quotas } = bench.server.server.core;
  const review = async (namespace: string, n: number): Promise<void> => {
    const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"];
    quotas.admitReview({ name: `system:serviceaccount:${namespace}:a${n}`, uid: "", groups, extra: {} });
  };
  let done = 0;
  for (let n = 0; n < 100; n += 1) done += (await until429(() => review("shop", n))).done;
  assert.equal(done, 8 * 1000);
  await review("bank", 0);
});

test("of a board's events the newest thousand are kept, of others' all", async () => {
  await using bench = await start();
  await makeEvent(bench.admin, "first-of-all", { source: { component: "scheduler" } });
  const a = bench.as(board("a"));
  for (let n = 0; n < 1040; n += 1) {
    if (n % 20 === 0) await bench.clock.advance(seconds(2));
    await makeEvent(a, `e${n}`);
  }
  const { items } = await bench.admin.list(EVENTS, { namespace: "default" }, never);
  const names = new Set(items.map(({ metadata }) => metadata.name));
  assert.equal(names.size, 1001);
  assert.deepEqual([names.has("first-of-all"), names.has("e39"), names.has("e40")], [true, false, true]);
});

test("an event of some kilobytes is refused, and one of the newer kind as Kubernetes refuses it", async () => {
  await using bench = await start();
  const a = bench.as(board("a"));
  const large = await refusal(makeEvent(a, "large", { message: "x".repeat(17_000) }));
  assert.equal(large.code, 413);
  assert.match(large.message, /^Request entity too large: the Event has \d+ bytes, limit is 16384$/);
  const joe = { name: "joe", uid: "", groups: ["system:masters"], extra: {} };
  const newer = { eventTime: "2026-01-01T00:00:00.000000Z", reportingComponent: "example.com/x", action: "a" };
  const made = (more: Json): Promise<unknown> => makeEvent(bench.as(joe), "newer", { ...newer, ...more });
  assert.match((await refusal(made({}))).message, /reportingInstance: Required value/);
  const long = await refusal(made({ reportingInstance: "x".repeat(129), message: "y".repeat(1025) }));
  assert.equal(long.code, 422);
  assert.match(long.message, /reportingInstance: Invalid value: "": can have at most 128 characters/);
  assert.match(long.message, /message: Invalid value: "": can have at most 1024 characters/);
  await made({ reportingInstance: "x" });
});

test("a request for a certificate is small, and a board keeps few of them", async () => {
  await using bench = await start();
  const a = bench.as(board("a"));
  const huge = `${PEM.slice(0, 40)}${"A".repeat(1_600_000)}`;
  assert.equal((await refusal(makeRequest(a, "huge", huge))).code, 413);
  const long = await refusal(makeRequest(bench.admin, "huge", huge));
  assert.equal(long.code, 422);
  assert.match(long.message, /spec\.request: Too long: may not be more than 8192 bytes/);
  const padded = await refusal(makeRequest(a, "padded", PEM, { signerName: `example.com/${"x".repeat(40_000)}` }));
  assert.equal(padded.code, 413);
  let made = 0;
  for (let hour = 0; hour < 10; hour += 1) {
    for (;;) {
      try {
        await makeRequest(a, `r${made}`);
        made += 1;
      } catch (error) {
        assert.equal((error as StatusError).statusCode, 429);
        break;
      }
    }
    await bench.clock.advance(seconds(600));
  }
  assert.equal(made, 16);
  assert.match((await refusal(makeRequest(a, "more"))).message, /16 certificatesigningrequests.* that are kept/);
  await makeRequest(bench.as(board("b")), "of-b");
  await bench.admin.delete(REQUESTS, { namespace: "", name: "r3" }, {}, never);
  await makeRequest(a, "again");
});

test("what a board has kept is known to the next life of the hub", async () => {
  await using bench = await start();
  const a = bench.as(board("a"));
  for (let n = 0; n < 16; n += 1) {
    if (n === 10) await bench.clock.advance(seconds(3600));
    await makeRequest(a, `r${n}`);
  }
  const { store, service } = bench.server.server.core;
  const { Quotas } = await import("./quotas.ts");
  const next = new Quotas({
    ...{ clock: bench.clock, log: bench.server.log, store },
    disk: { require: () => undefined } as never,
    remove: () => undefined,
  });
  const definition = bench.server.server.core.table.named("certificatesigningrequests.certificates.k8s.io");
  assert.ok(definition !== undefined && service !== undefined);
  const request = { user: board("a"), definition, subresource: "", namespace: "", name: "" };
  const object = { apiVersion: "v1", kind: "x", metadata: { name: "r16" } };
  assert.throws(
    () =>
      next.admit({
        ...{ operation: "CREATE", object, old: undefined },
        request: { ...request, warnings: [], authorizeCreate: () => undefined },
      }),
    /that are kept/,
  );
});

test("a board cannot fill the disk with its Node: bytes have a size and a pace", async () => {
  await using bench = await start();
  const a = bench.as(board("a"));
  const node = (text: string): Json => ({ metadata: { name: "a", annotations: { "example.com/a": text } } });
  await a.create(NODES, { namespace: "", name: "" }, node(""), {}, never);
  const images = Array.from({ length: 60 }, (_, n) => ({ names: [`${n}${"x".repeat(10_000)}`], sizeBytes: 1 }));
  const ref = { namespace: "", name: "a" };
  const fill = (count: number, salt: string): Promise<unknown> => {
    const status = { images: images.slice(0, count).map((image) => ({ ...image, names: [salt + image.names[0]] })) };
    return a.patch(NODES, ref, "merge", { status }, { subresource: "status" }, never);
  };
  assert.equal((await refusal(fill(60, ""))).code, 413);
  const { done, message } = await until429((n) => fill(40, `${n}-`));
  assert.ok(done * 400_000 <= 17 * MEBIBYTE, String(done));
  assert.match(message, /bytes of objects a second/);
  await bench.clock.advance(seconds(4));
  assert.equal((await until429((n) => fill(40, `later${n}-`))).done, 1);
});

test("reviews and tokens have a pace; the administrator has none", async () => {
  await using bench = await start();
  const review = (client: KubeClient): Promise<unknown> => {
    const spec = { user: "joe", resourceAttributes: { verb: "get", resource: "pods", namespace: "default" } };
    return client.create(REVIEWS, { namespace: "", name: "" }, { spec }, {}, never);
  };
  const a = bench.as(board("a"));
  assert.equal((await until429(() => review(a))).done, 200);
  for (let n = 0; n < 300; n += 1) await review(bench.admin);
  await review(bench.as(board("b")));
});

test("before the disk is full boards are refused, then users, and administrators never", async () => {
  let free = 100 * MEBIBYTE;
  const diskSpace = (): { freeBytes: number; totalBytes: number } => ({ freeBytes: free, totalBytes: 1000 * MEBIBYTE });
  await using bench = await start({ diskSpace });
  const a = bench.as(board("a"));
  await makeEvent(a, "e1");
  free = 31 * MEBIBYTE;
  await bench.clock.advance(seconds(1));
  const full = await refusal(makeEvent(a, "e2"));
  assert.deepEqual([full.code, full.after], [507, 30]);
  assert.match(
    full.message,
    /has 3\d MiB left, of which it keeps 32 MiB for administrators: free space on the disk of /,
  );
  // It goes on with what is there, for now.
  await a.patch(EVENTS, { namespace: "default", name: "e1" }, "merge", { count: 2 }, {}, never);
  free = 10 * MEBIBYTE;
  await bench.clock.advance(seconds(1));
  const patch = a.patch(EVENTS, { namespace: "default", name: "e1" }, "merge", { count: 3 }, {}, never);
  assert.equal((await refusal(patch)).code, 507);
  await makeEvent(bench.admin, "of-admin");
  await bench.admin.delete(EVENTS, { namespace: "default", name: "e1" }, {}, never);
  free = 100 * MEBIBYTE;
  await bench.clock.advance(seconds(1));
  await makeEvent(a, "e3");
  assert.deepEqual(
    bench.server.log.entries.map(({ message }) => message).filter((each) => each.startsWith("the store")),
    ["the store is nearly full: boards' writes are refused", "the store has room again"],
  );
});

test("a store with a limit refuses boards before it is reached", async () => {
  await using bench = await start({ maxStoreBytes: 4 * MEBIBYTE });
  const map = core("configmaps", "ConfigMap", true);
  const data = { a: "x".repeat(500_000) };
  for (let n = 0; n < 7; n += 1) {
    const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: `m${n}` }, data };
    await bench.admin.create(map, { namespace: "default", name: "" }, object, {}, never);
  }
  await bench.clock.advance(seconds(1));
  assert.equal((await refusal(makeEvent(bench.as(board("a")), "e"))).code, 507);
});
