import assert from "node:assert/strict";
import { test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { classify, FLOW_BYTES, MAX_LIST_BYTES, RequestFairness, TOTAL_BYTES } from "./request-fairness.ts";
import { parsePath } from "./request-info.ts";

const never = new AbortController().signal;
const AUTHENTICATED = "system:authenticated";
const pathOf = (path: string) => parsePath(path) ?? { kind: "other" as const, path };
const user = (name: string, ...groups: readonly string[]) => ({ name, uid: "", groups, extra: {} });

test("requests go to the levels that Kubernetes 1.34 suggests", () => {
  const accounts = "system:serviceaccounts";
  const node = user("system:node:a", "system:nodes", AUTHENTICATED);
  const kubeSystem = user(`${accounts.slice(0, -1)}:kube-system:x`, accounts, `${accounts}:kube-system`, AUTHENTICATED);
  const app = user(`${accounts.slice(0, -1)}:app:x`, accounts, `${accounts}:app`, AUTHENTICATED);
  const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
  const pods = "/api/v1/namespaces/default/pods";
  const cases = [
    [user("root", "system:masters", AUTHENTICATED), pods, "exempt", "exempt"],
    [user("system:anonymous", "system:unauthenticated"), "/readyz", "probes", "exempt"],
    [user("joe", AUTHENTICATED), "/livez/ping", "probes", "exempt"],
    [node, lease, "system-node-high", "node-high"],
    [node, "/api/v1/nodes/a/status", "system-node-high", "node-high"],
    [node, pods, "system-nodes", "system"],
    [user("system:kube-scheduler", AUTHENTICATED), lease, "system-leader-election", "leader-election"],
    [user("system:kube-scheduler", AUTHENTICATED), pods, "kube-scheduler", "workload-high"],
    [kubeSystem, pods, "kube-system-service-accounts", "workload-high"],
    [app, pods, "service-accounts", "workload-low"],
    [user("joe", AUTHENTICATED), pods, "global-default", "global-default"],
    [user("system:anonymous", "system:unauthenticated"), "/api", "catch-all", "catch-all"],
  ] as const;
  for (const [who, path, schema, level] of cases) {
    const found = classify(who, "10.0.0.1", pathOf(path));
    assert.deepEqual([found.schema, found.level], [schema, level], `${who.name} ${path}`);
  }
});

test("clients without credentials are distinguished by network, users by name alone", () => {
  const anonymous = user("system:anonymous", "system:unauthenticated");
  const flow = (who: typeof anonymous, address: string): string => classify(who, address, pathOf("/api")).flow;
  assert.notEqual(flow(anonymous, "10.0.0.1"), flow(anonymous, "10.0.0.2"));
  assert.equal(flow(anonymous, "2001:db8::1"), flow(anonymous, "2001:db8::2"));
  assert.equal(flow(user("joe", AUTHENTICATED), "10.0.0.1"), flow(user("joe", AUTHENTICATED), "10.0.0.2"));
});

test("the service accounts of a namespace share a few flows, however many there are", () => {
  const flowsOf = (namespace: string): ReadonlySet<string> => {
    const names = Array.from({ length: 1000 }, (_, n) => `system:serviceaccount:${namespace}:a${n}`);
    const groups = ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, AUTHENTICATED];
    return new Set(names.map((name) => classify(user(name, ...groups), "", pathOf("/api/v1/pods")).flow));
  };
  const [one, other] = [flowsOf("shop"), flowsOf("bank")];
  assert.deepEqual([one.size, new Set([...one, ...other]).size, flowsOf("kube-system").size], [8, 16, 1000]);
});

test("a list is as wide as what it has to go through", () => {
  const fairness = new RequestFairness({ clock: new VirtualClock(), count: (name) => (name === "pods" ? 5000 : 3) });
  const width = (path: string, verb: "get" | "list" | "watch" | "create", query = ""): number =>
    fairness.widthOf(pathOf(path), verb, new URLSearchParams(query));
  assert.equal(width("/api/v1/pods", "list"), 51);
  assert.equal(width("/api/v1/pods", "list", "limit=500"), 6);
  assert.equal(width("/api/v1/pods", "watch"), 51);
  assert.equal(width("/api/v1/pods", "watch", "resourceVersion=7"), 1);
  assert.equal(width("/apis/apps/v1/daemonsets", "list"), 1);
  assert.equal(width("/api/v1/namespaces/default/pods/x", "get"), 1);
});

test("streams are counted until they end, and answers until they are sent", async () => {
  const fairness = new RequestFairness({ clock: new VirtualClock(), count: () => 0 });
  const board = user("system:node:a", "system:nodes", AUTHENTICATED);
  const ends = Array.from({ length: 512 }, () => new AbortController());
  for (const { signal } of ends) fairness.countStream(board, signal);
  assert.throws(() => fairness.countStream(board, never), /Too many requests/);
  ends[0]?.abort();
  fairness.countStream(board, never);
  for (const each of ends) each.abort();
  assert.equal(fairness.load.streams, 1);
  const to = classify(board, "10.0.0.1", pathOf("/api/v1/pods"));
  const slow = fairness.begin(never);
  await slow.enter(to, 1);
  slow.leave();
  slow.holdAnswer(17 * 1024 * 1024);
  const next = fairness.begin(never);
  await assert.rejects(next.enter(to, 1), /Too many requests/);
  const other = fairness.begin(never);
  await other.enter({ ...to, flow: "system:node:b" }, 1);
  for (const turn of [slow, next, other]) turn[Symbol.dispose]();
  const again = fairness.begin(never);
  await again.enter(to, 1);
  again[Symbol.dispose]();
  assert.deepEqual(fairness.load, { seats: 0, waiting: 0, bytes: 0, streams: 1 });
});

test("streams of a flow wait for what its clients leave unread, in turn, and no other flow's do", async () => {
  const fairness = new RequestFairness({ clock: new VirtualClock(), count: () => 0 });
  const turnOf = async (name: string) => {
    const turn = fairness.begin(never);
    await turn.enter(classify(user(name, AUTHENTICATED), "", pathOf("/api/v1/pods")), 1);
    turn.leave();
    return turn;
  };
  const [joe, ann] = [await turnOf("joe"), await turnOf("ann")];
  const granted: number[] = [];
  const gone = new AbortController();
  const all = Array.from({ length: 20 }, (_, index) =>
    joe.take(MEBIBYTE, index === 17 ? gone.signal : never).then((kept) => {
      granted.push(index);
      return kept;
    }),
  );
  all[17]?.catch(() => granted.push(-17));
  const other = await ann.take(MEBIBYTE, never);
  assert.deepEqual(
    granted,
    Array.from({ length: FLOW_BYTES / MEBIBYTE }, (_, index) => index),
  );
  assert.equal(fairness.load.bytes, FLOW_BYTES + MEBIBYTE);
  gone.abort();
  const [first, second] = [await all[0], await all[1]];
  first?.resize(3 * MEBIBYTE);
  second?.[Symbol.dispose]();
  second?.[Symbol.dispose]();
  await Promise.resolve();
  assert.deepEqual(granted.slice(16), [-17], "too much is kept still");
  first?.resize(0);
  await all[16];
  assert.deepEqual(granted.slice(16), [-17, 16, 18]);
  for (const [index, kept] of all.entries()) if (index !== 17) (await kept)[Symbol.dispose]();
  other[Symbol.dispose]();
  assert.deepEqual(granted.slice(16), [-17, 16, 18, 19]);
  assert.equal(fairness.load.bytes, 0);
});

test("one list of a flow may be larger than its budget, but no other one beside it", async () => {
  const fairness = new RequestFairness({ clock: new VirtualClock(), count: () => 0 });
  const to = classify(user("joe", AUTHENTICATED), "", pathOf("/api/v1/pods"));
  const begin = async () => {
    const turn = fairness.begin(never);
    await turn.enter(to, 1);
    return turn;
  };
  const [one, two] = [await begin(), await begin()];
  one.grow(FLOW_BYTES - MEBIBYTE);
  two.grow(MEBIBYTE / 2);
  assert.throws(() => two.grow(MEBIBYTE), /Too many requests/);
  assert.throws(() => one.grow(MEBIBYTE), /Too many requests/);
  two[Symbol.dispose]();
  one.grow(4 * FLOW_BYTES);
  assert.throws(() => one.grow(MAX_LIST_BYTES), /the list has more than \d+ bytes; ask for it in pages/);
  one.holdAnswer(MEBIBYTE);
  assert.equal(fairness.load.bytes, MEBIBYTE);
  one[Symbol.dispose]();
  assert.equal(fairness.load.bytes, 0);
});

test("large lists of several flows have no more than twice the bytes of all flows", async () => {
  const fairness = new RequestFairness({ clock: new VirtualClock(), count: () => 0 });
  const begin = async (name: string) => {
    const turn = fairness.begin(never);
    await turn.enter(classify(user(name, AUTHENTICATED), "", pathOf("/api/v1/pods")), 1);
    return turn;
  };
  const [joe, ann] = [await begin("joe"), await begin("ann")];
  joe.grow(TOTAL_BYTES);
  ann.grow(TOTAL_BYTES);
  assert.throws(() => ann.grow(MEBIBYTE), /Too many requests/);
  joe[Symbol.dispose]();
  ann.grow(MEBIBYTE);
});
