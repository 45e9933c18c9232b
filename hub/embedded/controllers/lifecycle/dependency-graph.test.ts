import assert from "node:assert/strict";
import { test } from "node:test";
import { LEASES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { DependencyGraph, graphNodeOf, isSameInGraph } from "./dependency-graph.ts";

const owner = { apiVersion: "v1", kind: "Node", name: "board", uid: "node-uid" };
const lease = (resourceVersion: string, metadata: object = {}) =>
  graphNodeOf(LEASES, {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: {
      name: "board",
      namespace: "kube-node-lease",
      uid: "uid",
      resourceVersion,
      ownerReferences: [owner],
      ...metadata,
    },
  });

test("another version with the same owners and finalizers is nothing new to the graph", () => {
  assert.equal(isSameInGraph(lease("1"), lease("2")), true);
  assert.equal(isSameInGraph(lease("1"), lease("2", { ownerReferences: [] })), false);
  assert.equal(
    isSameInGraph(lease("1"), lease("2", { ownerReferences: [{ ...owner, blockOwnerDeletion: true }] })),
    false,
  );
  assert.equal(isSameInGraph(lease("1"), lease("2", { finalizers: ["orphan"] })), false);
  assert.equal(isSameInGraph(lease("1"), lease("2", { deletionTimestamp: "2026-01-31T12:00:00Z" })), false);
  assert.equal(isSameInGraph(lease("1"), lease("2", { uid: "another" })), false);
});

test("a renewal is known by its latest version, and still belongs to its owner", () => {
  const graph = new DependencyGraph();
  graph.put(lease("1"));
  graph.renew(lease("2"));
  assert.equal(graph.get("uid")?.resourceVersion, "2");
  assert.deepEqual(
    graph.dependentsOf("node-uid").map(({ resourceVersion }) => resourceVersion),
    ["2"],
  );
});
