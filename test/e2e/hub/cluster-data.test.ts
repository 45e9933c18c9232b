/** Objects that an API server gives a node's pods, with kubectl, the embedded hub and a real board. */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { FleetBoard } from "../../support/agent/fleet-board.ts";
import { containerPod } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { type Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const folder = new TempFolder();

let containerd: Containerd;
let board: FleetBoard;
let fleet: Fleet;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  board = await FleetBoard.start(containerd);
  ({ fleet } = board);
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, board]) if (each !== undefined) all.use(each);
  folder[Symbol.dispose]();
});

const conditionOf = (pod: string, type: string): readonly string[] => [
  ...["get", "pod", pod, "--watch", "-o"],
  `jsonpath={.status.conditions[?(@.type=="${type}")].status} {.status.conditions[?(@.type=="${type}")].reason}{"\\n"}`,
];

const setCondition = (pod: string, condition: object): Promise<string> =>
  fleet.kubectl([
    ...["patch", "pod", pod, "--subresource=status", "-p"],
    JSON.stringify({ status: { conditions: [condition] } }),
  ]);

test("a pod waits for its claim to be bound, writes to the volume, and knows the services of its namespace", {
  skip,
}, async () => {
  const path = folder.at("data");
  mkdirSync(path);
  const accessModes = ["ReadWriteOnce"];
  await fleet.kubectl(["create", "service", "clusterip", "front-door", "--tcp=80:8080"]);
  const script =
    'env | sort > /data/new; mv /data/new /data/env; trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done';
  const pod = containerPod("store", script, {
    nodeName: "node-a",
    containers: [
      {
        ...(containerPod("store", script) as { spec: { containers: object[] } }).spec.containers[0],
        volumeMounts: [{ name: "data", mountPath: "/data" }],
        readinessProbe: { exec: { command: ["test", "-e", "/data/env"] }, periodSeconds: 1, timeoutSeconds: 30 },
      },
    ],
    volumes: [{ name: "data", persistentVolumeClaim: { claimName: "data" } }],
  });
  await fleet.apply(pod);
  const resources = { requests: { storage: "1Mi" } };
  const spec = { accessModes, resources, storageClassName: "" };
  await fleet.apply({ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: "data" }, spec });
  const disk = { capacity: { storage: "1Mi" }, accessModes, hostPath: { path, type: "Directory" } };
  await fleet.apply({ apiVersion: "v1", kind: "PersistentVolume", metadata: { name: "disk" }, spec: disk });
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/store", "--timeout=120s"]);
  const env = readFileSync(`${path}/env`, "utf8");
  const address = await fleet.kubectl(["get", "service", "front-door", "-o", "jsonpath={.spec.clusterIP}"]);
  assert.ok(env.includes(`FRONT_DOOR_SERVICE_HOST=${address}\n`), env);
  assert.ok(env.includes("KUBERNETES_SERVICE_HOST=10.96.0.1\n"), env);
});

test("a readiness gate that somebody opens makes a pod ready; neither side's conditions undo the other's", {
  skip,
}, async () => {
  const gate = "example.org/gate";
  await fleet.apply(
    containerPod("gated", undefined, { nodeName: "node-a", readinessGates: [{ conditionType: gate }] }),
  );
  await fleet.seen(conditionOf("gated", "ContainersReady"), (text) => text.includes("True"));
  await fleet.seen(conditionOf("gated", "Ready"), (text) => text.includes("False ReadinessGatesNotReady"));
  await setCondition("gated", { type: gate, status: "True" });
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/gated", "--timeout=60s"]);
  await setCondition("gated", { type: gate, status: "False" });
  await fleet.seen(conditionOf("gated", "Ready"), (text) => text.includes("False ReadinessGatesNotReady"));
  const text = await fleet.kubectl(["get", "pod", "gated", "-o", "jsonpath={.status}"]);
  const status = JSON.parse(text) as { conditions: { type: string }[]; containerStatuses: { restartCount: number }[] };
  assert.equal(status.containerStatuses[0]?.restartCount, 0);
  assert.ok(status.conditions.some(({ type }) => type === gate));
});

test("a debugger joins a running pod", { skip }, async () => {
  await fleet.apply(containerPod("app", undefined, { nodeName: "node-a" }));
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/app", "--timeout=90s"]);
  const image = await fleet.kubectl(["get", "pod", "app", "-o", "jsonpath={.spec.containers[0].image}"]);
  await fleet.kubectl([
    "debug",
    "app",
    `--image=${image}`,
    "--container=look",
    "--attach=false",
    "--",
    "sleep",
    "3600",
  ]);
  await fleet.seen(
    ["get", "pod", "app", "--watch", "-o", 'jsonpath={.status.ephemeralContainerStatuses[0].state}{"\\n"}'],
    (text) => text.includes('"running"'),
  );
});
