import assert from "node:assert/strict";
import { test } from "node:test";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { readManifest } from "./manifest-reader.ts";
import { type StaticPodInit, staticPod } from "./static-pod.ts";

const POD = `apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {mine: kept}}
spec:
  containers:
  - name: app
    image: example/app:1
`;
const INIT: StaticPodInit = {
  nodeName: "Node-7",
  source: "file",
  origin: "/manifests/web.yaml",
  seenBefore: () => undefined,
  now: new Date("2026-01-02T03:04:05Z"),
};

function made(text: string, init: Partial<StaticPodInit> = {}): DesiredPod {
  const manifest = readManifest(text);
  const [first] = manifest.ok ? manifest.pods : [];
  assert.ok(first !== undefined, JSON.stringify(manifest));
  const result = staticPod(first.written, first.pod, { ...INIT, ...init });
  assert.ok(result.ok, JSON.stringify(result));
  return result.desired;
}

function refused(text: string, init: Partial<StaticPodInit> = {}): string {
  const manifest = readManifest(text);
  const [first] = manifest.ok ? manifest.pods : [];
  assert.ok(first !== undefined, JSON.stringify(manifest));
  const result = staticPod(first.written, first.pod, { ...INIT, ...init });
  assert.ok(!result.ok);
  return `${result.path}: ${result.message}`;
}

test("a static pod is what the kubelet makes of it", () => {
  const { uid, source, origin, pod } = made(POD);
  assert.deepEqual([source, origin], ["file", "/manifests/web.yaml"]);
  assert.match(uid, /^[0-9a-f]{32}$/);
  assert.deepEqual([pod.metadata.name, pod.metadata.namespace, pod.metadata.uid], ["web-node-7", "default", uid]);
  assert.deepEqual(pod.metadata.annotations, {
    mine: "kept",
    "kubernetes.io/config.hash": uid,
    "kubernetes.io/config.seen": "2026-01-02T03:04:05.000Z",
    "kubernetes.io/config.source": "file",
  });
  assert.equal(pod.spec.nodeName, "Node-7");
  assert.deepEqual(pod.spec.tolerations, [{ operator: "Exists", effect: "NoExecute" }]);
});

test("order of keys, comments, notation, file, status and nulls make no other uid", () => {
  const { uid } = made(POD);
  const others = [
    "# comment\nkind: Pod\nspec:\n  containers: [{image: example/app:1, name: app}]\nmetadata: {annotations: {mine: kept}, name: web}\napiVersion: v1\n",
    '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"mine":"kept"}},"spec":{"containers":[{"name":"app","image":"example/app:1"}]}}',
    `${POD}status: {phase: Running}\n`,
    `${POD}    command: null\n`,
  ];
  for (const text of others) assert.equal(made(text).uid, uid, text);
  assert.equal(made(POD, { origin: "/manifests/other.json", now: new Date(0) }).uid, uid);
});

test("everything that is written makes another uid, and so does the node", () => {
  const uids = [
    made(POD).uid,
    made(POD, { nodeName: "other" }).uid,
    made(POD.replace("app:1", "app:2")).uid,
    made(POD.replace("kept", "changed")).uid,
    made(POD.replace("name: web", "name: web2")).uid,
    made(POD.replace("name: web", "namespace: n, name: web")).uid,
    made(POD.replace("example/app:1", '"1"')).uid,
    made(`${POD}    env: [{name: A, value: "1"}, {name: B, value: "2"}]\n`).uid,
    made(`${POD}    env: [{name: B, value: "2"}, {name: A, value: "1"}]\n`).uid,
  ];
  assert.equal(new Set(uids).size, uids.length);
});

test("a uid that is given is kept, if it can be part of a path", () => {
  const given = (uid: string): string => POD.replace("name: web", `uid: "${uid}", name: web`);
  assert.equal(made(given("1b4e28ba-2fa1-11d2-883f-0016d3cca427")).uid, "1b4e28ba-2fa1-11d2-883f-0016d3cca427");
  for (const uid of ["../../etc", "a/b", "..", ".", "-a", "a b", "x".repeat(129)]) {
    assert.match(refused(given(uid)), /^metadata\.uid: Invalid value: must consist of/, uid);
  }
});

test("a pod that was seen before keeps the time, so that nothing has changed", () => {
  const first = made(POD);
  const again = made(POD, { now: new Date(0), seenBefore: (uid) => (uid === first.uid ? "before" : undefined) });
  assert.equal(again.pod.metadata.annotations?.["kubernetes.io/config.seen"], "before");
});

test("the toleration is there once", () => {
  const text = `${POD}  tolerations:\n  - {operator: Exists, effect: NoExecute}\n  - {key: a, operator: Exists}\n`;
  assert.equal(made(text).pod.spec.tolerations?.length, 2);
});

test("a name that is too long with the node's is refused", () => {
  const name = "w".repeat(200);
  assert.match(
    refused(POD.replace("web", name), { nodeName: "n".repeat(60) }),
    /^metadata\.name: Too long: with the node's/,
  );
  assert.equal(made(POD.replace("web", name)).pod.metadata.name.length, 207);
});

test("what somebody debugs a pod with makes no other pod of it, everything else does", () => {
  const debugged = made(`${POD}  ephemeralContainers: [{name: debug, image: "example/debug:1"}]\n`);
  assert.equal(debugged.uid, made(POD).uid);
  assert.equal(debugged.pod.spec.ephemeralContainers?.length, 1);
  assert.notEqual(made(`${POD}  hostNetwork: true\n`).uid, made(POD).uid);
});
