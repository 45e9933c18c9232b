/** Every decision of the embedded server beside that of a kube-apiserver 1.34 with Node, RBAC and NodeRestriction. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ensureInitialObjects } from "@picolet/hub-embedded/controllers/cluster/initial-objects.ts";
import { MatrixAsker } from "../support/unit/embedded/access-asker.ts";
import { MATRIX_SUBJECTS } from "../support/unit/embedded/access-fixtures.ts";
import { accessMatrix, type MatrixRequest } from "../support/unit/embedded/access-matrix.ts";
import { ADMIN_USER, TestApiServer } from "../support/unit/embedded/api-server.ts";

interface Golden {
  readonly version: string;
  /** Users, in the order of the decisions. */
  readonly subjects: readonly string[];
  /** Requests by their decisions for all subjects: `403 200:mine,static-a …`. */
  readonly decisions: Readonly<Record<string, readonly string[]>>;
}

const golden = JSON.parse(readFileSync("test/golden/authorization-1.34.json", "utf8")) as Golden;

/** Requests at one time. */
const WORKERS = 4;
/** Asks one in so many of the requests that Kubernetes refuses to subjects without roles, another one each time. */
const REFUSALS_PER_QUESTION = 4;
/** These are asked everything. */
const ALWAYS: ReadonlySet<string> = new Set(["board-a", "board-c", "operator", "granter"]);

/** How a status is compared: it is refused to the one who asks, it is wrong in itself, or it is done. */
function decisionOf(answer: string): string {
  const [status = "", names] = answer.split(":");
  if (status === "401" || status === "403") return "denied";
  if (names !== undefined) return `shown ${names}`;
  return status.startsWith("2") ? "done" : "wrong";
}

interface Difference {
  /** Matches the lines `USER REQUEST: STATUS there, STATUS here`. */
  readonly lines: RegExp;
  readonly why: string;
}

/** Where the embedded server decides otherwise. None grants what Kubernetes refuses. */
const DIFFERENCES: readonly Difference[] = [
  {
    lines: /^system:node:c DELETE \/api\/v1\/namespaces\/tenant\/pods\?.*: 200 there, 403 here$/,
    why: "a board with a role for it deletes a collection of pods: each is admitted alone here, and one is not its own",
  },
  {
    lines: /^system:node:c DELETE \/api\/v1\/nodes\/c\?dryRun=All: 200 there, 403 here$/,
    why: "no board deletes Nodes here, not even its own: the taints of its lifecycle would go with it",
  },
  {
    lines: /^system:node:(a|new) POST .* labelled node-role\.kubernetes\.io\/control-plane: (409|201) there, 403 here$/,
    why: "the recorded server is a distribution's build, which lets a kubelet register so; upstream does not",
  },
  {
    lines: /^system:node:a \w+ \/apis\/resource\.k8s\.io\/v1\/resourceslices.*: 20[01]\S* there, 403 here$/,
    why: "a board publishes no ResourceSlices: drivers of devices do so, with accounts of their own",
  },
  {
    lines: /^system:node:a PUT \/api\/v1\/nodes\/a\/status\?dryRun=All: 403 there, 200 here$/,
    why: "a status update's spec is dropped here before NodeRestriction sees it: the taints cannot change",
  },
  {
    lines: / PUT \S+: 422 there, 200 here$/,
    why: "these resources take an update without resourceVersion here",
  },
  {
    lines: / PUT \/api\S+ holder: 422 there, 200 here$/,
    why: "as above, for Leases",
  },
  {
    lines: / PUT \S+\/none(\/status)?\?dryRun=All: 201 there, 404 here$/,
    why: "an update does not create these resources here",
  },
  {
    lines: / PUT \S+\/none(\/status)?\?dryRun=All: 403 there, 404 here$/,
    why: "as above, where the creation would be refused",
  },
  {
    lines: /:granter POST \S+rolebindings\?dryRun=All to (ClusterRole|Role) missing: 404 there, 403 here$/,
    why: "a role that does not exist may grant anything later: the binding is refused, not the role not found",
  },
  {
    lines: /:operator (PATCH .* resource claims|POST .* that names a resource claim): 422 there, 20[01] here$/,
    why: "claims of dynamic resources are not served and not validated; a board may not write them",
  },
  {
    lines: /:operator PUT \/api\/v1\/namespaces\/tenant\/pods\/mine\?dryRun=All: 200 there, 422 here$/,
    why: "an update of a pod does not get the priority of the old one here: the client has to send it back",
  },
];

async function started(signal: AbortSignal): Promise<TestApiServer> {
  const tokens = MATRIX_SUBJECTS.filter(({ token }) => token !== "").map(({ token, user, groups }) => ({
    ...{ token, user, groups },
  }));
  const server = await TestApiServer.start({
    tokens: [{ token: "admin", user: "admin", groups: ["system:masters"] }, ...tokens],
  });
  await ensureInitialObjects(server.server.client(ADMIN_USER), signal);
  return server;
}

test("the embedded server decides as Kubernetes 1.34 does", async (context) => {
  await using server = await started(context.signal);
  await using asker = new MatrixAsker(server.url);
  const requests = accessMatrix(await asker.furnish("admin"));
  const recorded = recordedRows();
  assert.deepEqual(
    golden.subjects,
    MATRIX_SUBJECTS.map(({ user }) => user),
  );
  assert.deepEqual([...recorded.keys()].sort(), requests.map(({ key }) => key).sort());
  const { store } = server.server.core;
  const before = store.headRevision;
  const lines: string[] = [];
  const queue = requests.entries();
  const work = async (): Promise<void> => {
    for (const [position, request] of queue) {
      const row = recorded.get(request.key) ?? [];
      for (const [index, { token, user }] of MATRIX_SUBJECTS.entries()) {
        const theirs = row[index] ?? "";
        const isSampled = (position + index) % REFUSALS_PER_QUESTION === 0;
        if (decisionOf(theirs) === "denied" && !ALWAYS.has(token) && !isSampled) continue;
        const ours = await asker.ask(request, token);
        if (decisionOf(ours) !== decisionOf(theirs))
          lines.push(`${user} ${request.key}: ${theirs} there, ${ours} here`);
        // What is refused must have written nothing even if it is no dry run.
        if (decisionOf(ours) === "denied" && request.method !== "GET") await asker.ask(inEarnest(request), token);
      }
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
  assert.equal(store.headRevision, before, "dry runs and refused requests write nothing");
  const unlisted = lines.filter((line) => !DIFFERENCES.some((each) => each.lines.test(line)));
  assert.deepEqual(unlisted, [], "differences without a reason");
  const stale = DIFFERENCES.filter((each) => !lines.some((line) => each.lines.test(line)));
  assert.deepEqual(stale, [], "reasons without a difference");
});

/** By the request's key, in the order of the subjects. */
function recordedRows(): ReadonlyMap<string, readonly string[]> {
  const rows = Object.entries(golden.decisions);
  return new Map(rows.flatMap(([row, keys]) => keys.map((key) => [key, row.split(" ")] as const)));
}

const inEarnest = (request: MatrixRequest): MatrixRequest => ({
  ...request,
  path: request.path.replace("dryRun=All", ""),
});
