/**
 * The daily work of a Kubernetes user, with stock kubectl of two versions, against the embedded hub and real boards.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { WhyAnswer } from "@picolet/protocol/local-api/why.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { KUBECTL_VERSIONS, type KubectlVersion } from "@picolet/scripts/test/install-kubectl.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  containerPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
} from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { endProcess, Fleet, kubectlMissing, untilPrinted } from "../../support/hub/test-fleet.ts";
import { testComponent } from "../../support/wasm/components.ts";

const missing = KUBECTL_VERSIONS.map(kubectlMissing).find((each) => each !== false);
const skip = containerdMissing() ?? missing ?? false;
const ON_A = { nodeSelector: { "kubernetes.io/hostname": "node-a" } };

let containerd: Containerd;
let fleet: Fleet;
let admin: FleetAdmin;
/** Runs containers and components. */
let nodeA: AgentNode;
/** Runs components alone. */
let nodeB: AgentNode;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  fleet = await Fleet.start();
  nodeA = nodeWith(containerd, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  nodeB = nodeWith(undefined, { config: { nodeName: "node-b", hub: await fleet.joinConfig() } });
  await Promise.all([nodeA.start(), nodeB.start()]);
  for (const node of [nodeA, nodeB]) edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  admin = await FleetAdmin.of(fleet);
  for (const name of ["node-a", "node-b"]) await admin.untilCondition(name, "Ready", "True");
});

after(async () => {
  if (skip !== false) return;
  // One that cannot be disposed of does not keep the others, which would keep the tests from ending.
  await using all = new AsyncDisposableStack();
  for (const each of [containerd, fleet, nodeB, nodeA, admin]) if (each !== undefined) all.use(each);
  all.defer(() => admin?.clear());
});

async function ready(pod: unknown, name: string): Promise<void> {
  await admin.create(PODS, pod as Readonly<Record<string, unknown>>);
  await admin.untilPod(name, "ready", isReady);
}

/** The names of the pods that `kubectl debug node` made. */
async function debuggers(version: KubectlVersion): Promise<readonly string[]> {
  const names = await fleet.kubectl(["get", "pods", "-o", "name"], { version });
  return names.split("\n").flatMap((line) => /^pod\/(node-debugger-\S+)$/.exec(line)?.slice(1) ?? []);
}

for (const version of KUBECTL_VERSIONS) {
  const suffix = version.replace(".", "");

  test(`kubectl ${version} applies, lists, describes and deletes a container pod and a component pod`, {
    skip,
  }, async () => {
    const [container, component] = [`c-${suffix}`, `w-${suffix}`];
    await fleet.apply(containerPod(container, undefined, ON_A), { version });
    await fleet.apply(componentPod(component), { version });
    for (const name of [container, component]) {
      await fleet.kubectl(["wait", "--for=condition=Ready", `pod/${name}`, "--timeout=90s"], { version });
    }
    const wide = await fleet.kubectl(["get", "nodes,pods", "-o", "wide"], { version });
    assert.match(wide, /node\/node-a +Ready +<none> +\S+ +v1\.34\.0-picolet/);
    assert.match(wide, new RegExp(`pod/${container} +1/1 +Running +0 +\\S+ +[0-9.]+ +node-a`));
    assert.match(wide, new RegExp(`pod/${component} +1/1 +Running +0 `));
    const reasons = ["Scheduled", "Pulled", "Created", "Started"];
    // Events and statuses come by ways of their own.
    for (const reason of reasons) await admin.untilEvent(container, reason, (event) => event.reason === reason);
    const described = await fleet.kubectl(["describe", "pod", container], { version });
    for (const reason of reasons) assert.match(described, new RegExp(` ${reason} `));
    assert.match(described, /QoS Class: +BestEffort/);
    assert.match(
      await fleet.kubectl(["describe", "node", "node-a"], { version }),
      new RegExp(`default +${container} `),
    );
    const why = `/api/v1/nodes/node-a/proxy/why/default/${container}`;
    const { decisions } = JSON.parse(await fleet.kubectl(["get", "--raw", why], { version })) as WhyAnswer;
    assert.deepEqual(decisions.map(({ decision }) => decision.kind).toReversed(), ["accepted", "started"]);
    const told = await fleet.kubectl(["get", "--raw", `${why}?output=text&topic=started`], { version });
    assert.match(told, /Container app was started\.\n.*the hub wants here/);
    await fleet.kubectl(["delete", "pod", container, component, "--timeout=60s"], { version });
    const left = await fleet.kubectl(["get", "pods", "-o", "name"], { version });
    assert.doesNotMatch(left, new RegExp(`${container}|${component}`));
  });

  test(`kubectl ${version} logs: the end, all of it, and on as it comes`, { skip }, async () => {
    const name = `logs-${suffix}`;
    await ready(containerPod(name, "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done", ON_A), name);
    const follower = fleet.spawnKubectl(["logs", "-f", name], version);
    await untilPrinted(follower, (text) => text.includes("line 1\n") && text.includes("line 12\n"));
    await endProcess(follower);
    const tail = await fleet.kubectl(["logs", "--tail=2", "--timestamps", name], { version });
    assert.match(tail, /^\d{4}-\d\d-\d\dT\S+ line \d+\n\d{4}-\d\d-\d\dT\S+ line \d+\n$/);
    const refused = await fleet.tryKubectl(["logs", "--previous", name], { version });
    assert.match(refused.stderr, /previous terminated container "app" in pod "logs-\d+" not found/);
  });

  test(`kubectl ${version} exec, attach, cp and port-forward reach a container`, { skip }, async () => {
    const name = `exec-${suffix}`;
    const script =
      "mkdir -p /www; echo hello from the board >/www/index.html; httpd -p 8080 -h /www; while read -r l; do echo got $l; done; sleep 3600";
    const spec = {
      ...ON_A,
      containers: [{ name: "app", image: BUSYBOX_IMAGE, stdin: true, command: ["/bin/sh", "-c", script] }],
    };
    await ready(containerPod(name, "", spec), name);

    assert.equal(await fleet.kubectl(["exec", name, "--", "echo", "hi"], { version }), "hi\n");
    assert.equal((await fleet.tryKubectl(["exec", name, "--", "sh", "-c", "exit 3"], { version })).code, 3);
    const big = "0123456789abcdef".repeat(64 * 1024);
    assert.ok(
      (await fleet.kubectl(["exec", "-i", name, "--", "cat"], { version, input: big })) === big,
      "every byte comes back",
    );

    const attached = fleet.spawnKubectl(["attach", "-i", name], version);
    attached.stdin?.write("one\n");
    await untilPrinted(attached, (text) => text.includes("got one"));
    await endProcess(attached);

    const [from, to] = [fleet.folder.at(`from-${suffix}`), fleet.folder.at(`to-${suffix}`)];
    writeFileSync(from, Buffer.alloc(3_000_001, 7));
    await fleet.kubectl(["cp", from, `${name}:/www/copied`], { version });
    await fleet.kubectl(["cp", `${name}:/www/copied`, to], { version });
    assert.ok(readFileSync(to).equals(readFileSync(from)));

    const forward = fleet.spawnKubectl(["port-forward", `pod/${name}`, ":8080"], version);
    const said = await untilPrinted(forward, (text) => /Forwarding from 127\.0\.0\.1:\d+/.test(text));
    const [, port] = /127\.0\.0\.1:(\d+)/.exec(said) ?? [];
    for (let index = 0; index < 3; index += 1) {
      const answer = await fetch(`http://127.0.0.1:${port}/`, { headers: { connection: "close" } });
      assert.equal(await answer.text(), "hello from the board\n");
    }
    await endProcess(forward);
    await fleet.kubectl(["delete", "pod", name, "--now"], { version });
  });

  test(`kubectl ${version} exec -it has a terminal`, { skip }, async () => {
    const name = `tty-${suffix}`;
    await ready(containerPod(name, undefined, ON_A), name);
    const child = fleet.spawnInTerminal(["exec", "-it", name, "--", "sh"], version);
    child.stdin?.write("tty; exit 7\n");
    const said = await untilPrinted(child, (text) => /\/dev\/pts\/\d+/.test(text));
    assert.match(said, /\/dev\/pts\/\d+/);
    if (child.exitCode === null) await once(child, "exit");
    assert.equal(child.exitCode, 7);
  });

  test(`kubectl ${version} debug node runs in the namespaces of the board, with its files`, { skip }, async () => {
    const made = fleet.folder.at(`debug-${suffix}`);
    const links = ["pid", "net", "ipc"].map((each) => `readlink /proc/self/ns/${each}`).join("; ");
    const before = new Set(await debuggers(version));
    const child = fleet.spawnKubectl(["debug", "node/node-a", "-i", `--image=${BUSYBOX_IMAGE}`, "--", "sh"], version);
    // Input that ends would detach kubectl before the answer: the container of this command has no stdinOnce.
    child.stdin?.write(`${links}; echo made >/host${made}; echo all\n`);
    const said = await untilPrinted(child, (text) => text.includes("all\n"));
    // Only now: when stderr ends first, containerd 1.6 no longer attaches what a container said last on stdout.
    child.stdin?.write("exit 3\n");
    for (const stream of [child.stdout, child.stderr]) stream?.resume();
    await once(child, "close");
    for (const each of ["pid", "net", "ipc"]) assert.ok(said.includes(readlinkSync(`/proc/self/ns/${each}`)), said);
    assert.equal(readFileSync(made, "utf8"), "made\n");
    const [name = "", ...more] = (await debuggers(version)).filter((each) => !before.has(each));
    assert.deepEqual(more, []);
    const { spec, status } = await admin.untilPod(name, "ended", (pod) => pod.status?.phase === "Failed");
    assert.equal(status?.containerStatuses?.[0]?.state?.terminated?.exitCode, 3);
    assert.deepEqual([spec.nodeName, spec.hostPID, spec.hostNetwork, spec.hostIPC], ["node-a", true, true, true]);
    await fleet.kubectl(["delete", "pod", name, "--timeout=60s"], { version });
  });

  test(`kubectl ${version} debug node is refused where Pod Security says so, with each reason`, { skip }, async () => {
    const namespace = `guarded-${suffix}`;
    await fleet.kubectl(["create", "namespace", namespace], { version });
    const levels: readonly (readonly [level: string, reason: RegExp])[] = [
      ["baseline", /hostPath volumes \(volume "host-root"\)/],
      ["restricted", /restricted volume types \(volume "host-root" uses restricted volume type "hostPath"\)/],
    ];
    for (const [level, reason] of levels) {
      const label = `pod-security.kubernetes.io/enforce=${level}`;
      await fleet.kubectl(["label", "--overwrite", "namespace", namespace, label], { version });
      const words = ["debug", "node/node-a", "-n", namespace, `--image=${BUSYBOX_IMAGE}`, "--", "true"];
      const { code, stderr } = await fleet.tryKubectl(words, { version });
      assert.equal(code, 1, stderr);
      assert.match(stderr, new RegExp(`forbidden: violates PodSecurity "${level}:latest": host namespaces`));
      assert.match(stderr, /\(hostNetwork=true, hostPID=true, hostIPC=true\)/);
      assert.match(stderr, reason);
    }
    await fleet.kubectl(["delete", "namespace", namespace], { version });
  });

  test(`kubectl ${version} attaches to a component, and says why it cannot exec into it`, { skip }, async () => {
    const name = `component-${suffix}`;
    await ready(componentPod(name, { image: `file://${await testComponent("workload.c")}`, args: ["count"] }), name);
    const attached = fleet.spawnKubectl(["attach", name], version);
    await untilPrinted(attached, (text) => /line \d+\n/.test(text));
    await endProcess(attached);
    assert.match(await fleet.kubectl(["logs", name, "--tail=1"], { version }), /line \d+/);
    const refused = await fleet.tryKubectl(["exec", name, "--", "sh"], { version });
    assert.notEqual(refused.code, 0);
    assert.match(refused.stderr, /component/);
  });

  test(`kubectl ${version} cordons, drains and uncordons a board; a DaemonSet rolls out`, { skip }, async () => {
    const name = `ds-${suffix}`;
    const daemonSet = {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      metadata: { name },
      spec: {
        selector: { matchLabels: { app: name } },
        template: { metadata: { labels: { app: name } }, spec: (componentPod(name) as { spec: object }).spec },
      },
    };
    await fleet.apply(daemonSet, { version });
    const rolled = await fleet.kubectl(["rollout", "status", `ds/${name}`, "--timeout=90s"], { version });
    assert.match(rolled, /successfully rolled out/);
    const pods = await fleet.kubectl(["get", "pods", "-l", `app=${name}`, "-o", "wide"], { version });
    assert.match(pods, /node-a/);
    assert.match(pods, /node-b/);

    const lone = `lone-${suffix}`;
    const spec = {
      ...(componentPod(lone) as { spec: object }).spec,
      nodeSelector: { "kubernetes.io/hostname": "node-b" },
    };
    await ready({ ...(componentPod(lone) as object), spec }, lone);
    await fleet.kubectl(["cordon", "node-b"], { version });
    assert.match(await fleet.kubectl(["get", "nodes"], { version }), /node-b +Ready,SchedulingDisabled/);
    await fleet.kubectl(["drain", "node-b", "--ignore-daemonsets", "--force", "--timeout=60s"], { version });
    assert.equal((await fleet.tryKubectl(["get", "pod", lone], { version })).code, 1);
    await fleet.kubectl(["uncordon", "node-b"], { version });
    await fleet.kubectl(["delete", "ds", name, "--timeout=60s"], { version });
  });

  test(`kubectl ${version} get events --watch tells what happens as it happens`, { skip }, async () => {
    const name = `event-${suffix}`;
    const watch = fleet.spawnKubectl(["get", "events", "--watch"], version);
    await fleet.apply(componentPod(name), { version });
    await untilPrinted(watch, (text) => new RegExp(`Started +pod/${name}`).test(text));
    await endProcess(watch);
  });

  test(`kubectl ${version} is told what is wrong with a pod, where and how`, { skip }, async () => {
    const wrong = containerPod("wrong", undefined, { containers: [{ name: "App", image: "" }] });
    const { code, stderr } = await fleet.tryKubectl(["apply", "-f", "-"], { version, input: JSON.stringify(wrong) });
    assert.equal(code, 1);
    assert.match(stderr, /spec\.containers\[0\]\.name: Invalid value: "App"/);
    assert.match(stderr, /spec\.containers\[0\]\.image: Required value/);
  });
}

test("a ConfigMap and a Secret reach a container's environment and files, and a change reaches it while it runs", {
  skip,
}, async () => {
  await fleet.kubectl(["create", "configmap", "settings", "--from-literal=colour=blue"]);
  await fleet.kubectl(["create", "secret", "generic", "pass", "--from-literal=word=sesame"]);
  const container = {
    name: "app",
    image: BUSYBOX_IMAGE,
    command: ["/bin/sh", "-c", 'echo "$WORD"; while :; do cat /settings/colour; echo; sleep 0.2; done'],
    env: [{ name: "WORD", valueFrom: { secretKeyRef: { name: "pass", key: "word" } } }],
    volumeMounts: [{ name: "settings", mountPath: "/settings" }],
  };
  const volumes = [{ name: "settings", configMap: { name: "settings" } }];
  await ready(containerPod("settings", "", { ...ON_A, containers: [container], volumes }), "settings");
  const follower = fleet.spawnKubectl(["logs", "-f", "settings"]);
  await untilPrinted(follower, (text) => text.startsWith("sesame\n") && text.includes("blue\n"));
  await fleet.kubectl(["patch", "configmap", "settings", "-p", '{"data":{"colour":"green"}}']);
  await untilPrinted(follower, (text) => text.includes("green\n"));
  await endProcess(follower);
});
