/** A pod in the API from its creation to its end: statuses, generations, deadlines, streams, events, admission. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { V1Pod, V1Service } from "@kubernetes/client-node";
import type { WebSocket } from "ws";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { ApiError } from "../framework/kube-api.ts";
import type { TestContext } from "../framework/test-context.ts";
import { conditionOf, restartsOf, statusOf, type TestPod, timeOf } from "../framework/test-pod.ts";
import { STAYS } from "../framework/traces.ts";

const generationOf = (pod: V1Pod): number => pod.metadata?.generation ?? Number.NaN;
const observedOf = (pod: V1Pod): number => pod.status?.observedGeneration ?? Number.NaN;

async function isRefused(code: number, call: Promise<unknown>, message = /./): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof ApiError && error.code === code, `${error}`);
    assert.match(error.message, message);
    return true;
  });
}

/** All that comes through it until it is closed. */
async function received(socket: WebSocket): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  socket.on("message", (data) => pieces.push(Buffer.from(data as Buffer)));
  await once(socket, "close");
  return pieces;
}

const pods = area("[sig-node] Pods", (should) => {
  should("get a host IP", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] });
    const { status } = await pod.running();
    assert.match(status?.hostIP ?? "", /^[0-9a-f.:]+$/);
    assert.equal(status?.hostIPs?.[0]?.ip, status?.hostIP);
    assert.equal(status?.podIPs?.[0]?.ip, status?.podIP);
  });

  should("be submitted and removed", async (t) => {
    const pod = await t.start({ terminationGracePeriodSeconds: 20, containers: [t.sh(STAYS)] }, { labels: { a: "b" } });
    await pod.running();
    const list = await t.api.get<{ items: V1Pod[] }>(t.path("pods"), { labelSelector: "a=b" });
    assert.deepEqual(
      list.items.map(({ metadata }) => metadata?.name),
      [pod.name],
    );
    await pod.delete();
    await pod.gone();
    const ending = pod.history.find(({ metadata }) => metadata?.deletionTimestamp !== undefined);
    assert.equal(ending?.metadata?.deletionGracePeriodSeconds, 20);
    const last = pod.history.at(-1);
    assert.notEqual(statusOf(last)?.state?.terminated, undefined, "the last status does not tell how it ended");
    assert.equal(last?.status?.phase, "Succeeded");
  });

  should("be updated", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] }, { labels: { time: "before" } });
    await pod.running();
    await pod.patch({ metadata: { labels: { time: "after" } } });
    await pod.until("the label", ({ metadata }) => metadata?.labels?.time === "after");
    await isRefused(422, pod.patch({ spec: { hostname: "other" } }), /pod updates may not change fields other than/);
  });

  should("allow activeDeadlineSeconds to be updated", async (t) => {
    const pod = await t.start({ activeDeadlineSeconds: 600, containers: [t.sh(STAYS)] });
    await pod.running();
    await pod.patch({ spec: { activeDeadlineSeconds: 3 } });
    const { status } = await pod.phase("Failed");
    assert.equal(status?.reason, "DeadlineExceeded");
    assert.equal(status?.message, "Pod was active on the node longer than the specified deadline");
    assert.ok(status?.containerStatuses?.every(({ state }) => state?.terminated !== undefined));
  });

  should("contain environment variables for services", async (t) => {
    const ports = [{ port: 8765, targetPort: 8080 }];
    const spec = { ports, selector: { app: "none" } };
    const service = await t.create<V1Service>("services", { metadata: { name: "fooservice" }, spec });
    const host = service.spec?.clusterIP;
    const output = await t.output({ enableServiceLinks: true, containers: [t.sh("", { command: ["/bin/env"] })] });
    const tcp = `tcp://${host}:8765`;
    for (const line of [
      `FOOSERVICE_SERVICE_HOST=${host}`,
      "FOOSERVICE_SERVICE_PORT=8765",
      `FOOSERVICE_PORT=${tcp}`,
      `FOOSERVICE_PORT_8765_TCP=${tcp}`,
      "FOOSERVICE_PORT_8765_TCP_PROTO=tcp",
      "FOOSERVICE_PORT_8765_TCP_PORT=8765",
      `FOOSERVICE_PORT_8765_TCP_ADDR=${host}`,
    ])
      assert.ok(output.split("\n").includes(line), `no ${line} in:\n${output}`);
  });

  should("leave the services out where the pod does not want their links", async (t) => {
    await t.create("services", { metadata: { name: "fooservice" }, spec: { ports: [{ port: 80 }] } });
    const printed = (enableServiceLinks: boolean) =>
      t.output({ enableServiceLinks, containers: [t.sh("", { command: ["/bin/env"] })] });
    // The node knows of it by then.
    assert.match(await printed(true), /FOOSERVICE/);
    assert.doesNotMatch(await printed(false), /FOOSERVICE/);
  });

  should("support remote command execution over websockets", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] });
    await pod.running();
    const query = "command=echo&command=remote%20test&container=test&stdout=1&stderr=1";
    const socket = await t.api.webSocket(`${pod.path}/exec?${query}`, ["channel.k8s.io"]);
    const pieces = await received(socket);
    const stdout = pieces.filter((piece) => piece[0] === 1).map((piece) => piece.subarray(1).toString());
    assert.equal(stdout.join(""), "remote test\n");
  });

  should("support retrieving logs from the container over websockets", async (t) => {
    const pod = await t.start({ containers: [t.sh("echo container is alive")] });
    await pod.succeeded();
    const socket = await t.api.webSocket(`${pod.path}/log?container=test`, ["binary.k8s.io"]);
    assert.equal(Buffer.concat(await received(socket)).toString(), "container is alive\n");
  });

  should("give a command's exit code, output and errors apart", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] });
    await pod.running();
    const result = await pod.exec(["/bin/sh", "-c", "echo out; echo err >&2; exit 12"]);
    assert.deepEqual(result, { code: 12, stdout: "out\n", stderr: "err\n" });
  });

  should(
    "have their auto-restart back-off timer reset on image update",
    async (t) => {
      const pod = await t.start({ restartPolicy: "Always", containers: [t.sh("sleep 1; exit 1")] });
      await pod.until("three restarts", (each) => restartsOf(each) >= 3 && !!statusOf(each)?.state?.waiting);
      await pod.patch({ spec: { containers: [{ name: "test", image: t.image("other") }] } });
      const at = performance.now();
      await pod.until("a start", (each) => statusOf(each)?.image === t.image("other") && restartsOf(each) >= 4);
      assert.ok(performance.now() - at < t.atMost(25_000), "it waited as if it had the old image still");
    },
    { limitSeconds: 150 },
  );

  should("support pod readiness gates", async (t) => {
    const readinessGates = [{ conditionType: "k8s.io/test-condition1" }, { conditionType: "k8s.io/test-condition2" }];
    const pod = await t.start({ readinessGates, containers: [t.sh(STAYS)] });
    const set = async (type: string, status: string) =>
      await pod.patch({ status: { conditions: [{ type, status }] } }, "status");
    await pod.until("its containers to be ready", (each) => conditionOf(each, "ContainersReady") === "True");
    await pod.until("ReadinessGatesNotReady", ({ status }) => {
      return status?.conditions?.find(({ type }) => type === "Ready")?.reason === "ReadinessGatesNotReady";
    });
    await set("k8s.io/test-condition1", "True");
    assert.equal(conditionOf(pod.latest, "Ready"), "False");
    await set("k8s.io/test-condition2", "True");
    await pod.ready();
    await set("k8s.io/test-condition1", "False");
    await pod.until("not ready", (each) => conditionOf(each, "Ready") === "False");
  });

  should("delete a collection of pods", async (t) => {
    const all = await Promise.all(
      [1, 2, 3].map(() => t.start({ containers: [t.sh(STAYS)] }, { labels: { type: "set" } })),
    );
    for (const pod of all) await pod.running();
    await t.api.call("DELETE", t.path("pods"), undefined, { query: { labelSelector: "type=set" } });
    for (const pod of all) await pod.gone();
  });

  should("run through the lifecycle of Pods and PodStatus", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] }, { labels: { static: "true" } });
    await pod.ready();
    await pod.patch({
      metadata: { labels: { patched: "yes" } },
      spec: { containers: [{ name: "test", image: t.image("other") }] },
    });
    await pod.until("the other image", (each) => statusOf(each)?.image === t.image("other"));
    const status = await t.api.get<V1Pod>(`${pod.path}/status`);
    assert.equal(status.metadata?.labels?.patched, "yes");
    await pod.delete(0);
    await pod.gone();
  });

  should("patch a pod status", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] });
    await pod.running();
    const conditions = [{ type: "example.org/patched", status: "True", reason: "Test" }];
    const patched = await pod.patch({ status: { conditions } }, "status");
    assert.equal(conditionOf(patched, "example.org/patched"), "True");
    await pod.until("patched", (each) => conditionOf(each, "example.org/patched") === "True");
    await pod.stays(3_000, "patched", (each) => conditionOf(each, "example.org/patched") === "True");
  });

  should("be ended at once, and no less, with a negative grace period", async (t) => {
    const pod = await t.start({
      terminationGracePeriodSeconds: t.atMost(60),
      containers: [t.sh("trap '' TERM; while :; do sleep 1; done")],
    });
    await pod.running();
    const at = performance.now();
    await pod.delete(-1);
    await pod.gone();
    assert.ok(performance.now() - at < t.atMost(15_000));
    const ending = pod.history.find(({ metadata }) => metadata?.deletionTimestamp !== undefined);
    assert.equal(ending?.metadata?.deletionGracePeriodSeconds, 1);
  });

  should("be set on Pods with matching resource requests and limits for memory and cpu: their QoS class", async (t) => {
    const resources = { requests: { cpu: "100m", memory: "32Mi" }, limits: { cpu: "100m", memory: "32Mi" } };
    const guaranteed = await t.start({ containers: [t.sh(STAYS, { resources })] });
    const burstable = await t.start({ containers: [t.sh(STAYS, { resources: { requests: { cpu: "10m" } } })] });
    const bestEffort = await t.start({ containers: [t.sh(STAYS)] });
    const classes = await Promise.all(
      [guaranteed, burstable, bestEffort].map(async (pod) => (await pod.running()).status?.qosClass),
    );
    assert.deepEqual(classes, ["Guaranteed", "Burstable", "BestEffort"]);
  });

  should("never report success for a pending container", async (t) => {
    for (const waits of [true, false, true, false, true]) {
      const pod = await t.start({ containers: [t.sh("exit 3")] });
      if (waits) await pod.phase("Running", "Failed");
      await pod.delete();
      await pod.gone();
      if (waits) assert.equal(statusOf(pod.history.at(-1))?.state?.terminated?.exitCode, 3);
      for (const { status } of pod.history) {
        assert.notEqual(status?.phase, "Succeeded");
        assert.notEqual(status?.containerStatuses?.[0]?.state?.terminated?.exitCode, 0);
      }
    }
  });

  should("not create extra sandbox if all containers are done", async (t) => {
    const pod = await t.start({ containers: [t.sh("true")] });
    const done = await pod.succeeded();
    const ip = done.status?.podIP;
    await pod.stays(3_000, "as it ended", (each) => each.status?.podIP === ip && each.status?.phase === "Succeeded");
    await pod.event("Started", ({ reason }) => reason === "Started");
    assert.equal(t.events.all.filter(({ reason }) => reason === "SandboxChanged").length, 0);
  });

  should("keep their times in order", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] });
    const { metadata, status } = await pod.ready();
    const started = timeOf(status?.containerStatuses?.[0]?.state?.running?.startedAt);
    assert.ok(timeOf(metadata?.creationTimestamp) <= timeOf(status?.startTime) + 1_000);
    assert.ok(timeOf(status?.startTime) <= started + 1_000);
    for (const type of ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"])
      assert.equal(conditionOf(pod.latest, type), "True", type);
  });
});

const generation = area("[sig-node] Pods Extended (pod generation) Pod Generation", (should) => {
  should("pod generation should start at 1 and increment per update", async (t) => {
    const pod = await t.start({ activeDeadlineSeconds: 1_000, containers: [t.sh(STAYS)] });
    await pod.running();
    assert.equal(generationOf(pod.latest ?? {}), 1);
    await pod.patch({ spec: { activeDeadlineSeconds: 900 } });
    await pod.until("generation 2", (each) => generationOf(each) === 2);
    await pod.patch({ metadata: { annotations: { no: "change of the spec" } } });
    await pod.until("the annotation", ({ metadata }) => metadata?.annotations?.no !== undefined);
    assert.equal(generationOf(pod.latest ?? {}), 2);
    await pod.until("it to be observed", (each) => observedOf(each) === 2);
  });

  should("custom-set generation on new pods should be overwritten, and raised by a graceful delete", async (t) => {
    const pod = await t.start(
      { terminationGracePeriodSeconds: 10, containers: [t.sh("trap 'sleep 3; exit 0' TERM; sleep 100000 & wait")] },
      { generation: 100 },
    );
    await pod.running();
    assert.equal(generationOf(pod.latest ?? {}), 1);
    await pod.delete();
    await pod.until("generation 2, observed", (each) => generationOf(each) === 2 && observedOf(each) === 2);
    await pod.gone();
  });

  should("issue 100 podspec updates and verify generation and observedGeneration eventually converge", async (t) => {
    const pod = await t.start({ activeDeadlineSeconds: 10_000, containers: [t.sh(STAYS)] });
    for (let at = 1; at <= 100; at += 1) await pod.patch({ spec: { activeDeadlineSeconds: 10_000 - at } });
    await pod.until("101 observed", (each) => generationOf(each) === 101 && observedOf(each) === 101);
  });

  should("pod rejected by kubelet should have updated generation and observedGeneration", async (t) => {
    const resources = { requests: { cpu: "1000000" } };
    const pod = await t.start({ containers: [t.sh(STAYS, { resources })] });
    const { status } = await pod.phase("Failed");
    assert.equal(status?.reason, "OutOfcpu");
    assert.match(
      status?.message ?? "",
      /^Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000000, used: \d+, capacity: \d+/,
    );
    assert.equal(status?.observedGeneration, 1);
  });

  should("pod observedGeneration field set in pod conditions", async (t) => {
    const pod = await t.start({ activeDeadlineSeconds: 1_000, containers: [t.sh(STAYS)] });
    await pod.ready();
    const generations = (each: V1Pod) => each.status?.conditions?.map((one) => one.observedGeneration);
    assert.deepEqual(new Set(generations(pod.latest ?? {})), new Set([1]));
    await pod.patch({ spec: { activeDeadlineSeconds: 900 } });
    await pod.until("generation 2 in all conditions", (each) => generations(each)?.every((one) => one === 2) === true);
  });
});

const admission = area("[sig-node] Pod admission", (should) => {
  const rejected = async (pod: TestPod, reason: string, message: RegExp): Promise<void> => {
    const { status } = await pod.phase("Failed");
    assert.equal(status?.reason, reason);
    assert.match(status?.message ?? "", message);
    assert.ok(!pod.history.some((each) => statusOf(each)?.state?.running !== undefined), "it ran");
    await pod.event(reason, (event) => event.reason === reason && event.type === "Warning");
  };

  should("reject pod when the node OS doesn't match pod's OS", async (t) => {
    const pod = await t.start({ os: { name: "windows" }, containers: [t.sh("true")] });
    await rejected(
      pod,
      "PodOSNotSupported",
      /^Pod was rejected: Failed to admit pod as the OS field doesn't match node OS/,
    );
  });

  should("reject a pod that asks for more memory than the node has", async (t) => {
    const pod = await t.start({ containers: [t.sh("true", { resources: { requests: { memory: "1000Ti" } } })] });
    await rejected(pod, "OutOfmemory", /^Pod was rejected: Node didn't have enough resource: memory, requested: /);
  });

  should("reject a pod whose node selector does not fit", async (t) => {
    const pod = await t.start({ nodeSelector: { "example.org/none": "such" }, containers: [t.sh("true")] });
    await rejected(pod, "NodeAffinity", /^Pod was rejected: Predicate NodeAffinity failed/);
  });

  should("reject a pod with a port of the node that another pod has", async (t) => {
    const hostPort = 20_000 + Math.floor(Math.random() * 10_000);
    const ports = [{ containerPort: 80, hostPort }];
    const first = await t.start({ containers: [t.sh(STAYS, { ports })] });
    await first.running();
    const second = await t.start({ containers: [t.sh(STAYS, { ports })] });
    await rejected(second, "NodePorts", /^Pod was rejected: Predicate NodePorts failed/);
  });
});

const events = area("[sig-node] Events", (should) => {
  should("be sent by kubelets and the scheduler about pods scheduling and running", async (t) => {
    const pod = await t.start({
      nodeName: "",
      nodeSelector: { "kubernetes.io/hostname": t.node },
      containers: [t.sh(STAYS)],
    });
    await pod.running();
    const scheduled = await pod.event("Scheduled", ({ reason }) => reason === "Scheduled");
    assert.equal(scheduled.message, `Successfully assigned ${t.namespace}/${pod.name} to ${t.node}`);
    for (const [reason, message] of [
      ["Created", "Created container: test"],
      ["Started", "Started container test"],
    ] as const) {
      const event = await pod.event(reason, (each) => each.reason === reason);
      assert.equal(event.message, message);
      assert.equal(event.source?.component, "kubelet");
      assert.equal(event.source?.host, t.node);
      assert.equal(event.involvedObject.uid, pod.uid);
      assert.equal(event.involvedObject.fieldPath, "spec.containers{test}");
    }
  });

  should("tell of the end of a pod that is deleted", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS)] });
    await pod.running();
    await pod.delete();
    const event = await pod.event("Killing", ({ reason }) => reason === "Killing");
    assert.equal(event.message, "Stopping container test");
  });

  should("be counted instead of repeated", async (t: TestContext) => {
    const pod = await t.start({ restartPolicy: "Always", containers: [t.sh("exit 1")] });
    const event = await pod.event("Started twice", ({ reason, count }) => reason === "Started" && (count ?? 1) >= 2);
    assert.ok(timeOf(event.firstTimestamp) <= timeOf(event.lastTimestamp));
    const started = t.events.all.filter(({ reason }) => reason === "Started");
    assert.equal(started.length, 1);
  });
});

export const podTests: readonly ConformanceTest[] = [...pods, ...generation, ...admission, ...events];
