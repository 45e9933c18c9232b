/** Environment and identity of containers: the agent's own launches in a real containerd. */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { SystemMounter } from "@picolet/agent/volumes/files/mounter.ts";
import { PodEnvironmentOnDisk } from "@picolet/agent/volumes/pod-environment.ts";
import type { Container, EphemeralContainer, Pod } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { ContainerLaunch, DesiredPod, ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { CriFixture } from "../../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { TestClusterObjects } from "../../support/unit/agent/memory-cluster-objects.ts";
import { RecordedEvents, RecordedLog } from "../../support/unit/ports/recorders.ts";
import { settled } from "../../support/unit/ports/settled.ts";
import { VirtualClock } from "../../support/unit/ports/virtual-clock.ts";

const skip = containerdMissing() ?? false;
const { signal } = new AbortController();

type Fields = Readonly<Record<string, unknown>>;

let containerd: Containerd;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  for (const [name, user] of [
    ["localhost/user-number:1", "1234"],
    ["localhost/user-pair:1", "1234:4321"],
    ["localhost/user-name:1", "somebody"],
  ] as const) {
    const recipe = {
      name,
      user,
      files: { "bin/busybox": "/bin/busybox", "etc/passwd": passwdFile(containerd) },
      links: { "bin/sh": "busybox", "bin/id": "busybox" },
    };
    containerd.importArchive(buildImageArchive(recipe, containerd.directory));
  }
});

after(async () => {
  if (skip === false) await containerd?.[Symbol.asyncDispose]();
});

/** Folders, environment and launches as an agent has them, without its workers: a step is taken when a test says so. */
class IdentityNode implements AsyncDisposable {
  readonly fixture: CriFixture;
  readonly objects = new TestClusterObjects(new VirtualClock());
  readonly events = new RecordedEvents();
  readonly environment: PodEnvironmentOnDisk;
  readonly seccompFolder: string;
  readonly #containerd: Containerd;
  #pods = 0;

  constructor(containerd: Containerd) {
    this.#containerd = containerd;
    this.fixture = new CriFixture(containerd);
    const { directory } = this.fixture;
    this.seccompFolder = join(directory, "seccomp");
    mkdirSync(this.seccompFolder);
    writeFileSync(join(directory, "resolv.conf"), "nameserver 192.0.2.53\nsearch lan.example\noptions rotate\n");
    const cgroups = {
      pathOf: ({ uid }: DesiredPod) => `/picolet-test-${directory.slice(-6)}/pod${uid}`,
      ensure: () => Promise.resolve(),
      remove: () => Promise.resolve(),
    };
    const clock = new VirtualClock();
    this.environment = new PodEnvironmentOnDisk(
      {
        cgroups,
        mounter: new SystemMounter(),
        events: this.events,
        clock,
        log: new RecordedLog(),
        objects: this.objects,
        objectsChanged: this.objects.changed,
        hostIPs: () => ["192.0.2.1"],
      },
      {
        rootDir: join(directory, "lib"),
        podLogsDir: join(directory, "logs"),
        nodeName: "board",
        resolvConf: join(directory, "resolv.conf"),
        clusterDNS: { servers: ["10.96.0.10"], domain: "cluster.local" },
        allocatable: { cpu: "4", memory: "512Mi" },
        memoryBytes: 2 ** 29,
      },
    );
  }

  specOf(id: string): { readonly linux: { readonly resources: Readonly<Record<string, Fields>> } } {
    return this.#containerd.specOf(id) as ReturnType<IdentityNode["specOf"]>;
  }

  pidOf(id: string): number {
    return this.#containerd.pidOf(id);
  }

  podOf(container: Fields = {}, spec: Fields = {}, metadata: Fields = {}): DesiredPod {
    this.#pods += 1;
    const name = `pod-${this.#pods}`;
    const containers = [{ name: "app", image: BUSYBOX_IMAGE, ...container }];
    const manifest = { apiVersion: "v1", kind: "Pod", metadata: { name, ...metadata }, spec: { containers, ...spec } };
    const parsed = parsePod(manifest);
    assert.ok(parsed.ok, JSON.stringify(parsed));
    return { uid: podUid(name), source: "file", origin: "", pod: parsed.pod };
  }

  async createSandbox(pod: DesiredPod): Promise<void> {
    await this.environment.prepare(pod, signal);
    const sandbox = this.environment.sandbox(pod, 0);
    await this.fixture.adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
  }

  async start(
    pod: DesiredPod,
    spec?: Container | EphemeralContainer,
    more: Partial<ContainerLaunch> = {},
  ): Promise<ObservedContainer> {
    const { adapter } = this.fixture;
    const container = (spec ?? pod.pod.spec.containers[0]) as Container;
    const image = { requested: container.image, id: container.image };
    const observed = await adapter.inspect(pod.uid, signal);
    const run = { attempt: 0, backoff: millis(0), image };
    const launch = { ...this.environment.container(pod, container, run, observed), ...more };
    await adapter.apply(pod, { kind: "startContainer", container: launch }, signal);
    return this.latest(pod, container.name);
  }

  async latest(pod: DesiredPod, name = "app"): Promise<ObservedContainer> {
    const { containers } = await this.fixture.adapter.inspect(pod.uid, signal);
    const found = containers.find((container) => container.name === name);
    assert.ok(found);
    return found;
  }

  async exited(pod: DesiredPod, name = "app") {
    for (;;) {
      const { state, logPath } = await this.latest(pod, name);
      if (state.kind === "exited") return { state, text: await this.#textOf(logPath) };
      await this.fixture.settle();
    }
  }

  /** Runs `script` in one container to its end, and returns its output. */
  async output(script: string, container: Fields = {}, spec: Fields = {}, metadata: Fields = {}): Promise<string> {
    const pod = this.podOf({ command: ["/bin/sh", "-c", script], ...container }, spec, metadata);
    await this.createSandbox(pod);
    await this.start(pod);
    return (await this.exited(pod)).text;
  }

  async refusal(pod: DesiredPod): Promise<string> {
    const error = await this.start(pod).then(
      () => assert.fail("it was not refused"),
      (reason: { readonly reason: string; readonly message: string }) => reason,
    );
    return `${error.reason}: ${error.message}`;
  }

  async #textOf(logPath: string): Promise<string> {
    const lines = (await this.fixture.readLog(logPath)).split("\n");
    return lines.map((line) => line.split(" ").slice(3).join(" ")).join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.fixture[Symbol.asyncDispose]();
  }
}

function passwdFile({ directory }: Containerd): string {
  const path = join(directory, "passwd");
  writeFileSync(path, "root:x:0:0::/:/bin/sh\nsomebody:x:1500:1500::/:/bin/sh\n");
  return path;
}

const field = (fieldPath: string): Fields => ({ valueFrom: { fieldRef: { fieldPath } } });
const resource = (name: string, divisor = "1"): Fields => ({
  valueFrom: { resourceFieldRef: { resource: name, divisor } },
});

/** Most of the time goes by in waiting. */
describe("what a container sees", { skip, concurrency: 3 }, () => {
  let node: IdentityNode;
  before(async () => {
    node = new IdentityNode(containerd);
  });
  after(() => node?.[Symbol.asyncDispose]());

  test("its environment: values, references, fields, resources, ConfigMaps and Services", async () => {
    node.objects.set("ConfigMap/default/settings", { data: { "log.level": "debug" }, binaryData: { raw: "aGk=" } });
    node.objects.set("Service/default/web", { spec: { clusterIP: "10.96.0.7", ports: [{ port: 80 }] } });
    node.objects.set("Service/default/kubernetes", { spec: { clusterIP: "10.96.0.1", ports: [{ port: 443 }] } });
    const env = [
      { name: "LOOP", value: "$(LOOP)" },
      { name: "ESCAPED", value: "$$(LOOP)" },
      { name: "NODE", ...field("spec.nodeName") },
      { name: "IP", ...field("status.podIP") },
      { name: "HOST", ...field("status.hostIP") },
      { name: "TIER", ...field("metadata.labels['tier']") },
      { name: "CPUS", ...resource("limits.cpu") },
      { name: "MEMORY", ...resource("requests.memory", "1Mi") },
      { name: "URL", value: "http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT)" },
    ];
    const container = {
      env,
      envFrom: [{ prefix: "CFG_", configMapRef: { name: "settings" } }],
      resources: { requests: { memory: "32Mi" } },
      args: ["-c", 'cat /proc/1/environ; echo "args: $0 $1"', "$(URL)", "$(NOTHING) $$(URL)"],
      command: ["/bin/sh"],
    };
    const text = await node.output("", container, {}, { labels: { tier: "front" } });
    const lines = text.split(/[\n\0]/);
    const expected = [
      "LOOP=$(LOOP)",
      "ESCAPED=$(LOOP)",
      "NODE=board",
      "HOST=192.0.2.1",
      "TIER=front",
      "CPUS=4",
      "MEMORY=32",
      "URL=http://10.96.0.7:80",
      "CFG_log.level=debug",
      "WEB_PORT_80_TCP_ADDR=10.96.0.7",
      "KUBERNETES_SERVICE_PORT=443",
      "args: http://10.96.0.7:80 $(NOTHING) $(URL)",
    ];
    for (const line of expected) assert.ok(lines.includes(line), `${line} is not in\n${text}`);
    assert.ok(lines.some((line) => /^IP=10\.\d+\.\d+\.\d+$/.test(line)));
    assert.ok(!lines.some((line) => line.startsWith("CFG_raw=")));
  });

  test("without service links the API server alone", async () => {
    node.objects.set("Service/default/web", { spec: { clusterIP: "10.96.0.7", ports: [{ port: 80 }] } });
    node.objects.set("Service/default/kubernetes", { spec: { clusterIP: "10.96.0.1", ports: [{ port: 443 }] } });
    const text = await node.output("env", {}, { enableServiceLinks: false });
    assert.match(text, /^KUBERNETES_SERVICE_HOST=10\.96\.0\.1$/m);
    assert.doesNotMatch(text, /^WEB_/m);
  });

  test("its names: hostname, domain, hosts file and resolver", async () => {
    const spec = {
      hostname: "front",
      subdomain: "web",
      setHostnameAsFQDN: true,
      hostAliases: [{ ip: "192.0.2.9", hostnames: ["gate", "gate.example"] }],
      dnsConfig: { nameservers: ["192.0.2.54"], searches: ["own.example"], options: [{ name: "ndots", value: "2" }] },
    };
    const text = await node.output("hostname; cat /etc/hosts; cat /etc/resolv.conf", {}, spec);
    const full = "front.web.default.svc.cluster.local";
    assert.equal(text.split("\n")[0], full);
    assert.match(text, /^# Kubernetes-managed hosts file\.\n127\.0\.0\.1\tlocalhost\n/m);
    assert.match(text, new RegExp(`^10\\.[\\d.]+\\t${full.replaceAll(".", "\\.")}\\tfront$`, "m"));
    assert.match(text, /\n\n# Entries added by HostAliases\.\n192\.0\.2\.9\tgate\tgate\.example\n/);
    assert.match(
      text,
      /^search default\.svc\.cluster\.local svc\.cluster\.local cluster\.local lan\.example own\.example$/m,
    );
    assert.match(text, /^nameserver 10\.96\.0\.10\nnameserver 192\.0\.2\.54$/m);
    assert.match(text, /^options ndots:2$/m);
  });

  test("on the host's network: the host's name and hosts file, and the cluster's DNS on demand", async () => {
    const script = "hostname; cat /etc/hosts; cat /etc/resolv.conf";
    const plain = await node.output(script, {}, { hostNetwork: true });
    const own = readFileSync("/etc/hosts", "utf8");
    assert.equal(plain.split("\n")[0], readFileSync("/proc/sys/kernel/hostname", "utf8").trim());
    assert.ok(plain.includes(`# Kubernetes-managed hosts file (host network).\n${own}`), plain);
    assert.match(plain, /^nameserver 192\.0\.2\.53$/m);
    assert.match(plain, /^options rotate$/m);
    const withCluster = await node.output(script, {}, { hostNetwork: true, dnsPolicy: "ClusterFirstWithHostNet" });
    assert.match(withCluster, /^nameserver 10\.96\.0\.10$/m);
  });

  test("its user and groups: the pod's, the container's, the image's", async () => {
    const ids = async (container: Fields, securityContext: Fields = {}): Promise<string> =>
      (await node.output("id -u; id -g; id -G", container, { securityContext })).trim().replaceAll("\n", " ");
    assert.match(await ids({}), /^0 0 /);
    const pod = { runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000] };
    assert.equal(await ids({}, pod), "1000 2000 2000 3000 4000");
    assert.equal(await ids({ securityContext: { runAsUser: 1001 } }, pod), "1001 2000 2000 3000 4000");
    assert.match(await ids({ image: "localhost/user-number:1" }), /^1234 0 /);
    assert.match(await ids({ image: "localhost/user-pair:1" }), /^1234 0 /, "Kubernetes takes no group from an image");
    assert.match(await ids({ image: "localhost/user-name:1" }), /^1500 1500 /);
    assert.match(await ids({ image: "localhost/user-number:1", securityContext: { runAsGroup: 7 } }), /^1234 7 /);
  });

  test("runAsNonRoot: what can be told not to be root runs, all else is refused in the kubelet's words", async () => {
    const podOf = (image: string): DesiredPod =>
      node.podOf({ image, command: ["/bin/sh"] }, { securityContext: { runAsNonRoot: true } });
    const refusals: readonly (readonly [string, string])[] = [
      [BUSYBOX_IMAGE, "container has runAsNonRoot and image will run as root"],
      [
        "localhost/user-name:1",
        "container has runAsNonRoot and image has non-numeric user (somebody), cannot verify user is non-root",
      ],
    ];
    for (const [image, words] of refusals) {
      const pod = podOf(image);
      await node.createSandbox(pod);
      const whose = `(pod: "${pod.uid}_default(${pod.uid})", container: app)`;
      assert.equal(await node.refusal(pod), `CreateContainerConfigError: ${words} ${whose}`);
    }
    const numbered = podOf("localhost/user-number:1");
    await node.createSandbox(numbered);
    await node.start(numbered);
  });

  test("its privileges: capabilities, no new ones, seccomp, a read-only root", async () => {
    const statusOf = async (securityContext: Fields, spec: Fields = {}): Promise<Readonly<Record<string, string>>> => {
      const text = await node.output("cat /proc/self/status", { securityContext }, spec);
      const pairs = text.split("\n").map((line) => line.split(/:\s+/) as [string, string]);
      return Object.fromEntries(pairs.filter((pair) => pair.length === 2));
    };
    const NET_ADMIN = (1n << 12n).toString(16).padStart(16, "0");
    const dropped = await statusOf({ capabilities: { drop: ["ALL"], add: ["NET_ADMIN"] } });
    assert.deepEqual([dropped.CapEff, dropped.CapBnd], [NET_ADMIN, NET_ADMIN]);
    assert.deepEqual([dropped.NoNewPrivs, dropped.Seccomp], ["0", "0"]);
    const confined = await statusOf(
      { allowPrivilegeEscalation: false },
      { securityContext: { seccompProfile: { type: "RuntimeDefault" } } },
    );
    assert.deepEqual([confined.NoNewPrivs, confined.Seccomp], ["1", "2"]);
    const privileged = await statusOf({ privileged: true });
    assert.equal(privileged.CapBnd, /^CapBnd:\s+(\S+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]);
    const readOnly = { securityContext: { readOnlyRootFilesystem: true } };
    assert.match(await node.output("touch /x 2>&1; true", readOnly), /Read-only file system/);
    const masked = await node.output("wc -c < /proc/timer_list; echo x 2>&1 > /proc/sys/kernel/hostname; true");
    assert.match(masked, /^0\n.*Read-only file system/);
  });

  test("a seccomp profile of the node's own folder, and one that is not there", async () => {
    const profile = {
      defaultAction: "SCMP_ACT_ALLOW",
      syscalls: [{ names: ["mkdir", "mkdirat"], action: "SCMP_ACT_ERRNO" }],
    };
    const adapter = node.fixture.newAdapter({ seccompProfileRoot: node.seccompFolder });
    writeFileSync(join(node.seccompFolder, "no-mkdir.json"), JSON.stringify(profile));
    const podOf = (localhostProfile: string): DesiredPod => {
      const seccompProfile = { type: "Localhost", localhostProfile };
      const command = ["/bin/busybox", "mkdir", "/made"];
      return node.podOf({ command, securityContext: { seccompProfile } });
    };
    const startWith = async (pod: DesiredPod): Promise<void> => {
      await node.createSandbox(pod);
      const [container] = pod.pod.spec.containers;
      assert.ok(container);
      const image = { requested: BUSYBOX_IMAGE, id: BUSYBOX_IMAGE };
      const observed = await adapter.inspect(pod.uid, signal);
      const launch = node.environment.container(pod, container, { attempt: 0, backoff: millis(0), image }, observed);
      await adapter.apply(pod, { kind: "startContainer", container: launch }, signal);
    };
    try {
      const denied = podOf("no-mkdir.json");
      await startWith(denied);
      const { state, text } = await node.exited(denied);
      assert.equal(state.exitCode, 1);
      assert.match(text, /Operation not permitted/);
      await assert.rejects(startWith(podOf("absent.json")), {
        reason: "CreateContainerError",
        message: /absent\.json/,
      });
    } finally {
      await adapter[Symbol.asyncDispose]();
    }
  });

  test("sysctls of its pod, those with slashes too", async () => {
    const sysctls = [
      { name: "kernel.shm_rmid_forced", value: "1" },
      { name: "net/ipv4/ip_unprivileged_port_start", value: "42" },
      { name: "kernel.msgmax", value: "8193" },
    ];
    const script =
      "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/msgmax";
    assert.equal(await node.output(script, {}, { securityContext: { sysctls } }), "1\n42\n8193\n");
  });

  test("a limit of the pod as a whole, where it has none of its own", async () => {
    const pod = node.podOf({}, { resources: { limits: { cpu: "500m", memory: "64Mi" } } });
    await node.createSandbox(pod);
    const { id } = await node.start(pod, undefined, {
      command: ["/bin/sleep", "60"],
    });
    const { cpu, memory } = node.specOf(id).linux.resources;
    assert.deepEqual([cpu?.quota, memory?.limit], [50_000, 64 * 2 ** 20]);
  });

  test("an ephemeral container sees the processes of its target, and no other's", async () => {
    const sleeper = { command: ["/bin/sleep", "1234"] };
    const pod = node.podOf(sleeper);
    await node.createSandbox(pod);
    const target = await node.start(pod);
    const debug = { name: "debug", image: BUSYBOX_IMAGE, command: ["/bin/ps", "-o", "args"] };
    const added = parsePod({
      ...pod.pod,
      spec: { ...pod.pod.spec, ephemeralContainers: [{ ...debug, targetContainerName: "app" }] },
    });
    assert.ok(added.ok, JSON.stringify(added));
    const [spec] = added.pod.spec.ephemeralContainers ?? [];
    const withDebug = { ...pod, pod: added.pod };
    await node.start(withDebug, spec, { targetContainerId: target.id });
    assert.match((await node.exited(withDebug, "debug")).text, /sleep 1234/);
  });
});

describe("how a container ends", { skip, concurrency: 3 }, () => {
  let node: IdentityNode;
  before(async () => {
    node = new IdentityNode(containerd);
  });
  after(() => node?.[Symbol.asyncDispose]());

  const trapping = (signals: string): Fields => ({
    command: [
      "/bin/sh",
      "-c",
      `for s in ${signals}; do trap "echo $s; exit 7" $s; done; echo up; while :; do sleep 0.1; done`,
    ],
  });

  async function stopped(pod: DesiredPod, seconds: number) {
    await node.createSandbox(pod);
    const { id, logPath } = await node.start(pod);
    while (!(await node.fixture.readLog(logPath)).includes(" up")) await node.fixture.settle();
    const gracePeriod = millis(seconds * 1000);
    await node.fixture.adapter.apply(pod, { kind: "stopContainer", containerId: id, gracePeriod }, signal);
    return node.exited(pod);
  }

  test("by the stop signal it asks for, although this runtime knows none", async () => {
    const container = { ...trapping("USR1 TERM"), lifecycle: { stopSignal: "SIGUSR1" } };
    const { state, text } = await stopped(node.podOf(container, { os: { name: "linux" } }), 30);
    assert.deepEqual([state.exitCode, text], [7, "up\nUSR1\n"]);
  });

  test("by SIGTERM when it asks for nothing, and by SIGKILL when its own signal moves it not", async () => {
    const usual = await stopped(node.podOf(trapping("USR1 TERM")), 30);
    assert.deepEqual([usual.state.exitCode, usual.text], [7, "up\nTERM\n"]);
    const deaf = { command: ["/bin/sh", "-c", "trap '' USR1; echo up; while :; do sleep 0.1; done"] };
    const pod = node.podOf({ ...deaf, lifecycle: { stopSignal: "SIGUSR1" } }, { os: { name: "linux" } });
    assert.equal((await stopped(pod, 1)).state.exitCode, 137);
  });

  test("as OOMKilled also when it was another process than its first that the kernel killed", async () => {
    const script = "(x=x; while :; do x=$x$x; done); sleep 1; exit 3";
    const pod = node.podOf({ command: ["/bin/sh", "-c", script], resources: { limits: { memory: "16Mi" } } });
    await node.createSandbox(pod);
    await node.start(pod);
    await node.exited(pod);
    // The runtime may notice the kill after the container's end.
    const isKill = ({ state }: ObservedContainer): boolean => state.kind === "exited" && state.reason === "OOMKilled";
    const untold = await settled(async () => [await node.latest(pod)].filter((each) => !isKill(each)));
    assert.deepEqual(untold, []);
    assert.equal((await node.exited(pod)).state.exitCode, 3);
  });
});

describe("what a runtime cannot do", { skip }, () => {
  let node: IdentityNode;
  before(async () => {
    node = new IdentityNode(containerd);
  });
  after(() => node?.[Symbol.asyncDispose]());

  test("user namespaces are refused in the kubelet's words", async () => {
    await assert.rejects(node.createSandbox(node.podOf({}, { hostUsers: false })), {
      reason: "FailedCreatePodSandBox",
      message: "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
    });
    node.objects.set("RuntimeClass//isolated", { handler: "runsc" });
    await assert.rejects(node.createSandbox(node.podOf({}, { hostUsers: false, runtimeClassName: "isolated" })), {
      message: 'can\'t set `spec.hostUsers: false`, RuntimeClass handler "runsc" does not support user namespaces',
    });
  });

  test("a RuntimeClass is looked up, and its handler is the runtime's to know", async () => {
    node.objects.set("RuntimeClass//usual", { handler: "runc" });
    node.objects.set("RuntimeClass//isolated", { handler: "runsc" });
    await node.createSandbox(node.podOf({}, { runtimeClassName: "usual" }));
    await assert.rejects(node.createSandbox(node.podOf({}, { runtimeClassName: "isolated" })), {
      reason: "FailedCreatePodSandBox",
      message: 'rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "runsc" is configured',
    });
    const fromCluster = { ...node.podOf({}, { runtimeClassName: "absent" }), source: "api" as const };
    await assert.rejects(node.createSandbox(fromCluster), {
      reason: "FailedCreatePodSandBox",
      message: 'runtimeclass.node.k8s.io "absent" not found',
    });
  });

  test("a program that is not there, and one that may not be run, in the runtime's words alone", async () => {
    const pod = node.podOf({ command: ["/no/such/program"] });
    await node.createSandbox(pod);
    assert.match(
      await node.refusal(pod),
      /^RunContainerError: failed to create containerd task: .*no such file or directory/i,
    );
  });
});

/** A pod that cannot run as it is, and what the agent says of it: an event, and why its container waits. */
interface Unstartable {
  readonly name: string;
  readonly pod: Fields;
  readonly event: readonly [reason: string, message: RegExp];
  readonly waiting: string;
}

const UNSTARTABLE: readonly Unstartable[] = [
  {
    name: "root",
    pod: { securityContext: { runAsNonRoot: true } },
    event: [
      "Failed",
      /^Error: container has runAsNonRoot and image will run as root \(pod: "root-node_default\(.*\)", /,
    ],
    waiting: "CreateContainerConfigError",
  },
  {
    name: "long",
    pod: { subdomain: "s".repeat(60), setHostnameAsFQDN: true },
    event: [
      "FailedCreatePodSandBox",
      /^Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, FQDN long-node\./,
    ],
    waiting: "ContainerCreating",
  },
  {
    name: "class",
    pod: { runtimeClassName: "nobody" },
    event: [
      "FailedCreatePodSandBox",
      /^Failed to create pod sandbox: rpc error: code = Unknown desc = .*no runtime for "nobody" is configured$/,
    ],
    waiting: "ContainerCreating",
  },
  {
    name: "ids",
    pod: { hostUsers: false },
    event: [
      "FailedCreatePodSandBox",
      /^Failed to create pod sandbox: can't set `spec\.hostUsers: false`, runtime does not support user namespaces$/,
    ],
    waiting: "ContainerCreating",
  },
];

test("what an agent says of pods that cannot run as they are", { skip }, async () => {
  await using node = nodeWith(containerd, { config: { clusterDNS: ["10.96.0.10"], clusterDomain: "cluster.local" } });
  for (const { name, pod } of UNSTARTABLE) node.writeManifest(`${name}.yaml`, containerPod(name, "true", pod));
  node.writeManifest("fine.yaml", containerPod("fine"));
  await node.start();
  for (const { name, event } of UNSTARTABLE) {
    const [reason, message] = event;
    await node.waitForEvent(`an event of ${name}`, ({ involvedObject, reason: said, message: text }) => {
      return involvedObject.name === `${name}-node` && said === reason && message.test(text);
    });
  }
  const waitingOf = (pod: Pod | undefined): string | undefined =>
    pod?.status?.containerStatuses?.[0]?.state?.waiting?.reason;
  await node.waitForPods("every reason to wait", (pods) => {
    const isFine = pods.get("fine-node")?.status?.phase === "Running";
    return isFine && UNSTARTABLE.every(({ name, waiting }) => waitingOf(pods.get(`${name}-node`)) === waiting);
  });
  await node.drain();
});
