/** The parts of `picolet-hub serve` for metrics: boards' samples, their export, and the port that scrapers read. */

import type { SampleReceiver } from "@picolet/hub-core/telemetry-ports.ts";
import { parseLabelSelector } from "@picolet/hub-embedded/api/selectors.ts";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { metricsText } from "@picolet/protocol/metrics/metrics.ts";
import { KubernetesReviews } from "../bridge/kubelet-reviews.ts";
import type { KubernetesFleet } from "../bridge/kubernetes-fleet.ts";
import { ApiServiceCa } from "../metrics/api-service-ca.ts";
import { BoardSamples } from "../metrics/board-samples.ts";
import { federate } from "../metrics/federate.ts";
import { HUB_METRICS, type HubFigures } from "../metrics/hub-metrics.ts";
import { MetricsAccess } from "../metrics/metrics-access.ts";
import { MetricsServer, textHandler } from "../metrics/metrics-server.ts";
import { SampleStreams } from "../metrics/sample-streams.ts";
import { usageApi } from "../metrics/usage-api.ts";
import { SampledUsage } from "../metrics/usage-objects.ts";
import type { ServeArguments } from "./arguments.ts";
import type { Cluster, HubPorts } from "./cluster.ts";
import { derivedWatch } from "./derived-watch.ts";
import { makeSampleExport } from "./telemetry-components.ts";

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|::1)$/;
/** Without `--metrics-address`. */
const DEFAULT_ADDRESS = { host: "127.0.0.1", port: 9184 };

export interface HubSamples {
  readonly samples: BoardSamples;
  readonly usage: SampledUsage;
  /** Undefined: boards are asked for none. */
  readonly receiver: SampleReceiver | undefined;
  readonly parts: readonly Component[];
}

export function makeSamples(ports: HubPorts, backend: KubernetesFleet, args: ServeArguments): HubSamples {
  const { clock, log } = ports;
  const { pods, nodes } = backend;
  const { samplesIntervalMs } = args.metrics;
  const samples = new BoardSamples(
    { podsOf: (node) => pods.podsOf(node), clock },
    { everySeconds: Math.max(1, Math.round(samplesIntervalMs / 1000)) },
  );
  const usage = new SampledUsage({
    samples,
    pods,
    nodeLabels: (name) => nodes.node(name)?.labels,
    nodeNames: () => nodes.names(),
  });
  const exported = makeSampleExport(ports, args);
  const forgetting: Component = {
    name: "samples of removed nodes",
    run: async (signal) => {
      using _following = nodes.follow((name) => {
        if (nodes.node(name) === undefined) samples.forget(name);
      });
      await aborted(signal);
    },
  };
  const receiver =
    samplesIntervalMs === 0 ? undefined : new SampleStreams({ samples, exported: exported?.samples, clock, log });
  return { samples, usage, receiver, parts: [forgetting, ...(exported?.parts ?? [])] };
}

export interface MetricsPortParts {
  readonly cluster: Cluster;
  readonly figures: HubFigures;
  readonly samples: HubSamples;
}

/** @returns undefined where none is wanted, or the default address is taken; the URL is known after `listen` */
export async function openMetricsPort(
  { clock, log }: HubPorts,
  { cluster, figures, samples }: MetricsPortParts,
  { metrics }: Pick<ServeArguments, "metrics">,
): Promise<{ readonly parts: readonly Component[]; readonly url: string } | undefined> {
  if (metrics.address === "off") return undefined;
  const address = metrics.address ?? DEFAULT_ADDRESS;
  const { host } = address;
  const isLoopback = LOOPBACK.test(host);
  const { client, clientCa, frontProxy, kubeletTls, serving } = cluster;
  const reviews = new KubernetesReviews({ client });
  const missing = (): number => {
    const ready = [...figures.readiness()].filter((each) => each === "True").length;
    return Math.max(0, ready - [...samples.samples.all()].length);
  };
  const access = new MetricsAccess({ reviews, clientCa, frontProxy, clock });
  const server = new MetricsServer({
    handlers: [
      textHandler("/metrics", (format) => metricsText(HUB_METRICS, figures, format)),
      textHandler("/federate", (format, query) => federate(samples.samples, format, query)),
      ...(isLoopback ? [] : [usageApi({ usage: samples.usage, missing, parseSelector: parseLabelSelector })]),
    ],
    secure: isLoopback ? undefined : { tls: kubeletTls, access },
    clock,
    log,
  });
  try {
    const port = await server.listen(address);
    const shown = host.includes(":") ? `[${host}]` : host;
    const ca = derivedWatch(serving, ({ caBundle }) => caBundle);
    const isAggregated = !isLoopback && cluster.apiServer === undefined;
    const parts = isAggregated ? [server, new ApiServiceCa({ client, ca, clock, log })] : [server];
    return { parts, url: `${isLoopback ? "http" : "https"}://${shown}:${port}` };
  } catch (error) {
    if (metrics.address !== undefined) throw error;
    log.warn("metrics are not served: --metrics-address names another address", { error: describeError(error) });
    return undefined;
  }
}
