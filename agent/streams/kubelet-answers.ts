/** Answers GET requests of the kubelet's HTTP API that need no stream of their own. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { formatOf, OPENMETRICS_TEXT, PROMETHEUS_TEXT } from "@picolet/protocol/metrics/content-type.ts";
import type { MetricsFormat } from "@picolet/protocol/metrics/metrics.ts";
import { PAGE_PATH } from "@picolet/protocol/page/board-data.ts";
import type { PodAction } from "@picolet/protocol/page/pod-actions.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { KubeletReply } from "@picolet/protocol/tunnel/stream.ts";
import type { NodeCounts } from "../core/node/node-counts.ts";
import type { NodeStats } from "../core/node/node-stats.ts";
import type { WhyAnswers } from "../core/node/why-answers.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { podObject } from "../core/pods/pod-object.ts";

export interface KubeletAnswer extends KubeletReply {
  /** Made as they are taken. */
  readonly body: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>;
  /** True for one whose pieces are sent as they come. */
  readonly isStream?: boolean;
}

export interface PageOfNode {
  /** @param url path and query, from `/page/` on */
  answer(url: string, signal: AbortSignal): Promise<KubeletAnswer>;
  /** Its caller has judged the user's rights. @param user the name, for the pod's events */
  change(action: PodAction, user: string, signal: AbortSignal): Promise<KubeletAnswer>;
}

/** Facts of the node for /configz and /spec. */
export interface KubeletNode {
  /** With the kubelet's field names (KubeletConfiguration v1beta1). */
  readonly configuration: Readonly<Record<string, unknown>>;
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly machineID: string;
  readonly systemUUID: string;
  readonly bootID: string;
}

export interface KubeletAnswersComponents {
  readonly pods: () => readonly AgentPod[];
  readonly stats: NodeStats;
  /** In Prometheus' text format. */
  readonly probeMetrics: (format?: MetricsFormat) => Iterable<string> | Promise<Iterable<string>>;
  /** The text of `/metrics` or `/metrics/cadvisor`. */
  readonly metrics: (
    table: "kubelet" | "cadvisor",
    format: MetricsFormat,
    signal: AbortSignal,
  ) => Promise<Iterable<string>>;
  readonly counts?: NodeCounts | undefined;
  readonly clock: Clock;
  readonly node: () => Promise<KubeletNode>;
  /** Missing: no decisions are recorded. */
  readonly why?: WhyAnswers | undefined;
  /** Why this node is not healthy; "" when it is. */
  readonly unhealthy: () => string;
  /** Missing: the page is off. */
  readonly page?: PageOfNode;
  /** The folder of the machine's logs; missing: they are not answered (`enableSystemLogHandler`). */
  readonly logFolder?: string | undefined;
}

const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain; charset=utf-8";

interface Asked {
  readonly query: URLSearchParams;
  readonly format: MetricsFormat;
  readonly signal: AbortSignal;
}

type Route = (answers: KubeletAnswers, asked: Asked) => Promise<KubeletAnswer> | KubeletAnswer;

const ROUTES: ReadonlyMap<string, Route> = new Map<string, Route>([
  ["/pods", (answers) => answers.pods(() => true)],
  ["/runningpods", (answers) => answers.pods(runs)],
  ["/healthz", (answers) => answers.healthz()],
  ["/healthz/ping", (answers) => answers.healthz()],
  ["/healthz/syncloop", (answers) => answers.healthz()],
  ["/stats/summary", (answers, { query, signal }) => answers.summary(query, signal)],
  ["/metrics", (answers, asked) => answers.metrics("kubelet", asked)],
  ["/metrics/cadvisor", (answers, asked) => answers.metrics("cadvisor", asked)],
  ["/metrics/resource", (answers, asked) => answers.resourceMetrics(asked)],
  ["/metrics/probes", (answers, asked) => answers.probeMetrics(asked)],
  ["/configz", (answers) => answers.configz()],
  ["/spec", (answers) => answers.spec()],
]);

/** Paths of a kubelet that are refused for a reason, by their first part. */
const REFUSED: ReadonlyMap<string, { readonly status: number; readonly why: string }> = new Map([
  ["debug", { status: 403, why: "profiles and flags of the agent are not given out" }],
  ["checkpoint", { status: 404, why: "checkpoints of containers are not offered: no runtime here is asked for them" }],
]);

const runs = ({ containers }: AgentPod): boolean => containers.some((each) => each.state.kind === "running");

export class KubeletAnswers {
  readonly #components: KubeletAnswersComponents;

  constructor(components: KubeletAnswersComponents) {
    this.#components = components;
  }

  /**
   * @param accept the client's header of that name; metrics are in OpenMetrics if it asks for that
   * @throws `invalid` for a path that is none
   */
  async get(pathWithQuery: string, signal: AbortSignal, accept = ""): Promise<KubeletAnswer> {
    const url = URL.parse(pathWithQuery, "http://node");
    if (url === null) throw new PicoletError("invalid", "the path is none");
    const path = url.pathname.replace(/\/+$/, "");
    const route = ROUTES.get(path);
    if (route !== undefined)
      return await this.#counted(path, () =>
        route(this, { query: url.searchParams, format: formatOf(accept), signal }),
      );
    if (url.pathname.startsWith(PAGE_PATH)) return await this.#page(`${url.pathname}${url.search}`, signal);
    if (path === "/why" || path.startsWith("/why/")) return await this.#why(path, url.searchParams);
    const [, first = ""] = path.split("/");
    if (first === "logs") return await this.#systemLogs(url.pathname);
    const refusal = REFUSED.get(first);
    return refusal === undefined ? text(404, "404 page not found\n") : text(refusal.status, `${refusal.why}\n`);
  }

  /** Paths that are not offered are not counted: their names are the client's. */
  async #counted(path: string, answer: () => Promise<KubeletAnswer> | KubeletAnswer): Promise<KubeletAnswer> {
    const { counts, clock } = this.#components;
    const labels = ["false", "GET", path.slice(1), "readwrite"];
    const began = clock.monotonic();
    counts?.add("kubelet_http_requests_total", ...labels);
    try {
      return await answer();
    } finally {
      counts?.observe("kubelet_http_requests_duration_seconds", clock.monotonic() - began, ...labels);
    }
  }

  async #page(pathWithQuery: string, signal: AbortSignal): Promise<KubeletAnswer> {
    const { page } = this.#components;
    return page === undefined ? PAGE_OFF : await page.answer(pathWithQuery, signal);
  }

  async #systemLogs(pathname: string): Promise<KubeletAnswer> {
    const { logFolder } = this.#components;
    if (logFolder === undefined) return text(405, "logs endpoint is disabled.\n");
    const { answerSystemLogs } = await import("./system-logs.ts");
    return await answerSystemLogs(logFolder, pathname);
  }

  /** @see PageOfNode */
  async change(action: PodAction, user: string, signal: AbortSignal): Promise<KubeletAnswer> {
    const { page } = this.#components;
    return page === undefined ? PAGE_OFF : await page.change(action, user, signal);
  }

  /** `/why`, `/why/NAMESPACE/POD`; `output=text` for people, `topic` as for the local API. */
  async #why(path: string, query: URLSearchParams): Promise<KubeletAnswer> {
    const { answerWhyPath } = await import("./why-path.ts");
    return await answerWhyPath(this.#components.why, path, query);
  }

  pods(wanted: (pod: AgentPod) => boolean): KubeletAnswer {
    const pods = this.#components.pods().filter(wanted);
    return { status: 200, contentType: JSON_TYPE, body: podList(pods) };
  }

  healthz(): KubeletAnswer {
    const why = this.#components.unhealthy();
    return why === "" ? text(200, "ok") : text(500, `${why}\n`);
  }

  async summary(query: URLSearchParams, signal: AbortSignal): Promise<KubeletAnswer> {
    const only = query.get("only_cpu_and_memory") === "true";
    return json(await this.#components.stats.summary({ onlyCpuAndMemory: only }, signal));
  }

  async metrics(table: "kubelet" | "cadvisor", { format, signal }: Asked): Promise<KubeletAnswer> {
    return metricsAnswer(format, await this.#components.metrics(table, format, signal));
  }

  async resourceMetrics({ format, signal }: Asked): Promise<KubeletAnswer> {
    return metricsAnswer(format, await this.#components.stats.resourceMetrics(signal, format));
  }

  async probeMetrics({ format }: Asked): Promise<KubeletAnswer> {
    return metricsAnswer(format, await this.#components.probeMetrics(format));
  }

  async configz(): Promise<KubeletAnswer> {
    return json({ kubeletconfig: (await this.#components.node()).configuration });
  }

  async spec(): Promise<KubeletAnswer> {
    const { cpus, memoryBytes, machineID, systemUUID, bootID } = await this.#components.node();
    return json({
      ...{ num_cores: cpus, memory_capacity: memoryBytes },
      ...{ machine_id: machineID, system_uuid: systemUUID, boot_id: bootID },
    });
  }
}

const metricsAnswer = (format: MetricsFormat, body: Iterable<string>): KubeletAnswer => {
  return { status: 200, contentType: format === "openmetrics" ? OPENMETRICS_TEXT : PROMETHEUS_TEXT, body };
};

const text = (status: number, body: string): KubeletAnswer => ({ status, contentType: TEXT_TYPE, body: [body] });

const PAGE_OFF = text(404, "the page of this board is off: page.enabled in its configuration turns it on\n");

const json = (value: unknown): KubeletAnswer => {
  return { status: 200, contentType: JSON_TYPE, body: [`${JSON.stringify(value)}\n`] };
};

function* podList(pods: readonly AgentPod[]): Generator<string> {
  yield '{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[';
  for (const [index, pod] of pods.entries()) yield `${index === 0 ? "" : ","}${JSON.stringify(podObject(pod))}`;
  yield "]}\n";
}
