/** Boards' samples on their way to a time-series store: in the store of telemetry until they are taken there. */
import { SampleDecoder, SampleEncoder } from "@picolet/protocol/telemetry/sample-codec.ts";
import { LengthPrefixedReader } from "@picolet/protocol/telemetry/stream-messages.ts";
import { MAX_SAMPLED_PODS, type UsageSample } from "@picolet/protocol/telemetry/usage-sample.ts";
import type { RecordRow } from "../telemetry/record-rows.ts";
import type { StoredBatch, TelemetryStore } from "../telemetry/telemetry-store.ts";
import { type BoardUsage, usageOfSample } from "./board-samples.ts";
import { FLEET_METRICS } from "./fleet-metrics.ts";
import type { SampleExport } from "./sample-streams.ts";

const NOWHERE = { namespace: "", pod: "", uid: "", container: "", labels: [] };
const NANOSECONDS_PER_SECOND = 1_000_000_000n;
const PLACES: ReadonlySet<string> = new Set(["node", "namespace", "pod", "container"]);

/** A sample by itself, in as many messages as its pods need. */
export function encodeWhole(sample: UsageSample): Uint8Array {
  const encoder = new SampleEncoder();
  const messages: Uint8Array[] = [];
  const decoder = new SampleDecoder();
  // Each message takes at least one pod more.
  for (let sequence = 1; sequence <= MAX_SAMPLED_PODS; sequence += 1) {
    const message = encoder.encode(sequence, sample);
    messages.push(message);
    const [content] = new LengthPrefixedReader().push(message);
    if (content === undefined || decoder.decode(content).sample.pods.length >= sample.pods.length) break;
  }
  return Buffer.concat(messages);
}

/** @throws `invalid` */
export function decodeWhole(body: Uint8Array): UsageSample | undefined {
  const decoder = new SampleDecoder();
  return new LengthPrefixedReader()
    .push(body)
    .map((message) => decoder.decode(message).sample)
    .at(-1);
}

export class StoredSamples implements SampleExport {
  readonly #store: TelemetryStore;

  constructor({ store }: { readonly store: TelemetryStore }) {
    this.#store = store;
  }

  received(node: string, queue: string): number {
    return this.#store.received(node, queue);
  }

  async put(
    node: string,
    queue: string,
    samples: readonly { readonly sequence: number; readonly sample: UsageSample }[],
    signal: AbortSignal,
  ): Promise<void> {
    const deliveries = samples.map(({ sequence, sample }) => ({
      sequence,
      baseUs: sample.atMs * 1000,
      isEstimated: sample.isEstimated,
      batch: encodeWhole(sample),
      decoded: { origin: NOWHERE, records: [] },
    }));
    await this.#store.put(node, queue, deliveries, signal);
  }
}

/** The rows of `FLEET_METRICS` of one stored sample. */
export function sampleRows({ node, isEstimated, body }: StoredBatch): readonly RecordRow[] {
  const sample = decodeWhole(body);
  if (sample === undefined) return [];
  const board = usageOfSample(sample);
  const timeNs = BigInt(sample.atMs) * 1_000_000n;
  const rows: RecordRow[] = [];
  for (const { name, type, labels, collect } of FLEET_METRICS) {
    for (const { labels: values, value } of collect(() => [[node, board]])) {
      if (typeof value !== "number") continue;
      const at = (label: string): string => values[labels.indexOf(label)] ?? "";
      const origin = { ...NOWHERE, namespace: at("namespace"), pod: at("pod"), container: at("container") };
      const tags = labels.filter((label) => !PLACES.has(label)).map((label) => [label, at(label)] as const);
      const record = { kind: "point", measurement: name, tags, fields: [["value", value]], timeNs } as const;
      const since = type === "counter" ? { sinceNs: beginningOf(board, origin, name) } : {};
      rows.push({ node, origin, record, timeNs, isEstimated, ...since });
    }
  }
  return rows;
}

/** Nanoseconds since 1970 at which a counter began; 0: not known. */
function beginningOf(
  board: BoardUsage,
  { namespace, pod, container }: { readonly namespace: string; readonly pod: string; readonly container: string },
  metric: string,
): bigint {
  const nanoseconds = (seconds: number): bigint => BigInt(seconds) * NANOSECONDS_PER_SECOND;
  if (pod === "") return metric.startsWith("picolet_board_") ? nanoseconds(board.agentSinceSeconds) : 0n;
  const found = board.pods.find((each) => each.pod.namespace === namespace && each.pod.name === pod);
  if (container === "") return nanoseconds(found?.pod.sinceSeconds ?? 0);
  const own = found?.containers.find((each) => each.container.name === container);
  return nanoseconds(own?.container.sinceSeconds ?? 0);
}
