/** A thief reads the disk of a real board that had a Secret and a token of a service account. */
import assert from "node:assert/strict";
import { cpSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { openSealedStore } from "../../store/sealed-history.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { nodeWith } from "../../support/agent/node-fixtures.ts";
import { filesWith } from "../../support/unit/machine/raw-bytes.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import type { AttackCase } from "../attack-case.ts";
import type { AttackGround } from "../attack-ground.ts";

const WORD = "the-word-in-the-secret-that-was-stolen-0123456789";
const KEY = "Secret/default/stolen";

/** A board that has been given a Secret by its hub, and was unplugged. */
async function stolenBoard(ground: AttackGround): Promise<AgentNode> {
  const nodeName = ground.unique("stolen");
  const hub = { server: ground.tunnel, token: await ground.token(), caHash: [ground.hub.ready.caHash] };
  const node = nodeWith(undefined, { config: { nodeName, hub, secretsAtRest: { keyProvider: "file" } } });
  await ground.admin.create("/api/v1/namespaces/default/secrets", {
    ...{ apiVersion: "v1", kind: "Secret", metadata: { name: "stolen" } },
    stringData: { word: WORD },
  });
  await node.start();
  await ground.make("/api/v1/namespaces/default/pods", {
    ...{ apiVersion: "v1", kind: "Pod", metadata: { name: nodeName } },
    spec: {
      ...{ nodeName, runtimeClassName: "wasm" },
      containers: [{ name: "app", image: "picolet.example/none:1", imagePullPolicy: "Never" }],
      volumes: [{ name: "keys", secret: { secretName: "stolen" } }],
    },
  });
  // It comes in the transaction that brings what it names.
  await node.waitForPods("the pod", (pods) => pods.size > 0);
  await node.kill();
  return node;
}

/** A copy of the board's folder without some of its files. */
function copyOf(node: AgentNode, without: readonly string[]): TempFolder {
  const copy = new TempFolder();
  cpSync(join(node.directory, "root"), copy.at("root"), { recursive: true });
  for (const name of without) rmSync(join(copy.at("root"), name), { force: true });
  return copy;
}

/** Reads the Secret from such a copy with an agent of the thief's own. */
async function secretIn(copy: TempFolder): Promise<unknown> {
  const { store } = await openSealedStore(copy.at("root"), systemClock);
  await using _ = store;
  return store.objects.object(KEY);
}

export const cases: readonly AttackCase[] = [
  {
    name: "a thief searches a board's disk for a Secret",
    attacker: "thief",
    inTest: false,
    run: async (ground) => {
      await using node = await stolenBoard(ground);
      assert.deepEqual(filesWith(join(node.directory, "root"), WORD), []);
      using whole = copyOf(node, []);
      assert.notEqual(await secretIn(whole), undefined, "it was there, encrypted");
    },
  },
  {
    name: "a thief opens a copy of a board's database, without its keys or with keys of another board",
    attacker: "thief",
    inTest: false,
    run: async (ground) => {
      await using node = await stolenBoard(ground);
      for (const without of [["store.key"], ["store-keys.json"], ["store.key", "store-keys.json"]]) {
        using copy = copyOf(node, without);
        assert.equal(await secretIn(copy), undefined, without.join());
      }
      using own = copyOf(node, ["store.key"]);
      writeFileSync(join(own.at("root"), "store.key"), `${Buffer.alloc(32, 7).toString("base64")}\n`);
      assert.equal(await secretIn(own), undefined, "a key of his own");
    },
  },
];
