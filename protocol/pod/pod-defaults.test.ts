import assert from "node:assert/strict";
import { test } from "node:test";
import { parsedPod, podManifest, podOfContainer } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import fc from "fast-check";
import type { Container, Pod, Volume } from "./pod.ts";
import { parsePod } from "./validation/parse-pod.ts";

const only = (pod: Pod): Container => {
  const [container] = pod.spec.containers;
  assert.ok(container);
  return container;
};
const volume = (fields: Readonly<Record<string, unknown>>): Volume => {
  const [first] = parsedPod({ serviceAccountName: "sa", volumes: [{ name: "v", ...fields }] }).spec.volumes ?? [];
  assert.ok(first);
  return first;
};

test("the smallest pod gets every default that Kubernetes' API server gives it", () => {
  assert.deepEqual(parsedPod(), {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "web", namespace: "default" },
    spec: {
      containers: [
        {
          name: "app",
          image: "example.com/app:1",
          imagePullPolicy: "IfNotPresent",
          resources: {},
          terminationMessagePath: "/dev/termination-log",
          terminationMessagePolicy: "File",
        },
      ],
      restartPolicy: "Always",
      dnsPolicy: "ClusterFirst",
      schedulerName: "default-scheduler",
      terminationGracePeriodSeconds: 30,
      securityContext: {},
      enableServiceLinks: true,
    },
  });
});

for (const [image, policy] of [
  ["busybox", "Always"],
  ["busybox:latest", "Always"],
  ["busybox:1", "IfNotPresent"],
  [`busybox@sha256:${"a".repeat(64)}`, "IfNotPresent"],
  ["localhost:5000/busybox", "Always"],
  ["Not An Image", "IfNotPresent"],
  ["file:///srv/app.wasm", "IfNotPresent"],
] as const) {
  test(`the pull policy of ${image.slice(0, 30)} is ${policy}`, () => {
    assert.equal(only(podOfContainer({ image })).imagePullPolicy, policy);
  });
}

test("given values stay, also zero and false where they mean something", () => {
  const pod = parsedPod({ terminationGracePeriodSeconds: 0, enableServiceLinks: false, restartPolicy: "Never" });
  assert.equal(pod.spec.terminationGracePeriodSeconds, 0);
  assert.equal(pod.spec.enableServiceLinks, false);
  assert.equal(pod.spec.restartPolicy, "Never");
});

test("an empty text counts as missing", () => {
  const pod = parsedPod({ restartPolicy: "", dnsPolicy: "", schedulerName: "" }, { namespace: "" });
  assert.equal(pod.spec.restartPolicy, "Always");
  assert.equal(pod.spec.dnsPolicy, "ClusterFirst");
  assert.equal(pod.metadata.namespace, "default");
});

test("a negative grace period becomes one second, as the API server makes it", () => {
  assert.equal(parsedPod({ terminationGracePeriodSeconds: -5 }).spec.terminationGracePeriodSeconds, 1);
});

test("probes", () => {
  const container = only(
    podOfContainer({
      livenessProbe: { httpGet: { port: 80 } },
      readinessProbe: { grpc: { port: 9000 }, periodSeconds: 5, timeoutSeconds: 0 },
      lifecycle: { preStop: { httpGet: { port: "http", path: "/bye" } } },
    }),
  );
  assert.deepEqual(container.livenessProbe, {
    httpGet: { port: 80, path: "/", scheme: "HTTP" },
    timeoutSeconds: 1,
    periodSeconds: 10,
    successThreshold: 1,
    failureThreshold: 3,
  });
  assert.deepEqual(container.readinessProbe, {
    grpc: { port: 9000, service: "" },
    timeoutSeconds: 1,
    periodSeconds: 5,
    successThreshold: 1,
    failureThreshold: 3,
  });
  assert.deepEqual(container.lifecycle, { preStop: { httpGet: { port: "http", path: "/bye", scheme: "HTTP" } } });
});

test("ports are TCP; with the host's network they are the host's too", () => {
  const ports = [{ containerPort: 80 }, { containerPort: 53, protocol: "UDP" }];
  assert.deepEqual(only(podOfContainer({ ports })).ports, [
    { containerPort: 80, protocol: "TCP" },
    { containerPort: 53, protocol: "UDP" },
  ]);
  const onHost = parsedPod({ hostNetwork: true, containers: [{ name: "a", image: "b", ports }] });
  assert.deepEqual(
    only(onHost).ports?.map(({ hostPort }) => hostPort),
    [80, 53],
  );
});

test("limits become requests, quantities canonical and no finer than thousandths", () => {
  const { resources } = only(
    podOfContainer({
      resources: {
        limits: { cpu: "1000m", memory: 1048576 },
        requests: { cpu: 0.2501, "ephemeral-storage": "1024Mi" },
      },
    }),
  );
  assert.deepEqual(resources, {
    limits: { cpu: "1", memory: "1048576" },
    requests: { cpu: "251m", memory: "1048576", "ephemeral-storage": "1Gi" },
  });
});

test("a pod's own limits become its requests where its containers ask for nothing", () => {
  const pod = parsedPod({
    resources: { limits: { cpu: "2", memory: "1Gi" } },
    containers: [
      { name: "a", image: "b", resources: { requests: { cpu: "250m" } } },
      { name: "c", image: "b", resources: { requests: { cpu: "250m" } } },
    ],
  });
  assert.deepEqual(pod.spec.resources, {
    limits: { cpu: "2", memory: "1Gi" },
    requests: { cpu: "500m", memory: "1Gi" },
  });
});

test("environment", () => {
  const env = [
    { name: "A", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
    { name: "B", valueFrom: { resourceFieldRef: { resource: "limits.cpu", divisor: 1 } } },
  ];
  assert.deepEqual(only(podOfContainer({ env })).env, [
    { name: "A", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath: "metadata.name" } } },
    { name: "B", valueFrom: { resourceFieldRef: { resource: "limits.cpu", divisor: "1" } } },
  ]);
});

for (const [given, expected] of [
  [{}, { emptyDir: {} }],
  [{ emptyDir: { sizeLimit: "1024Ki" } }, { emptyDir: { sizeLimit: "1Mi" } }],
  [{ hostPath: { path: "/x" } }, { hostPath: { path: "/x", type: "" } }],
  [{ secret: { secretName: "s" } }, { secret: { secretName: "s", defaultMode: 0o644 } }],
  [{ configMap: { name: "c", defaultMode: 0 } }, { configMap: { name: "c", defaultMode: 0 } }],
  [
    { downwardAPI: { items: [{ path: "p", fieldRef: { fieldPath: "metadata.labels" } }] } },
    {
      downwardAPI: {
        items: [{ path: "p", fieldRef: { apiVersion: "v1", fieldPath: "metadata.labels" } }],
        defaultMode: 0o644,
      },
    },
  ],
  [
    { projected: { sources: [{ serviceAccountToken: { path: "t" } }] } },
    { projected: { sources: [{ serviceAccountToken: { path: "t", expirationSeconds: 3600 } }], defaultMode: 0o644 } },
  ],
  [{ image: { reference: "data" } }, { image: { reference: "data", pullPolicy: "Always" } }],
] as const) {
  test(`the volume ${JSON.stringify(given).slice(0, 60)}`, () => {
    assert.deepEqual(volume(given), { name: "v", ...expected });
  });
}

test("the old name of a service account is taken for the new one", () => {
  assert.equal(parsedPod({ serviceAccount: "old" }).spec.serviceAccountName, "old");
  assert.equal(parsedPod({ serviceAccount: "old", serviceAccountName: "new" }).spec.serviceAccountName, "new");
});

test("sidecars and ephemeral containers are defaulted as the others are", () => {
  const pod = parsedPod({
    initContainers: [{ name: "side", image: "s:1", restartPolicy: "Always" }],
    ephemeralContainers: [{ name: "debug", image: "d:1" }],
  });
  const expected = {
    imagePullPolicy: "IfNotPresent",
    resources: {},
    terminationMessagePath: "/dev/termination-log",
    terminationMessagePolicy: "File",
  };
  assert.deepEqual(pod.spec.initContainers, [{ name: "side", image: "s:1", restartPolicy: "Always", ...expected }]);
  assert.deepEqual(pod.spec.ephemeralContainers, [{ name: "debug", image: "d:1", ...expected }]);
});

test("defaulting twice is defaulting once", () => {
  const container = fc.record(
    {
      name: fc.constantFrom("a", "b"),
      image: fc.constantFrom("x", "x:1", "y:latest"),
      ports: fc.array(fc.record({ containerPort: fc.integer({ min: 1, max: 65_535 }) }), { maxLength: 1 }),
      resources: fc.record(
        {
          limits: fc.record({ cpu: fc.constantFrom("1000m", "2", 3, 0.1) }),
          requests: fc.record({ memory: fc.constantFrom("1024Ki", "1e3", 5) }),
        },
        { requiredKeys: [] },
      ),
      livenessProbe: fc.record({ tcpSocket: fc.record({ port: fc.constant(1) }) }),
      imagePullPolicy: fc.constantFrom("", "Never", undefined, null),
    },
    { requiredKeys: ["name", "image"] },
  );
  const spec = fc.record(
    {
      containers: fc.array(container, { minLength: 1, maxLength: 1 }),
      hostNetwork: fc.boolean(),
      volumes: fc.constantFrom([], [{ name: "v" }], [{ name: "v", hostPath: { path: "/x" } }]),
      overhead: fc.constantFrom({ cpu: "0.0001" }, {}),
      terminationGracePeriodSeconds: fc.constantFrom(-1, 0, 5, null),
    },
    { requiredKeys: ["containers"] },
  );
  fc.assert(
    fc.property(spec, (fields) => {
      const once = parsePod(podManifest(fields));
      assert.ok(once.ok, JSON.stringify(once));
      assert.deepEqual(parsePod(once.pod), once);
    }),
  );
});
