/** Figures of those who look on: the kubelet's port, scrapes of its metrics, and the samples that a board pushes. */
import { setTimeout as delay } from "node:timers/promises";
import { Agent, request } from "undici";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { allReady, containerPod, nodeWith } from "../../support/agent/node-fixtures.ts";
import type { Containerd } from "../../support/containerd/containerd.ts";
import { Fleet } from "../../support/hub/test-fleet.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";
import { type RestingAgent, restOf, SETTLE_MS, startResting } from "../agent/agent-figures.ts";
import { round } from "../measure/process-usage.ts";

/** Paths that one Prometheus asks a node for. */
const SCRAPED = ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"];
const PODS = 10;
const PODS_SCRAPED = 50;
/** Enough that all which answers has been compiled and loaded. */
const FIRST_SCRAPES = 5;
const SAMPLES_INTERVAL_S = 10;
/** The first sample after a pod's start names it, later ones have its figures alone. */
const SAMPLED_MS = 90_000;
const MINUTES_A_DAY = 1440;

/** Scrapes one board's port over one TLS connection. */
class Scraper implements AsyncDisposable {
  readonly #origin: string;
  readonly #dispatcher = new Agent({ allowH2: false, connections: 1, connect: { rejectUnauthorized: false } });

  constructor(port: number) {
    this.#origin = `https://127.0.0.1:${port}`;
  }

  /** @returns milliseconds that all of `SCRAPED` took */
  async scrape(): Promise<number> {
    const begun = performance.now();
    for (const path of SCRAPED) {
      const { statusCode, body } = await request(`${this.#origin}${path}`, { dispatcher: this.#dispatcher });
      await body.text();
      if (statusCode !== 200) throw new Error(`${path} was answered with ${statusCode}`);
    }
    return performance.now() - begun;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#dispatcher.destroy();
  }
}

/** An agent whose port takes anonymous requests, with pods of its own. */
async function startWithPort(containerd: Containerd, pods: number): Promise<{ node: AgentNode; port: number }> {
  const port = await fixedPort();
  const config = {
    ...{ enableServer: true, address: "127.0.0.1", port },
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: "AlwaysAllow" },
  };
  const node = nodeWith(containerd, { config });
  await node.start();
  for (let index = 0; index < pods; index += 1)
    node.writeManifest(`scraped${index}.json`, containerPod(`scraped${index}-of-${pods}`));
  await node.waitForPods(`${pods} ready pods`, allReady(pods));
  return { node, port };
}

/** An agent without the port, and one that was asked by it. */
export class PortAgents implements AsyncDisposable {
  readonly #without: RestingAgent;
  readonly #asked: AgentNode;
  readonly #started: AsyncDisposableStack;

  private constructor(without: RestingAgent, asked: AgentNode, started: AsyncDisposableStack) {
    this.#without = without;
    this.#asked = asked;
    this.#started = started;
  }

  static async start(containerd: Containerd): Promise<PortAgents> {
    await using started = new AsyncDisposableStack();
    const without = started.use(await startResting(containerd, PODS, "unserved"));
    started.defer(() => without.drain());
    const { node, port } = await startWithPort(containerd, PODS);
    started.use(node);
    started.defer(() => node.drain());
    await using scraper = new Scraper(port);
    for (let count = 0; count < FIRST_SCRAPES; count += 1) await scraper.scrape();
    return new PortAgents(without, node, started.move());
  }

  async rest(windowMs: number): Promise<unknown> {
    const [without, asked] = await Promise.all(
      [this.#without.node, this.#asked].map(({ pid }) => restOf(pid, windowMs)),
    );
    const added = (asked?.anonMiB ?? Number.NaN) - (without?.anonMiB ?? Number.NaN);
    return { without, asked, anonMiBAdded: round(added) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started.disposeAsync();
  }
}

/** Milliseconds that each of `runs` scrapes took, of a board with fifty pods. */
export async function scrapesAt50Pods(containerd: Containerd, runs: number): Promise<readonly number[]> {
  const { node, port } = await startWithPort(containerd, PODS_SCRAPED);
  await using started = new AsyncDisposableStack();
  started.use(node);
  started.defer(() => node.drain());
  await using scraper = new Scraper(port);
  for (let count = 0; count < FIRST_SCRAPES; count += 1) await scraper.scrape();
  const took: number[] = [];
  for (let run = 0; run < runs; run += 1) took.push(await scraper.scrape());
  return took;
}

/** A board with ten pods whose hub asks for samples, more often than usual. */
export class SampledBoard implements AsyncDisposable {
  readonly #fleet: Fleet;
  readonly #started: AsyncDisposableStack;

  private constructor(fleet: Fleet, started: AsyncDisposableStack) {
    this.#fleet = fleet;
    this.#started = started;
  }

  static async start(containerd: Containerd): Promise<SampledBoard> {
    await using started = new AsyncDisposableStack();
    const interval = `--samples-interval=${SAMPLES_INTERVAL_S}s`;
    const fleet = started.use(await Fleet.start(["--metrics-address=127.0.0.1:0", interval]));
    const node = started.use(nodeWith(containerd, { config: { nodeName: "sampled", hub: await fleet.joinConfig() } }));
    await node.start();
    for (let index = 0; index < PODS; index += 1)
      node.writeManifest(`sampled${index}.json`, containerPod(`sampled${index}`));
    started.defer(() => node.drain());
    await node.waitForPods(`${PODS} ready pods`, allReady(PODS));
    return new SampledBoard(fleet, started.move());
  }

  /** @returns bytes of frames a day with the hub's usual sample each minute */
  async rest(): Promise<{ readonly pushBytesPerDay10Pods: number; readonly bytesPerSample: number }> {
    await delay(SETTLE_MS);
    const before = await this.#received();
    await delay(SAMPLED_MS);
    const after = await this.#received();
    const samples = after.samples - before.samples;
    if (samples === 0) throw new Error("the board sent no sample");
    const bytesPerSample = round((after.bytes - before.bytes) / samples);
    return { pushBytesPerDay10Pods: Math.round(bytesPerSample * MINUTES_A_DAY), bytesPerSample };
  }

  /** Frames that carry streams; a heartbeat is none. */
  async #received(): Promise<{ readonly samples: number; readonly bytes: number }> {
    const text = await (await fetch(`${this.#fleet.ready.metrics}/metrics`)).text();
    const sumOf = (pattern: RegExp): number =>
      [...text.matchAll(pattern)].reduce((sum, [, value]) => sum + Number(value), 0);
    return {
      samples: sumOf(/^picolet_hub_samples_received_total (\d+)/gm),
      bytes: sumOf(/^picolet_hub_tunnel_bytes_total\{direction="received",kind="(?:open|data|end|credit)"\} (\d+)/gm),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started.disposeAsync();
  }
}
