/** The real agent in front of a runtime in memory, and pods that come and go by the thousand. */
import { readFileSync } from "node:fs";
import type { Random } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { MEMORY_IMAGE, MemoryCri } from "../unit/cri/memory-cri.ts";
import { AgentNode, type AgentOptions } from "./agent-process.ts";

export class PodChurn implements AsyncDisposable {
  readonly runtime: MemoryCri;
  readonly node: AgentNode;
  /** Made so far. */
  pods = 0;

  private constructor(runtime: MemoryCri, node: AgentNode) {
    this.runtime = runtime;
    this.node = node;
  }

  static async start(options: AgentOptions = {}): Promise<PodChurn> {
    const runtime = await MemoryCri.start();
    const config = { containerRuntimeEndpoint: runtime.endpoint, eventRecordQPS: 0, maxPods: 500, ...options.config };
    const node = new AgentNode({ ...options, config });
    await node.start();
    return new PodChurn(runtime, node);
  }

  /** `count` pods are made, run, and are ended, all at once. @param kindOf what makes each of them special */
  async round(count: number, random?: Random): Promise<void> {
    const names = Array.from({ length: count }, (_, n) => `p${this.pods + n}`);
    this.pods += count;
    this.node.writeManifest("pods.yaml", names.map((name) => JSON.stringify(manifest(name, random))).join("\n---\n"));
    await this.node.waitForPods(
      `${count} pods`,
      (pods) => pods.size === count && names.every((name) => isReady(pods.get(`${name}-node`))),
    );
    if (random !== undefined) await this.#crashSome(random);
    this.node.removeManifest("pods.yaml");
    await this.node.waitForPods("no pods", (pods) => pods.size === 0);
  }

  /** One in five containers ends of itself; those that fail are started again. */
  async #crashSome(random: Random): Promise<void> {
    const victims = this.runtime.running.filter(() => random.next() < 0.2);
    for (const id of victims) this.runtime.exit(id, 1);
    const restarts = victims.length;
    if (restarts === 0) return;
    await this.node.waitForPods(`${restarts} restarts`, (pods) => {
      const counts = [...pods.values()].flatMap((pod) => pod.status?.containerStatuses ?? []);
      return counts.reduce((sum, each) => sum + each.restartCount, 0) >= restarts;
    });
  }

  /** MiB. */
  get anon(): number {
    const status = readFileSync(`/proc/${this.node.pid}/status`, "latin1");
    return (Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1]) * 1024) / MEBIBYTE;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.node[Symbol.asyncDispose]();
    this.runtime[Symbol.dispose]();
  }
}

function manifest(name: string, random: Random | undefined): unknown {
  const container: Record<string, unknown> = { name: "app", image: MEMORY_IMAGE, command: ["run"] };
  if (random !== undefined && random.next() < 0.5) {
    container.readinessProbe = { exec: { command: ["ready"] }, periodSeconds: 1 };
    container.lifecycle = { postStart: { exec: { command: ["begun"] } } };
  }
  if (random !== undefined && random.next() < 0.3) container.env = [{ name: "NAME", value: name.repeat(10) }];
  const volumes = [{ name: "scratch", emptyDir: {} }];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels: { app: name } },
    spec: { terminationGracePeriodSeconds: 1, containers: [container], volumes },
  };
}
