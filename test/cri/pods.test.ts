/** A pod's spec in a real containerd, read back from containerd and from the files it makes. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, readlinkSync } from "node:fs";
import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { Mount } from "@picolet/runtime-contract/runtime-adapter.ts";
import { LABEL } from "@picolet/runtime-cri/pods/labels.ts";
import { ContainerState, ImageService, RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { BUSYBOX_PROGRAMS, CriFixture } from "../support/containerd/cri-fixture.ts";
import { CriPods, type Fields } from "../support/containerd/cri-pods.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";

const skip = containerdMissing() ?? false;
const { signal } = new AbortController();
const TIMEOUT_MS = 60_000;
/** CRI's CgroupDriver. */
const CGROUPFS = 1;

/** The parts of an OCI runtime specification that these tests check. */
interface Spec {
  readonly hostname?: string;
  readonly process: {
    readonly args: readonly string[];
    readonly cwd: string;
    readonly env: readonly string[];
    readonly terminal?: boolean;
    readonly noNewPrivileges?: boolean;
    readonly user: { readonly uid: number; readonly gid: number; readonly additionalGids?: readonly number[] };
    readonly capabilities: { readonly bounding: readonly string[] };
  };
  readonly root: { readonly readonly?: boolean };
  readonly mounts: readonly { readonly destination: string; readonly source: string; readonly options?: string[] }[];
  readonly linux: {
    readonly cgroupsPath: string;
    readonly sysctl?: Readonly<Record<string, string>>;
    readonly maskedPaths?: readonly string[];
    readonly readonlyPaths?: readonly string[];
    readonly seccomp?: unknown;
    readonly namespaces: readonly { readonly type: string; readonly path?: string }[];
    readonly resources: { readonly cpu: Fields; readonly memory: Fields };
  };
}

describe("pods over CRI", { skip }, () => {
  let containerd: Containerd;
  let fixture: CriFixture;
  let client: GrpcClient;
  let cri: CriPods;

  before(async () => {
    containerd = await Containerd.start();
    fixture = new CriFixture(containerd);
    cri = new CriPods(fixture);
    client = new GrpcClient({ clock: systemClock }, { path: containerd.socketPath });
  });
  after(async () => {
    client?.[Symbol.dispose]();
    await fixture?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
  });

  const specOf = (id: string): Spec => containerd.specOf(id) as Spec;

  const podOf: CriPods["podOf"] = (...args) => cri.podOf(...args);
  const sandboxOf: CriPods["sandboxOf"] = (...args) => cri.sandboxOf(...args);
  const start: CriPods["start"] = (...args) => cri.start(...args);
  const latest: CriPods["latest"] = (...args) => cri.latest(...args);
  const exited: CriPods["exited"] = (...args) => cri.exited(...args);
  const output: CriPods["output"] = (...args) => cri.output(...args);

  test("user, groups, capabilities, paths, seccomp and resources are in the runtime's specification", async () => {
    const resources = { requests: { cpu: "100m", memory: "32Mi" }, limits: { cpu: "250m", memory: "64Mi" } };
    const securityContext = {
      runAsUser: 1234,
      runAsGroup: 2345,
      capabilities: { add: ["NET_ADMIN"], drop: ["ALL"] },
      readOnlyRootFilesystem: true,
      allowPrivilegeEscalation: false,
      seccompProfile: { type: "RuntimeDefault" },
    };
    const pod = podOf({ resources, securityContext }, { securityContext: { fsGroup: 77, supplementalGroups: [88] } });
    const sandboxId = await sandboxOf(pod);
    const { cgroupParent } = await fixture.preparePod(pod);
    const { id } = await start(pod, { env: [{ name: "KEY", value: "a=b c" }], workingDir: "/bin" });
    const spec = specOf(id);
    assert.deepEqual([spec.process.user.uid, spec.process.user.gid], [1234, 2345]);
    for (const group of [77, 88]) assert.ok(spec.process.user.additionalGids?.includes(group), String(group));
    assert.deepEqual(spec.process.capabilities.bounding, ["CAP_NET_ADMIN"]);
    assert.equal(spec.process.noNewPrivileges, true);
    assert.equal(spec.process.cwd, "/bin");
    assert.ok(spec.process.env.includes("KEY=a=b c"));
    assert.equal(spec.root.readonly, true);
    assert.ok(spec.linux.maskedPaths?.includes("/proc/kcore"));
    assert.ok(spec.linux.readonlyPaths?.includes("/proc/sys"));
    assert.notEqual(spec.linux.seccomp, undefined);
    assert.equal(spec.linux.cgroupsPath, `${cgroupParent}/${id}`);
    assert.deepEqual(spec.linux.resources.cpu, { shares: 102, quota: 25_000, period: 100_000 });
    assert.equal(spec.linux.resources.memory.limit, 64 * 1024 * 1024);
    assert.equal(specOf(sandboxId).hostname, "host-name");
  });

  test("nothing said: root, the default capabilities, no seccomp, none of the host's namespaces", async () => {
    const pod = podOf();
    const sandboxId = await sandboxOf(pod);
    const spec = specOf((await start(pod)).id);
    assert.equal(spec.process.user.uid, 0);
    assert.ok(spec.process.capabilities.bounding.includes("CAP_CHOWN"));
    assert.ok(!spec.process.capabilities.bounding.includes("CAP_SYS_ADMIN"));
    assert.equal(spec.linux.seccomp, undefined);
    assert.notEqual(specOf(sandboxId).linux.seccomp, undefined, "the sandbox has the runtime's default");
    assert.deepEqual(
      spec.linux.namespaces
        .filter((each) => each.path === undefined)
        .map((each) => each.type)
        .sort(),
      ["cgroup", "mount", "pid"].filter((type) => spec.linux.namespaces.some((each) => each.type === type)),
    );
  });

  test("a privileged container has it all", async () => {
    const pod = podOf({ securityContext: { privileged: true } });
    await sandboxOf(pod);
    const spec = specOf((await start(pod)).id);
    assert.ok(spec.process.capabilities.bounding.includes("CAP_SYS_ADMIN"));
    assert.deepEqual(spec.linux.maskedPaths ?? [], []);
  });

  test("the host's network, processes and IPC", async () => {
    const pod = podOf({}, { hostNetwork: true, hostPID: true, hostIPC: true });
    await sandboxOf(pod);
    const pid = containerd.pidOf((await start(pod)).id);
    for (const namespace of ["net", "pid", "ipc"]) {
      assert.equal(readlinkSync(`/proc/${pid}/ns/${namespace}`), readlinkSync(`/proc/self/ns/${namespace}`), namespace);
    }
    assert.notEqual(readlinkSync(`/proc/${pid}/ns/mnt`), readlinkSync("/proc/self/ns/mnt"));
    const [sandbox] = (await fixture.adapter.inspect(pod.uid, signal)).sandboxes;
    assert.deepEqual(sandbox?.ips, []);
  });

  test("containers of a pod share their processes on demand", async () => {
    const pod = podOf({}, { shareProcessNamespace: true });
    await sandboxOf(pod);
    assert.match(await output(pod, "ps -o args"), /\/pause/);
  });

  test("name resolution, hostname and sysctls are the sandbox's", async () => {
    const sysctls = [{ name: "net.ipv4.ip_unprivileged_port_start", value: "42" }];
    const pod = podOf({}, { securityContext: { sysctls } });
    await sandboxOf(pod, { dns: { servers: ["192.0.2.53"], searches: ["one.example"], options: ["ndots:3"] } });
    const text = await output(pod, "cat /etc/resolv.conf; hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start");
    assert.match(text, /nameserver 192\.0\.2\.53/);
    assert.match(text, /search one\.example/);
    assert.match(text, /options ndots:3/);
    assert.match(text, /^host-name$/m);
    assert.match(text, /^42$/m);
  });

  test("mounts are read-only and propagate as they are told to", async (context) => {
    const pod = podOf({ securityContext: { privileged: true } });
    await sandboxOf(pod);
    const hostPath = await fixture.hostFolder("file", "content");
    // What is to propagate must be a shared mount, which not every machine's root is.
    execFileSync("mount", ["--bind", hostPath, hostPath]);
    context.after(() => execFileSync("umount", ["--lazy", hostPath]));
    execFileSync("mount", ["--make-shared", hostPath]);
    const mount = (containerPath: string, readOnly: boolean, propagation: Mount["propagation"]) => ({
      containerPath,
      hostPath,
      readOnly,
      propagation,
    });
    const mounts = [
      mount("/closed", true, "private"),
      mount("/slave", false, "hostToContainer"),
      mount("/both", false, "bidirectional"),
    ];
    const spec = specOf((await start(pod, { mounts })).id);
    const optionsOf = (path: string) => spec.mounts.find((each) => each.destination === path)?.options ?? [];
    assert.ok(optionsOf("/closed").includes("ro") && optionsOf("/closed").includes("rprivate"));
    assert.ok(optionsOf("/slave").includes("rw") && optionsOf("/slave").includes("rslave"));
    assert.ok(optionsOf("/both").includes("rw") && optionsOf("/both").includes("rshared"));
  });

  test("a host port leads to the pod", async () => {
    const hostPort = await fixedPort();
    const pod = podOf({ ports: [{ containerPort: 80, hostPort }] });
    await sandboxOf(pod);
    await start(pod, { command: ["/bin/sh", "-c", "while :; do echo hello | nc -l -p 80; done"] });
    const [sandbox] = (await fixture.adapter.inspect(pod.uid, signal)).sandboxes;
    const ip = sandbox?.ips[0] ?? "";
    assert.match(ip, /^10\.\d+\.\d+\.\d+$/);
    // The loopback is not for the port mapper of CNI; any other address of this machine is.
    const addresses = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
    const address = addresses.find((each) => each.family === "IPv4" && !each.internal)?.address ?? "";
    for (const [host, port] of [
      [ip, 80],
      [address, hostPort],
    ] as const) {
      assert.equal(await firstLine(host, port), "hello\n", `${host}:${port}`);
    }
  });

  async function firstLine(host: string, port: number): Promise<string> {
    for (let attempt = 0; ; attempt += 1) {
      const socket = connect({ host, port });
      try {
        const closed = once(socket, "close").then(() => Promise.reject(new Error("it closed without a line")));
        const [data] = await Promise.race([once(socket, "data"), closed]);
        return String(data);
      } catch (error) {
        if (attempt > 200) throw error;
        await fixture.settle();
      } finally {
        socket.destroy();
      }
    }
  }

  test("a terminal and standard input are given on demand", async () => {
    const pod = podOf({ tty: true, stdin: true });
    await sandboxOf(pod);
    const { id } = await start(pod);
    assert.equal(specOf(id).process.terminal, true);
  });

  test("runAsNonRoot looks at the image, and refuses root with the kubelet's reason", async () => {
    const pod = podOf({}, { securityContext: { runAsNonRoot: true } });
    await sandboxOf(pod);
    await assert.rejects(start(pod), (error) => {
      return isPicoletError(error, "invalid") && error.reason === "CreateContainerConfigError";
    });
  });

  test("a program that does not exist: RunContainerError, and the attempt is left as StartError", async () => {
    const pod = podOf();
    await sandboxOf(pod);
    await assert.rejects(start(pod, { command: ["/no/such/program"] }), (error) => {
      return (
        isPicoletError(error, "failed") &&
        error.reason === "RunContainerError" &&
        /no such file/i.test(describeError(error))
      );
    });
    const { state } = await latest(pod);
    assert.equal(state.kind, "exited");
    assert.deepEqual(
      [state.kind === "exited" && state.reason, state.kind === "exited" && state.exitCode],
      ["StartError", 128],
    );
    await assert.doesNotReject(start(pod, { attempt: 1 }));
  });

  test("an image that is not there: CreateContainerError, and nothing is left", async () => {
    const pod = podOf();
    await sandboxOf(pod);
    const image = { requested: "no.example/image:1", id: `sha256:${"0".repeat(64)}` };
    await assert.rejects(start(pod, { image }), (error) => {
      return isPicoletError(error, "failed") && error.reason === "CreateContainerError";
    });
    assert.deepEqual((await fixture.adapter.inspect(pod.uid, signal)).containers, []);
  });

  test("a runtime handler that does not exist", async () => {
    const pod = podOf({}, { runtimeClassName: "sandboxed" });
    await assert.rejects(sandboxOf(pod, { runtimeHandler: "gvisor" }), {
      reason: "FailedCreatePodSandBox",
      message: containerd.isAtLeast(2, 0)
        ? /^rpc error: code = Unknown desc = unable to get OCI runtime for sandbox "\w+": no runtime for "gvisor" is configured$/
        : 'rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "gvisor" is configured',
    });
    assert.deepEqual((await fixture.adapter.inspect(pod.uid, signal)).sandboxes, []);
  });

  test("a container that eats more memory than it may: OOMKilled, 137", async () => {
    const pod = podOf({ resources: { limits: { memory: "16Mi" } } });
    await sandboxOf(pod);
    await start(pod, { command: ["/bin/sh", "-c", "x=x; while :; do x=$x$x; done"] });
    const state = await exited(pod);
    assert.deepEqual([state.reason, state.exitCode], ["OOMKilled", 137]);
  });

  test("a container that an earlier agent made and did not start is started, or made anew", async () => {
    for (const hash of ["hash", "another"]) {
      const pod = podOf();
      const podSandboxId = await sandboxOf(pod);
      const { logDirectory, cgroupParent } = await fixture.preparePod(pod);
      mkdirSync(join(logDirectory, "main"));
      const { labels } = await sandboxStatus(podSandboxId);
      const { containerId } = await client.unary(
        RuntimeService.createContainer,
        {
          podSandboxId,
          config: {
            metadata: { name: "main", attempt: 0 },
            image: { image: BUSYBOX_IMAGE },
            command: BUSYBOX_PROGRAMS.runForever.command,
            labels: new Map([...labels, [LABEL.containerName, "main"]]),
            annotations: new Map([["io.kubernetes.container.hash", hash]]),
            logPath: "main/0.log",
          },
          sandboxConfig: {
            metadata: { name: pod.pod.metadata.name, uid: pod.uid, namespace: "default", attempt: 0 },
            logDirectory,
            linux: { cgroupParent },
          },
        },
        TIMEOUT_MS,
        signal,
      );
      const started = await start(pod);
      assert.equal(started.state.kind, "running");
      assert.equal(started.hash, "hash");
      assert.equal(started.id === containerId, hash === "hash");
      assert.equal((await fixture.adapter.inspect(pod.uid, signal)).containers.length, 1);
    }
  });

  async function sandboxStatus(podSandboxId: string) {
    const { status } = await client.unary(RuntimeService.podSandboxStatus, { podSandboxId }, TIMEOUT_MS, signal);
    assert.ok(status);
    return status;
  }

  test("pods of other clients are neither seen nor touched", async () => {
    const owners = [[], [[LABEL.owner, "another agent"]]] as const;
    for (const [index, owner] of owners.entries()) {
      const name = `foreign-${index}`;
      const labels = new Map<string, string>([[LABEL.podUid, name], ...owner]);
      const metadata = { name, uid: name, namespace: "default", attempt: 0 };
      const { cgroupParent } = await fixture.preparePod(podOf());
      const config = { metadata, labels, logDirectory: fixture.directory, linux: { cgroupParent } };
      const { podSandboxId } = await client.unary(RuntimeService.runPodSandbox, { config }, TIMEOUT_MS, signal);
      const { containerId } = await client.unary(
        RuntimeService.createContainer,
        {
          podSandboxId,
          config: { metadata: { name: "x" }, image: { image: BUSYBOX_IMAGE }, labels },
          sandboxConfig: config,
        },
        TIMEOUT_MS,
        signal,
      );
      const { adapter } = fixture;
      const pod = { ...podOf(), uid: podUid(name) };
      assert.ok(!(await adapter.list(signal)).some((each) => each.uid === name));
      const seen = await adapter.inspect(podUid(name), signal);
      assert.deepEqual([seen.sandboxes, seen.containers], [[], []]);
      const forbidden = (error: unknown) => isPicoletError(error, "permission_denied");
      await assert.rejects(adapter.apply(pod, { kind: "stopSandbox", sandboxId: podSandboxId }, signal), forbidden);
      await assert.rejects(adapter.apply(pod, { kind: "removeSandbox", sandboxId: podSandboxId }, signal), forbidden);
      await assert.rejects(adapter.apply(pod, { kind: "removeContainer", containerId }, signal), forbidden);
      const stop = { kind: "stopContainer", containerId, gracePeriod: millis(0) } as const;
      await assert.rejects(adapter.apply(pod, stop, signal), forbidden);
      assert.equal((await sandboxStatus(podSandboxId)).state, 0);
      await client.unary(RuntimeService.stopPodSandbox, { podSandboxId }, TIMEOUT_MS, signal);
      await client.unary(RuntimeService.removePodSandbox, { podSandboxId }, TIMEOUT_MS, signal);
    }
  });

  test("the calls that no step needs yet have the right field numbers too", async () => {
    const call: GrpcClient["unary"] = client.unary.bind(client);
    const pod = podOf();
    const podSandboxId = await sandboxOf(pod);
    const { id: containerId } = await start(pod);
    const cmd = ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"];
    const sync = await call(RuntimeService.execSync, { containerId, cmd, timeout: 10 }, TIMEOUT_MS, signal);
    assert.deepEqual(
      [Buffer.from(sync.stdout).toString(), Buffer.from(sync.stderr).toString(), sync.exitCode],
      ["out\n", "err\n", 7],
    );
    const url = /^http:\/\/127\.0\.0\.1:\d+\/(exec|attach|portforward)\//;
    assert.match((await call(RuntimeService.exec, { containerId, cmd, stdout: true }, TIMEOUT_MS, signal)).url, url);
    assert.match((await call(RuntimeService.attach, { containerId, stdout: true }, TIMEOUT_MS, signal)).url, url);
    assert.match((await call(RuntimeService.portForward, { podSandboxId, port: [80] }, TIMEOUT_MS, signal)).url, url);

    const linux = { cpuShares: 512, memoryLimitInBytes: 128 * 1024 * 1024 };
    await call(RuntimeService.updateContainerResources, { containerId, linux }, TIMEOUT_MS, signal);
    assert.equal(await fixture.readCgroup(containerId, "cpu.shares"), 512);
    assert.equal(await fixture.readCgroup(containerId, "memory.limit_in_bytes"), 128 * 1024 * 1024);

    const { stats } = await call(RuntimeService.containerStats, { containerId }, TIMEOUT_MS, signal);
    assert.equal(stats?.attributes?.id, containerId);
    assert.ok((stats?.memory?.usageBytes?.value ?? 0) > 0 && (stats?.cpu?.usageCoreNanoSeconds?.value ?? 0) > 0);
    const labelSelector = new Map([[LABEL.podUid, pod.uid]]);
    const listed = await call(RuntimeService.listContainerStats, { filter: { labelSelector } }, TIMEOUT_MS, signal);
    assert.deepEqual(
      listed.stats.map((each) => each.attributes?.id),
      [containerId],
    );
    const ofPod = await call(RuntimeService.podSandboxStats, { podSandboxId }, TIMEOUT_MS, signal);
    assert.equal(ofPod.stats?.attributes?.id, podSandboxId);
    assert.ok((ofPod.stats?.linux?.process?.processCount?.value ?? 0) > 0);
    const allPods = await call(RuntimeService.listPodSandboxStats, { filter: { labelSelector } }, TIMEOUT_MS, signal);
    assert.equal(allPods.stats.length, 1);

    const status = await call(RuntimeService.containerStatus, { containerId, verbose: true }, TIMEOUT_MS, signal);
    assert.equal(status.status?.state, ContainerState.running);
    assert.equal(JSON.parse(status.info.get("info") ?? "{}").pid, containerd.pidOf(containerId));
    const verbose = await call(RuntimeService.status, { verbose: true }, TIMEOUT_MS, signal);
    assert.ok(verbose.info.has("config"));
    const { imageFilesystems } = await call(ImageService.imageFsInfo, {}, TIMEOUT_MS, signal);
    assert.ok(imageFilesystems[0]?.fsId?.mountpoint.startsWith(containerd.directory));
    await call(RuntimeService.updateRuntimeConfig, { runtimeConfig: {} }, TIMEOUT_MS, signal);
    const asked = call(RuntimeService.runtimeConfig, {}, TIMEOUT_MS, signal);
    if (containerd.isAtLeast(2, 0)) assert.equal((await asked).linux?.cgroupDriver, CGROUPFS);
    else await assert.rejects(asked, (error) => isPicoletError(error, "unimplemented"));
  });

  test("a command that takes too long is reported as such, even if its child holds its output for seconds", async () => {
    const pod = podOf();
    await sandboxOf(pod);
    const { id } = await start(pod);
    const command = ["/bin/sh", "-c", "sleep 7; exit 1"];
    const asked = fixture.adapter.execSync(pod.uid, id, command, millis(1_000), signal);
    await assert.rejects(asked, (error) => isPicoletError(error, "deadline_exceeded"));
  });

  test("where oom_score_adj cannot be lowered the failure says what to do, elsewhere there is none", async () => {
    await using plain = await Containerd.start({ restrictOomScoreAdj: false });
    await using other = new CriFixture(plain);
    const pod = podOf();
    const folders = await other.preparePod(pod);
    const sandbox = { attempt: 0, hostname: "x", dns: undefined, ...folders };
    const created = other.adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
    if (mayLowerOomScore()) await created;
    else await assert.rejects(created, (error) => /restrict_oom_score_adj = true/.test(describeError(error)));
  });
});

/** CAP_SYS_RESOURCE. */
function mayLowerOomScore(): boolean {
  const capabilities = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return ((BigInt(`0x${capabilities}`) >> 24n) & 1n) === 1n;
}
