/** kubectl, old and new, with the embedded API server and its controllers; agents are simulated. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { PERSISTENT_VOLUME_CLAIMS, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { ENDPOINT_SLICES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { EVENTS } from "@picolet/hub-embedded/controllers/event-recorder.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { KUBECTL_VERSIONS, type KubectlVersion } from "@picolet/scripts/test/install-kubectl.ts";
import { KubectlCluster } from "../support/hub/kubectl-cluster.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";

const daemonSet = (image: string): object => ({
  apiVersion: "apps/v1",
  kind: "DaemonSet",
  metadata: { name: "web", namespace: "default" },
  spec: {
    selector: { matchLabels: { app: "web" } },
    template: { metadata: { labels: { app: "web" } }, spec: { containers: [{ name: "app", image }] } },
  },
});

const pod = (name: string, spec: object = {}): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "default", labels: { app: name } },
  spec: { containers: [{ name: "app", image: "app:1" }], ...spec },
});

/** The cells of a table, its header first. Columns are two spaces apart. */
const cells = (table: string): string[][] =>
  table
    .trimEnd()
    .split("\n")
    .map((line) => line.trimEnd().split(/ {2,}/));

for (const version of KUBECTL_VERSIONS) {
  describe(`kubectl ${version}`, { skip: kubectlMissing(version) }, () => walkThrough(version));
}

function walkThrough(version: KubectlVersion): void {
  async function start(...nodes: readonly string[]): Promise<KubectlCluster> {
    const cluster = await KubectlCluster.startFor(version);
    for (const name of nodes) await cluster.addNode(name);
    cluster.playAgents();
    return cluster;
  }

  test("get nodes,pods -o wide", async () => {
    await using cluster = await start("board-1");
    await cluster.apply(pod("web"));
    await cluster.run("wait", "--for=condition=Ready", "pod/web", "--timeout=30s");
    const [nodes = [], node = []] = cells(await cluster.run("get", "nodes", "-o", "wide"));
    assert.deepEqual(nodes, [
      ...["NAME", "STATUS", "ROLES", "AGE", "VERSION", "INTERNAL-IP", "EXTERNAL-IP"],
      ...["OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"],
    ]);
    assert.deepEqual(
      node.filter((_, index) => index !== 3),
      ["board-1", "Ready", "<none>", "v1.34.0-picolet", "10.0.0.7", "<none>", "Debian", "6.1", "containerd://1.6"],
    );
    const [header = [], row = []] = cells(await cluster.run("get", "pods", "-o", "wide"));
    assert.deepEqual(header, [
      ...["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"],
    ]);
    assert.deepEqual(
      row.filter((_, index) => index !== 4),
      ["web", "1/1", "Running", "0", "10.1.0.2", "board-1", "<none>", "<none>"],
    );
  });

  test("create of an object of several MiB is refused with the server's limit", async () => {
    await using cluster = await start();
    const metadata = { name: "large", namespace: "default" };
    // The server takes 3 MiB, and what it does not take is more than a connection buffers.
    const data = { key: "x".repeat(5 * 1024 * 1024) };
    const input = JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata, data });
    const { stderr } = await cluster.kubectl(["create", "-f", "-", "--validate=false"], { input });
    assert.match(stderr, /Request entity too large: limit is 3145728/);
  });

  test("describe shows the scheduler's event, defaults and conditions", async () => {
    await using cluster = await start("board-1");
    await cluster.apply(pod("web"));
    await ready(cluster, "web");
    await eventually(cluster, "Scheduled");
    const text = await cluster.run("describe", "pod", "web");
    assert.match(text, /PodScheduled\s+True/);
    assert.match(text, /node\.kubernetes\.io\/not-ready:NoExecute op=Exists for 300s/);
    assert.match(text, /Normal\s+Scheduled\s+\S+\s+default-scheduler\s+Successfully assigned default\/web to board-1/);
    assert.match(await cluster.run("describe", "node", "board-1"), /Taints:\s+<none>/);
  });

  test("cordon, drain, uncordon", async () => {
    await using cluster = await start("board-1", "board-2");
    await cluster.apply(daemonSet("app:1"));
    await cluster.run("rollout", "status", "ds/web", "--timeout=30s");
    await cluster.apply(pod("lonely", { nodeName: "board-1" }));
    await ready(cluster, "lonely");
    await cluster.run("cordon", "board-1");
    assert.match(await cluster.run("get", "nodes", "board-1"), /Ready,SchedulingDisabled/);
    const refused = await cluster.kubectl(["drain", "board-1"]);
    assert.notEqual(refused.code, 0);
    assert.match(refused.stderr, /DaemonSet-managed Pods.*default\/web-/s);
    const drained = await cluster.run("drain", "board-1", "--ignore-daemonsets", "--force", "--timeout=30s");
    assert.match(drained, /pod\/lonely evicted/);
    const pods = await cluster.run("get", "pods", "-o", "custom-columns=:.spec.nodeName", "--no-headers");
    assert.deepEqual(pods.trim().split(/\s+/).sort(), ["board-1", "board-2"], "daemon pods stay");
    await cluster.apply(pod("next"));
    await ready(cluster, "next");
    assert.equal(await cluster.run("get", "pod", "next", "-o", "jsonpath={.spec.nodeName}"), "board-2");
    await cluster.run("uncordon", "board-1");
    assert.doesNotMatch(await cluster.run("get", "nodes"), /SchedulingDisabled/);
  });

  test("rollout status, history and undo", async () => {
    await using cluster = await start("board-1", "board-2");
    for (const image of ["app:1", "app:2"]) {
      await cluster.apply(daemonSet(image));
      assert.match(await cluster.run("rollout", "status", "ds/web", "--timeout=30s"), /successfully rolled out/);
    }
    const images = ["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"];
    assert.equal(await cluster.run(...images), "app:2 app:2");
    assert.deepEqual(revisions(await cluster.run("rollout", "history", "ds/web")), ["1", "2"]);
    assert.match(await cluster.run("rollout", "history", "ds/web", "--revision=1"), /Image:\s+app:1/);
    await cluster.run("rollout", "undo", "ds/web");
    await cluster.run("rollout", "status", "ds/web", "--timeout=30s");
    assert.equal(await cluster.run(...images), "app:1 app:1");
    assert.deepEqual(revisions(await cluster.run("rollout", "history", "ds/web")), ["2", "3"]);
    const [, row = []] = cells(await cluster.run("get", "ds", "web", "-o", "wide"));
    assert.deepEqual(
      row.filter((_, index) => index !== 7),
      ["web", "2", "2", "2", "2", "2", "<none>", "app", "app:1", "app=web"],
    );
  });

  test("taint, label, scheduling that fails, events", async () => {
    await using cluster = await start("board-1");
    await cluster.run("taint", "nodes", "board-1", "only=db:NoSchedule");
    await cluster.run("label", "nodes", "board-1", "node-role.kubernetes.io/edge=");
    assert.match(await cluster.run("get", "nodes"), /board-1\s+Ready\s+edge/);
    await cluster.apply(pod("web"));
    await eventually(cluster, "FailedScheduling");
    const events = await cluster.run("get", "events", "--field-selector", "reason=FailedScheduling");
    assert.match(
      events,
      /Warning\s+FailedScheduling\s+pod\/web\s+0\/1 nodes are available: 1 node\(s\) had untolerated taint \{only: db\}\./,
    );
    await cluster.run("taint", "nodes", "board-1", "only-");
    await ready(cluster, "web");
  });

  test("a claim is bound to a volume, a service has its endpoints", async () => {
    await using cluster = await start("board-1");
    const accessModes = ["ReadWriteOnce"];
    const storageClassName = "manual";
    const volumeSpec = { capacity: { storage: "2Gi" }, accessModes, hostPath: { path: "/srv" }, storageClassName };
    await cluster.apply({ apiVersion: "v1", kind: "PersistentVolume", metadata: { name: "disk" }, spec: volumeSpec });
    const resources = { requests: { storage: "1Gi" } };
    const spec = { accessModes, resources, storageClassName };
    await cluster.apply({ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: "data" }, spec });
    await cluster.apply(pod("web", { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "data" } }] }));
    await ready(cluster, "web");
    const [, claim = []] = cells(await cluster.run("get", "pvc"));
    assert.deepEqual(claim.slice(0, 6), ["data", "Bound", "disk", "2Gi", "RWO", "manual"]);
    const [, volume = []] = cells(await cluster.run("get", "pv"));
    assert.deepEqual(volume.slice(0, 7), ["disk", "2Gi", "RWO", "Retain", "Bound", "default/data", "manual"]);
    assert.match(await cluster.run("describe", "pvc", "data"), /Used By:\s+web/);
    assert.match(
      await cluster.run("get", "endpoints,services,storageclasses", "-A"),
      /service\/kubernetes\s+ClusterIP/,
    );
    await cluster.run("expose", "pod", "web", "--port=80", "--target-port=8080");
    await cluster.until(ENDPOINT_SLICES, (slices) => slices.length > 0);
    const [, slice = []] = cells(await cluster.run("get", "endpointslices"));
    assert.deepEqual(slice.slice(1, 4), ["IPv4", "8080", "10.1.0.2"]);
    assert.match(await cluster.run("describe", "service", "web"), /Endpoints:\s+10\.1\.0\.2:8080/);
    await cluster.run("delete", "pvc", "data", "--wait=false");
    assert.match(await cluster.run("get", "pvc", "data"), /Terminating/);
    await cluster.run("delete", "pod", "web", "--now");
    await cluster.until(PERSISTENT_VOLUME_CLAIMS, (claims) => claims.length === 0);
  });

  // kubectl 1.20 knows neither as they are now.
  const debugAndResize = async (): Promise<void> => {
    await using cluster = await start("board-1");
    const sized = (cpu: string) => ({ name: "app", image: "app:1", resources: { requests: { cpu } } });
    await cluster.apply(pod("web", { containers: [sized("100m")] }));
    const patch = JSON.stringify({ spec: { containers: [{ name: "app", resources: { requests: { cpu: "150m" } } }] } });
    const refused = await cluster.kubectl(["patch", "pod", "web", "-p", patch]);
    assert.match(refused.stderr, /pod updates may not change fields other than/);
    await cluster.run("patch", "pod", "web", "--subresource=resize", "-p", patch);
    const path = "jsonpath={.spec.containers[0].resources.requests.cpu} {.metadata.generation}";
    assert.equal(await cluster.run("get", "pod", "web", "-o", path), "150m 2");
    await cluster.run("debug", "web", "--image=debug:1", "--container=look", "--target=app", "--attach=false");
    const debuggers = "jsonpath={.spec.ephemeralContainers[*].name} {.metadata.generation}";
    assert.equal(await cluster.run("get", "pod", "web", "-o", debuggers), "look 3");
  };
  if (version !== "1.20") test("debug and resize", debugAndResize);

  test("what is wrong is refused in Kubernetes' words", async () => {
    await using cluster = await start("board-1");
    await cluster.apply(pod("web"));
    const changed = await cluster.kubectl(["patch", "pod", "web", "-p", '{"spec":{"hostNetwork":true}}']);
    assert.match(
      changed.stderr,
      /The Pod "web" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers\[\*\].image`/,
    );
    const missing = await cluster.kubectl(["apply", "-f", "-"], {
      input: JSON.stringify(pod("wasm", { runtimeClassName: "none" })),
    });
    assert.match(missing.stderr, /pods "wasm" is forbidden: pod rejected: RuntimeClass "none" not found/);
    const lasting = await cluster.kubectl(["delete", "namespace", "default"]);
    assert.match(lasting.stderr, /namespaces "default" is forbidden: this namespace may not be deleted/);
  });

  test("a namespace goes with everything in it", async () => {
    await using cluster = await start("board-1");
    await cluster.run("create", "namespace", "team");
    await cluster.run("-n", "team", "create", "configmap", "settings", "--from-literal=a=b");
    await cluster.run("-n", "team", "run", "web", "--image=app:1");
    await cluster.run("delete", "namespace", "team", "--timeout=30s");
    assert.doesNotMatch(await cluster.run("get", "pods,configmaps", "-A"), /team/);
  });

  test("Pod Security's warnings and refusals", async () => {
    await using cluster = await start();
    const label = (name: string): string => `pod-security.kubernetes.io/${name}`;
    await cluster.run("label", "namespace", "default", `${label("warn")}=restricted`, `${label("enforce")}=baseline`);
    const apply = (manifest: object) => cluster.kubectl(["apply", "-f", "-"], { input: JSON.stringify(manifest) });
    const warned = await apply(pod("web"));
    assert.equal(warned.code, 0);
    assert.match(
      warned.stderr,
      /^Warning: would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false/,
    );
    const refused = await apply(pod("root", { hostPID: true }));
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /violates PodSecurity "baseline:latest": host namespaces \(hostPID=true\)/);
    const relabelled = await cluster.kubectl([
      "label",
      "--overwrite",
      "namespace",
      "default",
      `${label("enforce")}=restricted`,
    ]);
    assert.match(
      relabelled.stderr,
      /Warning: existing pods in namespace "default" violate the new PodSecurity enforce level/,
    );
    assert.match(relabelled.stderr, /Warning: web: allowPrivilegeEscalation != false, unrestricted capabilities/);
  });
}

const revisions = (history: string): string[] =>
  history.split("\n").flatMap((line) => /^(\d+)\s/.exec(line)?.[1] ?? []);

async function ready(cluster: KubectlCluster, name: string): Promise<void> {
  await cluster.until(PODS, (pods) => pods.some((pod) => pod.metadata.name === name && isReady(pod as unknown as Pod)));
}

/** Events are written when there is time for it. */
async function eventually(cluster: KubectlCluster, reason: string): Promise<void> {
  await cluster.until(EVENTS, (events) => events.some((event) => event.reason === reason));
}
