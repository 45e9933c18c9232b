/** One seed's story: some minutes in which everything happens, then quiet, in which all must come right. */
import { isDeepStrictEqual } from "node:util";
import { apiUidOf } from "@picolet/agent/core/pods/pod-identity.ts";
import { sidecarsOf } from "@picolet/agent/plan/container-roles.ts";
import { currentRun } from "@picolet/agent/plan/judge-container.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import { millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import type { AgentLife } from "./agent-life.ts";
import { Dice } from "./dice.ts";
import { Board, type BoardInit } from "./sim-board.ts";
import {
  debugged,
  type Fate,
  fateOf,
  hasRoom,
  isSameWork,
  makeApiPod,
  makePod,
  redefine,
  remade,
  resized,
} from "./sim-manifests.ts";

/** How long things happen. */
const STORM_MS = 60_000;
/**
 * How long the quiet may take to come: a crash back-off of 300 s, a call that hung for its 240 s before the storm
 * ended, a stop of 30 s, and the source's first word after 30 s.
 */
const QUIET_MS = 900_000;
const LOOK_MS = 5000;
/**
 * In one of so many stories pods are resized, by dice of their own: the others stay as they were before there was that.
 */
export const RESIZING_SEEDS = 5;
const MAX_RESIZES = 12;
const FILE_NAMES = ["a", "b", "c", "dw"];
const API_NAMES = ["p", "qw"];

/** @returns the first law broken, or what did not come right; `undefined` when all went well. */
export async function runScenario(init: BoardInit): Promise<string | undefined> {
  await using board = new Board(init);
  const events = board.dice.between(8, 40);
  for (let count = 0; count < events; count += 1) board.after(board.dice.between(0, STORM_MS), () => happen(board));
  if (init.seed % RESIZING_SEEDS === 1) {
    const dice = new Dice(init.seed);
    const resizes = dice.between(2, MAX_RESIZES);
    for (let count = 0; count < resizes; count += 1) {
      board.after(dice.between(0, STORM_MS), () => resizeApiPod(board, dice));
    }
  }
  board.start();
  await advance(board, STORM_MS);
  board.trace("the storm is over");
  board.becomeKind();
  let wrong: string | undefined = "nobody has looked";
  for (let waited = 0; waited < QUIET_MS && wrong !== undefined; waited += LOOK_MS) {
    await advance(board, LOOK_MS);
    wrong = board.laws.breach ?? faultOf(board) ?? notAsDesired(board);
    if (board.laws.breach !== undefined) break;
  }
  if (wrong !== undefined) return wrong;
  const leak = await board.end();
  return board.laws.breach ?? leak;
}

const advance = (board: Board, durationMs: number): Promise<void> =>
  board.clock.advance(millis(durationMs), () => board.laws.breach !== undefined);

function happen(board: Board): void {
  const { dice } = board;
  const act = dice.pick([
    putPod,
    putPod,
    putPod,
    removePod,
    removePod,
    kill,
    kill,
    failProbe,
    failProbe,
    debugPod,
    breakSandbox,
    crash,
    jump,
    goAway,
    putApiPod,
    putApiPod,
    makeApiPodAnew,
    deleteApiPod,
    deleteApiPod,
    forceApiPod,
    restartHub,
    backUpHub,
    cutLink,
  ]);
  board.trace(`event ${act.name}`);
  act(board);
}

function putPod({ dice, manifests }: Board): void {
  const pod = makePod(dice, "file", dice.pick(FILE_NAMES));
  manifests.put(pod);
}

function debugPod({ dice, manifests }: Board): void {
  const pods = [...manifests.current.values()];
  if (pods.length > 0) manifests.put(debugged(dice.pick(pods)));
}

/** An API pod keeps its UID when its containers are redefined; as often it is a new one of the same name. */
function putApiPod({ dice, hub }: Board): void {
  const name = dice.pick(API_NAMES);
  const known = hub.pod(name);
  hub.put(known !== undefined && dice.chance(0.6) ? redefine(dice, known) : makeApiPod(dice, name));
}

function resizeApiPod(board: Board, dice: Dice): void {
  board.trace("event resizeApiPod");
  const known = board.hub.pod(dice.pick(API_NAMES));
  if (known !== undefined) board.hub.put(resized(dice, known));
}

/** Deleted by force and made again, or restored: the same under another UID. */
function makeApiPodAnew({ dice, hub }: Board): void {
  const known = hub.pod(dice.pick(API_NAMES));
  if (known !== undefined) hub.put(remade(dice, known));
}

function deleteApiPod({ dice, hub }: Board): void {
  hub.delete(dice.pick(API_NAMES), dice.pick([0, 1, 5, 30]));
}

function forceApiPod({ dice, hub }: Board): void {
  hub.remove(dice.pick(API_NAMES));
}

function restartHub({ dice, hub }: Board): void {
  hub.restart(dice.pick(["as it was", "from its backup"]));
}

function backUpHub({ hub }: Board): void {
  hub.backUp();
}

function cutLink(board: Board): void {
  board.hub.setReachable(false);
  board.after(board.dice.between(100, 20_000), () => board.hub.setReachable(true));
}

function removePod({ dice, manifests }: Board): void {
  const names = [...manifests.current.keys()];
  if (names.length > 0) manifests.remove(dice.pick(names));
}

function kill({ dice, runtimes }: Board): void {
  const runtime = dice.pick(runtimes);
  const running = runtime
    .list()
    .flatMap(({ uid }) => runtime.inspect(uid).containers)
    .filter((each) => each.state.kind === "running");
  if (running.length > 0) runtime.kill(dice.pick(running).id, "SIGKILL");
}

/** Fails the probe of a running container; init containers have no probes. */
function failProbe({ dice, runtimes, life, laws }: Board): void {
  const runtime = dice.pick(runtimes);
  const running = runtime
    .list()
    .flatMap(({ uid }) => runtime.inspect(uid).containers.map((container) => ({ uid, container })))
    .filter(({ container: { name, state } }) => state.kind === "running" && !name.startsWith("i"));
  if (running.length === 0 || life === undefined) return;
  const { uid, container } = dice.pick(running);
  laws.lifecycle.unwell(uid, container.id);
  const gracePeriod = dice.chance(0.5) ? undefined : seconds(dice.pick([1, 20]));
  const failed = { probe: dice.pick(["liveness", "startup"] as const), gracePeriod };
  life.prober.say(uid, container.id, { started: true, ready: false, failed });
}

function breakSandbox({ dice, runtimes }: Board): void {
  const runtime = dice.pick(runtimes);
  const sandboxes = runtime.list().flatMap(({ uid }) => runtime.inspect(uid).sandboxes);
  if (sandboxes.length > 0) runtime.stopSandbox(dice.pick(sandboxes).id);
}

function crash(board: Board): void {
  board.life?.fence.kill();
}

/** Back to 1970, or by some hours or years. */
function jump({ dice, clock }: Board): void {
  const now = clock.wall().getTime();
  clock.setWall(dice.pick([0, now + 3_600_000, now - 3_600_000, now + 315_360_000_000, Math.max(0, now - 30_000)]));
}

function goAway(board: Board): void {
  const runtime = board.dice.pick(board.runtimes);
  runtime.goAway();
  board.after(board.dice.between(100, 30_000), () => runtime.comeBack());
}

const faultOf = ({ life }: Board): string | undefined =>
  life?.fault === undefined ? undefined : `the agent failed: ${String(life.fault)}`;

/** @returns what is not yet as the manifests want it. */
function notAsDesired(board: Board): string | undefined {
  const { life, manifests, runtimes, disk, hub } = board;
  if (life === undefined) return "no agent lives";
  const wanted: DesiredPod[] = [...manifests.current.values()];
  for (const pod of wanted) {
    const wrong = podNotAsDesired(board, pod, fateOf(pod.pod));
    if (wrong !== undefined) return `${pod.uid}: ${wrong}`;
  }
  for (const pod of hub.wanted) {
    const own = [...life.store.desired.desired.current.pods.values()].find(
      (each) => apiUidOf(each) === pod.metadata.uid,
    );
    const asked = own && life.store.desired.desired.current.requested.get(own.uid);
    if (own === undefined || !isSameWork(pod, (asked ?? own).pod))
      return `${pod.metadata.uid}: the node does not want it`;
    const wrong = podNotAsDesired(board, own, fateOf(pod)) ?? notTold(board, own) ?? heldBack(life, own, asked ?? own);
    if (wrong !== undefined) return `${own.uid}: ${wrong}`;
    wanted.push(own);
  }
  if (hub.names.length !== hub.wanted.length) return "the hub waits to hear that deleted pods are gone";
  if (life.store.statuses.pendingCount() > 0) return "there are statuses to be told";
  if (life.store.statuses.gone.size > 0) return "pods that are gone are not forgotten";
  const uids = new Set(wanted.map((each) => each.uid));
  for (const runtime of runtimes) {
    for (const { uid } of runtime.list()) if (!uids.has(uid)) return `${uid} is still in the runtime`;
  }
  const left = board.hasLostDisks ? undefined : [...disk.prepared].find((uid) => !uids.has(uid));
  if (left !== undefined) return `${left} is still on the disk`;
  if (life.store.desired.desired.current.removed.size > 0) return "the store still has removed pods";
  if (life.workers.size !== wanted.length) return `${life.workers.size} workers for ${wanted.length} pods`;
  if (life.statuses.pods.size !== wanted.length) return `${life.statuses.pods.size} statuses for ${wanted.length} pods`;
  const unhealthy = life.pleg.health.current.find((each) => !each.healthy);
  return unhealthy === undefined ? undefined : `${unhealthy.name} is not healthy: ${unhealthy.message}`;
}

/** The hub's last report of a pod must be its present status. */
function notTold({ hub, life }: Board, pod: DesiredPod): string | undefined {
  const told = hub.statuses.get(apiUidOf(pod));
  return isDeepStrictEqual(told, life?.store.statuses.get(pod.uid)?.status) ? undefined : "the hub has another status";
}

function podNotAsDesired(board: Board, pod: DesiredPod, fate: Fate): string | undefined {
  const runtime = board.runtimes[pod.pod.spec.runtimeClassName === "wasm" ? 1 : 0];
  if (runtime === undefined) return "it has no runtime";
  const status = board.life?.store.statuses.get(pod.uid)?.status;
  const inFact = board.life?.statuses.pods.get(pod.uid)?.status;
  if (!isDeepStrictEqual(status, inFact)) return "its status is not what was written";
  const phase = status?.phase;
  switch (fate) {
    case "runs": {
      // A pod that is never restarted has failed when it was killed.
      if (pod.pod.spec.restartPolicy === "Never" && phase === "Failed") return undefined;
      const wrong = notRunning(runtime, pod);
      if (wrong !== undefined) return wrong;
      if (phase !== "Running") return `its phase is ${phase}`;
      const ready = status?.conditions?.find((each) => each.type === "Ready");
      return ready?.status === "True" ? undefined : `it is not ready: ${ready?.message}`;
    }
    case "Succeeded":
    case "Failed":
      if (runtime.inspect(pod.uid).sandboxes.some((each) => each.state === "ready"))
        return "its sandbox is still there";
      // A pod that was killed in the storm may have failed instead.
      return phase === "Failed" || phase === fate ? undefined : `its phase is ${phase}`;
    case "rejected":
      return phase === "Failed" && status?.reason === "OutOfcpu" ? undefined : `it was not rejected but ${phase}`;
    case "crashes":
      // An agent that dies between the start and its hook leaves the container as it is.
      if (pod.pod.spec.containers[0]?.lifecycle !== undefined && phase === "Running") return undefined;
      return (status?.containerStatuses?.[0]?.restartCount ?? 0) > 0 ? undefined : "it has not been restarted";
    case "never":
      return /ImagePull/.test(status?.containerStatuses?.[0]?.state.waiting?.reason ?? "")
        ? undefined
        : `it does not wait for its image: ${JSON.stringify(status?.containerStatuses?.[0])}`;
  }
}

/** A request that fits is granted, and one that does not is reported. */
function heldBack(life: AgentLife, own: DesiredPod, asked: DesiredPod): string | undefined {
  const status = life.statuses.pods.get(own.uid)?.status;
  const isOver = (uid: PodUid): boolean =>
    /Succeeded|Failed/.test(life.statuses.pods.get(uid)?.status.phase ?? "Failed");
  if (isOver(own.uid)) return undefined;
  const isPending = status?.conditions?.some(({ type }) => type === "PodResizePending") === true;
  if (isPending !== (asked !== own)) return `that its resize is pending is told: ${isPending}`;
  if (asked === own) return undefined;
  const { pods } = life.store.desired.desired.current;
  const others = [...pods.values()].filter(({ uid }) => uid !== own.uid && !isOver(uid));
  return hasRoom([asked, ...others].map(({ pod }) => pod)) ? "its resize fits and is not granted" : undefined;
}

function notRunning(runtime: FakeRuntime, pod: DesiredPod): string | undefined {
  const observed = runtime.inspect(pod.uid);
  const ready = observed.sandboxes.filter((each) => each.state === "ready");
  if (ready.length !== 1) return `it has ${ready.length} ready sandboxes`;
  for (const container of [...sidecarsOf(pod.pod), ...pod.pod.spec.containers]) {
    const run = currentRun(observed, container.name, "regular");
    if (run?.state.kind !== "running") return `${container.name} is ${run?.state.kind}`;
    if (run.sandboxId !== ready[0]?.id) return `${container.name} runs in an old sandbox`;
    if (run.hash !== containerHash(container)) return `${container.name} runs an old definition`;
    const granted = container.resources.requests?.cpu;
    if (run.resources?.requests?.cpu !== granted) return `${container.name} does not have its ${granted} of CPU`;
  }
  return undefined;
}
