/** A node under a hub whose pods together may have little memory, and what is seen of its pods from kubectl's end. */
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../agent/agent-process.ts";
import { containerIdOf, containerPod, nodeWith } from "../agent/node-fixtures.ts";
import { Containerd } from "../containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../containerd/test-images.ts";
import { FleetAdmin, type NodeCondition } from "../hub/fleet-admin.ts";
import { Fleet } from "../hub/test-fleet.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";

const NODE = "node-a";

type Fields = Readonly<Record<string, unknown>>;

/** Holds so many MiB, fewer than 2048, and goes on: dd has read them, and its output has no reader. */
export const hold = (mebibytes: number): string => `dd if=/dev/zero bs=${mebibytes}M count=1 | sleep 3600`;

/** Fields of a container `app`. */
export interface Launch {
  readonly requests?: Fields;
  readonly limits?: Fields;
  readonly spec?: Fields;
}

export class PressedNode implements AsyncDisposable {
  readonly containerd: Containerd;
  readonly fleet: Fleet;
  readonly admin: FleetAdmin;
  readonly node: AgentNode;
  readonly #folder = new TempFolder();
  readonly #disposal: AsyncDisposableStack;

  private constructor(
    parts: Pick<PressedNode, "containerd" | "fleet" | "admin" | "node">,
    disposal: AsyncDisposableStack,
  ) {
    this.containerd = parts.containerd;
    this.fleet = parts.fleet;
    this.admin = parts.admin;
    this.node = parts.node;
    this.#disposal = disposal;
  }

  /** @param podsBytes what all pods together may have of the machine's memory */
  static async start(podsBytes: number, config: Fields): Promise<PressedNode> {
    await using all = new AsyncDisposableStack();
    const containerd = all.use(await Containerd.start());
    const fleet = all.use(await Fleet.start());
    const systemReserved = { memory: String(totalmem() - podsBytes) };
    const options = { nodeName: NODE, hub: await fleet.joinConfig(), systemReserved, ...config };
    const node = all.use(nodeWith(containerd, { config: options }));
    await node.start();
    const admin = all.use(await FleetAdmin.of(fleet));
    await admin.untilCondition(NODE, "Ready", "True");
    all.defer(() => admin.clear());
    const pressed = new PressedNode({ containerd, fleet, admin, node }, all.move());
    mkdirSync(pressed.gate);
    return pressed;
  }

  /** The folder of gates, what pods wait for. */
  get gate(): string {
    return join(this.#folder.path, "gate");
  }

  /** Lets go on all pods that wait for `gate`. */
  open(gate: string): void {
    writeFileSync(join(this.gate, gate), "");
  }

  /** @param after a gate that it waits for when it is ready */
  pod(name: string, script: string, { requests, limits, spec }: Launch = {}, after?: string): Fields {
    const waits = after === undefined ? script : `while [ ! -e /gate/${after} ]; do sleep 0.05; done; ${script}`;
    const app = {
      ...{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", waits] },
      resources: { requests, limits },
      volumeMounts: [{ name: "gate", mountPath: "/gate", readOnly: true }],
    };
    const volumes = [{ name: "gate", hostPath: { path: this.gate } }];
    return containerPod(name, waits, { nodeName: NODE, containers: [app], volumes, ...spec }) as Fields;
  }

  /** Makes it, and waits until it runs. */
  async run(pod: Fields): Promise<Pod> {
    return await this.admin.untilPod(await this.make(pod), "ready", isReady);
  }

  /** @returns its name */
  async make(pod: Fields): Promise<string> {
    return (await this.admin.create(PODS, pod)).metadata.name;
  }

  get(name: string): Promise<Pod> {
    return this.admin.pod(name);
  }

  condition(type: string, status: "True" | "False"): Promise<NodeCondition> {
    return this.admin.untilCondition(NODE, type, status);
  }

  async taints(): Promise<string> {
    return await this.fleet.kubectl(["get", "node", NODE, "-o", "jsonpath={.spec.taints[*].key}"]);
  }

  /** Waits until it has failed. */
  failed(name: string): Promise<Pod> {
    return this.admin.untilPod(name, "failed", ({ status }) => status?.phase === "Failed");
  }

  /** Waits until it has been evicted for what the node is short of, and its container has ended. */
  async evicted(name: string): Promise<Pod> {
    assert.equal((await this.failed(name)).status?.reason, "Evicted", name);
    // The eviction is reported before the pod is killed.
    const pod = await this.admin.untilPod(
      name,
      "ended",
      ({ status }) => status?.containerStatuses?.[0]?.state.terminated !== undefined,
    );
    const disruption = pod.status?.conditions?.find(({ type }) => type === "DisruptionTarget");
    assert.deepEqual([disruption?.status, disruption?.reason], ["True", "TerminationByKubelet"]);
    return pod;
  }

  /** The pods still run, in the same containers. */
  async runOn(...before: readonly Pod[]): Promise<void> {
    for (const pod of before) {
      const now = await this.get(pod.metadata.name ?? "");
      const [container] = now.status?.containerStatuses ?? [];
      assert.equal(now.status?.phase, "Running", `${pod.metadata.name}: ${now.status?.message}`);
      assert.equal(containerIdOf(now), containerIdOf(pod), pod.metadata.name);
      assert.equal(container?.restartCount, 0, pod.metadata.name);
    }
  }

  /** Takes these pods of the API server away, or all, and waits until the node is calm. */
  async clear(...names: readonly string[]): Promise<void> {
    await this.admin.clear(({ metadata }) => names.length === 0 || names.includes(metadata.name));
    await this.node.waitForStatus("a calm node", ({ conditions }) =>
      conditions.every(({ type, status }) => !type.endsWith("Pressure") || status === "False"),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#disposal.disposeAsync();
    this.#folder[Symbol.dispose]();
  }
}
