import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "../../protocol/errors.ts";
import { millis } from "../../protocol/ports.ts";
import type { MirrorItem } from "../../protocol/tunnel/messages.ts";
import { RecordedLog } from "../../test/support/recorders.ts";
import { seededRandom } from "../../test/support/seeded-random.ts";
import { VirtualClock } from "../../test/support/virtual-clock.ts";
import type { KubeClient, KubeObject } from "../core/kube-client.ts";
import type { FleetCache } from "./fleet-cache.ts";
import { MirrorPods } from "./mirror-pods.ts";
import type { PodStatusWriter } from "./pod-status-writer.ts";

const NEVER = new AbortController().signal;
const ITEM: MirrorItem = { namespace: "default", name: "st", uid: "u", source: "file", pod: { spec: {} } };

test("a mirror pod that was refused is tried again after a minute, until it is taken", async () => {
  const clock = new VirtualClock();
  const made: string[] = [];
  const answers: ("refused" | "taken")[] = ["refused", "refused", "taken"];
  const create = async (_type: unknown, ref: { readonly name: string }): Promise<KubeObject> => {
    made.push(ref.name);
    if (answers.shift() === "refused") throw new PicoletError("permission_denied", "RuntimeClass not found");
    return { apiVersion: "v1", kind: "Pod", metadata: { name: ref.name } };
  };
  const client = { create } as unknown as KubeClient;
  const cache = { podsOf: () => [], pod: () => undefined, node: () => ({ uid: "n" }) } as unknown as FleetCache;
  const statuses = { mirrorMade: () => Promise.resolve() } as unknown as PodStatusWriter;
  const log = new RecordedLog();
  const connection = { node: "board", client, hubClient: client, cache, clock, random: seededRandom(1), log };
  const mirrors = new MirrorPods(connection, statuses);
  await mirrors.put([ITEM], NEVER);
  await mirrors.retry(NEVER);
  assert.equal(made.length, 1, "not at once");
  for (const tries of [2, 3, 3]) {
    await clock.advance(millis(60_000));
    await mirrors.retry(NEVER);
    assert.equal(made.length, tries);
  }
});
