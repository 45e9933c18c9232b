import assert from "node:assert/strict";
import { test } from "node:test";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { ContainerLaunch, DesiredPod, SandboxLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import { POD_CONFIG_SETTINGS } from "@picolet/test/support/unit/cri/cri-adapters.ts";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import { MountPropagation, PortProtocol, SIGNAL_NUMBERS } from "../wire/cri-messages.ts";
import { ANNOTATION, LABEL, MAX_MANIFEST_BYTES } from "./labels.ts";
import { containerConfig, type PodConfigSettings, sandboxConfig } from "./pod-config.ts";

type Fields = Readonly<Record<string, unknown>>;
const SETTINGS = { ...POD_CONFIG_SETTINGS, owner: "node-1" };
const SANDBOX: SandboxLaunch = {
  attempt: 2,
  logDirectory: "/logs/default_web_uid-1",
  cgroupParent: "/kubepods/burstable/poduid-1",
  hostname: "web",
  dns: { servers: ["10.0.0.1"], searches: ["example.com"], options: ["ndots:5"] },
};

const desired = (spec: Fields = {}, metadata: Fields = {}): DesiredPod => ({
  uid: podUid("uid-1"),
  source: "file",
  origin: "/manifests/web.yaml",
  pod: parsedPod(spec, metadata),
});

function launch(fields: Partial<ContainerLaunch> = {}): ContainerLaunch {
  const image = { requested: "example.com/app:1", id: "sha256:abc" };
  const own = { name: "app", attempt: 3, hash: "cafe", backoff: millis(40_000), image, logPath: "app/3.log" };
  return { ...own, command: [], args: [], env: [], workingDir: "", mounts: [], ...fields };
}

const sandboxOf = (spec: Fields = {}, metadata: Fields = {}) =>
  sandboxConfig(desired(spec, metadata), SANDBOX, SETTINGS, true);
const containerOf = (fields: Fields = {}, run: Partial<ContainerLaunch> = {}) => {
  const containers = [{ name: "app", image: "example.com/app:1", ...fields }];
  return containerConfig(desired({ containers }), launch(run), { imageUser: undefined, sandbox: SANDBOX }, SETTINGS);
};

test("the parent of its cgroups is a path, with systemd the name of a slice", () => {
  const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid_1.slice";
  const parentOf = (settings: PodConfigSettings): string | undefined =>
    sandboxConfig(desired(), { ...SANDBOX, cgroupParent: slice }, settings, false).linux?.cgroupParent;
  assert.equal(parentOf(SETTINGS), slice);
  assert.equal(parentOf({ ...SETTINGS, cgroupDriver: "systemd" }), "kubepods-burstable-poduid_1.slice");
});

test("a sandbox has its identity, manifest and owner", () => {
  const config = sandboxOf({}, { labels: { app: "web", [LABEL.owner]: "forged" }, annotations: { note: "x" } });
  assert.deepEqual(config.metadata, { name: "web", uid: "uid-1", namespace: "default", attempt: 2 });
  assert.deepEqual(Object.fromEntries(config.labels ?? []), {
    app: "web",
    [LABEL.podName]: "web",
    [LABEL.podNamespace]: "default",
    [LABEL.podUid]: "uid-1",
    [LABEL.owner]: "node-1",
  });
  assert.equal(config.annotations?.get("note"), "x");
  assert.deepEqual(JSON.parse(config.annotations?.get(ANNOTATION.launch) ?? ""), SANDBOX);
  const manifest = JSON.parse(config.annotations?.get(ANNOTATION.manifest) ?? "");
  assert.equal(manifest.origin, "/manifests/web.yaml");
  assert.equal(config.logDirectory, SANDBOX.logDirectory);
  assert.equal(config.linux?.cgroupParent, SANDBOX.cgroupParent);
  assert.deepEqual(config.dnsConfig, SANDBOX.dns);
});

test("the groups of the pod's volumes reach sandbox and containers", () => {
  const extraGroups = [1234];
  const sandbox = sandboxConfig(desired(), { ...SANDBOX, extraGroups }, SETTINGS, false);
  assert.deepEqual(sandbox.linux?.securityContext?.supplementalGroups, extraGroups);
  assert.deepEqual(containerOf({}, { extraGroups }).linux?.securityContext?.supplementalGroups, extraGroups);
});

test("a manifest too long for an annotation is left out", () => {
  const fits = sandboxOf({}, { annotations: { note: "x".repeat(MAX_MANIFEST_BYTES / 2) } });
  assert.ok(fits.annotations?.has(ANNOTATION.manifest));
  const long = sandboxOf({}, { annotations: { note: "x".repeat(MAX_MANIFEST_BYTES) } });
  assert.equal(long.annotations?.has(ANNOTATION.manifest), false);
  assert.ok(long.annotations?.has(ANNOTATION.launch));
});

test("a pod's own annotations are never taken for the agent's", () => {
  const forged = { [ANNOTATION.manifest]: '{"uid":"uid-1"}', [ANNOTATION.launch]: "{}" };
  const long = sandboxOf({}, { annotations: { ...forged, note: "x".repeat(MAX_MANIFEST_BYTES) } });
  assert.equal(long.annotations?.has(ANNOTATION.manifest), false);
  assert.deepEqual(JSON.parse(long.annotations?.get(ANNOTATION.launch) ?? ""), SANDBOX);
  const copy = sandboxConfig(
    { ...desired(), pod: { ...desired().pod, metadata: { ...desired().pod.metadata, annotations: forged } } },
    SANDBOX,
    SETTINGS,
    false,
  );
  assert.equal(copy.annotations?.has(ANNOTATION.manifest), false);
  assert.equal(copy.annotations?.has(ANNOTATION.launch), false);
});

test("the containers' copy of the sandbox lacks annotations that only lists read", () => {
  const config = sandboxConfig(desired(), SANDBOX, SETTINGS, false);
  assert.equal(config.annotations?.has(ANNOTATION.manifest), false);
  assert.equal(config.annotations?.has(ANNOTATION.launch), false);
});

test("host ports of containers and sidecars are mapped, none on the host's network", () => {
  const ports = [
    { containerPort: 80, hostPort: 8080, hostIP: "127.0.0.1" },
    { containerPort: 53, hostPort: 5353, protocol: "UDP" },
    { containerPort: 9000 },
  ];
  const containers = [{ name: "app", image: "example.com/app:1", ports }];
  const sidecar = {
    name: "side",
    image: "example.com/app:1",
    restartPolicy: "Always",
    ports: [{ containerPort: 1, hostPort: 2 }],
  };
  const mapped = sandboxOf({ containers, initContainers: [sidecar] }).portMappings;
  assert.deepEqual(mapped, [
    { protocol: PortProtocol.TCP, containerPort: 80, hostPort: 8080, hostIp: "127.0.0.1" },
    { protocol: PortProtocol.UDP, containerPort: 53, hostPort: 5353, hostIp: undefined },
    { protocol: PortProtocol.TCP, containerPort: 1, hostPort: 2, hostIp: undefined },
  ]);
  const onHost = sandboxOf({ hostNetwork: true, containers: [{ name: "app", image: "example.com/app:1" }] });
  assert.deepEqual([onHost.portMappings, onHost.hostname], [[], ""]);
});

test("sysctls are sent", () => {
  const sysctls = [{ name: "kernel.shm_rmid_forced", value: "1" }];
  assert.deepEqual(
    sandboxOf({ securityContext: { sysctls } }).linux?.sysctls,
    new Map([["kernel.shm_rmid_forced", "1"]]),
  );
});

test("a container has its identity, as from the kubelet and for the agent", () => {
  const resources = { limits: { cpu: "1", memory: "64Mi", "example.com/gpu": "1" } };
  const config = containerOf({ ports: [{ containerPort: 80 }], resources });
  assert.deepEqual(config.metadata, { name: "app", attempt: 3 });
  assert.deepEqual(config.image, { image: "sha256:abc", userSpecifiedImage: "example.com/app:1" });
  assert.equal(config.labels?.get(LABEL.containerName), "app");
  assert.equal(config.labels?.get(LABEL.owner), "node-1");
  assert.deepEqual(Object.fromEntries(config.annotations ?? []), {
    [ANNOTATION.containerHash]: "cafe",
    [ANNOTATION.containerRestartCount]: "3",
    [ANNOTATION.containerTerminationMessagePath]: "/dev/termination-log",
    [ANNOTATION.containerTerminationMessagePolicy]: "File",
    [ANNOTATION.podTerminationGracePeriod]: "30",
    [ANNOTATION.containerPorts]: JSON.stringify([{ containerPort: 80, protocol: "TCP" }]),
    [ANNOTATION.backoffMs]: "40000",
    [ANNOTATION.image]: "example.com/app:1",
    [ANNOTATION.resources]: JSON.stringify({
      requests: { cpu: "1", memory: "64Mi" },
      limits: { cpu: "1", memory: "64Mi" },
    }),
  });
});

test("values of the launch are sent unchanged", () => {
  const mounts = [
    { containerPath: "/a", hostPath: "/host/a", readOnly: true, propagation: "private" },
    { containerPath: "/b", hostPath: "/host/b", readOnly: false, propagation: "bidirectional" },
  ] as const;
  const config = containerOf(
    { stdin: true, stdinOnce: true, tty: true },
    { command: ["/run"], args: ["-x"], env: [{ name: "KEY", value: "välue" }], workingDir: "/work", mounts },
  );
  assert.deepEqual([config.command, config.args, config.workingDir], [["/run"], ["-x"], "/work"]);
  assert.deepEqual(config.envs, [{ key: "KEY", value: Buffer.from("välue") }]);
  assert.deepEqual(
    config.mounts?.map((each) => each.propagation),
    [MountPropagation.private, MountPropagation.bidirectional],
  );
  assert.deepEqual([config.stdin, config.stdinOnce, config.tty], [true, true, true]);
  assert.equal(config.stopSignal, undefined);
});

test("the resources of a pod and its RuntimeClass are sent with the sandbox", () => {
  const resources = { requests: { cpu: "250m", memory: "64Mi" }, limits: { cpu: "500m", memory: "128Mi" } };
  const containers = ["one", "two"].map((name) => ({ name, image: "example.com/app:1", resources }));
  const { linux } = sandboxOf({ containers, overhead: { cpu: "100m", memory: "32Mi" } });
  assert.deepEqual([linux?.resources?.cpuShares, linux?.resources?.cpuQuota], [512, 100_000]);
  assert.equal(linux?.resources?.memoryLimitInBytes, 256 * 2 ** 20);
  assert.deepEqual([linux?.overhead?.cpuShares, linux?.overhead?.cpuQuota], [102, 10_000]);
  assert.equal(linux?.overhead?.memoryLimitInBytes, 32 * 2 ** 20);
  assert.equal(sandboxOf().linux?.overhead, undefined);
});

test("sysctls written with slashes get their dots", () => {
  const sysctls = [
    { name: "net/ipv4/conf/eno2.100/rp_filter", value: "1" },
    { name: "kernel.shm_rmid_forced", value: "1" },
  ];
  const sent = sandboxOf({ securityContext: { sysctls } }).linux?.sysctls;
  assert.deepEqual([...(sent?.keys() ?? [])], ["net.ipv4.conf.eno2/100.rp_filter", "kernel.shm_rmid_forced"]);
});

test("hooks, a stop signal and a deletion's grace are noted as the kubelet does", () => {
  const preStop = { exec: { command: ["/bin/true"] } };
  const lifecycle = { preStop, stopSignal: "SIGUSR1" };
  const pod = desired(
    { os: { name: "linux" }, containers: [{ name: "app", image: "example.com/app:1", lifecycle }] },
    { deletionGracePeriodSeconds: 7 },
  );
  const config = containerConfig(pod, launch(), { imageUser: undefined, sandbox: SANDBOX }, SETTINGS);
  assert.deepEqual(JSON.parse(config.annotations?.get(ANNOTATION.containerPreStopHandler) ?? ""), preStop);
  assert.equal(config.annotations?.get(ANNOTATION.stopSignal), "SIGUSR1");
  assert.equal(config.annotations?.get(ANNOTATION.podDeletionGracePeriod), "7");
  assert.equal(config.stopSignal, SIGNAL_NUMBERS.get("SIGUSR1"));
});

test("devices, images and ids of other namespaces go along with a container's mounts", () => {
  const mount = { containerPath: "/a", hostPath: "/h", readOnly: true, propagation: "private" } as const;
  const image = { ...mount, hostPath: "", image: { id: "sha256:vol", subPath: "models" } };
  const devices = [
    { containerPath: "/dev/a", hostPath: "/dev/x", readOnly: true },
    { containerPath: "/dev/b", hostPath: "/dev/y", readOnly: false },
  ];
  const run = launch({ mounts: [{ ...mount, recursiveReadOnly: true }, image], devices });
  const sandbox = { ...SANDBOX, userNamespace: { hostId: 65_536, length: 65_536 } };
  const config = containerConfig(
    desired({ containers: [{ name: "app", image: "example.com/app:1" }] }),
    run,
    { imageUser: undefined, sandbox },
    SETTINGS,
  );
  const [plain, ofImage] = config.mounts ?? [];
  assert.equal(plain?.recursiveReadOnly, true);
  assert.deepEqual(plain?.uidMappings, [{ hostId: 65_536, containerId: 0, length: 65_536 }]);
  assert.deepEqual([ofImage?.image, ofImage?.imageSubPath], [{ image: "sha256:vol" }, "models"]);
  assert.deepEqual(
    config.devices?.map(({ permissions }) => permissions),
    ["r", "mrw"],
  );
});

test("stop signals have CRI's own numbers", () => {
  assert.equal(SIGNAL_NUMBERS.get("SIGTERM"), 23);
  assert.equal(SIGNAL_NUMBERS.get("SIGRTMIN+15"), 50);
  assert.equal(SIGNAL_NUMBERS.get("SIGRTMAX"), 65);
});

test("a launch of a container that the pod does not have is our own mistake", () => {
  assert.throws(
    () => containerConfig(desired(), launch({ name: "other" }), { imageUser: undefined, sandbox: SANDBOX }, SETTINGS),
    { code: "internal" },
  );
});
