import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeClient, KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { MirrorItem } from "@picolet/protocol/tunnel/messages.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { FleetCache } from "./fleet-cache.ts";
import { MirrorPods } from "./mirror-pods.ts";
import { PodStatusWriter } from "./pod-status-writer.ts";
import { fieldsAt } from "./remote-object.ts";
import type { WholePod } from "./stored-objects.ts";

const NEVER = new AbortController().signal;
const ITEM: MirrorItem = { namespace: "default", name: "st", uid: "u", source: "file", pod: { spec: {} } };

test("a mirror pod that was refused is tried again after a minute, until it is taken; one event says why", async () => {
  const clock = new VirtualClock();
  const made: string[] = [];
  const events: unknown[] = [];
  const answers: ("refused" | "failed" | "taken")[] = ["refused", "refused", "failed", "taken"];
  const create = async (
    { kind }: { readonly kind: string },
    ref: { readonly name: string },
    object: unknown,
  ): Promise<KubeObject> => {
    if (kind === "Event") {
      events.push(object);
      return object as KubeObject;
    }
    made.push(ref.name);
    const answer = answers.shift();
    if (answer === "failed") throw new PicoletError("unavailable", "cannot reach it");
    if (answer === "refused") throw new PicoletError("permission_denied", "RuntimeClass not found");
    return { apiVersion: "v1", kind: "Pod", metadata: { name: ref.name } };
  };
  const client = { create } as unknown as KubeClient;
  const cache = { podsOf: () => [], pod: () => undefined, node: () => ({ uid: "n" }) } as unknown as FleetCache;
  const statuses = { place: () => Promise.resolve() } as unknown as PodStatusWriter;
  const log = new RecordedLog();
  const connection = { node: "board", client, hubClient: client, cache, clock, random: seededRandom(1), log };
  const mirrors = new MirrorPods(connection, statuses);
  await mirrors.put([ITEM], NEVER);
  await mirrors.retry(NEVER);
  assert.equal(made.length, 1, "not at once");
  for (const [tries, fails] of [[2], [3, "fails"], [4], [4]] as const) {
    await clock.advance(millis(60_000));
    await mirrors.retry(NEVER).catch((error) => assert.ok(fails && isPicoletError(error, "unavailable")));
    assert.equal(made.length, tries);
  }
  const [event, ...more] = events as { readonly reason: string; readonly message: string }[];
  assert.deepEqual(more, [], "a refusal that repeats is reported once");
  assert.equal(event?.reason, "FailedMirrorPod");
  assert.equal(event.message, "The static pod runs, but has no mirror pod: RuntimeClass not found");
  assert.equal(log.problems.length, 1);
});

/** One mirror pod in an API server whose answers get lost, and the cache that follows it. */
class Server {
  readonly clock = new VirtualClock();
  /** Verbs that fail the next time; `lost`: what was asked is done all the same. */
  readonly failing = new Map<string, "undone" | "lost">();
  pod: KubeObject | undefined;
  readonly mirrors: MirrorPods;
  #uid = 0;

  constructor() {
    const ask = async <T>(verb: string, work: () => T): Promise<T> => {
      const how = this.failing.get(verb);
      this.failing.delete(verb);
      const done = how === "undone" ? undefined : work();
      if (how !== undefined) throw new PicoletError("unavailable", `cannot ${verb}`, { retryable: true });
      return done as T;
    };
    const client = {
      create: (_type: unknown, _ref: unknown, object: KubeObject) =>
        ask("create", () => {
          if (this.pod !== undefined) throw new PicoletError("already_exists", "it is there");
          this.#uid += 1;
          this.pod = { ...object, metadata: { ...object.metadata, uid: `p${this.#uid}`, resourceVersion: "1" } };
          return this.pod;
        }),
      get: () => ask("get", () => this.pod),
      delete: () =>
        ask("delete", () => {
          this.pod = undefined;
        }),
      patch: (_type: unknown, _ref: unknown, _kind: unknown, { status }: { status: object }) =>
        ask("patch", () => {
          const { pod } = this;
          if (pod === undefined) throw new PicoletError("not_found", "it is gone");
          this.pod = { ...pod, status: { ...(pod.status as object), ...status } };
          return this.pod;
        }),
    } as unknown as KubeClient;
    const cache = { podsOf: () => [], pod: () => this.cached(), node: () => ({ uid: "n" }) } as unknown as FleetCache;
    const rest = { cache, clock: this.clock, random: seededRandom(1), log: new RecordedLog() };
    const connection = { node: "board", client, hubClient: client, ...rest };
    this.mirrors = new MirrorPods(connection, new PodStatusWriter(connection));
  }

  cached(): WholePod | undefined {
    const { pod } = this;
    if (pod === undefined) return undefined;
    const { uid = "" } = pod.metadata;
    const rest = { resourceVersion: "1", isDeleted: false, mirrorOf: ITEM.uid };
    return { uid, ...rest, status: JSON.stringify(pod.status ?? {}), packed: { object: pod } } as unknown as WholePod;
  }

  /** Does what a hub does with each renewal of the Lease. */
  async renewal(): Promise<void> {
    await this.clock.advance(millis(10_000));
    await this.mirrors.retry(NEVER);
  }
}

const LOSSES = [
  ["create", "undone"],
  ["create", "lost"],
  ["patch", "undone"],
  ["patch", "lost"],
] as const;

for (const [verb, how] of LOSSES) {
  test(`a mirror pod comes again, with its status, though the API server fails at the ${verb}, ${how}`, async () => {
    const server = new Server();
    await server.mirrors.put([{ ...ITEM, pod: { ...ITEM.pod, status: { phase: "Running" } } }], NEVER);
    const before = server.cached();
    assert.ok(before);
    assert.equal(fieldsAt(server.pod, "status").phase, "Running");
    server.pod = undefined;
    server.failing.set(verb, how);
    await assert.rejects(server.mirrors.deleted("default/st", before, NEVER));
    await server.renewal();
    assert.ok(server.cached()?.uid !== undefined && server.cached()?.uid !== before.uid);
    assert.equal(fieldsAt(server.pod, "status").phase, "Running");
    const { pod } = server;
    await server.renewal();
    assert.equal(server.pod, pod, "nothing is left to be done");
  });
}

test("a mirror pod with a deletion request is deleted, though the API server fails once", async () => {
  const server = new Server();
  await server.mirrors.put([ITEM], NEVER);
  const there = server.cached();
  assert.ok(there);
  server.failing.set("delete", "undone");
  await assert.rejects(server.mirrors.deleting("default/st", there, NEVER));
  assert.ok(server.pod);
  await server.renewal();
  assert.equal(server.pod, undefined);
});
