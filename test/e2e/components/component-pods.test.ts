/**
 * Every field of a pod that has a meaning for components, and the messages about the others: the real agent, real
 * components, no containers.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, describe, type TestContext, test } from "node:test";
import type { StatusAnswer } from "@picolet/protocol/local-api/status.ts";
import type { ContainerStatus, Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady, linesOf, type PodsByName, textOf } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerIdOf, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { testComponent, testCoreModule } from "../../support/wasm/components.ts";

const SCRIPT = "picolet.example/script:1";
const EXIT_42 = "picolet.example/exit-42:1";
/** Nothing that ends a pod here takes as long, on no machine. */
const GRACE_S = 600;
/** Most of the time goes by in waiting. */
const SIDE_BY_SIDE = { concurrency: 3 };

type Fields = Readonly<Record<string, unknown>>;

let node: AgentNode;

before(async () => {
  const crashLoopBackOff = { initialContainerRestartPeriod: "1s", maxContainerRestartPeriod: "2s" };
  node = nodeWith(undefined, {
    config: { crashLoopBackOff, shutdownGracePeriod: "10s" },
  });
  await node.start();
  edgectl(node, "image", "import", await testComponent("script.c"), "--name", SCRIPT);
  edgectl(node, "image", "import", await testComponent("exit-42.wat"), "--name", EXIT_42);
});

after(async () => await node?.[Symbol.asyncDispose]());

/** A container that does these steps. */
const script = (name: string, args: readonly string[], more: Fields = {}): Fields => ({
  ...{ name, image: SCRIPT, imagePullPolicy: "IfNotPresent", args },
  ...more,
});

const podWith = (name: string, containers: readonly unknown[], spec: Fields = {}, metadata: Fields = {}): Fields => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, ...metadata },
  spec: { runtimeClassName: "wasm", terminationGracePeriodSeconds: GRACE_S, containers, ...spec },
});

const named = (pods: PodsByName, name: string): Pod | undefined => pods.get(`${name}-node`);

const statusOf = (pod: Pod | undefined, name: string): ContainerStatus | undefined =>
  [
    ...(pod?.status?.containerStatuses ?? []),
    ...(pod?.status?.initContainerStatuses ?? []),
    ...(pod?.status?.ephemeralContainerStatuses ?? []),
  ].find((each) => each.name === name);

function run(pod: Fields): string {
  const { name } = pod.metadata as { readonly name: string };
  node.writeManifest(`${name}.json`, pod);
  return name;
}

const until = async (what: string, name: string, fits: (pod: Pod | undefined) => boolean): Promise<Pod | undefined> =>
  named(await node.waitForPods(what, (pods) => fits(named(pods, name))), name);

async function gone(name: string): Promise<void> {
  node.removeManifest(`${name}.json`);
  await node.waitForPods(`the end of ${name}`, (pods) => named(pods, name) === undefined);
}

const logOf = async (name: string, container: string, query = ""): Promise<string> =>
  await textOf(await node.request(`/v1/namespaces/default/pods/${name}-node/log?container=${container}${query}`));

/** Reads on until `fits` holds of all that was said. */
async function said(name: string, container: string, fits: (text: string) => boolean): Promise<string> {
  const response = await node.request(
    `/v1/namespaces/default/pods/${name}-node/log?container=${container}&follow=true`,
  );
  let text = "";
  try {
    for await (const line of linesOf(response)) {
      text += `${line}\n`;
      if (fits(text)) return text;
    }
  } finally {
    response.destroy();
  }
  throw new Error(`the log ended with ${text}`);
}

const told = (name: string, reason: string, fits: RegExp): Promise<unknown> =>
  node.waitForEvent(`${reason} of ${name}: ${fits}`, (event) => {
    return event.involvedObject.name === `${name}-node` && event.reason === reason && fits.test(event.message);
  });

/**
 * Starts a server for this test on this machine.
 * @returns its port
 */
async function serve(context: TestContext, answer: RequestListener): Promise<number> {
  const server = createServer(answer);
  context.after(() => {
    server.close();
    server.closeAllConnections();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

const isOver = (pod: Pod | undefined): boolean => /^(Succeeded|Failed)$/.test(pod?.status?.phase ?? "");

describe("a component pod's life", SIDE_BY_SIDE, () => {
  test("init containers and sidecars come in order, and end in reverse", async () => {
    const volumes = [{ name: "shared", emptyDir: { medium: "Memory" } }];
    const volumeMounts = [{ name: "shared", mountPath: "/shared" }];
    const always = { restartPolicy: "Always", volumeMounts };
    const slow = { volumeMounts, lifecycle: { preStop: { sleep: { seconds: 1 } } } };
    run(
      podWith("order", [script("app", ["cat", "/shared/log", "hold"], slow)], {
        volumes,
        initContainers: [
          script("proxy", ["add", "/shared/log", "proxy", "hold"], always),
          script("setup", ["pause", "200", "add", "/shared/log", "setup"], { volumeMounts }),
          script("log", ["wait", "/shared/log", "add", "/shared/log", "log", "hold"], always),
        ],
      }),
    );
    const pod = await until("order to be ready", "order", isReady);
    assert.deepEqual(
      pod?.status?.initContainerStatuses?.map(({ name, ready, started }) => [name, ready, started]),
      [
        ["proxy", true, true],
        ["setup", true, false],
        ["log", true, true],
      ],
    );
    assert.equal(statusOf(pod, "setup")?.state.terminated?.reason, "Completed");
    const text = await said("order", "app", (each) => each.endsWith("log\n"));
    assert.match(text, /^proxy\nsetup\nlog\n$/);
    node.removeManifest("order.json");
    const begun = Date.now();
    let appEndedAt = 0;
    await node.waitForPods("the end of order", (pods) => {
      const ending = named(pods, "order");
      const runs = (name: string): boolean => statusOf(ending, name)?.state.running !== undefined;
      if (runs("app")) assert.ok(runs("proxy") && runs("log"), "sidecars outlive what they are there for");
      else if (appEndedAt === 0) appEndedAt = Date.now();
      return ending === undefined;
    });
    assert.ok(appEndedAt - begun > 900, "the hook's sleep was waited for");
  });

  test("restart policies, and rules by exit code", async () => {
    const restartPolicyRules = [{ action: "Restart", exitCodes: { operator: "In", values: [42] } }];
    const own = { restartPolicy: "Never", restartPolicyRules, image: EXIT_42, args: [] };
    run(podWith("never", [script("app", ["exit", "1"])], { restartPolicy: "Never" }));
    run(podWith("done", [script("app", ["exit", "0"])], { restartPolicy: "OnFailure" }));
    run(podWith("failing", [script("app", ["exit", "1"])], { restartPolicy: "OnFailure" }));
    run(podWith("ruled", [script("app", ["hold"]), script("coded", [], own)], { restartPolicy: "Never" }));
    const failed = await until("never to fail", "never", (pod) => pod?.status?.phase === "Failed");
    assert.deepEqual(
      [statusOf(failed, "app")?.state.terminated?.exitCode, statusOf(failed, "app")?.restartCount],
      [1, 0],
    );
    await until("done to succeed", "done", (pod) => pod?.status?.phase === "Succeeded");
    const waiting = await until("a back-off", "failing", (pod) => {
      return statusOf(pod, "app")?.state.waiting?.reason === "CrashLoopBackOff";
    });
    assert.equal(statusOf(waiting, "app")?.lastState.terminated?.exitCode, 1);
    const ruled = await until("a run after code 42", "ruled", (pod) => (statusOf(pod, "coded")?.restartCount ?? 0) > 1);
    assert.equal(statusOf(ruled, "coded")?.lastState.terminated?.exitCode, 42);
    assert.doesNotMatch(node.log, /cgroup could not be removed/);
    for (const name of ["never", "done", "failing", "ruled"]) await gone(name);
  });

  test("last words: the file, the log after a failure, and what a trap was", async () => {
    const fallback = { terminationMessagePolicy: "FallbackToLogsOnError" };
    const containers = [
      script("file", ["write", "/dev/termination-log", "goodbye", "exit", "1"]),
      script("own", ["write", "/words/last", "from here", "exit", "0"], { terminationMessagePath: "/words/last" }),
      script("log", ["say", "all is", "say", "lost", "exit", "1"], fallback),
      script("trap", ["say", "oh", "trap"]),
      script("trap-log", ["say", "oh", "trap"], fallback),
    ];
    run(podWith("words", containers, { restartPolicy: "Never" }));
    const pod = await until("the end", "words", isOver);
    const messageOf = (name: string): string => statusOf(pod, name)?.state.terminated?.message ?? "";
    assert.equal(messageOf("file"), "goodbye\n");
    assert.equal(messageOf("own"), "from here\n");
    assert.equal(messageOf("log"), "all is\nlost\n");
    assert.match(messageOf("trap"), /^wasm trap: .*unreachable/);
    assert.match(messageOf("trap-log"), /^oh\npicolet: wasm trap: .*unreachable.*\n(?: {4}at .*\n)+$/);
    await gone("words");
  });

  test("too much memory is OOMKilled, and the next run knows", async () => {
    // 16 MiB of it are the runner's own: the cgroup is full before the linear memory is.
    const limits = { resources: { limits: { memory: "32Mi" } } };
    run(podWith("hungry", [script("app", ["grow", "31", "hold"], limits)]));
    const pod = await until("a restart", "hungry", (each) => (statusOf(each, "app")?.restartCount ?? 0) > 0);
    const last = statusOf(pod, "app")?.lastState.terminated;
    assert.deepEqual([last?.exitCode, last?.reason], [137, "OOMKilled"]);
    await gone("hungry");
  });

  test("hooks: httpGet and sleep", async (context) => {
    const asked: string[] = [];
    const port = await serve(context, (request, response) => {
      asked.push(request.url ?? "");
      response.end();
    });
    const get = (path: string): Fields => ({ httpGet: { host: "127.0.0.1", port, path } });
    const lifecycle = { postStart: get("/up"), preStop: get("/down") };
    const slow = { lifecycle: { preStop: { sleep: { seconds: 1 } } } };
    run(podWith("hooked", [script("app", ["hold"], { lifecycle }), script("slow", ["hold"], slow)]));
    await until("hooked to be ready", "hooked", isReady);
    assert.deepEqual(asked, ["/up"]);
    const begun = Date.now();
    await gone("hooked");
    assert.deepEqual(asked, ["/up", "/down"]);
    assert.ok(Date.now() - begun >= 1000, "it slept before it ended");
  });

  test("a hook that fails starts the component again, with the kubelet's words", async () => {
    const lifecycle = { postStart: { httpGet: { host: "127.0.0.1", port: 1, path: "/" } } };
    run(podWith("unhooked", [script("app", ["hold"], { lifecycle })]));
    await told("unhooked", "FailedPostStartHook", /^PostStartHook failed$/);
    const pod = await until("a second run", "unhooked", (each) => (statusOf(each, "app")?.restartCount ?? 0) > 0);
    assert.equal(statusOf(pod, "app")?.lastState.terminated?.exitCode, 143);
    await gone("unhooked");
  });

  test("a deadline fails the pod, SIGTERM ends a component at once with 143, and SIGKILL with 137", async () => {
    const kill = { lifecycle: { stopSignal: "SIGKILL" } };
    const containers = [script("app", ["hold"]), script("busy", ["spin"]), script("hard", ["hold"], kill)];
    const begun = Date.now();
    // Time enough for all of them to run, on a busy machine too: they have been transpiled by now.
    run(podWith("late", containers, { activeDeadlineSeconds: 15, os: { name: "linux" } }));
    const pod = await until("a deadline", "late", (each) => each?.status?.phase === "Failed");
    assert.equal(pod?.status?.reason, "DeadlineExceeded");
    const codes = containers.map(({ name }) => statusOf(pod, String(name))?.state.terminated?.exitCode);
    assert.deepEqual(codes, [143, 143, 137]);
    assert.ok(Date.now() - begun < (GRACE_S / 2) * 1000, "nobody has waited for the grace period");
    await gone("late");
  });

  test("a probe of somebody else: a component is ready and alive as long as that answers", async (context) => {
    let status = 200;
    const port = await serve(context, (_, response) => response.writeHead(status).end());
    const httpGet = { host: "127.0.0.1", port, path: "/" };
    const quick = { periodSeconds: 1, failureThreshold: 1 };
    const probes = {
      startupProbe: { tcpSocket: { host: "127.0.0.1", port }, ...quick },
      readinessProbe: { httpGet, ...quick },
      livenessProbe: { httpGet, periodSeconds: 1, failureThreshold: 2 },
    };
    run(podWith("probed", [script("app", ["hold"], probes)]));
    await until("probed to be ready", "probed", isReady);
    status = 500;
    const pod = await until("a restart", "probed", (each) => (statusOf(each, "app")?.restartCount ?? 0) > 0);
    assert.equal(statusOf(pod, "app")?.lastState.terminated?.exitCode, 143);
    await told("probed", "Killing", /^Container app failed liveness probe, will be restarted$/);
    status = 200;
    await until("probed to be ready again", "probed", isReady);
    await gone("probed");
  });

  test("an ephemeral component joins a running pod; one that looks into another, and one of a container image, are told why", async () => {
    const pushed = (more: Fields): string => {
      const path = join(node.directory, "pushed.json");
      writeFileSync(path, JSON.stringify(podWith("pushed", [script("app", ["hold"])], more)));
      return path;
    };
    edgectl(node, "apply", "-f", pushed({}));
    const before = await until("pushed to be ready", "pushed", isReady);
    const page = edgectl(node, "describe", "pod", "pushed").replaceAll(/\s+/g, " ");
    assert.match(page, / Isolation: own file system tree, own IPC, no network, seccomp filter, no new privileges, /);
    assert.doesNotMatch(page, /Not Isolated/);
    // Not by edgectl, which leaves with 1 as long as another test's pod is not ready.
    const { runtimes } = JSON.parse(await textOf(await node.request("/v1/status"))) as StatusAnswer;
    assert.match(runtimes.find(({ name }) => name === "wasm")?.isolation ?? "", /^jail, seccomp/);
    const debug = script("debug", ["say", "looking", "exit", "1"]);
    edgectl(node, "apply", "-f", pushed({ ephemeralContainers: [debug] }));
    const pod = await until("its end", "pushed", (each) => statusOf(each, "debug")?.state.terminated !== undefined);
    assert.equal(await logOf("pushed", "debug"), "looking\n");
    assert.equal(containerIdOf(pod), containerIdOf(before));
    assert.equal(isReady(pod), true);
    const into = { ...script("into", ["hold"]), targetContainerName: "app" };
    const shell = { name: "shell", image: "registry.invalid/busybox:1", imagePullPolicy: "IfNotPresent" };
    edgectl(node, "apply", "-f", pushed({ ephemeralContainers: [debug, into, shell] }));
    await told("pushed", "Failed", /ephemeralContainers\[1\]\.targetContainerName: a component has no processes/);
    await told("pushed", "Failed", /registry\.invalid\/busybox:1/);
    writeFileSync(pushed({}), JSON.stringify({ apiVersion: "v1", kind: "PodList", items: [] }));
    edgectl(node, "apply", "-f", join(node.directory, "pushed.json"));
    await node.waitForPods("the end of pushed", (pods) => named(pods, "pushed") === undefined);
  });
});

describe("what a component is given", () => {
  test("volumes of the node: in memory, on disk, a folder, a file, parts of them; what is read-only is", async () => {
    const folder = join(node.directory, "host");
    mkdirSync(folder);
    writeFileSync(join(folder, "file"), "of the node\n");
    // A component is not root: what is the node's alone it may not write.
    chmodSync(join(folder, "file"), 0o666);
    const mounts = [
      { name: "memory", mountPath: "/memory" },
      { name: "disk", mountPath: "/disk" },
      { name: "disk", mountPath: "/part", subPathExpr: "$(WHO)/part" },
      { name: "folder", mountPath: "/folder", readOnly: true },
      { name: "file", mountPath: "/etc/one" },
    ];
    const env = [{ name: "WHO", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } }];
    const first = ["write", "/memory/a", "memory", "write", "/disk/b", "disk", "write", "/part/c", "part"];
    const second = ["wait", "/disk/volumes-node/part/c", "cat", "/disk/volumes-node/part/c", "cat", "/memory/a"];
    const rest = ["cat", "/folder/file", "cat", "/etc/one", "write", "/etc/one", "written", "list", "/etc"];
    run(
      podWith(
        "volumes",
        [
          script("first", [...first, "hold"], { volumeMounts: mounts, env }),
          script("second", [...second, ...rest, "write", "/folder/new", "never"], { volumeMounts: mounts, env }),
        ],
        {
          restartPolicy: "Never",
          volumes: [
            { name: "memory", emptyDir: { medium: "Memory" } },
            { name: "disk", emptyDir: {} },
            { name: "folder", hostPath: { path: folder, type: "Directory" } },
            { name: "file", hostPath: { path: join(folder, "file"), type: "File" } },
          ],
        },
      ),
    );
    const pod = await until(
      "second to end",
      "volumes",
      (each) => statusOf(each, "second")?.state.terminated !== undefined,
    );
    assert.equal(statusOf(pod, "second")?.state.terminated?.exitCode, 1);
    const text = await logOf("volumes", "second");
    assert.equal(
      text.replace(/^\.{1,2}\n/gm, ""),
      "part\nmemory\nof the node\nof the node\none\n/folder/new: Read-only file system\n",
    );
    assert.equal(readFileSync(join(folder, "file"), "utf8"), "written\n");
    await gone("volumes");
    rmSync(folder, { recursive: true });
  });

  test("environment: fields, resources, expansion; a file of the pod's labels with its mode; the node's address", async () => {
    const fields = {
      POD_IP: "status.podIP",
      HOST_IP: "status.hostIP",
      NODE: "spec.nodeName",
      LABEL: "metadata.labels['a']",
    };
    const env = [
      ...Object.entries(fields).map(([name, fieldPath]) => ({ name, valueFrom: { fieldRef: { fieldPath } } })),
      { name: "MEMORY", valueFrom: { resourceFieldRef: { resource: "limits.memory", divisor: "1Mi" } } },
      { name: "ALL", value: "$(NODE) $(LABEL) $$(LABEL) $(NONE)" },
    ];
    const names = [...Object.keys(fields), "MEMORY", "ALL", "PATH", "HOME"];
    const items = [{ path: "labels", fieldRef: { fieldPath: "metadata.labels" }, mode: 0o444 }];
    const more = {
      env,
      resources: { limits: { memory: "64Mi" } },
      volumeMounts: [{ name: "about", mountPath: "/about" }],
    };
    const args = [
      ...names.flatMap((name) => ["env", name]),
      "cat",
      "/about/labels",
      "say",
      "$(ALL)",
      "cat",
      "/etc/hosts",
    ];
    const spec = { restartPolicy: "Never", volumes: [{ name: "about", downwardAPI: { items } }] };
    run(podWith("env", [script("app", args, more)], spec, { labels: { a: "b" } }));
    const pod = await until("the end", "env", isOver);
    const { podIP, hostIP, podIPs, hostIPs } =
      (await until("an address", "env", (each) => each !== undefined))?.status ?? {};
    assert.deepEqual([podIP, podIPs], [hostIP, hostIPs], "it is on the node's network");
    const lines = (await logOf("env", "app")).split("\n");
    assert.deepEqual(lines, [
      ...[`POD_IP=${hostIP}`, `HOST_IP=${hostIP}`, "NODE=node", "LABEL=b", "MEMORY=64"],
      ...["ALL=node b $(LABEL) $(NONE)", "PATH=(not set)", "HOME=(not set)"],
      ...['a="b"node b $(LABEL) $(NONE)', "/etc/hosts: Capabilities insufficient", ""],
    ]);
    assert.equal(statusOf(pod, "app")?.state.terminated?.exitCode, 1);
    await gone("env");
  });

  test("a user and a group, who own the log and may read what is theirs alone", async () => {
    const securityContext = { runAsUser: 1234, runAsGroup: 1235, fsGroup: 1236, runAsNonRoot: true };
    const volumeMounts = [{ name: "data", mountPath: "/data" }];
    const container = script("app", ["write", "/data/mine", "x", "say", "done", "hold"], { volumeMounts });
    run(podWith("user", [container], { securityContext, volumes: [{ name: "data", emptyDir: {} }] }));
    const pod = await until("user to be ready", "user", isReady);
    await said("user", "app", (text) => text === "done\n");
    const [pid] = node.runnerPids(containerIdOf(pod));
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    assert.match(status, /^Uid:\t1234\t1234\t1234/m);
    assert.match(status, /^Groups:\t1236 $/m);
    const data = join(
      node.directory,
      "root/pods",
      pod?.metadata.uid ?? "",
      "volumes/kubernetes.io~empty-dir/data/mine",
    );
    assert.deepEqual([statSync(data).uid, statSync(data).gid], [1234, 1236]);
    await gone("user");
  });
});

describe("beside a container runtime", { skip: containerdMissing() ?? false }, () => {
  test("a component reads the files of a container image, which come from the container runtime", async () => {
    await using containerd = await Containerd.start();
    await using board = nodeWith(containerd);
    await board.start();
    edgectl(board, "image", "import", await testComponent("script.c"), "--name", SCRIPT);
    const volumes = [{ name: "files", image: { reference: BUSYBOX_IMAGE, pullPolicy: "Never" } }];
    const volumeMounts = [{ name: "files", mountPath: "/files" }];
    const steps = ["wait", "/files/bin/busybox", "say", "found", "write", "/files/new", "never"];
    const pod = podWith("files", [script("app", steps, { volumeMounts })], { volumes, restartPolicy: "Never" });
    board.writeManifest("files.json", pod);
    await board.waitForPods("its end", (pods) => isOver(named(pods, "files")));
    const log = await board.request("/v1/namespaces/default/pods/files-node/log?container=app");
    assert.equal(await textOf(log), "found\n/files/new: Read-only file system\n");
    await board.drain();
  });
});

describe("what is refused, and what is said of it", SIDE_BY_SIDE, () => {
  const REFUSED: readonly (readonly [name: string, container: Fields, spec: Fields, message: RegExp])[] = [
    [
      "exec-probe",
      { livenessProbe: { exec: { command: ["true"] } }, startupProbe: { exec: { command: ["true"] } } },
      {},
      /containers\[0\]\.livenessProbe: a component has no second program to run: let it end .*; spec\.containers\[0\]\.startupProbe: /,
    ],
    ["tcp-probe", { readinessProbe: { tcpSocket: { port: 80 } } }, {}, /readinessProbe: the container has no TCP port/],
    ["grpc-probe", { livenessProbe: { grpc: { port: 80 } } }, {}, /livenessProbe: a component does not serve gRPC/],
    [
      "exec-hook",
      { lifecycle: { postStart: { exec: { command: ["true"] } } } },
      {},
      /postStart\.exec: .* httpGet or sleep/,
    ],
    ["privileged", { securityContext: { privileged: true } }, {}, /securityContext\.privileged: /],
    ["host-pid", {}, { hostPID: true }, /spec\.hostPID: a component sees no processes/],
  ];
  for (const [name, container, spec, message] of REFUSED) {
    test(`${name}: the pod waits, and an event says why`, async () => {
      run(podWith(name, [script("app", ["hold"], container)], spec));
      await told(name, "FailedCreatePodSandBox", message);
      const pod = await until("it to wait", name, (each) => each?.status?.phase === "Pending");
      assert.equal(statusOf(pod, "app")?.state.waiting?.reason, "ContainerCreating");
      await gone(name);
    });
  }

  test("what cannot be run says so in the container's status", async () => {
    const core = await testCoreModule("workload.c");
    const images: readonly (readonly [string, string, RegExp])[] = [
      ["core", `file://${core}`, /core module.*component/s],
      ["wants", `file://${await testComponent("wants-http.wat")}`, /imports what its pod does not grant: wasi:http/],
      ["no-run", `file://${await testComponent("no-run.wat")}`, /exports no wasi:cli\/run/],
      ["missing", "file:///no/such.wasm", /no\/such\.wasm/],
    ];
    run(
      podWith(
        "unfit",
        images.map(([name, image]) => script(name, [], { image })),
      ),
    );
    const pod = await until("four reasons", "unfit", (each) =>
      images.every(([name]) => (statusOf(each, name)?.state.waiting?.message ?? "") !== ""),
    );
    for (const [name, , message] of images) assert.match(statusOf(pod, name)?.state.waiting?.message ?? "", message);
    const reasons = images.map(([name]) => statusOf(pod, name)?.state.waiting?.reason);
    assert.deepEqual(reasons, [
      "ImageInspectError",
      "CreateContainerConfigError",
      "CreateContainerConfigError",
      "ErrImagePull",
    ]);
    await gone("unfit");
  });

  test("a volume made of an image, where no runtime has images", async () => {
    const volumes = [{ name: "files", image: { reference: BUSYBOX_IMAGE } }];
    run(
      podWith("imageless", [script("app", ["hold"], { volumeMounts: [{ name: "files", mountPath: "/a" }] })], {
        volumes,
      }),
    );
    await told("imageless", "Failed", /for volume "files": this node has no runtime that can mount images$/);
    const pod = await until("it to wait", "imageless", (each) => statusOf(each, "app")?.state.waiting !== undefined);
    assert.equal(pod?.status?.phase, "Pending");
    await gone("imageless");
  });

  test("what is ignored is named by one event, and the pod runs", async () => {
    const hostAliases = [{ ip: "192.0.2.1", hostnames: ["a.example"] }];
    run(podWith("ignored", [script("app", ["hold"], { stdin: true, tty: true })], { hostAliases }));
    await told(
      "ignored",
      "FieldsIgnored",
      /^WebAssembly components do without: spec\.hostAliases: .*; spec\.containers\[0\]\.stdin: .*; spec\.containers\[0\]\.tty: /,
    );
    await until("ignored to be ready", "ignored", isReady);
    await gone("ignored");
  });
});

describe("what a component says", () => {
  test("pieces of lines, both streams, the end, a time, the run before", async () => {
    const long = "x".repeat(40_000);
    run(
      podWith("says", [
        script("app", ["say", long, "warn", "careful", "say", "out", "pause", "1200", "say", "end", "exit", "1"]),
      ]),
    );
    await until("a second run", "says", (pod) => (statusOf(pod, "app")?.restartCount ?? 0) > 0);
    const text = await logOf("says", "app", "&previous=true");
    assert.equal(text, `${long}\ncareful\nout\nend\n`);
    assert.equal(await logOf("says", "app", "&previous=true&stream=Stderr"), "careful\n");
    assert.equal(await logOf("says", "app", "&previous=true&tailLines=2"), "out\nend\n");
    const stamped = await logOf("says", "app", "&previous=true&timestamps=true&tailLines=1");
    const since = encodeURIComponent(stamped.split(" ")[0] ?? "");
    assert.equal(await logOf("says", "app", `&previous=true&sinceTime=${since}`), "end\n");
    await gone("says");
  });
});

describe("a component's resources and its end with the node's", () => {
  test("its limits of CPU and memory are those of its cgroup", async () => {
    const limits = { resources: { requests: { cpu: "50m" }, limits: { cpu: "100m", memory: "64Mi" } } };
    run(podWith("sized", [script("app", ["hold"], limits)]));
    const pod = await until("sized to be ready", "sized", isReady);
    assert.equal(pod?.status?.qosClass, "Burstable");
    const [pid] = node.runnerPids(containerIdOf(pod));
    const paths = readFileSync(`/proc/${pid}/cgroup`, "utf8");
    const memory = /:memory:(.*)$/m.exec(paths)?.[1] ?? "";
    const cpu = /:(?:cpu,cpuacct|cpuacct,cpu|cpu):(.*)$/m.exec(paths)?.[1] ?? "";
    assert.equal(readFileSync(`/sys/fs/cgroup/memory${memory}/memory.limit_in_bytes`, "utf8").trim(), "67108864");
    assert.equal(readFileSync(`/sys/fs/cgroup/cpu${cpu}/cpu.cfs_quota_us`, "utf8").trim(), "10000");
    await gone("sized");
  });

  test("an agent that is killed leaves all as it is, with its counts; what it was ending, the next one ends", async () => {
    const sidecar = script("proxy", ["hold"], { restartPolicy: "Always" });
    const once = ["wait", "/data/second", "hold"];
    const volumeMounts = [{ name: "data", mountPath: "/data" }];
    const spec = { volumes: [{ name: "data", emptyDir: {} }], initContainers: [sidecar] };
    run(
      podWith(
        "kept",
        [script("app", [...once], { volumeMounts }), script("fails", ["pause", "300", "exit", "1"])],
        spec,
      ),
    );
    const slow = { lifecycle: { preStop: { sleep: { seconds: 2 } } } };
    run(podWith("ending", [script("app", ["hold"], slow)]));
    await until("ending to be ready", "ending", isReady);
    await until("two restarts", "kept", (pod) => (statusOf(pod, "fails")?.restartCount ?? 0) > 1);
    node.removeManifest("ending.json");
    await told("ending", "Killing", /Stopping container app/);
    const before = await until("what there is", "kept", (pod) => pod !== undefined);
    await node.kill();
    await node.start();
    await node.waitForPods("the end of ending", (pods) => named(pods, "ending") === undefined);
    const after = await until("kept to be known again", "kept", (pod) => statusOf(pod, "proxy")?.ready === true);
    for (const name of ["app", "proxy"]) {
      assert.equal(statusOf(after, name)?.containerID, statusOf(before, name)?.containerID);
      assert.equal(statusOf(after, name)?.restartCount, 0);
    }
    assert.ok((statusOf(after, "fails")?.restartCount ?? 0) >= 2);
    await gone("kept");
  });

  test("a shutdown of the node ends component pods in order, with a reason", async () => {
    run(podWith("shut", [script("app", ["hold"])]));
    await until("shut to be ready", "shut", isReady);
    edgectl(node, "node", "shutdown");
    const pod = await until("its end", "shut", (each) => each?.status?.phase === "Failed");
    assert.deepEqual(
      [pod?.status?.reason, pod?.status?.message],
      ["Terminated", "Pod was terminated in response to imminent node shutdown."],
    );
    edgectl(node, "node", "shutdown", "--cancel");
    node.removeManifest("shut.json");
  });
});
