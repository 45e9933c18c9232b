/**
 * Volumes of a CSI driver, written with gRPC's own library, that makes real mounts. It runs beside the node and
 * registers in its root directory; the tests play the part of its controller.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { V1CSINode, V1PersistentVolumeClaim, V1PodSpec, V1VolumeAttachment } from "@kubernetes/client-node";
import { mountsBelow, type SeenCall, TestCsiDriver } from "../../support/unit/plugins/csi-driver.ts";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { LiveSet } from "../framework/live-set.ts";
import type { TestContext } from "../framework/test-context.ts";
import type { TestPod } from "../framework/test-pod.ts";
import { STAYS } from "../framework/traces.ts";

const STORAGE_API = "/apis/storage.k8s.io/v1";
const CSI = { group: "csi" };
/** The driver's claim, in every pod. */
const CLAIM = "claim";
const TOPOLOGY_KEY = "conformance.test/shelf";

interface DriverOptions {
  readonly spec?: object;
  /** False: the test registers it. */
  readonly registers?: false;
}

/** A driver with its object, and one volume with the claim that is bound to it. */
class Driven {
  readonly driver: TestCsiDriver;
  readonly name: string;
  readonly #t: TestContext;
  readonly #waiting = new Set<() => void>();

  private constructor(t: TestContext, driver: TestCsiDriver, name: string) {
    this.#t = t;
    this.driver = driver;
    this.name = name;
    driver.after = () => {
      for (const check of this.#waiting) check();
    };
  }

  static async start(t: TestContext, { spec = {}, registers }: DriverOptions = {}): Promise<Driven> {
    const { kubeletRoot } = t.target;
    if (kubeletRoot === "") t.skip("--kubelet-root was not given: drivers cannot register");
    const name = `${t.namespace}.conformance.test`;
    const folder = mkdtempSync(join(tmpdir(), "csi-"));
    t.defer(async () => rmSync(folder, { recursive: true }));
    const driver = await TestCsiDriver.start({ name, folder, maxVolumes: 7, topology: { [TOPOLOGY_KEY]: "3" } });
    t.defer(async () => await driver[Symbol.asyncDispose]());
    const path = `${STORAGE_API}/csidrivers`;
    const volumeLifecycleModes = ["Persistent", "Ephemeral"];
    const defaults = { attachRequired: false, volumeLifecycleModes };
    await t.api.call("POST", path, {
      ...{ apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name } },
      spec: { ...defaults, ...spec },
    });
    t.defer(async () => await t.api.call("DELETE", `${path}/${name}`));
    const driven = new Driven(t, driver, name);
    if (registers !== false) await driven.register();
    return driven;
  }

  async register(): Promise<void> {
    await this.driver.register(join(this.#t.target.kubeletRoot, "plugins_registry"));
  }

  get volumeName(): string {
    return `${this.#t.namespace}-volume`;
  }

  get handle(): string {
    return `handle-${this.#t.namespace}`;
  }

  async claim(spec: object = {}): Promise<void> {
    const t = this.#t;
    const accessModes = ["ReadWriteOnce"];
    const claimRef = { namespace: t.namespace, name: CLAIM };
    const csi = { driver: this.name, volumeHandle: this.handle, fsType: "tmpfs" };
    const path = "/api/v1/persistentvolumes";
    await t.api.call("POST", path, {
      ...{ apiVersion: "v1", kind: "PersistentVolume", metadata: { name: this.volumeName } },
      spec: { accessModes, capacity: { storage: "1Mi" }, claimRef, csi, ...spec },
    });
    t.defer(async () => await t.api.call("DELETE", `${path}/${this.volumeName}`));
    const resources = { requests: { storage: "1Mi" } };
    await t.create("persistentvolumeclaims", {
      ...{ apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: CLAIM } },
      spec: { accessModes, resources, storageClassName: "", volumeName: this.volumeName, ...spec },
    });
  }

  /** A pod with the volume at /data. It goes before its driver does, which must take its volume back. */
  async pod(script: string, more: Partial<V1PodSpec> = {}, container: object = {}): Promise<TestPod> {
    const t = this.#t;
    const pod = await t.start({
      volumes: [{ name: "data", persistentVolumeClaim: { claimName: CLAIM } }],
      containers: [t.sh(script, { volumeMounts: [{ name: "data", mountPath: "/data" }], ...container })],
      ...more,
    });
    t.defer(async () => await this.end(pod));
    return pod;
  }

  /** Until the pod is gone, and every volume that was staged is unstaged. */
  async end(pod: TestPod): Promise<void> {
    if (pod.latest !== undefined) await this.#t.delete("pods", pod.name);
    await pod.gone();
  }

  count(method: string): number {
    return this.driver.changes.filter((each) => each === method).length;
  }

  /** Until a call that has ended makes it so. */
  async until(what: string, holds: () => boolean): Promise<void> {
    const { signal } = this.#t;
    await new Promise<void>((resolve, reject) => {
      const end = (): void => {
        this.#waiting.delete(check);
        signal.removeEventListener("abort", onAbort);
      };
      const onAbort = (): void => {
        end();
        reject(new Error(`waited for the driver: ${what}; it was called: ${this.driver.changes.join(", ")}`));
      };
      const check = (): void => {
        if (!holds()) return;
        end();
        resolve();
      };
      this.#waiting.add(check);
      signal.addEventListener("abort", onAbort);
      check();
    });
  }

  async taken(): Promise<void> {
    await this.until("to unstage", () => this.count("Unstage") > 0);
  }
}

async function untilNodeHas(t: TestContext, driver: string, isThere: boolean): Promise<unknown> {
  const nodes = new LiveSet<V1CSINode>(t.api, `${STORAGE_API}/csinodes`, t.signal);
  return await nodes.find(() => {
    const found = nodes.get(t.node)?.spec.drivers.find(({ name }) => name === driver);
    return (found !== undefined) === isThere ? (found ?? true) : undefined;
  });
}

export const csiTests: readonly ConformanceTest[] = area("[sig-storage] CSI Volumes", (should) => {
  should(
    "show the driver in the node's CSINode while it is registered",
    async (t) => {
      const { driver, name } = await Driven.start(t);
      assert.deepEqual(await untilNodeHas(t, name, true), {
        ...{ name, nodeID: "node-of-test", topologyKeys: [TOPOLOGY_KEY], allocatable: { count: 7 } },
      });
      await driver[Symbol.asyncDispose]();
      await untilNodeHas(t, name, false);
    },
    CSI,
  );

  should(
    "stage a volume, publish it for its pod, and take it back in reverse",
    async (t) => {
      const driven = await Driven.start(t);
      const { driver } = driven;
      await driven.claim();
      const modes: string[] = [];
      driver.before = ({ method, request }: SeenCall) => {
        const path = method === "NodeStageVolume" ? request.staging_target_path : dirname(String(request.target_path));
        if (/Stage|Publish/.test(method)) modes.push(`${method} ${(statSync(String(path)).mode & 0o777).toString(8)}`);
      };
      const pod = await driven.pod(`echo written > /data/file; cat /data/file; ${STAYS}`);
      await pod.logged("written");
      assert.deepEqual(modes, ["NodeStageVolume 750", "NodePublishVolume 750"]);
      const target = String(driver.requests("NodePublishVolume")[0]?.target_path);
      const kept = JSON.parse(readFileSync(join(dirname(target), "vol_data.json"), "utf8")) as Record<string, string>;
      const { attachmentID, ...data } = kept;
      assert.match(attachmentID ?? "", /^csi-[0-9a-f]{64}$/);
      assert.deepEqual(data, {
        ...{ specVolID: driven.volumeName, volumeHandle: driven.handle, driverName: driven.name },
        ...{ nodeName: t.node, volumeLifecycleMode: "Persistent" },
      });
      driver.before = () => undefined;
      await driven.end(pod);
      await driven.taken();
      assert.deepEqual(driver.changes, ["Stage", "Publish", "Unpublish", "Unstage"]);
      assert.deepEqual(
        mountsBelow(t.target.kubeletRoot).filter((path) => path.includes(pod.uid) || path.includes(driven.name)),
        [],
      );
    },
    CSI,
  );

  should(
    "stage a volume once for all pods of the node",
    async (t) => {
      const driven = await Driven.start(t);
      await driven.claim();
      const first = await driven.pod(`echo first > /data/file; echo done; ${STAYS}`);
      await first.logged("done");
      const second = await driven.pod(`cat /data/file; ${STAYS}`);
      await second.logged("first");
      await driven.end(first);
      assert.equal((await second.shell("cat /data/file")).trim(), "first");
      assert.deepEqual(driven.driver.changes, ["Stage", "Publish", "Publish", "Unpublish"]);
      await driven.end(second);
      await driven.taken();
    },
    CSI,
  );

  should(
    "publish a volume read-only for a read-only claim",
    async (t) => {
      const driven = await Driven.start(t);
      await driven.claim();
      const volumes = [{ name: "data", persistentVolumeClaim: { claimName: CLAIM, readOnly: true } }];
      const pod = await driven.pod(`touch /data/file 2>&1; echo over; ${STAYS}`, { volumes });
      assert.match(await pod.logged("over"), /Read-only file system/);
      assert.equal(driven.driver.requests("NodePublishVolume")[0]?.readonly, true);
      await driven.end(pod);
      await driven.taken();
    },
    CSI,
  );

  should(
    "mount a subPath of a volume, and still take the volume back",
    async (t) => {
      const driven = await Driven.start(t);
      await driven.claim();
      const volumeMounts = [
        { name: "data", mountPath: "/sub", subPath: "a/b" },
        { name: "data", mountPath: "/data" },
      ];
      const pod = await driven.pod(`echo below > /sub/file; cat /data/a/b/file; ${STAYS}`, {}, { volumeMounts });
      await pod.logged("below");
      await driven.end(pod);
      await driven.taken();
      assert.deepEqual(driven.driver.changes, ["Stage", "Publish", "Unpublish", "Unstage"]);
    },
    CSI,
  );

  should(
    "give a volume's files to the pod's fsGroup by the driver's policy",
    async (t) => {
      const driven = await Driven.start(t, { spec: { fsGroupPolicy: "File" } });
      await driven.claim();
      const pod = await driven.pod(`touch /data/own; stat -c %g /data /data/own; ${STAYS}`, {
        securityContext: { fsGroup: 1234 },
      });
      await pod.logged(/^1234\n1234\n/);
      await driven.end(pod);
      await driven.taken();
    },
    CSI,
  );

  should(
    "publish an inline volume with its pod's identity, and remove it with the pod",
    async (t) => {
      const driven = await Driven.start(t, { spec: { podInfoOnMount: true } });
      const csi = { driver: driven.name, volumeAttributes: { size: "1Mi" } };
      const pod = await driven.pod(`echo inline > /data/file; cat /data/file; ${STAYS}`, {
        volumes: [{ name: "data", csi }],
      });
      await pod.logged("inline");
      const context = driven.driver.requests("NodePublishVolume")[0]?.volume_context as Record<string, string>;
      assert.deepEqual(context, {
        size: "1Mi",
        "csi.storage.k8s.io/ephemeral": "true",
        "csi.storage.k8s.io/pod.name": pod.name,
        "csi.storage.k8s.io/pod.namespace": t.namespace,
        "csi.storage.k8s.io/pod.uid": pod.uid,
        "csi.storage.k8s.io/serviceAccount.name": "default",
      });
      await driven.end(pod);
      assert.deepEqual(driven.driver.changes, ["Publish", "Unpublish"]);
    },
    CSI,
  );

  should(
    "give a container a block volume as a device",
    async (t) => {
      const driven = await Driven.start(t);
      await driven.claim({ volumeMode: "Block" });
      const script = `test -b /dev/disk && echo raw > /dev/disk && echo written; ${STAYS}`;
      const volumeDevices = [{ name: "data", devicePath: "/dev/disk" }];
      const pod = await driven.pod(script, {}, { volumeMounts: [], volumeDevices });
      await pod.logged("written");
      await driven.end(pod);
      await driven.taken();
    },
    CSI,
  );

  should(
    "expand a volume while its pod runs, and show its new size in the claim",
    async (t) => {
      const driven = await Driven.start(t);
      await driven.claim();
      const pod = await driven.pod(STAYS);
      await pod.running();
      const conditions = [{ type: "FileSystemResizePending", status: "True" }];
      await t.api.patch(t.path("persistentvolumeclaims", CLAIM, "status"), { status: { conditions } }, "merge");
      const spec = { capacity: { storage: "2Mi" } };
      await t.api.patch(`/api/v1/persistentvolumes/${driven.volumeName}`, { spec }, "merge");
      const claims = new LiveSet<V1PersistentVolumeClaim>(t.api, t.path("persistentvolumeclaims"), t.signal);
      await claims.find(() => claims.get(CLAIM)?.status?.capacity?.storage === "2Mi" || undefined);
      const range = driven.driver.requests("NodeExpandVolume")[0]?.capacity_range as {
        readonly required_bytes: string;
      };
      assert.equal(Number(range.required_bytes), 2 * 1024 * 1024);
      await driven.end(pod);
      await driven.taken();
    },
    { ...CSI, limitSeconds: 180 },
  );

  should(
    "report a volume's usage, as its driver has it, in the summary of statistics",
    async (t) => {
      const driven = await Driven.start(t);
      await driven.claim();
      const pod = await driven.pod(STAYS);
      await pod.running();
      const text = await t.api.text(`/api/v1/nodes/${t.node}/proxy/stats/summary`, {});
      const { pods } = JSON.parse(text) as {
        readonly pods: readonly {
          readonly podRef: { readonly uid: string };
          readonly volume?: readonly { readonly name: string; readonly capacityBytes: number; pvcRef?: object }[];
        }[];
      };
      const volume = pods.find(({ podRef }) => podRef.uid === pod.uid)?.volume?.find(({ name }) => name === "data");
      assert.equal(volume?.capacityBytes, 8_388_608);
      assert.deepEqual(volume?.pvcRef, { name: CLAIM, namespace: t.namespace });
      await driven.end(pod);
      await driven.taken();
    },
    CSI,
  );

  should(
    "start no pod while its driver is away, say so, and start it when the driver is there",
    async (t) => {
      const driven = await Driven.start(t, { registers: false });
      await driven.claim();
      const pod = await driven.pod(`echo started; ${STAYS}`);
      const { message } = await pod.event("the driver is away", ({ reason }) => reason === "FailedMount");
      assert.match(message ?? "", /not found in the list of registered CSI drivers/);
      await driven.register();
      await pod.logged("started");
      await driven.end(pod);
      await driven.taken();
    },
    { ...CSI, limitSeconds: 240 },
  );

  should(
    "publish a volume again with a token of the pod's service account where the driver asks for it",
    async (t) => {
      const spec = { requiresRepublish: true, tokenRequests: [{ audience: "vault" }] };
      const driven = await Driven.start(t, { spec });
      await driven.claim();
      const pod = await driven.pod(STAYS);
      await pod.running();
      await driven.until("to publish again", () => driven.count("Publish") > 1);
      for (const { volume_context: context } of driven.driver.requests("NodePublishVolume")) {
        const text = (context as Record<string, string>)["csi.storage.k8s.io/serviceAccount.tokens"] ?? "";
        assert.match((JSON.parse(text) as { vault: { token: string } }).vault.token, /^ey.+\..+\./);
      }
      await driven.end(pod);
      await driven.taken();
    },
    { ...CSI, limitSeconds: 300 },
  );

  should(
    "attach a volume before it is staged, and detach it after it is unstaged",
    async (t) => {
      const driven = await Driven.start(t, { spec: { attachRequired: true } });
      await driven.claim();
      const pod = await driven.pod(`echo attached; ${STAYS}`);
      const path = `${STORAGE_API}/volumeattachments`;
      const attachments = new LiveSet<V1VolumeAttachment>(t.api, path, t.signal);
      const isOwn = ({ spec }: V1VolumeAttachment): boolean => spec.attacher === driven.name;
      const { metadata, spec } = await attachments.find(() => attachments.all.find(isOwn));
      assert.deepEqual([spec.nodeName, spec.source.persistentVolumeName], [t.node, driven.volumeName]);
      assert.deepEqual(driven.driver.changes, []);
      const status = { attached: true, attachmentMetadata: { device: "/dev/sdx" } };
      await t.api.patch(`${path}/${metadata?.name}/status`, { status }, "merge");
      await pod.logged("attached");
      assert.deepEqual(driven.driver.requests("NodePublishVolume")[0]?.publish_context, { device: "/dev/sdx" });
      await driven.end(pod);
      await attachments.find(() => !attachments.all.some(isOwn) || undefined);
      assert.deepEqual(driven.driver.changes, ["Stage", "Publish", "Unpublish", "Unstage"]);
    },
    { ...CSI, limitSeconds: 180 },
  );
});
