/** A node under a hub whose pods together may have little memory, and what is seen of its pods from kubectl's end. */
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import type { Pod } from "../../protocol/pod.ts";
import type { AgentNode } from "./agent-process.ts";
import { Containerd } from "./containerd.ts";
import { Fleet } from "./fleet.ts";
import { BUSYBOX_IMAGE } from "./image-archive.ts";
import { containerIdOf, containerPod, nodeWith } from "./node-fixtures.ts";
import { TempFolder } from "./temp-folder.ts";

export const MIB = 1024 * 1024;
const NODE = "node-a";

type Fields = Readonly<Record<string, unknown>>;

/** Holds so many MiB, and goes on. */
export const hold = (mebibytes: number): string =>
  `awk 'BEGIN { block = sprintf("%1048576s", ""); while (i < ${mebibytes}) kept[i++] = block i; system("sleep 3600") }'`;

/** Of a container `app`. */
export interface Launch {
  readonly requests?: Fields;
  readonly limits?: Fields;
  readonly spec?: Fields;
}

export class PressedNode implements AsyncDisposable {
  readonly containerd: Containerd;
  readonly fleet: Fleet;
  readonly node: AgentNode;
  readonly #folder = new TempFolder();
  readonly #disposal: AsyncDisposableStack;

  private constructor(containerd: Containerd, fleet: Fleet, node: AgentNode, disposal: AsyncDisposableStack) {
    this.containerd = containerd;
    this.fleet = fleet;
    this.node = node;
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
    await fleet.untilNodeReady(NODE);
    const pressed = new PressedNode(containerd, fleet, node, all.move());
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
  pod(name: string, script: string, { requests, limits, spec }: Launch = {}, after?: string): object {
    const waits = after === undefined ? script : `while [ ! -e /gate/${after} ]; do sleep 0.05; done; ${script}`;
    const app = {
      ...{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", waits] },
      resources: { requests, limits },
      volumeMounts: [{ name: "gate", mountPath: "/gate", readOnly: true }],
    };
    const volumes = [{ name: "gate", hostPath: { path: this.gate } }];
    return containerPod(name, waits, { nodeName: NODE, containers: [app], volumes, ...spec }) as object;
  }

  /** Makes it, and waits until it runs. */
  async run(pod: object): Promise<Pod> {
    const { name } = (pod as { readonly metadata: { readonly name: string } }).metadata;
    await this.fleet.apply(pod);
    await this.fleet.kubectl(["wait", "--for=condition=Ready", `pod/${name}`, "--timeout=90s"]);
    return await this.get(name);
  }

  get(name: string): Promise<Pod> {
    return this.fleet.get<Pod>("pod", name);
  }

  condition(type: string, status: "True" | "False"): Promise<string> {
    const output = `jsonpath=<{.status.conditions[?(@.type=="${type}")].status}>{"\\n"}`;
    return this.fleet.seen(["get", "node", NODE, "--watch", "-o", output], (text) => text.endsWith(`<${status}>\n`));
  }

  async taints(): Promise<string> {
    return await this.fleet.kubectl(["get", "node", NODE, "-o", "jsonpath={.spec.taints[*].key}"]);
  }

  /** Waits until it has failed. */
  async failed(name: string): Promise<Pod> {
    await this.fleet.kubectl(["wait", "--for=jsonpath={.status.phase}=Failed", `pod/${name}`, "--timeout=90s"]);
    return await this.get(name);
  }

  /** Waits until it has been evicted for what the node is short of, and its container has ended. @returns why */
  async evicted(name: string): Promise<string> {
    assert.equal((await this.failed(name)).status?.reason, "Evicted", name);
    // That it is evicted is told before it is killed.
    const ended = "jsonpath={.status.containerStatuses[0].state.terminated.reason}";
    await this.fleet.kubectl(["wait", `--for=${ended}`, `pod/${name}`, "--timeout=90s"]);
    const { status } = await this.get(name);
    const disruption = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
    assert.deepEqual([disruption?.status, disruption?.reason], ["True", "TerminationByKubelet"]);
    return status?.message ?? "";
  }

  /** They run, and have since they were looked at. */
  async runOn(...before: readonly Pod[]): Promise<void> {
    for (const pod of before) {
      const now = await this.get(pod.metadata.name ?? "");
      const [container] = now.status?.containerStatuses ?? [];
      assert.equal(now.status?.phase, "Running", pod.metadata.name);
      assert.equal(containerIdOf(now), containerIdOf(pod), pod.metadata.name);
      assert.equal(container?.restartCount, 0, pod.metadata.name);
    }
  }

  /** How often an event of that reason has been told of the pod or node. */
  async events(reason: string, name: string): Promise<number> {
    const output = "jsonpath={range .items[*]}{.reason}:{.involvedObject.name}\n{end}";
    const all = await this.fleet.kubectl(["get", "events", "-A", "-o", output]);
    return all.split("\n").filter((line) => line === `${reason}:${name}`).length;
  }

  /** Takes all pods of the API server away, and waits until the node is calm. */
  async clear(): Promise<void> {
    await this.fleet.kubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
    await this.node.waitForStatus("a calm node", ({ conditions }) =>
      conditions.every(({ type, status }) => !type.endsWith("Pressure") || status === "False"),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.fleet.tryKubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
    await this.#disposal.disposeAsync();
    this.#folder[Symbol.dispose]();
  }
}
