/**
 * Pods of every kind come and go while the agent is killed at random moments: when they are gone, the machine is as it
 * was before the first of them. Real hub, real agent, real containers and components.
 */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  CONFIG_MAPS,
  type KubeObject,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  PODS,
  SECRETS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { leftovers } from "../../support/agent/leftovers.ts";
import { containerPod, edgectl, HELLO_COMPONENT, HELLO_IMAGE, nodeWith } from "../../support/agent/node-fixtures.ts";
import { DEBUGGER, HOST_PORTS, POD_KINDS, type PodKind, podOfKind } from "../../support/agent/pods-of-every-kind.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet } from "../../support/hub/test-fleet.ts";
import { fixedPorts } from "../../support/unit/machine/fixed-port.ts";
import { seededRandom } from "../../support/unit/ports/seeded-random.ts";
import { testComponent } from "../../support/wasm/components.ts";

const skip = containerdMissing() ?? false;
const PODS_IN_ALL = Number(process.env.PICOLET_LEAK_PODS ?? 40);
const SEED = Number(process.env.PICOLET_SEED ?? 20_261_120);
const NODE = "board";
const NAMESPACE = "default";
/** As many as are made at once; twice as many are there at most, which is what a small board has. */
const BURST = 8;
/** Between two steps, at the longest: what is under way is met in its middle. */
const LONGEST_PAUSE_MS = 1_500;
/** How long a killed agent is away at the longest. */
const LONGEST_AWAY_MS = 500;
/** Kills of a burst: while its pods are made, and while they are ended. */
const KILLS_A_BURST = 2;
/** No pod is that slow, not even on a machine that is ten times too slow. */
const END_LIMIT_MS = 300_000;
/** Bounds the wait for what cleans itself up: reaped processes, their cgroups, shims that containerd has lost. */
const SETTLE_TRIES = 120;
const SETTLE_RETRY_MS = 500;
const NEVER = new AbortController().signal;

const random = seededRandom(SEED);
const pick = <T>(list: readonly T[]): T => {
  const item = list[Math.floor(random.next() * list.length)];
  assert.ok(item !== undefined);
  return item;
};
const pause = (longestMs: number): Promise<void> => systemClock.sleep(millis(random.next() * longestMs), NEVER);

/** A failing disposal does not prevent the others. */
const owned = new AsyncDisposableStack();
let containerd: Containerd;
let node: AgentNode;
let admin: FleetAdmin;

before(async () => {
  if (skip !== false) return;
  containerd = owned.use(await Containerd.start());
  const fleet = owned.use(await Fleet.start(["--drain-time", "1s"]));
  const hub = { ...(await fleet.joinConfig()), reconnectBackoff: { initial: "100ms", max: "1s" } };
  node = owned.use(nodeWith(containerd, { config: { nodeName: NODE, hub, maxPods: 500 } }));
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  edgectl(node, "image", "import", await testComponent("exit-42.wat"), "--name", "localhost/exit-42:1");
  admin = owned.use(await FleetAdmin.of(fleet));
});

after(async () => {
  await owned.disposeAsync();
});

async function makeSurroundings(): Promise<{ config: string; secret: string; claim: string; hostFolder: string }> {
  const hostFolder = join(node.directory, "host");
  mkdirSync(hostFolder);
  await admin.create(CONFIG_MAPS, { metadata: { name: "config" }, data: { key: "value", OTHER: "one" } });
  await admin.create(SECRETS, { metadata: { name: "secret" }, stringData: { key: "value" } });
  const accessModes = ["ReadWriteOnce"];
  const disk = { capacity: { storage: "1Mi" }, accessModes, hostPath: { path: hostFolder, type: "Directory" } };
  await admin.create(PERSISTENT_VOLUMES, { metadata: { name: "disk" }, spec: disk });
  const claim = { accessModes, resources: { requests: { storage: "1Mi" } }, storageClassName: "" };
  await admin.create(PERSISTENT_VOLUME_CLAIMS, { metadata: { name: "claim" }, spec: claim });
  return { config: "config", secret: "secret", claim: "claim", hostFolder };
}

/** The API server's pods as they come and go, and how far those of each kind have come. */
class PodsThere {
  readonly names = new Set<string>();
  /** Those that are or were more than pending. */
  readonly begun = new Set<string>();
  /** The progress of each kind of pod: phases, reasons, and what a container waited for or ended with. */
  readonly seen = new Map<string, Set<string>>();
  #fits: (() => boolean) | undefined;
  #wake: (() => void) | undefined;

  async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const { items, resourceVersion } = await admin.client.list(PODS, { namespace: NAMESPACE }, signal);
      this.names.clear();
      for (const pod of items) this.#see(pod);
      try {
        for await (const event of admin.client.watch(PODS, { namespace: NAMESPACE, resourceVersion }, signal)) {
          if (event.type === "BOOKMARK") continue;
          this.#see(event.object);
          if (event.type === "DELETED") this.names.delete(event.object.metadata.name);
          if (this.#fits?.() === true) this.#wake?.();
        }
      } catch (error) {
        if (!signal.aborted && !isPicoletError(error)) throw error;
      }
    }
  }

  #see(object: KubeObject): void {
    this.names.add(object.metadata.name);
    const { status } = object as unknown as Pod;
    const kind = object.metadata.labels?.kind ?? "";
    const seen = this.seen.get(kind) ?? new Set();
    this.seen.set(kind, seen);
    if (status?.phase !== undefined && status.phase !== "Pending") this.begun.add(object.metadata.name);
    for (const each of [status?.phase, status?.reason]) if (each !== undefined) seen.add(each);
    for (const { state } of status?.containerStatuses ?? []) {
      const reason = state.waiting?.reason ?? state.terminated?.reason;
      if (reason !== undefined) seen.add(reason);
    }
  }

  /** @throws with what there is and the agent's last words when it takes too long */
  async until(what: string, fits: () => boolean): Promise<void> {
    if (fits()) return;
    const late = AbortSignal.timeout(END_LIMIT_MS);
    await new Promise<void>((resolve, reject) => {
      this.#fits = fits;
      this.#wake = resolve;
      late.onabort = () =>
        reject(new Error(`${what} (seed ${SEED}): ${[...this.names].join(", ")}\n${node.log.slice(-8000)}`));
    });
    this.#fits = undefined;
    late.onabort = null;
  }
}

async function killAgent(): Promise<void> {
  await node.kill();
  await pause(LONGEST_AWAY_MS);
  node.spawn();
}

interface Made {
  readonly name: string;
  readonly kind: PodKind | "static";
}

async function makePod(index: number, around: Parameters<typeof podOfKind>[2]): Promise<Made> {
  const name = `pod-${index}`;
  // Each kind before any comes again, static pods among them; after that as chance has it.
  const kinds = ["static", ...POD_KINDS] as const;
  const kind = kinds[index] ?? pick(kinds);
  if (kind === "static") {
    node.writeManifest(`${name}.json`, containerPod(name));
    return { name, kind };
  }
  await admin.create(PODS, podOfKind(kind, name, around, random));
  if (kind === "debugged") {
    const patch = { spec: { ephemeralContainers: [DEBUGGER] } };
    await admin.patch(PODS, name, patch, "ephemeralcontainers");
  }
  return { name, kind };
}

async function endPod({ name, kind }: Made): Promise<void> {
  if (kind === "static") {
    node.removeManifest(`${name}.json`);
    return;
  }
  const graceSeconds = [undefined, undefined, 0, 1][Math.floor(random.next() * 4)];
  try {
    await admin.delete(PODS, name, graceSeconds);
  } catch (error) {
    if (!isPicoletError(error, "not_found")) throw error;
  }
}

/**
 * Waits until the lines fit.
 * @returns the last lines, even if they do not fit
 */
async function settled(fits: (lines: readonly string[]) => boolean): Promise<readonly string[]> {
  for (let tries = SETTLE_TRIES; ; tries -= 1) {
    const lines = leftovers({ node, containerd });
    if (fits(lines) || tries === 0) return lines;
    await systemClock.sleep(millis(SETTLE_RETRY_MS), NEVER);
  }
}

/** True for the spare runner of the agent, or for a former one: the agent's end tells them apart. */
const isSpare = (line: string): boolean => line.startsWith("process") && line.includes("/container/launch.json spare");

const leftSince = (before: readonly string[], now: readonly string[]): readonly string[] => {
  const known = new Set(before);
  return now.filter((line) => !known.has(line));
};

test(`of ${PODS_IN_ALL} pods of every kind, ended while the agent was killed again and again, nothing is left`, {
  skip,
}, async (context) => {
  const around = {
    ...(await makeSurroundings()),
    firstHostPort: await fixedPorts(HOST_PORTS),
    nodeName: NODE,
    failingComponent: "localhost/exit-42:1",
  };
  const stop = new AbortController();
  const pods = new PodsThere();
  const following = pods.follow(stop.signal).catch((error: unknown) => error);
  // The first pod makes what stays for all: the bridge, the chains of the packet filter, tiers of cgroups.
  await admin.create(PODS, podOfKind("hostPort", "first", around, random));
  await pods.until("the first pod", () => pods.seen.get("hostPort")?.has("Running") === true);
  await admin.delete(PODS, "first");
  await pods.until("the first pod's end", () => pods.names.size === 0);
  await node.waitForPods("an empty node", (all) => all.size === 0);
  const from = await settled((lines) => !lines.some((line) => /^row: (pods|statuses) /.test(line)));
  let made: Made[] = [];
  let kills = 0;
  for (let index = 0; index < PODS_IN_ALL; ) {
    const killAt = new Set(Array.from({ length: KILLS_A_BURST }, () => Math.floor(random.next() * 3 * BURST)));
    const strike = async (at: number): Promise<void> => {
      if (!killAt.has(at)) return;
      kills += 1;
      await killAgent();
    };
    const burst: Made[] = [];
    for (let step = 0; step < BURST && index < PODS_IN_ALL; step += 1, index += 1) {
      burst.push(await makePod(index, around));
      await strike(step);
    }
    await pause(LONGEST_PAUSE_MS * 2);
    const begun = (): number => burst.filter(({ name, kind }) => kind === "static" || pods.begun.has(name)).length;
    await pods.until(`something of ${burst.map(({ kind }) => kind).join(", ")}`, () => begun() >= burst.length / 4);
    made.push(...burst);
    for (let step = 0; step < BURST && made.length > 0; step += 1) {
      await strike(BURST + 2 * step);
      const victim = pick(made);
      made = made.filter((each) => each !== victim);
      await endPod(victim);
      await pause(LONGEST_PAUSE_MS / BURST);
      await strike(BURST + 2 * step + 1);
    }
    await pods.until(`room for more than ${index} pods`, () => pods.names.size <= 2 * BURST);
  }
  for (const each of made) await endPod(each);
  await pods.until("the end of all", () => pods.names.size === 0);
  await node.drain();
  stop.abort();
  assert.equal(await following, undefined);
  const leftBeside = (spare: (line: string) => boolean, lines: readonly string[]): readonly string[] =>
    leftSince(from, lines).filter((line) => !spare(line));
  for (const spare of [isSpare, () => false]) {
    const now = await settled((lines) => leftBeside(spare, lines).length === 0);
    assert.deepEqual(leftBeside(spare, now), [], `seed ${SEED}, ${kills} kills`);
    await node.kill();
  }
  assert.ok(pods.begun.size >= PODS_IN_ALL / 4, `only ${pods.begun.size} pods came to something`);
  context.diagnostic(
    `${kills} kills; ${[...pods.seen].map(([kind, seen]) => `${kind}: ${[...seen].join(" ")}`).join("; ")}`,
  );
});
