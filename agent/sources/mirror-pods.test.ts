import assert from "node:assert/strict";
import { test } from "node:test";
import { toHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import { samplePod } from "@picolet/test/support/unit/store/store-samples.ts";
import type { MirrorSet } from "../core/hub/tunnel-ports.ts";
import { MirrorPods } from "./mirror-pods.ts";

const shown = ({ current }: MirrorSet): string[] =>
  current.map(({ namespace, name, uid, source }) => `${namespace}/${name} ${uid} ${source}`);

test("the pods of files and pushes are mirrored, those of the API server are not", () => {
  const store = new MemoryDesiredStore();
  const mirrors = new MirrorPods({ desired: store.desired });
  assert.equal(toHex(mirrors.current.digest), "0".repeat(16));
  store.replace("file", 1, [samplePod("a")]);
  store.replace("push", 1, [samplePod("b", { source: "push" })]);
  store.replace("api", 1, [samplePod("c", { source: "api" })]);
  assert.deepEqual(shown(mirrors.current), ["default/a uid-a file", "default/b uid-b push"]);
  const [first] = mirrors.current.current;
  assert.deepEqual(first?.pod.metadata, { namespace: "default", name: "a", labels: { app: "a" } });
  assert.deepEqual(Object.keys(first?.pod ?? {}), ["apiVersion", "kind", "metadata", "spec"]);
});

test("of two pods with one name the one that is run is mirrored", () => {
  const store = new MemoryDesiredStore();
  const mirrors = new MirrorPods({ desired: store.desired });
  const pushed = samplePod("a", { source: "push" });
  store.replace("file", 1, [samplePod("a")]);
  store.replace("push", 1, [{ ...pushed, uid: samplePod("other").uid }]);
  assert.deepEqual(shown(mirrors.current), ["default/a uid-a file"]);
});

test("nobody is told of what does not concern them", async () => {
  const store = new MemoryDesiredStore();
  const mirrors = new MirrorPods({ desired: store.desired });
  const stop = new AbortController();
  const told: string[][] = [];
  const following = (async () => {
    for await (const set of mirrors.changes(stop.signal)) told.push(shown(set));
  })();
  const steps = [
    () => store.replace("file", 1, [samplePod("a")]),
    () => store.replace("api", 1, [samplePod("c", { source: "api" })]),
    () => store.replace("file", 2, []),
  ];
  for (const step of steps) {
    step();
    await new Promise((resolve) => setImmediate(resolve));
  }
  stop.abort();
  await following;
  assert.deepEqual(told, [["default/a uid-a file"], []]);
});
