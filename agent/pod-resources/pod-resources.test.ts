/** Asked by a client of grpc-js. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import { GrpcServer } from "@picolet/runtime-cri/wire/grpc-server.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { callGrpc, renamedService, serviceOf } from "@picolet/test/support/unit/plugins/grpc-peer.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type Counted, NodeCounts } from "../core/node/node-counts.ts";
import { podResourcesMethods } from "./pod-resources.ts";

const SERVICE = serviceOf("podresources.proto", "v1.PodResourcesLister");
const uid = podUid("pod-1");
const container = { image: "app", resources: {} };
const pod = podOf(
  {
    initContainers: [
      { ...container, name: "once" },
      { ...container, name: "sidecar", restartPolicy: "Always" },
    ],
    containers: [{ ...container, name: "app" }],
  },
  { name: "pod", uid },
);
const gpu = {
  pool: "board",
  device: "card-0",
  requests: [],
  cdiDevices: ["example.com/gpu=0"],
  driver: "gpu.example.com",
};

async function served(context: { after(end: () => Promise<void> | void): void }) {
  const folder = new TempFolder();
  const [clock, counts] = [new VirtualClock(), new NodeCounts()];
  const methods = podResourcesMethods({
    ...{ clock, counts },
    pods: () => [{ uid, source: "api", origin: "", pod }],
    cpuset: (_, name) => ({ cpus: "2-3,5", mems: "0", exclusive: name === "app" }),
    memory: (_, name) => (name === "app" ? [{ type: "memory", bytes: 2 ** 33, nodes: [0, 1] }] : []),
    claims: (_, { name }) => (name === "app" ? [{ namespace: "default", name: "claim", devices: [gpu] }] : []),
    devices: () => [
      { resource: "example.com/camera", id: "a", nodes: [1], isHealthy: true, holder: { uid, container: "app" } },
      { resource: "example.com/camera", id: "b", nodes: [], isHealthy: true, holder: undefined },
      { resource: "example.com/camera", id: "c", nodes: [], isHealthy: false, holder: undefined },
    ],
    allocatable: () => ({ cpus: [1, 2, 3], memory: [{ type: "hugepages-2Mi", bytes: 2 ** 21, nodes: [0] }] }),
  });
  const path = folder.at("pod-resources/kubelet.sock");
  const server = new GrpcServer({ clock }, { path, methods });
  await server.listen();
  context.after(async () => {
    await server[Symbol.asyncDispose]();
    folder[Symbol.dispose]();
  });
  const call = (method: string, request: object = {}, service = SERVICE) => callGrpc(path, service, method, request);
  return { clock, counts, call };
}

const CAMERA = { resource_name: "example.com/camera", device_ids: ["a"], topology: { nodes: [{ ID: 1 }] } };
const NOTHING = { devices: [], cpu_ids: [], memory: [], dynamic_resources: [] };
const CLAIMED = { cdi_devices: [{ name: "example.com/gpu=0" }], driver_name: "gpu.example.com" };
const SHOWN = {
  name: "pod",
  namespace: "default",
  containers: [
    { name: "sidecar", ...NOTHING },
    {
      name: "app",
      devices: [CAMERA],
      cpu_ids: [2, 3, 5],
      memory: [{ memory_type: "memory", size: 2 ** 33, topology: { nodes: [{ ID: 0 }, { ID: 1 }] } }],
      dynamic_resources: [
        {
          claim_name: "claim",
          claim_namespace: "default",
          claim_resources: [{ ...CLAIMED, pool_name: "board", device_name: "card-0" }],
        },
      ],
    },
  ],
};

test("a container is listed with its CPUs, memory, devices and claims", async (context) => {
  const { call } = await served(context);
  assert.deepEqual(await call("List"), { pod_resources: [SHOWN] });
  const names = { pod_name: "pod", pod_namespace: "default" };
  assert.deepEqual(await call("Get", names), { pod_resources: SHOWN });
  await assert.rejects(call("Get", { ...names, pod_name: "other" }), /pod other in namespace default not found/);
});

test("an agent that knows the older version is answered too", async (context) => {
  const { call } = await served(context);
  const older = renamedService(SERVICE, "v1alpha1.PodResourcesLister");
  assert.deepEqual(await call("List", {}, older), { pod_resources: [SHOWN] });
});

test("what may be given to a container is listed without unhealthy devices", async (context) => {
  const { call } = await served(context);
  assert.deepEqual(await call("GetAllocatableResources"), {
    devices: [CAMERA, { resource_name: "example.com/camera", device_ids: ["b"], topology: null }],
    cpu_ids: [1, 2, 3],
    memory: [{ memory_type: "hugepages-2Mi", size: 2 ** 21, topology: { nodes: [{ ID: 0 }] } }],
  });
});

test("calls within the limit count by their method and version", async (context) => {
  const { counts, call } = await served(context);
  await call("List");
  await call("List", {}, renamedService(SERVICE, "v1alpha1.PodResourcesLister"));
  await call("GetAllocatableResources");
  await call("Get", { pod_name: "pod", pod_namespace: "default" });
  await assert.rejects(call("Get", { pod_name: "other", pod_namespace: "default" }));
  for (let count = 5; count < 10; count += 1) await call("GetAllocatableResources");
  await assert.rejects(call("GetAllocatableResources"), /rejected by rate limit/);
  const countedOf = (name: string) =>
    [...counts.counts(`kubelet_pod_resources_endpoint_${name}` as Counted)].map(({ labels, value }) => [
      ...labels,
      value,
    ]);
  assert.deepEqual(countedOf("requests_total"), [
    ["v1", 9],
    ["v1alpha1", 1],
  ]);
  assert.deepEqual(countedOf("requests_list"), [["v1", 1]]);
  assert.deepEqual(countedOf("requests_get_allocatable"), [["v1", 6]]);
  assert.deepEqual(countedOf("requests_get"), [["v1", 2]]);
  assert.deepEqual(countedOf("errors_get"), [["v1", 1]]);
});

test("all callers together make ten calls at once, and a hundred a second", async (context) => {
  const { clock, call } = await served(context);
  for (let count = 0; count < 10; count += 1) await call("List");
  await assert.rejects(call("List"), /RESOURCE_EXHAUSTED: rejected by rate limit/);
  await clock.advance(millis(10));
  await call("List");
  await assert.rejects(call("List"), /rejected by rate limit/);
});
