/**
 * Metrics and their text. A program has one table of metrics for each path that answers them. Nothing is counted or
 * kept here: a metric's figures are read when a client scrapes it.
 */

export type MetricsFormat = "prometheus" | "openmetrics";

export interface HistogramValue {
  /** Upper bounds in ascending order, without +Inf. */
  readonly bounds: readonly number[];
  /** Observations by the first bound that they fit in, and in the last place those above all bounds. */
  readonly counts: ArrayLike<number>;
  readonly sum: number;
}

export interface Sample<Value = number | HistogramValue> {
  /** Values of the metric's labels, in their order. */
  readonly labels: readonly string[];
  /** Undefined: there is no figure, and no line. */
  readonly value: Value | undefined;
  /** Wall time of the figure; undefined: the time of the scrape. */
  readonly atMs?: number | undefined;
}

/** A line of a table. `Source` has the figures of all metrics of the table. */
export interface Metric<Source> {
  /** With its unit, and `_total` for a counter. */
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  /** Names of labels in the order of the text. Kubernetes sorts them. */
  readonly labels: readonly string[];
  readonly collect: (source: Source) => Iterable<Sample>;
}

type Collect<Source, Value> = (source: Source) => Iterable<Sample<Value>>;

export const counter = <Source>(
  name: string,
  help: string,
  labels: readonly string[],
  collect: Collect<Source, number>,
): Metric<Source> => ({ name, type: "counter", help, labels, collect });

export const gauge = <Source>(
  name: string,
  help: string,
  labels: readonly string[],
  collect: Collect<Source, number>,
): Metric<Source> => ({ name, type: "gauge", help, labels, collect });

export const histogram = <Source>(
  name: string,
  help: string,
  labels: readonly string[],
  collect: Collect<Source, HistogramValue>,
): Metric<Source> => ({ name, type: "histogram", help, labels, collect });

/**
 * Bounds a scrape, whose lines have about 150 bytes. 110 pods of ten containers with three probes and two results each
 * have 6,600 series. Further series are left out; in the format `prometheus` a comment says so.
 */
export const MAX_SERIES = 10_000;
/** Bounds a line. Names of Kubernetes have at most 253 characters; longer values are cut. */
export const MAX_LABEL_CHARACTERS = 1024;

/**
 * @param maxSeries of one metric
 * @returns the text in pieces of whole lines, each read from `source` when it is taken; metrics without figures have
 *   no lines
 */
export function* metricsText<Source>(
  metrics: readonly Metric<Source>[],
  source: Source,
  format: MetricsFormat = "prometheus",
  maxSeries = MAX_SERIES,
): Generator<string> {
  for (const metric of metrics) yield* family(metric, source, format, maxSeries);
  if (format === "openmetrics") yield "# EOF\n";
}

function* family<Source>(
  metric: Metric<Source>,
  source: Source,
  format: MetricsFormat,
  maxSeries: number,
): Generator<string> {
  const isOpen = format === "openmetrics";
  // OpenMetrics names a counter without the suffix of its samples.
  const base = isOpen && metric.type === "counter" ? metric.name.replace(/_total$/, "") : metric.name;
  const name = isOpen && metric.type === "counter" ? `${base}_total` : metric.name;
  let series = 0;
  for (const sample of metric.collect(source)) {
    if (sample.value === undefined) continue;
    if (series === 0) yield head(base, metric, isOpen);
    if (series === maxSeries) {
      if (!isOpen) yield `# ${name}: series above ${maxSeries} are left out\n`;
      return;
    }
    series += 1;
    const labels = metric.labels.map((label, index) => pair(label, sample.labels[index] ?? ""));
    const time = sample.atMs === undefined ? "" : ` ${isOpen ? sample.atMs / 1000 : sample.atMs}`;
    if (typeof sample.value === "number") yield line(name, labels, sample.value, time);
    else yield* histogramLines(name, labels, sample.value, time, isOpen);
  }
}

const head = (name: string, { help, type }: Pick<Metric<never>, "help" | "type">, isOpen: boolean): string =>
  `# HELP ${name} ${isOpen ? escapeLabel(help) : escapeHelp(help)}\n# TYPE ${name} ${type}\n`;

function* histogramLines(
  name: string,
  labels: readonly string[],
  { bounds, counts, sum }: HistogramValue,
  time: string,
  isOpen: boolean,
): Generator<string> {
  let count = 0;
  for (let index = 0; index <= bounds.length; index += 1) {
    count += counts[index] ?? 0;
    const bound = bounds[index];
    yield line(
      `${name}_bucket`,
      [...labels, pair("le", bound === undefined ? "+Inf" : boundText(bound, isOpen))],
      count,
      time,
    );
  }
  yield line(`${name}_sum`, labels, sum, time);
  yield line(`${name}_count`, labels, count, time);
}

const line = (name: string, labels: readonly string[], value: number, time: string): string =>
  `${name}${labels.length === 0 ? "" : `{${labels.join(",")}}`} ${numberText(value)}${time}\n`;

const pair = (name: string, value: string): string =>
  `${name}="${escapeLabel(value.slice(0, MAX_LABEL_CHARACTERS).toWellFormed())}"`;

const escapeHelp = (text: string): string => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
const escapeLabel = (text: string): string => escapeHelp(text).replaceAll('"', '\\"');

function numberText(value: number): string {
  if (Number.isFinite(value) || Number.isNaN(value)) return String(value);
  return value > 0 ? "+Inf" : "-Inf";
}

/** OpenMetrics writes bounds as floating-point numbers. */
const boundText = (bound: number, isOpen: boolean): string =>
  isOpen && Number.isInteger(bound) ? `${bound}.0` : numberText(bound);
