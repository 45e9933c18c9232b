import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod, PodManifest } from "@picolet/protocol/pod/pod.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { canAdoptPod, copyRandomNames } from "./pod-adoption.ts";

type Spec = NonNullable<PodManifest["spec"]>;
type Metadata = NonNullable<PodManifest["metadata"]>;

/** With a token volume in a regular and an init container, as the admission plugin ServiceAccount makes it. */
function podWith(suffix: string, spec: Partial<Spec> = {}, metadata: Metadata = {}): Pod {
  const name = `kube-api-access-${suffix}`;
  const container = { name: "app", image: "example/app:1", volumeMounts: [{ name, mountPath: "/token" }] };
  const volumes = [
    { name: "data", emptyDir: {} },
    { name, emptyDir: {} },
  ];
  return podOf(
    { nodeName: suffix, volumes, containers: [container], initContainers: [{ ...container, name: "init" }], ...spec },
    { uid: suffix, ...metadata },
  );
}

const seeing = (fieldPath: string): Partial<Spec> => ({
  containers: [{ name: "app", image: "example/app:1", env: [{ name: "X", valueFrom: { fieldRef: { fieldPath } } }] }],
});

const labelled = (value: string): Metadata => ({ labels: { app: value }, annotations: { "example.com/x": value } });

const CASES: readonly (readonly [name: string, running: Pod, arriving: Pod, expected: boolean])[] = [
  ["what is drawn at random makes no other pod", podWith("abcde"), podWith("vwxyz"), true],
  [
    "nor do labels that no container sees",
    podWith("aaaaa", {}, labelled("a")),
    podWith("bbbbb", {}, labelled("b")),
    true,
  ],
  [
    "nor does a container that somebody debugs the running one with",
    podWith("aaaaa", { ephemeralContainers: [{ name: "debug", image: "example/debug:1" }] }),
    podWith("bbbbb"),
    true,
  ],
  [
    "another image does",
    podWith("aaaaa"),
    podWith("bbbbb", { containers: [{ name: "app", image: "example/app:2" }] }),
    false,
  ],
  ["so does another grace period", podWith("aaaaa"), podWith("bbbbb", { terminationGracePeriodSeconds: 5 }), false],
  [
    "a volume of a name somebody chose",
    podWith("aaaaa"),
    podWith("bbbbb", {
      volumes: [
        { name: "other", emptyDir: {} },
        { name: "kube-api-access-bbbbb", emptyDir: {} },
      ],
    }),
    false,
  ],
  [
    "a label that a container sees",
    podWith("aaaaa", seeing("metadata.labels['app']"), labelled("a")),
    podWith("bbbbb", seeing("metadata.labels['app']"), labelled("b")),
    false,
  ],
  [
    "a label that it sees and that is the same",
    podWith("aaaaa", seeing("metadata.labels['app']"), labelled("a")),
    podWith("bbbbb", seeing("metadata.labels['app']"), labelled("a")),
    true,
  ],
  ["its address", podWith("aaaaa", seeing("status.podIP")), podWith("bbbbb", seeing("status.podIP")), true],
  ["its UID", podWith("aaaaa", seeing("metadata.uid")), podWith("aaaaa", seeing("metadata.uid")), false],
];

for (const [name, running, arriving, expected] of CASES) {
  test(name, () => assert.equal(canAdoptPod(running, arriving), expected));
}

test("a pod that takes over keeps the names that were drawn for what runs", () => {
  const [running, arriving] = [podWith("abcde"), podWith("vwxyz", {}, { labels: { new: "yes" } })];
  const { spec, metadata } = copyRandomNames(arriving, running);
  assert.deepEqual({ ...spec, nodeName: "abcde" }, running.spec);
  assert.deepEqual(metadata, arriving.metadata);
  assert.equal(copyRandomNames(running, running), running);
  const without = podOf();
  assert.equal(copyRandomNames(arriving, without), arriving, "where nothing was drawn nothing is kept");
});
