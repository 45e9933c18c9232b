/**
 * Random manifests: each is refused at a path, or leads to a verdict, a plan, a status, folders and runtime calls, or
 * to an error that says why not. When it goes, nothing of it is left on disk.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { admitPod } from "@picolet/agent/plan/admission/admission.ts";
import { allocatableAmounts } from "@picolet/agent/plan/admission/admission-resources.ts";
import { sysctlAllowlist } from "@picolet/agent/plan/admission/sysctls.ts";
import { containersOf } from "@picolet/agent/plan/container-roles.ts";
import { planPod } from "@picolet/agent/plan/plan-pod.ts";
import { deriveStatus } from "@picolet/agent/status/derive-status.ts";
import { type Mounter, SystemMounter } from "@picolet/agent/volumes/files/mounter.ts";
import { PodEnvironmentOnDisk } from "@picolet/agent/volumes/pod-environment.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { containerConfig, sandboxConfig } from "@picolet/runtime-cri/pods/pod-config.ts";
import { ContainerConfig, PodSandboxConfig } from "@picolet/runtime-cri/wire/cri-messages.ts";
import fc from "fast-check";
import { randomManifests } from "../support/agent/random-manifests.ts";
import { TestClusterObjects } from "../support/unit/agent/memory-cluster-objects.ts";
import { POD_CONFIG_SETTINGS } from "../support/unit/cri/cri-adapters.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { viewOf } from "../support/unit/pods/pod-views.ts";
import { desired } from "../support/unit/pods/sample-pods.ts";
import { RecordedEvents, RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";

const RUNS = 1000;
const NEVER = new AbortController().signal;

/** As on a node that may not mount: every volume is a plain folder, and nothing has to be taken down. */
class NoMounts extends SystemMounter implements Mounter {
  override readonly allowed = false;
}

/** An agent's folders and environment without its workers. */
class Bench implements Disposable {
  readonly folder = new TempFolder();
  readonly clock = new VirtualClock();
  readonly objects = new TestClusterObjects(this.clock);
  readonly environment: PodEnvironmentOnDisk;

  constructor() {
    writeFileSync(this.folder.at("resolv.conf"), "nameserver 192.0.2.53\n");
    mkdirSync(this.folder.at("host"));
    this.objects.set("ConfigMap/default/config", { data: { key: "value", "not-a-name": "x" } });
    this.objects.set("Secret/default/secret", { data: { key: Buffer.from("value").toString("base64") } });
    const cgroups = { pathOf: () => "/kubepods/pod1", ensure: async () => undefined, remove: async () => undefined };
    const parts = { clock: this.clock, objects: this.objects, objectsChanged: this.objects.changed, cgroups };
    const hostIPs = () => ["192.0.2.1"];
    this.environment = new PodEnvironmentOnDisk(
      { ...parts, mounter: new NoMounts(), events: new RecordedEvents(), log: new RecordedLog(), hostIPs },
      {
        rootDir: this.folder.at("lib"),
        podLogsDir: this.folder.at("logs"),
        nodeName: "board",
        resolvConf: this.folder.at("resolv.conf"),
        clusterDNS: { servers: ["10.96.0.10"], domain: "cluster.local" },
        allocatable: { cpu: "4", memory: "512Mi" },
        memoryBytes: 2 ** 29,
      },
    );
  }

  get around() {
    const hostFolder = this.folder.at("host", "folder");
    const names = { config: "config", secret: "secret", claim: "claim", nodeName: "board" };
    return { ...names, hostFolder, firstHostPort: 8080, failingComponent: "example/none:1" };
  }

  /** The entries that must be gone in the end; folders that hostPath volumes created stay. */
  get leftovers(): readonly string[] {
    return ["lib/pods", "logs"].flatMap((name) => {
      const path = this.folder.at(name);
      return existsSync(path) ? readdirSync(path) : [];
    });
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

/** @returns whether it went well. A failure must be one that says what cannot be done. */
async function wellOrTold(what: string, work: () => unknown): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (!isPicoletError(error)) throw new Error(`${what} broke down`, { cause: error });
    assert.match(error.message, /\S/, what);
    return false;
  }
}

const VIEW = {
  node: { name: "board", labels: {}, taints: [] },
  allocatable: allocatableAmounts({ cpu: "2", memory: "1Gi", pods: "3", "ephemeral-storage": "10Gi" }),
  sysctls: sysctlAllowlist(["kernel.msg*"], "6.1.0-13-arm64"),
  apparmor: false,
  supplementalGroupsPolicy: false,
  isShuttingDown: false,
  pressures: [],
};

function assertJudged(pod: DesiredPod): void {
  const admission = admitPod(pod, [], VIEW);
  if (admission.kind === "rejected") {
    assert.match(admission.rejection.reason, /^[A-Za-z]+$/);
    assert.match(admission.rejection.message, /\S/);
  }
  const view = viewOf({ pod: pod.pod, observed: undefined, desired: pod });
  const { next: worker, actions } = planPod(view);
  assert.ok(Array.isArray(actions));
  const status = deriveStatus({ ...view, worker });
  assert.deepEqual(JSON.parse(JSON.stringify(status)), status);
}

/** Paths on the node that are not this test's are left alone. */
const staysWithin = (folder: string, { spec }: Pod): boolean =>
  (spec.volumes ?? []).every(({ hostPath }) => hostPath === undefined || hostPath.path.startsWith(folder));

async function assertHoused(bench: Bench, pod: DesiredPod): Promise<boolean> {
  const { environment } = bench;
  const isPrepared = await wellOrTold("prepare", () => environment.prepare(pod, NEVER));
  if (isPrepared) {
    await wellOrTold("sandbox", () => {
      const sandbox = environment.sandbox(pod, 0);
      return PodSandboxConfig.encode(sandboxConfig(pod, sandbox, POD_CONFIG_SETTINGS, true));
    });
    const image = { requested: "example/app:1", id: "sha256:1" };
    const sandboxes = [{ id: "s", attempt: 0, state: "ready" as const, createdAtMs: 0, ips: ["10.1.2.3"] }];
    const observed = { uid: pod.uid, sandboxes, containers: [], manifest: undefined };
    for (const container of containersOf(pod.pod)) {
      const run = { attempt: 0, backoff: millis(10_000), image };
      await wellOrTold(`container ${container.name}`, () => {
        const launch = environment.container(pod, container as Container, run, observed);
        const own = { imageUser: { uid: 1000, username: "" }, sandbox: environment.sandbox(pod, 0) };
        return ContainerConfig.encode(containerConfig(pod, launch, own, POD_CONFIG_SETTINGS));
      });
    }
  }
  await environment.cleanup(pod, NEVER);
  assert.deepEqual(bench.leftovers, []);
  return isPrepared;
}

test("a manifest drawn from the schema breaks nothing down", async () => {
  using bench = new Bench();
  const counts = { refused: 0, judged: 0, housed: 0 };
  const property = fc.asyncProperty(randomManifests(bench.around), async (manifest) => {
    const result = parsePod(manifest);
    if (!result.ok) {
      counts.refused += 1;
      assert.ok(result.problems.length > 0);
      for (const { path, message } of result.problems) assert.match(`${path}: ${message}`, /\S: \S/);
      return;
    }
    counts.judged += 1;
    const pod: DesiredPod = { ...desired(result.pod), source: "api", origin: "" };
    assertJudged(pod);
    if (staysWithin(bench.folder.path, result.pod) && (await assertHoused(bench, pod))) counts.housed += 1;
  });
  await fc.assert(property, { numRuns: RUNS });
  for (const [what, count] of Object.entries(counts)) assert.ok(count > RUNS / 20, `${what}: ${count} of ${RUNS}`);
});
