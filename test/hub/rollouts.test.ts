/** Rollouts against an API server with the hub's rights: what reaches Nodes and ConfigMaps, and what survives. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeRollouts } from "@picolet/hub/main/rollout-components.ts";
import { parseRollout, rolloutData } from "@picolet/hub/rollouts/rollout.ts";
import { CONFIG_MAPS, type KubeObject, NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { LEASES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { EVENTS } from "@picolet/hub-embedded/controllers/event-recorder.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { UpdateState } from "@picolet/protocol/updates/node-updates.ts";
import { BridgedCluster, reportOf as nodeReportOf } from "../support/unit/kubernetes/bridged-cluster.ts";
import { type Nodes, ROLLOUT_SPEC, RolloutFleet } from "../support/unit/kubernetes/rollout-fleet.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";

const NEVER = new AbortController().signal;
const OS = "picolet.io/os-image";
const { target: TARGET } = ROLLOUT_SPEC;
const NAMES = Array.from({ length: 10 }, (_, index) => `b${index}`);

const wishOf = (node: KubeObject | undefined): string | undefined => node?.metadata.annotations?.[OS];
const reportOf = (node: KubeObject): string => node.metadata.annotations?.["picolet.io/update-status"] ?? "";
const stateOf = (node: KubeObject): UpdateState | undefined => {
  const target = wishOf(node);
  const updates = reportOf(node) === "" ? [] : (JSON.parse(reportOf(node)) as Report).updates;
  return updates.find((each) => each.target === target)?.state;
};
interface Report {
  readonly updates: readonly { readonly target: string; readonly state: UpdateState }[];
}

const BEFORE = "registry.example/os:1";
const STEPS: Readonly<Partial<Record<UpdateState, UpdateState>>> = { installing: "restarting", restarting: "trial" };

/**
 * Boards take their steps one by one.
 * @param endOf `trial` for one that never ends. @param runs the image of all at first
 */
function playing(
  fleet: RolloutFleet,
  endOf: (name: string) => UpdateState = () => "good",
  runs?: string,
): (nodes: Nodes) => Promise<void> {
  const running = new Map<string, string | undefined>();
  return async (nodes) => {
    const off = [...nodes.values()].filter((node) => ["restarting", "trial"].includes(stateOf(node) ?? ""));
    assert.ok(off.length <= 2, "never more boards off than the budget has");
    for (const node of nodes.values()) {
      const { name } = node.metadata;
      const [state, wish] = [stateOf(node), wishOf(node)];
      const version = running.has(name) ? running.get(name) : runs;
      if (wish === undefined || name === "away" || state === "good") continue;
      const end = endOf(name);
      const next = wish === version ? "good" : state === "trial" ? end : (STEPS[state ?? "good"] ?? "installing");
      if (next === state || state === "rolledBack") continue;
      if (next === "good") running.set(name, wish);
      await fleet.report(node, next, next === "rolledBack" ? "the tunnel stayed down" : "");
    }
  };
}

async function reasonsOf(fleet: RolloutFleet): Promise<readonly string[]> {
  await fleet.until("r", () => true);
  const { items } = await fleet.cluster.client.list(EVENTS, { namespace: "picolet-system" }, NEVER);
  return items.map((each) => String(each.reason)).sort();
}

test("ten boards get their turn two by two, and the rollout completes", async () => {
  await using fleet = await RolloutFleet.start(NAMES);
  await fleet.annotate("b3", { [OS]: "registry.example/os:by-hand" });
  await fleet.annotate("b4", {
    "picolet.io/update-window": "01:00-02:00",
    "picolet.io/update-allow-downgrade": "true",
  });
  await fleet.create("r", { bandwidth: "256Ki", healthDeadline: "5m" });
  const { status } = await fleet.until("r", ({ status: { phase } }) => phase === "Complete", playing(fleet));
  assert.equal(status.message, "10 of 10 boards done");
  assert.deepEqual(
    status.conditions.map(({ type, status: value }) => `${type}=${value}`),
    ["Progressing=False", "Complete=True"],
  );
  const nodes = await fleet.nodes();
  for (const node of nodes.values()) assert.equal(wishOf(node), TARGET);
  const { annotations = {} } = nodes.get("b4")?.metadata ?? {};
  assert.equal(annotations["picolet.io/update-window"], "01:00-02:00", "a board's own window stays");
  assert.equal(annotations["picolet.io/update-allow-downgrade"], undefined, "what an older rollout allowed is over");
  assert.equal(annotations["picolet.io/update-bandwidth"], "256Ki");
  assert.equal(annotations["picolet.io/update-health-deadline"], "5m");
  assert.equal(JSON.parse(annotations["picolet.io/rollout-os"] ?? "").name, "r");
  const reasons = await reasonsOf(fleet);
  assert.deepEqual(reasons, ["AnnotationOverwritten", "RolloutComplete", "RolloutStarted"]);
  assert.deepEqual(
    new Set(
      fleet.calls.all
        .filter(({ verb }) => verb !== "watch")
        .map(({ verb, resource, user }) => `${verb} ${resource} ${user === "" ? "hub" : "node"}`),
    ),
    new Set(["list configmaps hub", "patch configmaps hub", "patch nodes node", "create events hub"]),
    "Nodes are patched as themselves, and never listed",
  );
});

test("it stops by itself at the limit of failures, takes back what was not tried, and goes on when it is resumed", async () => {
  await using fleet = await RolloutFleet.start(NAMES);
  for (const name of NAMES) await fleet.annotate(name, { [OS]: BEFORE });
  await fleet.create("r");
  const bad = new Set(["b1", "b2"]);
  const play = playing(fleet, (name) => (bad.has(name) ? "rolledBack" : "good"), BEFORE);
  const { status, action } = await fleet.until("r", ({ status: { phase } }) => phase === "Stopped", play);
  assert.equal(action, "stop");
  assert.equal(
    status.message,
    "2 boards failed, at the limit of 2, such as b2: went back to the version of before: the tunnel stayed down",
  );
  assert.deepEqual(
    status.failures.map(({ node }) => node),
    ["b1", "b2"],
  );
  // Those that fetched have their wish of before; those that restarted end their trial.
  const settled = await fleet.until("r", ({ status: { boards } }) => boards.updating + boards.unavailable === 0, play);
  const tried = [...(await fleet.nodes()).values()].filter((node) => wishOf(node) === TARGET);
  assert.equal(tried.length, settled.status.boards.done + 2);
  assert.ok(tried.length < 6);
  await fleet.patch("r", { action: "run", "accepted-failures": "2" });
  const end = await fleet.until("r", ({ status: { phase } }) => phase === "Complete", play);
  assert.equal(end.status.message, "8 of 10 boards done, 2 failed");
  assert.deepEqual(
    (await reasonsOf(fleet)).filter((reason) => reason.startsWith("Rollout")),
    ["RolloutComplete", "RolloutResumed", "RolloutStarted", "RolloutStopped"],
  );
});

test("another hub continues where the one before ended, and gives no board a second turn", async () => {
  await using fleet = await RolloutFleet.start(NAMES);
  await fleet.create("r");
  const play = playing(fleet);
  for (const done of [1, 3, 6]) {
    await fleet.until("r", ({ status: { boards } }) => boards.done >= done, play);
    await fleet.killHub();
    fleet.startHub();
  }
  await fleet.until("r", ({ status: { phase } }) => phase === "Complete", play);
  const turns = fleet.calls.all.filter(({ verb, resource }) => verb === "patch" && resource === "nodes");
  assert.equal(turns.length, NAMES.length);
});

test("a board that is away stops no other, and is done when it comes", async () => {
  await using fleet = await RolloutFleet.start(["away", "b1", "b2", "b3"]);
  await fleet.setReady("away", "Unknown");
  await fleet.create("r", { maxUnavailable: "50%" });
  const play = playing(fleet);
  const waiting = await fleet.until("r", ({ status: { phase } }) => phase === "Awaiting", play);
  assert.equal(waiting.status.message, "3 of 4 boards done, 1 away");
  assert.equal(wishOf((await fleet.nodes()).get("away")), undefined);
  await fleet.setReady("away", "True");
  await fleet.until("r", (_, nodes) => wishOf(nodes.get("away")) === TARGET);
  const node = (await fleet.nodes()).get("away");
  assert.ok(node !== undefined);
  await fleet.report(node, "good");
  await fleet.until("r", ({ status: { phase } }) => phase === "Complete");
});

test("a board that reports a trial for ever has failed when its time is over", async () => {
  await using fleet = await RolloutFleet.start(NAMES.slice(0, 4));
  await fleet.create("r", { healthDeadline: "1m" });
  const play = playing(fleet, (name) => (name === "b0" ? "trial" : "good"));
  const { status } = await fleet.until("r", ({ status: { phase } }) => phase === "Complete", play);
  assert.equal(status.message, "3 of 4 boards done, 1 failed");
  assert.equal(status.failures[0]?.reason, "did not report an end of its trial within 11 minutes");
});

test("a second rollout of the same boards waits for the first, and one of another kind does not", async () => {
  await using fleet = await RolloutFleet.start(NAMES.slice(0, 4));
  await fleet.create("r");
  await fleet.until("r", ({ status: { phase } }) => phase === "Progressing");
  await fleet.create("s", { target: "registry.example/os:3", selector: "" });
  await fleet.create("t", { kind: "agent", target: "registry.example/agent:3" });
  const second = await fleet.until("s", ({ status: { phase } }) => phase === "Waiting");
  assert.equal(second.status.message, "waits for rollout r, which has board b0 too");
  await fleet.until("t", ({ status: { phase } }) => phase === "Progressing");
  await fleet.until("r", ({ status: { phase } }) => phase === "Complete", playing(fleet));
  await fleet.until("s", ({ status: { phase } }) => phase === "Complete", playing(fleet));
  for (const node of (await fleet.nodes()).values()) assert.equal(wishOf(node), "registry.example/os:3");
});

test("a newer rollout takes over the boards that an older one awaits", async () => {
  await using fleet = await RolloutFleet.start(["away", "b1"]);
  await fleet.setReady("away", "Unknown");
  await fleet.create("r");
  const play = playing(fleet);
  await fleet.until("r", ({ status: { phase } }) => phase === "Awaiting", play);
  await fleet.create("s", { target: "registry.example/os:3" });
  await fleet.until("s", ({ status: { phase } }) => phase === "Awaiting", play);
  const { status } = await fleet.until("r", ({ status: { phase } }) => phase === "Complete", play);
  assert.equal(status.message, "1 of 2 boards done, a newer rollout has the others");
  await fleet.setReady("away", "True");
  await fleet.until("s", (_, nodes) => wishOf(nodes.get("away")) === "registry.example/os:3");
});

test("an undo puts every board back to its image of before, within the budget", async () => {
  await using fleet = await RolloutFleet.start(NAMES.slice(0, 5));
  for (const name of NAMES.slice(0, 5)) await fleet.annotate(name, { [OS]: BEFORE });
  await fleet.create("r");
  const play = playing(fleet, undefined, BEFORE);
  await fleet.until("r", ({ status: { phase } }) => phase === "Complete", play);
  await fleet.patch("r", { action: "undo" });
  const { status } = await fleet.until("r", ({ status: { phase } }) => phase === "Undone", play);
  assert.equal(status.message, "going back: 5 of 5 boards done");
  for (const node of (await fleet.nodes()).values()) {
    assert.equal(wishOf(node), BEFORE);
    assert.equal(node.metadata.annotations?.["picolet.io/update-allow-downgrade"], "true");
  }
});

test("a ConfigMap that is no rollout says so, and holds up no other", async () => {
  await using fleet = await RolloutFleet.start(NAMES.slice(0, 1));
  await fleet.create("wrong", { selector: "role in" });
  await fleet.create("r");
  const { status } = await fleet.until("wrong", ({ status: { phase } }) => phase === "Invalid");
  assert.match(status.message, /^spec\.selector: unable to parse requirement/);
  await fleet.until("r", ({ status: { phase } }) => phase === "Complete", playing(fleet));
});

test("with the rights of hub/deploy, one of two replicas carries a rollout out, and the other one after it", async () => {
  await using cluster = await BridgedCluster.start();
  await using replica = await cluster.replica();
  await using board = replica.fleet.connect("n");
  await board.putNode(nodeReportOf("n"), NEVER);
  const log = new RecordedLog();
  const ports = { client: cluster.hub, nodes: replica.fleet.nodes, clock: systemClock, random: seededRandom(7), log };
  const start = (): (() => Promise<void>) => {
    const life = new AbortController();
    const parts = makeRollouts(ports, { hubName: "test", cluster: { kind: "kubernetes", kubeconfig: undefined } });
    const ends = parts.map((part) => endOfRun(part.run(life.signal)));
    return async () => {
      life.abort();
      await Promise.all(ends);
    };
  };
  const namespace = "picolet-system";
  const create = async (name: string, target: string): Promise<void> => {
    const metadata = { namespace, name, labels: { "picolet.io/rollout": "os" } };
    const data = rolloutData({ ...ROLLOUT_SPEC, selector: "", target });
    await cluster.create(CONFIG_MAPS, { apiVersion: "v1", kind: "ConfigMap", metadata, data });
  };
  const untilDone = async (name: string, target: string): Promise<void> => {
    await cluster.until(NODES, "", "n", (node) => wishOf(node) === target);
    const updates = [{ kind: "os", target, state: "good", message: "", since: "" }];
    const annotations = { "picolet.io/update-status": JSON.stringify({ updates }) };
    await cluster.client.patch(NODES, { namespace: "", name: "n" }, "merge", { metadata: { annotations } }, {}, NEVER);
    await cluster.until(CONFIG_MAPS, namespace, name, (found) => {
      return found !== undefined && parseRollout(found).status.phase === "Complete";
    });
  };
  const holder = async (): Promise<unknown> => {
    const lease = await cluster.client.get(LEASES, { namespace, name: "picolet-rollouts-test" }, NEVER);
    return (lease.spec as { readonly holderIdentity: string }).holderIdentity;
  };
  const first = start();
  await create("one", TARGET);
  await untilDone("one", TARGET);
  const leader = await holder();
  const second = start();
  await first();
  assert.equal(await holder(), "", "the first has given the Lease back");
  await create("two", "registry.example/os:3");
  await untilDone("two", "registry.example/os:3");
  assert.notEqual(await holder(), leader);
  await second();
  assert.deepEqual(
    log.entries.filter(({ level }) => level === "warn" || level === "error"),
    [],
  );
});
