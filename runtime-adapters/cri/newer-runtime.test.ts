/** Tests with a runtime that implements more of CRI than the containerd of the other tests. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { criAdapter, POD_CONFIG_SETTINGS } from "@picolet/test/support/unit/cri/cri-adapters.ts";
import { answer, refuse, ScriptedCri } from "@picolet/test/support/unit/cri/scripted-cri.ts";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import fc from "fast-check";
import { ANNOTATION, LABEL } from "./pods/labels.ts";
import {
  ContainerState,
  ContainerStatus,
  ImageService,
  RunPodSandboxRequest,
  RuntimeService,
  SIGNAL_NUMBERS,
} from "./wire/cri-messages.ts";
import { message, nested } from "./wire/protobuf.ts";

const NEVER = new AbortController().signal;
const HANDLERS = [
  { name: "", features: { recursiveReadOnlyMounts: true, userNamespaces: true } },
  { name: "runsc", features: { recursiveReadOnlyMounts: false, userNamespaces: false } },
];
const StatusOf = message("ContainerStatusResponse", { status: nested(1, ContainerStatus) });

/** Undefined: an error of the runtime. */
type Answers = Readonly<Record<string, (request: Buffer) => Buffer | undefined>>;

/** What is not in `answers` is a call that the runtime does not know. */
async function newRuntime(context: TestContext, answers: Answers) {
  const calls: string[] = [];
  const runtime = await ScriptedCri.start(async (method, stream, request) => {
    calls.push(method);
    const made = answers[method];
    if (made === undefined) {
      refuse(stream, 12);
      return;
    }
    const bytes = made(await request);
    if (bytes === undefined) refuse(stream, 2, "a plugin has failed");
    else answer(stream, bytes);
  });
  const adapter = criAdapter(runtime.endpoint, POD_CONFIG_SETTINGS);
  context.after(async () => {
    await adapter[Symbol.asyncDispose]();
    runtime[Symbol.dispose]();
  });
  return { adapter, calls };
}

const status = (): Buffer =>
  RuntimeService.status.response.encode({
    status: { conditions: [{ type: "RuntimeReady", status: true }] },
    runtimeHandlers: HANDLERS,
    features: { supplementalGroupsPolicy: true },
  });

const podOf = (spec: Readonly<Record<string, unknown>> = {}): DesiredPod => ({
  uid: podUid("uid-1"),
  source: "file",
  origin: "",
  pod: parsedPod(spec),
});

test("its handlers and features are reported", async (context) => {
  const version = () => RuntimeService.version.response.encode({ runtimeName: "containerd", runtimeVersion: "v2.1.0" });
  const { adapter } = await newRuntime(context, { Version: version, Status: status });
  const told = await adapter.status(NEVER);
  assert.deepEqual(told.handlers, [
    { name: "", recursiveReadOnlyMounts: true, userNamespaces: true },
    { name: "runsc", recursiveReadOnlyMounts: false, userNamespaces: false },
  ]);
  assert.equal(told.supplementalGroupsPolicy, true);
});

test("an older one has neither to tell", async (context) => {
  const Version = () => RuntimeService.version.response.encode({});
  const { adapter } = await newRuntime(context, { Version, Status: () => RuntimeService.status.response.encode({}) });
  const told = await adapter.status(NEVER);
  assert.deepEqual([told.handlers, told.supplementalGroupsPolicy], [undefined, undefined]);
});

test("CDI devices are left to a runtime that has them on", async (context) => {
  const appliesCdi = async (runtimeName: string, runtimeVersion: string, config?: object): Promise<boolean> => {
    const info = new Map(config === undefined ? [] : [["config", JSON.stringify(config)]]);
    const { adapter } = await newRuntime(context, {
      Version: () => RuntimeService.version.response.encode({ runtimeName, runtimeVersion }),
      Status: () => RuntimeService.status.response.encode({ info }),
    });
    return await adapter.appliesCdi(NEVER);
  };
  assert.equal(await appliesCdi("containerd", "1.6.20", {}), false);
  assert.equal(await appliesCdi("containerd", "1.7.24", { enableCDI: false }), false);
  assert.equal(await appliesCdi("containerd", "1.7.24", { enableCDI: true }), true);
  assert.equal(await appliesCdi("containerd", "v2.1.9", { enableCDI: false }), false);
  assert.equal(await appliesCdi("containerd", "v2.1.9", {}), true);
  assert.equal(await appliesCdi("cri-o", "1.34.0"), true);
});

test("a pod gets a user namespace where its handler has them, and no sandbox where it has not", async (context) => {
  const mappings: unknown[] = [];
  const { adapter } = await newRuntime(context, {
    Status: status,
    RunPodSandbox: (request) => {
      const { config } = RunPodSandboxRequest.decode(request);
      mappings.push(config?.linux?.securityContext?.namespaceOptions?.usernsOptions?.uids);
      return RuntimeService.runPodSandbox.response.encode({ podSandboxId: "sandbox-1" });
    },
  });
  const launch = { attempt: 0, logDirectory: "/logs", cgroupParent: "", hostname: "web", dns: undefined };
  const create = (runtimeHandler: string): Promise<void> => {
    const sandbox = { ...launch, runtimeHandler, userNamespace: { hostId: 65_536, length: 65_536 } };
    return adapter.apply(podOf({ hostUsers: false }), { kind: "createSandbox", sandbox }, NEVER);
  };
  await create("");
  await assert.rejects(create("runsc"), {
    reason: "FailedCreatePodSandBox",
    message: 'can\'t set `spec.hostUsers: false`, RuntimeClass handler "runsc" does not support user namespaces',
  });
  assert.deepEqual(mappings, [[{ hostId: 65_536, containerId: 0, length: 65_536 }]]);
});

test("a pod's new resources are reported, without what its RuntimeClass takes, and that beside them", async (context) => {
  const told: unknown[] = [];
  const { adapter } = await newRuntime(context, {
    RunPodSandbox: () => RuntimeService.runPodSandbox.response.encode({ podSandboxId: "sandbox-1" }),
    UpdatePodSandboxResources: (request) => {
      const { podSandboxId, overhead, resources } = RuntimeService.updatePodSandboxResources.request.decode(request);
      told.push([podSandboxId, overhead?.cpuShares, resources?.cpuShares, resources?.memoryLimitInBytes]);
      return Buffer.alloc(0);
    },
  });
  const resources = { requests: { cpu: "500m" }, limits: { cpu: "1", memory: "64Mi" } };
  const pod = podOf({ containers: [{ name: "app", image: "x", resources }], overhead: { cpu: "250m" } });
  const sandbox = { attempt: 0, logDirectory: "/logs", cgroupParent: "", hostname: "web", dns: undefined };
  await adapter.apply(pod, { kind: "createSandbox", sandbox }, NEVER);
  await adapter.apply(pod, { kind: "updateSandbox", sandboxId: "sandbox-1" }, NEVER);
  assert.deepEqual(told, [["sandbox-1", 256, 512, 64 * 2 ** 20]]);
});

test("a runtime without such a call is asked once, and one that fails says why", async (context) => {
  const RunPodSandbox = () => RuntimeService.runPodSandbox.response.encode({ podSandboxId: "sandbox-1" });
  const sandbox = { attempt: 0, logDirectory: "/logs", cgroupParent: "", hostname: "web", dns: undefined };
  const update = { kind: "updateSandbox", sandboxId: "sandbox-1" } as const;
  const older = await newRuntime(context, { RunPodSandbox });
  await older.adapter.apply(podOf(), { kind: "createSandbox", sandbox }, NEVER);
  for (let times = 0; times < 3; times += 1) await older.adapter.apply(podOf(), update, NEVER);
  assert.deepEqual(older.calls, ["RunPodSandbox", "UpdatePodSandboxResources"]);
  const broken = await newRuntime(context, { RunPodSandbox, UpdatePodSandboxResources: () => undefined });
  await broken.adapter.apply(podOf(), { kind: "createSandbox", sandbox }, NEVER);
  await assert.rejects(broken.adapter.apply(podOf(), update, NEVER), { message: "cannot update sandbox sandbox-1" });
});

test("a container is ended by the runtime alone when it knows the signal", async (context) => {
  for (const [stopSignal, knows] of [
    [SIGNAL_NUMBERS.get("SIGUSR1") ?? 0, true],
    [0, false],
  ] as const) {
    const timeouts: number[] = [];
    const { adapter, calls } = await newRuntime(context, {
      ContainerStatus: () => StatusOf.encode({ status: running({ stopSignal }) }),
      Kill: () => Buffer.alloc(0),
      Wait: () => Buffer.alloc(0),
      StopContainer: (request) => {
        timeouts.push(RuntimeService.stopContainer.request.decode(request).timeout);
        return Buffer.alloc(0);
      },
    });
    const action = { kind: "stopContainer", containerId: "container-1", gracePeriod: millis(7_000) } as const;
    await adapter.apply(podOf(), action, NEVER);
    assert.equal(calls.includes("Kill"), !knows);
    assert.deepEqual(timeouts, [knows ? 7 : 0]);
  }
});

test("where there is no way to send a stop signal the runtime ends the container with all of its time", async (context) => {
  const timeouts: number[] = [];
  const { adapter } = await newRuntime(context, {
    ContainerStatus: () => StatusOf.encode({ status: running({ stopSignal: 0 }) }),
    StopContainer: (request) => {
      timeouts.push(RuntimeService.stopContainer.request.decode(request).timeout);
      return Buffer.alloc(0);
    },
  });
  const action = { kind: "stopContainer", containerId: "container-1", gracePeriod: millis(7_000) } as const;
  await adapter.apply(podOf(), action, NEVER);
  assert.deepEqual(timeouts, [7]);
});

test("the user of a container's first process is reported", async (context) => {
  const user = { linux: { uid: 1000, gid: 2000, supplementalGroups: [2000, 3000] } };
  const { adapter } = await newRuntime(context, {
    ListPodSandbox: () => Buffer.alloc(0),
    ListContainers: () =>
      RuntimeService.listContainers.response.encode({ containers: [{ id: "container-1", podSandboxId: "sandbox-1" }] }),
    ContainerStatus: () => StatusOf.encode({ status: running({ user }) }),
  });
  const [container] = (await adapter.inspect(podUid("uid-1"), NEVER)).containers;
  assert.deepEqual(container?.user, { uid: 1000, gid: 2000, supplementalGroups: [2000, 3000] });
});

test("the resources in a container's annotation are reported, and no other text is taken for them", async (context) => {
  let written = "";
  const { adapter } = await newRuntime(context, {
    ListPodSandbox: () => Buffer.alloc(0),
    ListContainers: () =>
      RuntimeService.listContainers.response.encode({ containers: [{ id: "container-1", podSandboxId: "sandbox-1" }] }),
    ContainerStatus: () => {
      const made = running({});
      return StatusOf.encode({ status: { ...made, annotations: new Map([[ANNOTATION.resources, written]]) } });
    },
  });
  const told = async (text: string) => {
    written = text;
    return (await adapter.inspect(podUid("uid-1"), NEVER)).containers[0]?.resources;
  };
  const both = { requests: { cpu: "100m" }, limits: { cpu: "1", memory: "64Mi" } };
  assert.deepEqual(await told(JSON.stringify(both)), both);
  assert.deepEqual(await told("{}"), {});
  for (const text of ["", "null", "7", '{"limits":null}', '{"requests":{"cpu":1}}']) {
    assert.equal(await told(text), undefined, text);
  }
  const isText = (value: unknown) => value === undefined || typeof value === "string";
  await fc.assert(
    fc.asyncProperty(fc.oneof(fc.json(), fc.string()), async (text) => {
      const { requests, limits } = (await told(text)) ?? {};
      for (const each of [requests, limits]) assert.ok(isText(each?.cpu) && isText(each?.memory));
    }),
    { numRuns: 60 },
  );
});

test("the values of a container's cgroup are reported, without those that were not set", async (context) => {
  const linux = { cpuShares: 204, cpuQuota: 20_000, cpuPeriod: 100_000, memoryLimitInBytes: 0 };
  const { adapter } = await newRuntime(context, {
    ListPodSandbox: () => Buffer.alloc(0),
    ListContainers: () =>
      RuntimeService.listContainers.response.encode({ containers: [{ id: "container-1", podSandboxId: "sandbox-1" }] }),
    ContainerStatus: () => StatusOf.encode({ status: running({ resources: { linux } }) }),
  });
  const [container] = (await adapter.inspect(podUid("uid-1"), NEVER)).containers;
  const values = { cpuShares: 204, cpuQuotaUs: 20_000, cpuPeriodUs: 100_000, memoryLimitBytes: undefined };
  assert.deepEqual(container?.cgroup, values);
  assert.equal(container?.resources, undefined, "one that an older picolet made does not say what it was made with");
});

function running(more: {
  stopSignal?: number;
  resources?: { linux: { cpuShares: number; cpuQuota: number; cpuPeriod: number; memoryLimitInBytes: number } };
  user?: { linux: { uid: number; gid: number; supplementalGroups: number[] } };
}) {
  const labels = new Map([
    [LABEL.owner, POD_CONFIG_SETTINGS.owner],
    [LABEL.podUid, "uid-1"],
  ]);
  const annotations = new Map([[ANNOTATION.stopSignal, "SIGUSR1"]]);
  return { id: "container-1", state: ContainerState.running, labels, annotations, ...more };
}

test("file systems of images and writable layers: one, two, or not reported", async (context) => {
  const of = (mountpoint: string, used: number) => ({
    fsId: { mountpoint },
    usedBytes: { value: used },
    inodesUsed: { value: 5 },
  });
  let told: Parameters<typeof ImageService.imageFsInfo.response.encode>[0] = { imageFilesystems: [of("/images", 7)] };
  const { adapter } = await newRuntime(context, { ImageFsInfo: () => ImageService.imageFsInfo.response.encode(told) });
  const images = { mountPoint: "/images", usedBytes: 7, inodesUsed: 5 };
  assert.deepEqual(await adapter.images.filesystems(NEVER), { images, containers: images });
  told = { imageFilesystems: [of("/images", 7)], containerFilesystems: [of("/containers", 9)] };
  const containers = { mountPoint: "/containers", usedBytes: 9, inodesUsed: 5 };
  assert.deepEqual(await adapter.images.filesystems(NEVER), { images, containers });
  for (const nothing of [{}, { imageFilesystems: [{}] }]) {
    told = nothing;
    await assert.rejects(adapter.images.filesystems(NEVER), (error) => isPicoletError(error, "unavailable"));
  }
});

test("writable layers come in one call, of the containers that report them", async (context) => {
  const stats = [
    { attributes: { id: "one" }, writableLayer: { usedBytes: { value: 4096 }, inodesUsed: { value: 3 } } },
    { attributes: { id: "two" } },
  ];
  const { adapter, calls } = await newRuntime(context, {
    ListContainerStats: () => RuntimeService.listContainerStats.response.encode({ stats }),
  });
  assert.deepEqual(
    await adapter.writtenLayers(NEVER),
    new Map([
      ["one", { bytes: 4096, inodes: 3 }],
      ["two", { bytes: 0, inodes: 0 }],
    ]),
  );
  assert.equal(calls.length, 1);
});
