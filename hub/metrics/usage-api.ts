/**
 * `metrics.k8s.io/v1beta1` as an aggregated API server: what a cluster's API server passes on by its APIService. The
 * embedded API server serves the same objects itself.
 */
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { METRICS_GROUP, METRICS_VERSION, type UsageObjects } from "@picolet/hub-core/usage-objects.ts";
import { httpFailure } from "@picolet/kubelet-api/serving/http-answers.ts";
import { kubeStatus } from "@picolet/kubelet-api/serving/kube-status.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { MetricsCall, MetricsHandler } from "./metrics-server.ts";
import { usageOpenApi } from "./usage-openapi.ts";

const OPENAPI_PATH = "/openapi/v2";
const GROUP_PATH = `/apis/${METRICS_GROUP}`;
const BASE = `${GROUP_PATH}/${METRICS_VERSION}`;
/** Objects that are made in one turn of the event loop. */
const SLICE = 200;
const KINDS = { nodes: "NodeMetrics", pods: "PodMetrics" } as const;
type Resource = keyof typeof KINDS;

type LabelFilter = (labels: Readonly<Record<string, string>>) => boolean;

export interface UsageApiComponents {
  readonly usage: UsageObjects;
  /** Boards that are ready, and of which there are no figures here: another replica may have them. */
  readonly missing: () => number;
  /** @throws for a text that is no selector */
  readonly parseSelector: (text: string) => LabelFilter;
}

interface Asked {
  readonly resource: Resource;
  readonly namespace: string;
  /** "" for a list. */
  readonly name: string;
}

export const usageApi =
  (components: UsageApiComponents): MetricsHandler =>
  async (call) => {
    const { pathname } = call.url;
    if (pathname !== GROUP_PATH && pathname !== OPENAPI_PATH && !pathname.startsWith(`${GROUP_PATH}/`)) return false;
    try {
      await answer(components, call);
    } catch (error) {
      if (call.response.headersSent) throw error;
      const { status, message } = httpFailure(error);
      sendJson(call, status, JSON.stringify(kubeStatus(status, message)));
    }
    return true;
  };

async function answer(components: UsageApiComponents, call: MetricsCall): Promise<void> {
  const { pathname } = call.url;
  const document = pathname === OPENAPI_PATH ? usageOpenApi() : DISCOVERY[pathname.replace(/\/$/, "")];
  if (document !== undefined) {
    await call.require({ verb: "get", path: pathname });
    sendJson(call, 200, JSON.stringify(document));
    return;
  }
  const asked = askedFor(pathname);
  const { resource, namespace, name } = asked;
  const verb = name === "" ? "list" : "get";
  const group = { group: METRICS_GROUP, version: METRICS_VERSION };
  await call.require({ verb, ...group, resource, namespace, name });
  if (call.url.searchParams.get("watch") === "true" || call.url.searchParams.get("watch") === "1")
    throw new PicoletError("unimplemented", `${resource}.${METRICS_GROUP} cannot be watched`);
  if (name === "") await sendList(components, asked, call);
  else sendJson(call, 200, JSON.stringify(found(components.usage, asked)));
}

/** @throws `not_found` */
function askedFor(path: string): Asked {
  const segments = decoded(path.slice(BASE.length + 1).split("/"));
  const isBelow = path.startsWith(`${BASE}/`);
  const [first = "", second = "", third = "", fourth = "", ...more] = segments;
  if (isBelow && more.length === 0) {
    if (first === "nodes" && third === "") return { resource: "nodes", namespace: "", name: second };
    if (first === "pods" && second === "") return { resource: "pods", namespace: "", name: "" };
    if (first === "namespaces" && second !== "" && third === "pods")
      return { resource: "pods", namespace: second, name: fourth };
  }
  throw new PicoletError("not_found", "the server could not find the requested resource");
}

/** @throws `invalid` */
function decoded(segments: readonly string[]): readonly string[] {
  try {
    return segments.map(decodeURIComponent);
  } catch (cause) {
    throw new PicoletError("invalid", "the path is not encoded properly", { cause });
  }
}

function found(usage: UsageObjects, { resource, namespace, name }: Asked): KubeObject {
  const object = resource === "nodes" ? usage.node(name) : usage.pod(namespace, name);
  if (object !== undefined) return object;
  throw new PicoletError("not_found", `${resource}.${METRICS_GROUP} "${name}" not found`);
}

async function sendList(
  { usage, missing, parseSelector }: UsageApiComponents,
  { resource, namespace }: Asked,
  call: MetricsCall,
): Promise<void> {
  const { searchParams } = call.url;
  const matches = parseSelector(searchParams.get("labelSelector") ?? "");
  const field = fieldFilter(searchParams.get("fieldSelector") ?? "");
  const items: string[] = [];
  let count = 0;
  for (const object of resource === "nodes" ? usage.nodes() : usage.pods(namespace)) {
    count += 1;
    if (count % SLICE === 0) await new Promise(setImmediate);
    if (call.signal.aborted) return;
    if (matches(object.metadata.labels ?? {}) && field(object)) items.push(JSON.stringify(object));
  }
  const head = { kind: `${KINDS[resource]}List`, apiVersion: `${METRICS_GROUP}/${METRICS_VERSION}`, metadata: {} };
  const lacking = missing();
  if (lacking > 0) {
    const text = `${lacking} boards are left out: they have sent no figures yet, or to another replica of the hub`;
    call.response.setHeader("warning", `299 - "${text}"`);
  }
  sendJson(call, 200, `${JSON.stringify(head).slice(0, -1)},"items":[${items.join(",")}]}`);
}

/** @throws `invalid` for any but the name and the namespace */
function fieldFilter(text: string): (object: KubeObject) => boolean {
  const requirements = text
    .split(",")
    .filter((each) => each !== "")
    .map((each) => {
      const [, field, value] = /^metadata\.(name|namespace)==?([^=!]*)$/.exec(each) ?? [];
      if (field !== undefined) return { field: field as "name" | "namespace", value };
      throw new PicoletError("invalid", `field label not supported: ${each.slice(0, 100)}`);
    });
  return ({ metadata }) => requirements.every(({ field, value }) => (metadata[field] ?? "") === value);
}

function sendJson({ response }: MetricsCall, status: number, body: string): void {
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  response.end(body);
}

const VERSION_ENTRY = { groupVersion: `${METRICS_GROUP}/${METRICS_VERSION}`, version: METRICS_VERSION };
const DISCOVERY: Readonly<Record<string, object>> = {
  [GROUP_PATH]: {
    kind: "APIGroup",
    apiVersion: "v1",
    name: METRICS_GROUP,
    versions: [VERSION_ENTRY],
    preferredVersion: VERSION_ENTRY,
  },
  [BASE]: {
    kind: "APIResourceList",
    apiVersion: "v1",
    groupVersion: VERSION_ENTRY.groupVersion,
    resources: (["nodes", "pods"] as const).map((name) => ({
      ...{ name, singularName: "", namespaced: name === "pods", kind: KINDS[name], verbs: ["get", "list"] },
    })),
  },
};
