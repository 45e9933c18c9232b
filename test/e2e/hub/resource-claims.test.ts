/** Dynamic resource allocation with kubectl, the embedded hub, a real board, and a driver written with grpc-js. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { BOARD, FleetBoard } from "../../support/agent/fleet-board.ts";
import { containerPod, SLEEP_SCRIPT } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { type Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { callGrpc, serviceOf } from "../../support/unit/plugins/grpc-peer.ts";
import { TestDevicePlugin } from "../../support/unit/plugins/test-device-plugin.ts";
import { TestDraDriver } from "../../support/unit/plugins/test-dra-driver.ts";

const skip = containerdMissing() ?? (kubectlMissing("1.32") || false);
const DRIVER = "gpu.example.com";
const spec = { devices: { requests: [{ name: "one", exactly: { deviceClassName: "gpu" } }] } };

/** The machine's own folder, because CDI has no other. */
const CDI_FOLDER = "/var/run/cdi";
const CDI_SPEC = join(CDI_FOLDER, `picolet-test-claims-${process.pid}.json`);
const CDI_KIND = `picolet.test/g${process.pid}`;

let containerd: Containerd;
let board: FleetBoard;
let fleet: Fleet;
let driver: TestDraDriver;

const rootDir = (): string => join(board.node.directory, "root");

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  board = await FleetBoard.start(containerd);
  ({ fleet } = board);
  driver = new TestDraDriver({ rootDir: rootDir(), name: DRIVER });
  driver.cdiKind = CDI_KIND;
});

after(async () => {
  if (skip !== false) return;
  rmSync(CDI_SPEC, { force: true });
  await using all = new AsyncDisposableStack();
  if (driver !== undefined) all.defer(() => driver.stop());
  for (const each of [containerd, board]) if (each !== undefined) all.use(each);
});

/** Writes what a driver does when it prepares a claim: the specification of its device. */
function writeCdi(claim: string, containerEdits: object): void {
  mkdirSync(CDI_FOLDER, { recursive: true });
  const devices = [{ name: claim, containerEdits }];
  writeFileSync(CDI_SPEC, JSON.stringify({ cdiVersion: "0.6.0", kind: CDI_KIND, devices }));
}

const object = (kind: string, name: string, content: object): object => ({
  apiVersion: "resource.k8s.io/v1",
  kind,
  metadata: { name },
  ...content,
});

/** Writes what a scheduler that knows the device would. */
const allocate = (claim: string): Promise<string> => {
  const results = [{ request: "one", driver: DRIVER, pool: BOARD, device: "card-0" }];
  const patch = JSON.stringify({ status: { allocation: { devices: { results } } } });
  return fleet.kubectl(["patch", "resourceclaim", claim, "--subresource=status", "--type=merge", "-p", patch]);
};

const withClaim = (name: string, resourceClaim: object): unknown =>
  containerPod(name, SLEEP_SCRIPT, {
    resourceClaims: [{ name: "gpu", ...resourceClaim }],
    terminationGracePeriodSeconds: 1,
    containers: [
      {
        name: "app",
        image: BUSYBOX_IMAGE,
        command: ["/bin/sh", "-c", SLEEP_SCRIPT],
        resources: { claims: [{ name: "gpu" }] },
      },
    ],
  });

const warnings = (pod: string): readonly string[] => [
  ...["get", "events", "--watch", "--field-selector", `involvedObject.name=${pod}`],
  ...["-o", 'jsonpath={.reason}: {.message}{"\\n"}'],
];

test("a pod starts when its claim is made, allocated and prepared, and the claim is unprepared when the pod has gone", {
  skip,
}, async () => {
  await fleet.apply(object("DeviceClass", "gpu", { spec: {} }));
  await fleet.apply(object("ResourceClaimTemplate", "cards", { spec: { spec } }));
  await fleet.apply(withClaim("app", { resourceClaimTemplateName: "cards" }));
  const claims = ["get", "resourceclaims", "--watch", "-o", 'jsonpath={.metadata.name}{"\\n"}'];
  const [claim = ""] = /app-gpu-\w+/.exec(await fleet.seen(claims, (text) => text.includes("app-gpu-"))) ?? [];
  await allocate(claim);
  const refusal = `FailedPrepareDynamicResources: Failed to prepare dynamic resources: DRA driver ${DRIVER} is not registered`;
  await fleet.seen(warnings("app"), (text) => text.includes(refusal));
  // Its exit code is that of a pod that does not run.
  const why = spawnSync("dist/board/bin/edgectl", ["--socket", board.node.socketPath, "why", "app"], {
    encoding: "utf8",
  });
  assert.match(why.stdout, /DRA driver gpu.example.com is not registered/);
  // Events and statuses reach the hub by lanes of their own, in any order.
  const state = ["get", "pod", "app", "--watch", "-o", 'jsonpath={.status.containerStatuses[*].state}{"\\n"}'];
  await fleet.seen(state, (text) => text.includes('{"waiting":{"reason":"ContainerCreating"}}\n'));

  writeCdi(claim, { env: ["GPU=it is there"] });
  const registration = await driver.start();
  assert.deepEqual(await registration.reported(), { plugin_registered: true, error: "" });
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/app", "--timeout=180s"]);
  assert.deepEqual(driver.calls, [`prepare ${claim}`]);
  assert.equal(await fleet.kubectl(["exec", "app", "--", "sh", "-c", "echo $GPU"]), "it is there\n");
  const listedClaim = await fleet.kubectl(["get", "resourceclaims", claim, "--no-headers"]);
  assert.match(listedClaim, /allocated,reserved/);
  assert.match(
    await fleet.kubectl(["get", "pod", "app", "-o", "jsonpath={.status.resourceClaimStatuses}"]),
    new RegExp(claim),
  );

  const lister = serviceOf("podresources.proto", "v1.PodResourcesLister");
  const listed = async (): Promise<string> =>
    JSON.stringify(await callGrpc(join(rootDir(), "pod-resources", "kubelet.sock"), lister, "List", {}));
  const shown = `"claim_name":"${claim}","claim_namespace":"default"`;
  assert.ok((await listed()).includes(shown), await listed());

  await board.node.stop();
  driver.stop();
  await board.node.start();
  await driver.start();
  await board.node.waitForPods("the pod is known again", (pods) => isReady(pods.get("app")));
  assert.ok((await listed()).includes(shown), await listed());
  await fleet.kubectl(["delete", "pod", "app", "--timeout=120s"]);
  assert.deepEqual(driver.calls, [`prepare ${claim}`, `unprepare ${claim}`]);
  await fleet.kubectl(["wait", "--for=delete", `resourceclaim/${claim}`, "--timeout=60s"]);
});

test("the hub gives a pod the device that its template asks for, and the next pod gets it when the first has ended", {
  skip,
}, async () => {
  const model = (name: string): object => ({
    requests: [
      {
        name: "one",
        exactly: {
          deviceClassName: "cards",
          selectors: [{ cel: { expression: `device.attributes["${DRIVER}"].model.matches("^${name}")` } }],
        },
      },
    ],
  });
  const selectors = [{ cel: { expression: `device.driver == "${DRIVER}"` } }];
  await fleet.apply(object("DeviceClass", "cards", { spec: { selectors } }));
  for (const name of ["large", "huge"])
    await fleet.apply(object("ResourceClaimTemplate", name, { spec: { spec: { devices: model(name) } } }));
  const pool = { name: BOARD, generation: 1, resourceSliceCount: 1 };
  const devices = ["small", "large-2"].map((text, index) => ({
    name: `card-${index}`,
    attributes: { model: { string: text } },
    capacity: { memory: { value: "8Gi" } },
  }));
  await fleet.apply(
    object("ResourceSlice", "cards-of-board", { spec: { driver: DRIVER, nodeName: BOARD, pool, devices } }),
  );
  driver.cdiKind = "";
  await fleet.apply(withClaim("first", { resourceClaimTemplateName: "large" }));
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/first", "--timeout=180s"]);
  const path = "{.items[*].status.allocation.devices.results[*]['request','driver','pool','device']}";
  assert.equal(
    await fleet.kubectl(["get", "resourceclaims", "-o", `jsonpath=${path}`]),
    `one ${DRIVER} ${BOARD} card-1`,
  );

  await fleet.apply(withClaim("second", { resourceClaimTemplateName: "large" }));
  const message = ["get", "pod", "second", "--watch", "-o", 'jsonpath={.status.conditions[*].message}{"\\n"}'];
  await fleet.seen(message, (text) => text.includes("0/1 nodes are available: 1 cannot allocate all claims."));
  await fleet.kubectl(["delete", "pod", "first", "--timeout=120s"]);
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/second", "--timeout=180s"]);

  const wrong = model("(");
  await assert.rejects(
    fleet.apply(object("ResourceClaimTemplate", "wrong", { spec: { spec: { devices: wrong } } })),
    /spec\.spec\.devices\.requests\[0\]\.exactly\.selectors\[0\]\.cel\.expression: Invalid value: .*compilation failed/,
  );
  await fleet.kubectl(["delete", "pod", "second", "--timeout=120s"]);
  driver.cdiKind = CDI_KIND;
});

test("a pod that has run is over, and its devices are free, when its driver has taken its claim back", {
  skip,
}, async (context) => {
  const { cdiKind } = driver;
  driver.cdiKind = "";
  context.after(() => {
    driver.cdiKind = cdiKind;
  });
  await fleet.apply(object("ResourceClaim", "once", { spec }));
  await allocate("once");
  const pod = withClaim("job", { resourceClaimName: "once" }) as { spec: { containers: object[] } };
  const containers = pod.spec.containers.map((each) => ({ ...each, command: ["/bin/true"] }));
  await fleet.apply({ ...pod, spec: { ...pod.spec, restartPolicy: "Never", containers } });
  const fields = 'jsonpath={.status.phase} {.status.containerStatuses[*].state}{"\\n"}';
  driver.unprepareRefusal = "the card is busy";
  const refusal =
    "FailedUnprepareDynamicResources: Failed to unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim once: the card is busy";
  await fleet.seen(warnings("job"), (text) => text.includes(refusal));
  await fleet.seen(["get", "pod", "job", "--watch", "-o", fields], (text) =>
    /^Running \{"terminated":.*"reason":"Completed"/m.test(text),
  );
  const users = ["get", "resourceclaim", "once", "--watch", "-o", "jsonpath=[{.status.reservedFor[*].name}]"];
  await fleet.seen(users, (text) => text === "[job]");
  driver.unprepareRefusal = "";
  await fleet.kubectl(["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/job", "--timeout=180s"]);
  await fleet.seen(users, (text) => text.endsWith("[]"));
});

test("a pod that a claim is not reserved for does not start", { skip }, async () => {
  await fleet.apply(object("ResourceClaim", "other", { spec }));
  await allocate("other");
  const pod = withClaim("stranger", { resourceClaimName: "other" }) as { spec: object };
  await fleet.apply({ ...pod, spec: { ...pod.spec, nodeName: BOARD } });
  await fleet.seen(warnings("stranger"), (text) =>
    /FailedPrepareDynamicResources: .*pod stranger \(.*\) is not allowed to use ResourceClaim other/.test(text),
  );
  assert.doesNotMatch(driver.calls.join(), /prepare other/);
});

test("the Node shows devices of plugins, and the slices of a driver that stays away are removed", {
  skip,
}, async (context) => {
  const slice = (name: string, driverName: string) => {
    const pool = { name, generation: 1, resourceSliceCount: 1 };
    return object("ResourceSlice", name, { spec: { driver: driverName, nodeName: BOARD, pool, devices: [] } });
  };
  await fleet.apply(slice("stays", DRIVER));
  const plugin = new TestDevicePlugin({
    folder: join(rootDir(), "device-plugins"),
    resource: "example.com/camera",
    devices: ["video1", "video0"].map((ID) => ({ ID, health: ID === "video0" ? "Healthy" : "Unhealthy" })),
  });
  context.after(() => plugin.stop());
  await plugin.start();
  const shown = ["get", "node", BOARD, "--watch", "-o", "jsonpath={.metadata.annotations['picolet\\.io/devices']};"];
  await fleet.seen(shown, (text) => text.includes("example.com/camera video0\nexample.com/camera video1 !;"));

  const other = new TestDraDriver({ rootDir: rootDir(), name: "other.example.com" });
  context.after(() => other.stop());
  const registration = await other.start();
  assert.deepEqual(await registration.reported(), { plugin_registered: true, error: "" });
  await fleet.apply(slice("goes", "other.example.com"));
  other.kill();
  await fleet.kubectl(["wait", "--for=delete", "resourceslice/goes", "--timeout=120s"]);
  assert.match(await fleet.kubectl(["get", "resourceslices", "-o", "name"]), /resourceslice.resource.k8s.io\/stays/);
});

test("a pod whose runtime cannot apply the devices does not start without them", { skip }, async () => {
  const hooks = [{ hookName: "createContainer", path: "/bin/true" }];
  writeCdi("card", { hooks });
  await fleet.apply(object("ResourceClaim", "card", { spec }));
  await allocate("card");
  await fleet.apply(withClaim("bare", { resourceClaimName: "card" }));
  await fleet.seen(warnings("bare"), (text) => /cannot apply the CDI device .*=card: it has hooks/.test(text));
});
