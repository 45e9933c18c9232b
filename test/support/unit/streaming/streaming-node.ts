/** A node with a real runtime, the agent's streams, and the hub in front of it: all but tunnel and API server. */

import type { AgentPod } from "@picolet/agent/core/pods/agent-pod.ts";
import { PodLogs } from "@picolet/agent/logs/pod-logs.ts";
import { KubeletAnswers } from "@picolet/agent/streams/kubelet-answers.ts";
import { NodeStreams } from "@picolet/agent/streams/node-streams.ts";
import { KubeletDialer } from "@picolet/hub/kubelet-proxy/kubelet-dialer.ts";
import { KubeletProxy } from "@picolet/hub/kubelet-proxy/kubelet-proxy.ts";
import { KubeletTargets } from "@picolet/hub/kubelet-proxy/kubelet-targets.ts";
import type { KubeletTarget } from "@picolet/hub-core/kubelet-connector.ts";
import type { AccessQuestion, KubeletUser } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { Bench } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import type { ConformanceFixture, Program } from "@picolet/runtime-test-kit/conformance/conformance-fixture.ts";
import { TlsAuthority } from "../identity/tls-authority.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { LocalFleet } from "./local-fleet.ts";

export const NODE = "edge-1";

/** The node's statistics in these tests; the real collector has its own. */
const NO_STATS = {
  summary: () => Promise.resolve({ node: { nodeName: NODE } }),
  resourceMetrics: () => Promise.resolve(["# nothing\n"]),
};

export class StreamingNode implements AsyncDisposable {
  readonly fixture: ConformanceFixture;
  readonly bench: Bench;
  readonly fleet = new LocalFleet();
  readonly authority = new TlsAuthority("kubelet test");
  readonly log = new RecordedLog();
  readonly streams: NodeStreams;
  readonly proxy: KubeletProxy;
  readonly dialer: KubeletDialer;
  /** The API server's. */
  readonly client: { readonly certificate: string; readonly privateKey: string };
  readonly podsChanged = new WatchSource(0);
  /** Authorizes a request; by default every user may do everything. */
  allows: (user: KubeletUser, question: AccessQuestion) => boolean = () => true;
  readonly #pods = new Map<string, AgentPod>();
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  /** @param fixture disposed of with the node */
  constructor(fixture: ConformanceFixture) {
    this.fixture = fixture;
    this.bench = new Bench(this.fixture, this.#stop.signal);
    const pods = (): readonly AgentPod[] => [...this.#pods.values()];
    this.streams = new NodeStreams({
      pods,
      router: { adapters: [this.fixture.adapter], adapterFor: () => this.adapter },
      logs: new PodLogs({ pods: { pods, podsChanged: this.podsChanged }, clock: systemClock }),
      kubelet: new KubeletAnswers({
        probeMetrics: () => [],
        metrics: async () => [],
        clock: systemClock,
        pods,
        stats: NO_STATS,
        node: async () => ({
          ...{ configuration: { maxPods: 110 }, cpus: 2, memoryBytes: 1024 },
          ...{ machineID: "m", systemUUID: "s", bootID: "b" },
        }),
        unhealthy: () => "",
      }),
      clock: systemClock,
      log: this.log,
    });
    const serving = this.authority.issueServer();
    this.client = this.authority.issueClient([
      { type: "O", value: "system:masters" },
      { type: "CN", value: "kube-apiserver-kubelet-client" },
    ]);
    const tls = { privateKey: serving.privateKey, certificateChain: serving.certificate, clientCa: this.authority.ca };
    this.proxy = new KubeletProxy(
      {
        fleet: this.fleet,
        reviews: {
          userOfToken: async (token) => (token === "good" ? { name: "prometheus", groups: [] } : undefined),
          allows: async (user, question) => this.allows(user, question),
        },
        tls: new WatchSource(tls),
        clock: systemClock,
        log: this.log,
      },
      { address: "127.0.0.1", host: "127.0.0.1", ports: undefined },
    );
    this.dialer = new KubeletDialer({
      clock: systemClock,
      tls: new WatchSource({
        certificateChain: this.client.certificate,
        privateKey: this.client.privateKey,
        kubeletCa: this.authority.ca,
      }),
      targets: new KubeletTargets({ own: this.proxy }, { networks: [] }),
    });
    this.#running = endOfRun(this.proxy.run(this.#stop.signal));
  }

  get adapter(): RuntimeAdapter {
    return this.fixture.adapter;
  }

  /** Its port is open then. */
  async connect(node = NODE): Promise<void> {
    this.fleet.connect(node, this.streams.handlers);
    await this.bench.until("the node's port", async () => {
      try {
        return this.proxy.endpointOf(node);
      } catch {
        return undefined;
      }
    });
  }

  target(node = NODE): KubeletTarget {
    return { node, claimed: this.proxy.endpointOf(node) };
  }

  /** A pod of one container that runs. */
  async run(pod: DesiredPod, program: Program): Promise<void> {
    await this.bench.createSandbox(pod);
    const { id } = await this.bench.start(pod, program);
    await this.bench.running(pod, id);
    await this.look(pod);
  }

  /** Sets what the agent knows of the pod from now on. */
  async look(pod: DesiredPod, status: PodStatus | undefined = { phase: "Running" }): Promise<void> {
    const { containers } = await this.bench.inspect(pod);
    const { logDirectory } = await this.fixture.preparePod(pod);
    this.#pods.set(pod.uid, {
      ...{ desired: pod, status, terminatingSinceMs: undefined, runtime: this.adapter.name },
      ...{ containers, logDirectory },
    });
    this.podsChanged.set(this.podsChanged.current + 1);
  }

  forget(pod: DesiredPod): void {
    this.#pods.delete(pod.uid);
    this.podsChanged.set(this.podsChanged.current + 1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.dialer[Symbol.dispose]();
    await this.#running;
    await this.proxy[Symbol.asyncDispose]();
    await this.fixture[Symbol.asyncDispose]();
  }
}
