/** The hub's paths besides resources, and the parts of Kubernetes' API that are absent. docs.test.ts asks a real server. */

import { BACKUP_PATH, ROTATE_KEYS_PATH } from "@picolet/hub-embedded/http/path-endpoint.ts";
import { CA_PATH, JOIN_PATH, NONCE_PATH, RENEW_PATH, TIME_PATH } from "@picolet/protocol/pki/join-messages.ts";
import { TUNNEL_PATH } from "@picolet/protocol/tunnel/messages.ts";

export interface BoardPath {
  readonly method: string;
  readonly path: string;
  readonly caller: string;
  readonly answer: string;
}

export const BOARD_PATHS: readonly BoardPath[] = [
  {
    method: "GET",
    path: `${TUNNEL_PATH}`,
    caller: "a board, by its certificate",
    answer: "101, a WebSocket: the tunnel ([its protocol](../protocol/tunnel/PROTOCOL.md))",
  },
  { method: "GET", path: CA_PATH, caller: "anyone", answer: "PEM: the CAs of the hub's certificate" },
  {
    method: "POST",
    path: JOIN_PATH,
    caller: "a join token, in the body",
    answer: "`{token, csr}` → `{certificate, hubCa, timeMs}`",
  },
  { method: "GET", path: NONCE_PATH, caller: "anyone", answer: "`{nonce}`: for one renewal on the same connection" },
  {
    method: "POST",
    path: RENEW_PATH,
    caller: "a board, by its certificate, also an expired one within `--renewal-window`",
    answer: "`{csr, signature}` → `{certificate, hubCa, timeMs}`",
  },
  {
    method: "POST",
    path: TIME_PATH,
    caller: "anyone",
    answer: "`{nonce}` → `{timeMs, signatures}`: the time, signed by the hub's CAs",
  },
  { method: "GET", path: "/healthz", caller: "anyone", answer: "200 `ok` while the process answers" },
  {
    method: "GET",
    path: "/readyz",
    caller: "anyone",
    answer: "200 `ok`; 503 with the reason while no board can be served",
  },
];

export type ApiCaller = "anyone" | "authenticated" | "administrator";

export interface ApiPath {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly caller: ApiCaller;
  readonly answer: string;
}

export const API_PATHS: readonly ApiPath[] = [
  { method: "GET", path: "/healthz", caller: "anyone", answer: "`ok`; the checks with `?verbose`" },
  { method: "GET", path: "/livez", caller: "anyone", answer: "as `/healthz`" },
  { method: "GET", path: "/readyz", caller: "anyone", answer: "as `/healthz`; 503 while the hub ends" },
  { method: "GET", path: "/version", caller: "anyone", answer: "the version of Kubernetes whose API this is" },
  {
    method: "GET",
    path: "/api",
    caller: "authenticated",
    answer: "the core API's versions; aggregated discovery v2 on request",
  },
  { method: "GET", path: "/api/v1", caller: "authenticated", answer: "the resources of the core API" },
  {
    method: "GET",
    path: "/apis",
    caller: "authenticated",
    answer: "the API groups; aggregated discovery v2 on request",
  },
  { method: "GET", path: "/apis/apps", caller: "authenticated", answer: "one group" },
  { method: "GET", path: "/apis/apps/v1", caller: "authenticated", answer: "the resources of one group" },
  { method: "GET", path: "/openapi/v2", caller: "authenticated", answer: "OpenAPI v2, JSON or protobuf, with `ETag`" },
  { method: "GET", path: "/openapi/v3", caller: "authenticated", answer: "the index of OpenAPI v3" },
  {
    method: "GET",
    path: "/openapi/v3/api/v1",
    caller: "authenticated",
    answer: "OpenAPI v3 of one group, with `ETag`",
  },
  { method: "GET", path: "/", caller: "administrator", answer: "the list of paths" },
  {
    method: "GET",
    path: "/.well-known/openid-configuration",
    caller: "administrator",
    answer: "the issuer of service accounts' tokens",
  },
  { method: "GET", path: "/openid/v1/jwks", caller: "administrator", answer: "the keys of service accounts' tokens" },
  {
    method: "GET",
    path: BACKUP_PATH,
    caller: "administrator",
    answer: "a copy of the store, SQLite: what `picolet-hub backup` writes",
  },
  {
    method: "POST",
    path: ROTATE_KEYS_PATH,
    caller: "administrator",
    answer: "`ok`: a new key for the store, for `picolet-hub keys rotate`",
  },
];

/** Paths of a kubelet, and what the node answers. */
export const KUBELET_PATHS: readonly { readonly method: string; readonly path: string; readonly answer: string }[] = [
  { method: "GET", path: "/containerLogs/NAMESPACE/POD/CONTAINER", answer: "logs, with the kubelet's options" },
  { method: "GET, POST", path: "/exec/NAMESPACE/POD/CONTAINER", answer: "upgrade to SPDY/3.1 or a WebSocket" },
  { method: "GET, POST", path: "/attach/NAMESPACE/POD/CONTAINER", answer: "upgrade to SPDY/3.1 or a WebSocket" },
  { method: "GET, POST", path: "/portForward/NAMESPACE/POD", answer: "upgrade to SPDY/3.1 or a WebSocket" },
  { method: "POST", path: "/run/NAMESPACE/POD/CONTAINER", answer: "the output of one command" },
  { method: "GET", path: "/pods", answer: "the pods of the node" },
  { method: "GET", path: "/runningpods", answer: "the pods that run" },
  { method: "GET", path: "/healthz", answer: "`ok`; also `/healthz/ping`, `/healthz/syncloop`" },
  { method: "GET", path: "/stats/summary", answer: "the summary API" },
  { method: "GET", path: "/metrics/resource", answer: "CPU and memory, Prometheus text" },
  { method: "GET", path: "/metrics/probes", answer: "counts of probes, Prometheus text" },
  { method: "GET", path: "/configz", answer: "the agent's configuration" },
  { method: "GET", path: "/spec", answer: "the machine" },
  { method: "GET", path: "/page/", answer: "the page of the board; its files are the hub's own, its data the board's" },
  { method: "GET", path: "/logs", answer: "files below the machine's /var/log; names of a folder, one a line" },
  {
    method: "GET",
    path: "/telemetry",
    answer: "the hub's records of the node's components; also while the node is away",
  },
];

/** Resources of Kubernetes 1.34 in a stable version, with why they are absent. Those that are served are left out. */
export const ABSENT_RESOURCES: readonly {
  readonly apiVersion: string;
  readonly plurals: readonly string[];
  readonly why: string;
}[] = [
  {
    apiVersion: "apps/v1",
    plurals: ["deployments", "replicasets", "statefulsets"],
    why: "no controller replaces pods on other nodes: pods are pinned to boards, by hand or by a DaemonSet",
  },
  { apiVersion: "batch/v1", plurals: ["jobs", "cronjobs"], why: "the same" },
  { apiVersion: "v1", plurals: ["replicationcontrollers"], why: "the same" },
  { apiVersion: "autoscaling/v2", plurals: ["horizontalpodautoscalers"], why: "nothing to scale" },
  { apiVersion: "v1", plurals: ["resourcequotas"], why: "what one identity may write is bounded instead, see Quotas" },
  { apiVersion: "v1", plurals: ["componentstatuses"], why: "deprecated by Kubernetes" },
  { apiVersion: "v1", plurals: ["bindings"], why: "deprecated; `pods/binding` is served" },
  {
    apiVersion: "networking.k8s.io/v1",
    plurals: ["ipaddresses", "servicecidrs"],
    why: "the addresses of Services are one fixed range",
  },
  {
    apiVersion: "admissionregistration.k8s.io/v1",
    plurals: [
      "mutatingwebhookconfigurations",
      "validatingwebhookconfigurations",
      "validatingadmissionpolicies",
      "validatingadmissionpolicybindings",
    ],
    why: "admission is built in: the hub calls no webhook and runs no expression",
  },
  { apiVersion: "apiregistration.k8s.io/v1", plurals: ["apiservices"], why: "no aggregation of other API servers" },
  {
    apiVersion: "flowcontrol.apiserver.k8s.io/v1",
    plurals: ["flowschemas", "prioritylevelconfigurations"],
    why: "priority and fairness are built in, see Turns",
  },
  { apiVersion: "events.k8s.io/v1", plurals: ["events"], why: "events are served as `v1`" },
  { apiVersion: "storage.k8s.io/v1", plurals: ["volumeattributesclasses"], why: "nothing provisions volumes" },
];

/** Subresources of Kubernetes that resources here do not have. */
export const ABSENT_SUBRESOURCES: readonly string[] = ["pods/proxy", "services/proxy"];
