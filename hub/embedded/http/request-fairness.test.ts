import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { classify, RequestFairness } from "./request-fairness.ts";
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
