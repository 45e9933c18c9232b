/** docs/hub-api.md. Pure; its tables come from the tables and limits of the code. */

import { JOIN_STATUS, MAX_AT_ONCE, NONCE_LIFE_MS, REQUEST_LIMIT } from "@picolet/hub/identity/join-service.ts";
import {
  HANDSHAKE_TIMEOUT_MS,
  HEADERS_TIMEOUT_MS,
  MAX_HEADER_BYTES,
  REQUEST_TIMEOUT_MS,
} from "@picolet/hub/identity/tls-server.ts";
import { MAX_HEADER_BYTES as MAX_KUBELET_HEADER_BYTES } from "@picolet/hub/kubelet-proxy/kubelet-proxy.ts";
import { MAX_CONNECTIONS_PER_NODE } from "@picolet/hub/kubelet-proxy/node-listeners.ts";
import { BOARD_PORT_LIMITS } from "@picolet/hub/main/board-server.ts";
import { FLAGS } from "@picolet/hub/main/program.ts";
import { METRICS_PORT_LIMITS } from "@picolet/hub/metrics/metrics-server.ts";
import { PAGE_PORT_LIMITS } from "@picolet/hub/page/fleet-page-port.ts";
import {
  MAX_GREETING,
  MAX_GREETING_PER_NODE,
  MAX_SESSIONS,
  NODE_EVENTS,
  NODE_WRITES,
  SESSION_ATTEMPTS,
} from "@picolet/hub/tunnel/tunnel-server.ts";
import {
  type BodyRule,
  HUB_NAMESPACE,
  type Relation,
  rowsOf,
  type Subject,
  TOKEN_SECONDS,
} from "@picolet/hub-core/access-table.ts";
import { JOIN_ATTEMPTS } from "@picolet/hub-core/fairness/address-limits.ts";
import { ALLOWANCES, BUDGETS_OF_NAMESPACE, MAX_BYTES, MAX_NODE_BYTES } from "@picolet/hub-embedded/admission/quotas.ts";
import {
  MAX_BODY_BYTES,
  MAX_BODY_ITEMS,
  MAX_BODY_VALUES,
  MAX_DEPTH,
  MAX_KEYS,
  MAX_LIST_ITEMS,
  MAX_OBJECT_BYTES,
  MAX_PATCH_STEPS,
  MAX_VALUES,
} from "@picolet/hub-embedded/api/limits.ts";
import { ALL_VERBS, apiVersionOf, type ResourceDefinition } from "@picolet/hub-embedded/api/resource-definition.ts";
import { STATUS_REASONS } from "@picolet/hub-embedded/api/status-error.ts";
import {
  HEADERS_TIMEOUT_MS as API_HEADERS_TIMEOUT_MS,
  API_PORT_LIMITS,
  REQUEST_TIMEOUT_MS as API_REQUEST_TIMEOUT_MS,
} from "@picolet/hub-embedded/embedded-api-server.ts";
import { MAX_URL_LENGTH, MIN_GZIP_BYTES } from "@picolet/hub-embedded/http/api-handler.ts";
import {
  FLOW_BYTES,
  FLOW_QUEUE,
  MAX_STREAMS,
  SEATS,
  SHARES,
  TOTAL_BYTES,
  WAIT_LIMIT,
} from "@picolet/hub-embedded/http/request-fairness.ts";
import { MAX_YAML_BYTES } from "@picolet/hub-embedded/http/yaml-reader.ts";
import { MAX_OPERATIONS } from "@picolet/hub-embedded/patch/json-patch.ts";
import { MAX_LIMIT } from "@picolet/hub-embedded/service/resource-reader.ts";
import {
  BOOKMARK_INTERVAL,
  MAX_TIMEOUT_SECONDS,
  MIN_TIMEOUT_SECONDS,
} from "@picolet/hub-embedded/service/resource-watch.ts";
import { MAX_HISTORY_AGE_MS, MAX_HISTORY_ROWS } from "@picolet/hub-embedded/store/object-store.ts";
import { HTTP_STATUS } from "@picolet/kubelet-api/serving/http-answers.ts";
import { MAX_LOG_OPTIONS, MAX_PORTS, MAX_WORDS, subresourcesOf } from "@picolet/kubelet-api/serving/kubelet-path.ts";
import type { Rate } from "@picolet/protocol/async/rate-limits.ts";
import { MAX_JOIN_REQUEST_BYTES } from "@picolet/protocol/pki/join-messages.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { ABSENT_RESOURCES, ABSENT_SUBRESOURCES, API_PATHS, BOARD_PATHS, KUBELET_PATHS } from "./hub-api-paths.ts";
import { code, list, paragraph, table } from "./markdown.ts";

const count = (value: number): string => value.toLocaleString("en-US");
const bytes = (value: number): string =>
  value % MEBIBYTE === 0 || value === 1.5 * MEBIBYTE ? `${value / MEBIBYTE} MiB` : `${value / KIBIBYTE} KiB`;
const secondsOf = (ms: number): string => `${ms / 1000} s`;
const rate = ({ burst, perSecond }: Rate, show = count): string =>
  `${show(burst)} at once, then ${perSecond >= 1 ? `${show(perSecond)}/s` : `${perSecond * 60}/min`}`;
const codes = (names: readonly string[]): string => names.map(code).join(", ");
/** Names by HTTP status. */
function byStatus(statuses: Readonly<Record<string, number>>): readonly (readonly [string, string])[] {
  const groups = Map.groupBy(Object.entries(statuses), ([, status]) => status);
  return [...groups]
    .toSorted(([a], [b]) => a - b)
    .map(([status, all]) => [`${status}`, codes(all.map(([name]) => name))]);
}

/** @param resources everything that the embedded API server serves */
export const hubApiReference = (resources: readonly ResourceDefinition[]): string =>
  `${[INTRODUCTION, ports(), boardsPort(), kubeletEndpoints(), apiServer(), resourceChapter(resources), absent(), writes(), access(), limits(), errors()].join("\n\n")}\n`;

const INTRODUCTION = `# API surface of the hub

<!-- Made by \`npm run docs\` of the hub's tables of resources, rights and limits: do not edit. -->

What \`picolet-hub\` answers, to whom, and where it refuses. In front of a Kubernetes cluster it has the boards' port and
the kubelet endpoints. With \`--embedded\` it has an API server besides. A port of its own serves metrics
([monitoring.md](monitoring.md)).`;

const ports = (): string => `## Ports

${table(
  ["port", "flag", "TLS", "connections"],
  [
    [
      "boards",
      `${code("--tunnel-address")}, ${code(FLAGS.tunnelAddress.default ?? "")}`,
      "1.3; the hub's certificate; a client certificate where the path needs one",
      `${count(BOARD_PORT_LIMITS.maxConnections)}, ${count(BOARD_PORT_LIMITS.maxPending)} of them without an identity yet`,
    ],
    [
      "kubelet endpoints, one for each node",
      `${code("--kubelet-ports")}, any free ones; ${code("--kubelet-addresses")}, one address for each node`,
      "1.2; client certificate or bearer token",
      `${count(MAX_CONNECTIONS_PER_NODE)} for each node`,
    ],
    [
      "page of the fleet",
      `${code("--page-address")}, none`,
      "1.2; a bearer token for its data",
      `${count(PAGE_PORT_LIMITS.maxConnections)}, ${count(PAGE_PORT_LIMITS.maxPending)} of them without an identity yet`,
    ],
    [
      "API server, embedded only",
      `${code("--api-address")}, ${code(FLAGS.apiAddress.default ?? "")}`,
      "1.2; client certificate, bearer token or nothing",
      `${count(API_PORT_LIMITS.maxConnections)}, ${count(API_PORT_LIMITS.maxPending)} of them without an identity yet`,
    ],
    [
      "metrics",
      `${code("--metrics-address")}, ${code("127.0.0.1:9184")}`,
      "none on loopback; else 1.2, client certificate or bearer token",
      `${count(METRICS_PORT_LIMITS.maxConnections)}, ${count(METRICS_PORT_LIMITS.maxPending)} of them without an identity yet`,
    ],
  ],
)}

When a port is full, the oldest connection of the client that has most gives way. Administrators' connections to the
API server never do.`;

const boardsPort = (): string => `## Boards' port

${table(
  ["method", "path", "caller", "answer"],
  BOARD_PATHS.map(({ method, path, caller, answer }) => [method, code(path), caller, answer]),
)}

Every other path is 404. A board is \`O=system:nodes, CN=system:node:NAME\`; its name is its certificate's.

${list([
  `A body of a join or renewal has at most ${bytes(MAX_JOIN_REQUEST_BYTES)}, request headers
    ${bytes(MAX_HEADER_BYTES)}.`,
  `The TLS handshake may take ${secondsOf(HANDSHAKE_TIMEOUT_MS)}, the headers ${secondsOf(HEADERS_TIMEOUT_MS)}, a
    request ${secondsOf(REQUEST_TIMEOUT_MS)}, signing ${secondsOf(REQUEST_LIMIT)}. A nonce is valid for
    ${secondsOf(NONCE_LIFE_MS)}.`,
  `Requests of one address (IPv6: /64): ${rate(JOIN_ATTEMPTS)}; beyond it 429. A refused token counts as ten
    requests. The hub answers ${MAX_AT_ONCE} at one time; a further one gets 503.`,
  `Sessions: ${count(MAX_SESSIONS)}, of which ${count(MAX_GREETING)} are not welcomed yet, ${MAX_GREETING_PER_NODE}
    of them of one node; beyond it 503 with \`Retry-After\`. Sessions that one node begins:
    ${rate(SESSION_ATTEMPTS)}; beyond it 429 with \`Retry-After\`. Another subprotocol: 426.`,
  `What one node writes through its tunnel: ${rate(NODE_WRITES)} objects; ${rate(NODE_EVENTS)} Events. Objects
    beyond it wait.`,
])}

A refused join, renewal or time request answers \`{"error": {"code", "message"}}\`:

${table(["status", "code"], [...byStatus(JOIN_STATUS as Record<string, number>), ["500", codes(["internal"])]])}`;

const kubeletEndpoints = (): string => `## Kubelet endpoints

To API servers the hub is each node's kubelet. No caller is anonymous: a client certificate of the API servers' CA, or a
bearer token that a TokenReview accepts. The caller needs the verb (\`get\`, or \`create\` for POST) on one of these
subresources of \`nodes\`, by a SubjectAccessReview. The hub keeps such answers for 30 s to 5 min, as a kubelet does.

${table(
  ["method", "path", "right", "answer"],
  KUBELET_PATHS.map(({ method, path, answer }) => [
    method,
    code(path),
    codes(subresourcesOf(path).map((each) => `nodes/${each}`)),
    answer,
  ]),
)}

${paragraph(`Every other path is passed on to the node, which answers 404. A command has at most ${count(MAX_WORDS)}
  words, a port-forward ${MAX_PORTS} ports, a log request ${MAX_LOG_OPTIONS} options, request headers
  ${bytes(MAX_KUBELET_HEADER_BYTES)}. Errors are text, and a Status for an upgrade:`)}

${table(
  ["status", "code"],
  [...byStatus(HTTP_STATUS), ["401", "no identity"]].toSorted(([a], [b]) => Number(a) - Number(b)),
)}

503 says that the node is away and since when. For logs it is 502, whose text kubectl shows.`;

const CALLERS: Readonly<Record<string, string>> = {
  anyone: "anyone",
  authenticated: "anyone with an identity",
  administrator: "administrators, or a role that names the path",
};

const apiServer = (): string => `## Embedded API server

Identities:

${table(
  ["identity", "credential", "rights"],
  [
    ["administrator", "the token in `admin.kubeconfig`; any member of `system:masters`", "everything"],
    ["board", "its certificate", "Node authorizer and NodeRestriction: the rows below, and no more"],
    ["join token", "`bootstrap-token-ID` in `kube-system`", "certificate signing requests"],
    ["service account", "a token of `serviceaccounts/token`", "RBAC, and those of anyone with an identity"],
    ["user", "a certificate of `kubernetes.io/kube-apiserver-client`", "RBAC"],
    ["API server", "`kube-apiserver-kubelet-client`, from a CA of its own", "kubelet endpoints; this API refuses it"],
    ["anonymous", "none", "the paths for anyone"],
  ],
)}

Impersonation needs the verb \`impersonate\`. Authorizers are asked in this order: \`system:masters\`, health paths, Node,
the hub itself, RBAC.

${table(
  ["method", "path", "caller", "answer"],
  API_PATHS.map(({ method, path, caller, answer }) => [method, code(path), CALLERS[caller] ?? caller, answer]),
)}

Health paths take the name of a check behind them (\`/readyz/ping\`). There is no \`/metrics\`, \`/logs\`, \`/debug\` or
\`/configz\`: 404 for administrators, 403 for others.`;

function resourceChapter(resources: readonly ResourceDefinition[]): string {
  const rows = resources.map((each) => [
    code(apiVersionOf(each)),
    code(each.plural),
    each.kind,
    each.namespaced ? "namespace" : "cluster",
    verbsText(each),
    (each.subresources ?? []).map(({ name, verbs }) => `${code(name)}: ${verbs.join(", ")}`).join("; "),
  ]);
  return `## Resources

"all" is ${ALL_VERBS.join(", ")}.

${table(["version", "resource", "kind", "scope", "verbs", "subresources"], rows)}

Resources with \`create\` alone are reviews: they are answered and not stored. Events are removed an hour after their
last write. There are no custom resources: \`customresourcedefinitions\` is an empty list for kubectl.

${list([
  `**Bodies**: JSON, YAML (${bytes(MAX_YAML_BYTES)}) and Kubernetes' protobuf. **Answers**: JSON and YAML, also as
    \`Table\` and \`PartialObjectMetadata\`; never protobuf. From ${bytes(MIN_GZIP_BYTES)} on they are compressed
    for clients that accept gzip.`,
  `**Patches**: JSON patch, merge patch, strategic merge patch, server-side apply, with \`managedFields\`,
    \`dryRun=All\`, \`fieldValidation\`.`,
  `**Lists**: label and field selectors, \`limit\` (at most ${count(MAX_LIMIT)}) and \`continue\`,
    \`resourceVersion\` with \`resourceVersionMatch\`. **Watches**: bookmarks each ${secondsOf(BOOKMARK_INTERVAL)},
    \`sendInitialEvents\`; they end after \`timeoutSeconds\` (at most ${count(MAX_TIMEOUT_SECONDS)}), or after
    ${count(MIN_TIMEOUT_SECONDS)} to ${count(2 * MIN_TIMEOUT_SECONDS)} s. The history has ${count(MAX_HISTORY_ROWS)}
    changes of the last ${MAX_HISTORY_AGE_MS / 60_000} minutes; an older \`resourceVersion\` is 410 Expired.`,
  `**Optimistic concurrency**, \`generateName\`, finalizers, owner references with all three propagation policies,
    preconditions and grace periods are Kubernetes'.`,
  `**Certificate signers**: \`kubernetes.io/kube-apiserver-client-kubelet\` (approved by itself for join tokens and
    for nodes that renew), \`kubernetes.io/kubelet-serving\` and \`kubernetes.io/kube-apiserver-client\` (signed
    once they are approved). Kubelet-serving: the requestor is the node itself, and no name or address of the hub is
    signed. API clients: no subject that begins with \`system:\`. Requests of other signers wait for their signer.`,
  `**Tokens** of service accounts are valid for ${TOKEN_SECONDS.shortest} s to ${TOKEN_SECONDS.longest / 86_400}
    days, by default ${TOKEN_SECONDS.default} s.`,
])}`;
}

function verbsText({ verbs = ALL_VERBS }: ResourceDefinition): string {
  const missing = ALL_VERBS.filter((each) => !verbs.includes(each));
  if (missing.length === 0) return "all";
  return missing.length === 1 ? `all but ${missing[0]}` : verbs.join(", ");
}

const absent = (): string => `## Deliberately absent

Of Kubernetes 1.34's stable resources these are not served. They are not in discovery, so kubectl says \`the server
doesn't have a resource type\`. A request for one is answered with 404 and a Status of the reason \`NotFound\`, "the
server could not find the requested resource"; who has no right to it gets 403 first.

${table(
  ["version", "resources", "why"],
  ABSENT_RESOURCES.map(({ apiVersion, plurals, why }) => [code(apiVersion), codes(plurals), why]),
)}

${paragraph(`Neither are alpha and beta versions, ${codes(ABSENT_SUBRESOURCES)} and \`scale\`. A verb that a resource does
  not have is answered with 405 \`MethodNotAllowed\`. Logs, exec and port-forward of a node that is away are
  answered with 503.`)}`;

const writes = (): string => `## Admission

${paragraph(`Built in, in this order, for every write: NodeRestriction, CertificateApproval, CertificateSigning and
  CertificateSubjectRestriction, RBAC's escalation check, quotas and disk space (below), then Pod Security by the
  labels of the namespace or \`--admission-control-config-file\`. Defaults are those of ServiceAccount,
  LimitRanger, Priority, RuntimeClass and DefaultTolerationSeconds, and of picolet for
  boards: pods tolerate a board that is away, unless they say \`picolet.io/evict-when-away: "true"\`.`)}`;

const RELATIONS: Readonly<Record<Relation, string>> = {
  any: "any",
  self: "the one of the board's name",
  bound: "pods on the board",
  selected: "those on the board, by a field selector",
  named: "those that a pod on the board names",
  attached: "those attached to the board",
  listed: "those in the list",
  "a board": "users that are boards",
};
const BODIES: Readonly<Record<BodyRule, string>> = {
  self: "of the board's name",
  "own node": "its own Node; taints, owners and Kubernetes' labels untouched",
  mirror: "a mirror pod that names no object",
  bound: "a pod on the board",
  "bound status": "a pod on the board; labels and resource claims untouched",
  "claim status": "capacity, conditions and resizing alone",
  "pod token": "bound to a pod on the board, for an audience of its volumes",
  "own request": "the subject is the board",
};
const SUBJECTS: readonly (readonly [Subject, string])[] = [
  ["board", "A board"],
  ["join token", "A join token"],
  ["anyone", "Anyone with an identity"],
  ["hub", `The hub itself (in a cluster: \`hub/deploy/rbac.yaml\`; its Secrets are in \`${HUB_NAMESPACE}\`)`],
];

const access = (): string => `## Fixed rights

${SUBJECTS.map(([subject, title]) => `${title}:\n\n${accessTable(subject)}`).join("\n\n")}`;

const accessTable = (subject: Subject): string =>
  table(
    ["group", "resources", "verbs", "which", "what may be written"],
    rowsOf(subject).map(({ group, resources, verbs, relation, body, namespace, names }) => [
      group === "" ? "core" : code(group),
      codes(resources),
      verbs.join(", "),
      [names === undefined ? RELATIONS[relation] : codes(names), namespace === undefined ? "" : `in ${code(namespace)}`]
        .filter((each) => each !== "")
        .join(", "),
      body === undefined ? "" : BODIES[body],
    ]),
  );

const BOARD_SIZES = Object.fromEntries(Object.entries(MAX_NODE_BYTES).filter(([name]) => !(name in MAX_BYTES)));

const SHARE_TEXT = Object.entries(SHARES)
  .map(([level, share]) => `${code(level)} ${share}`)
  .join(", ");

const limits = (): string => `## Limits of the API server

${table(
  ["what", "limit", "answer beyond it"],
  [
    ["URL", `${count(MAX_URL_LENGTH)} characters`, "400"],
    ["body", bytes(MAX_BODY_BYTES), "413"],
    [
      "values in a body; items of one list; levels",
      `${count(MAX_BODY_VALUES)}; ${count(MAX_BODY_ITEMS)}; ${MAX_DEPTH}`,
      "413; 400 for levels",
    ],
    ["stored object", bytes(MAX_OBJECT_BYTES), "413"],
    [
      "values in an object; items of one list; keys of one map",
      `${count(MAX_VALUES)}; ${count(MAX_LIST_ITEMS)}; ${count(MAX_KEYS)}`,
      "413",
    ],
    ["JSON patch; work of a patch", `${count(MAX_OPERATIONS)} operations; ${count(MAX_PATCH_STEPS)} steps`, "413"],
    [
      "request headers; request",
      `${secondsOf(API_HEADERS_TIMEOUT_MS)}; ${secondsOf(API_REQUEST_TIMEOUT_MS)}`,
      "the connection is closed",
    ],
    ["bodies and answers in memory of one user; of all", `${bytes(FLOW_BYTES)}; ${bytes(TOTAL_BYTES)}`, "429"],
  ],
)}

### Turns

${paragraph(`Requests take turns as by API Priority and Fairness: ${SEATS} seats, shared ${SHARE_TEXT}. \`system:masters\`
  and health paths do not wait. A user has at most ${FLOW_QUEUE} waiting requests, each for at most
  ${secondsOf(WAIT_LIMIT)}; beyond it 429 with \`Retry-After\`. The response headers name flow schema and priority
  level.`)}

### Quotas

What one identity may write, over the API or the tunnel. Administrators and the hub have no quota. Beyond a rate, and
beyond what may be kept: 429. Of Events the oldest is removed instead.

${paragraph(`The service accounts of one namespace share ${BUDGETS_OF_NAMESPACE} budgets, by their names, for turns,
  memory, connections and quotas; those of \`kube-system\` have one each.`)}

${table(
  ["", ...Object.keys(ALLOWANCES)],
  [
    ...(
      [
        ["objects, bytes", "bytes"],
        ["Events", "events"],
        ["certificate signing requests", "certificateRequests"],
        ["tokens", "tokens"],
        ["reviews", "reviews"],
      ] as const
    ).map(([title, name]) => [
      title,
      ...Object.values(ALLOWANCES).map((each) => rate(each[name], name === "bytes" ? bytes : count)),
    ]),
    ["kept Events", ...kept("events")],
    ["kept requests", ...kept("certificatesigningrequests.certificates.k8s.io")],
    ["kept mirror pods", ...kept("pods")],
    [
      "watches and streams",
      ...Object.keys(ALLOWANCES).map((each) => count(MAX_STREAMS[each as keyof typeof MAX_STREAMS])),
    ],
  ],
)}

${paragraph(`One object: ${sizes(MAX_BYTES)}; for a board also ${sizes(BOARD_SIZES)}.
  Beyond it: 413. When the disk is nearly full, or the store has \`--store-max-bytes\`, boards create nothing and later
  only administrators write: 507 \`InsufficientStorage\` with \`Retry-After\`.`)}`;

const kept = (name: keyof (typeof ALLOWANCES)["node"]["kept"]): readonly string[] =>
  Object.values(ALLOWANCES).map((each) => (each.kept[name] === undefined ? "-" : count(each.kept[name])));

const sizes = (all: Readonly<Record<string, number>>): string =>
  Object.entries(all)
    .map(([name, size]) => `${code(name)} ${bytes(size)}`)
    .join(", ");

const errors = (): string => `## Errors of the API server

${paragraph(`A refusal is a \`Status\` of \`v1\` with \`reason\`, \`message\` and \`details\`, worded as kube-apiserver words
  it. Warnings are in \`Warning\` headers.`)}

${table(
  ["status", "reasons"],
  byStatus(Object.fromEntries(Object.entries(STATUS_REASONS).map(([reason, [status]]) => [reason, status]))),
)}

\`InsufficientStorage\` is picolet's own. \`SIGTERM\` lets requests end; watches are closed at once.`;
