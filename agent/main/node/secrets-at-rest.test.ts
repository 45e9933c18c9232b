/** Keys at the agent's start, and the node's report of them. */

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import type { RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import { filesWith } from "@picolet/test/support/unit/machine/raw-bytes.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { remoteObject, TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { type Configuration, loadConfiguration } from "../../config/configuration.ts";
import { Store } from "../../store/store.ts";
import { SecretsAtRest, unlockSecrets } from "./secrets-at-rest.ts";

const NEVER = new AbortController().signal;
const WITH_HUB = "hub: {server: https://hub.example:8443}\nsecretsAtRest: {keyProvider: file}";

function configurationOf(text: string): Configuration {
  const loaded = loadConfiguration(text, "node-a");
  assert.ok(loaded.ok, JSON.stringify(loaded));
  return loaded.configuration;
}

/** One start of an agent, as far as this goes. */
class Start implements AsyncDisposable {
  readonly #clock = new VirtualClock();
  readonly #life = new AbortController();
  readonly #running: Promise<void>;
  readonly store: Store;
  readonly secrets: SecretsAtRest;

  private constructor(keys: Awaited<ReturnType<typeof unlockSecrets>>, path: string) {
    const log = new RecordedLog();
    this.store = new Store({ clock: this.#clock, log, sealer: keys }, { path });
    this.secrets = new SecretsAtRest({ keys, store: this.store }, { nodeName: "node-a" });
    this.#running = endOfRun(this.secrets.run(this.#life.signal));
  }

  static async of(folder: TemporaryFolder, text = WITH_HUB): Promise<Start> {
    const ports = { clock: new VirtualClock(), log: new RecordedLog() };
    const keys = await unlockSecrets(ports, { configuration: configurationOf(text), rootDir: folder.path }, NEVER);
    return new Start(keys, folder.file("picolet.db"));
  }

  get condition(): string {
    return this.secrets.pressure.current.map(({ status, reason }) => `${status} ${reason}`).join();
  }

  get events(): string[] {
    return this.store.events.list({ limit: 10 }).map(({ reason }) => reason);
  }

  async apply(upserts: readonly RemoteObject[]): Promise<void> {
    const digest = this.store.objects.digestAfter({ upserts, deletes: [] });
    const cursor = { epoch: Uint8Array.of(1), revision: 1, digest };
    this.store.objects.apply({ cursor, upserts, deletes: [] }, { wanted: [], removed: [] });
    for (let batch = 0; batch < 5; batch += 1) this.store.flush();
    await this.#clock.settle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
    await this.store[Symbol.asyncDispose]();
  }
}

const secretOf = (name: string): RemoteObject => remoteObject("Secret", name, { kind: "Secret", data: { a: "b" } });

test("a node without a hub makes no keys and tells nothing", async () => {
  using folder = new TemporaryFolder();
  await using start = await Start.of(folder, "");
  assert.equal(start.secrets.report(), null);
  assert.equal(start.condition, "");
  assert.ok(!readdirSync(folder.path).some((name) => name.startsWith("store")));
});

test("a lost key is told of once, and is a condition of the node until the hub has sent the Secrets again", async () => {
  using folder = new TemporaryFolder();
  {
    await using start = await Start.of(folder);
    await start.apply([secretOf("a"), secretOf("b")]);
    assert.equal(start.condition, "");
    assert.deepEqual(start.events, []);
    assert.equal(start.secrets.report()?.provider, "file");
    for (const name of ["store.key", "store-keys.json"])
      assert.equal(statSync(folder.file(name)).mode & 0o777, 0o600, "nobody else reads it");
  }
  rmSync(folder.file("store.key"));
  {
    await using start = await Start.of(folder);
    assert.equal(start.condition, "True KeyLostOrDamaged");
    assert.deepEqual(start.events, ["SecretKeyLost"]);
    assert.equal(start.secrets.report()?.unreadable, 2);
    await start.apply([secretOf("a")]);
    assert.equal(start.condition, "False SecretsReadable");
  }
  await using start = await Start.of(folder);
  assert.equal(start.condition, "");
  assert.deepEqual(start.events, ["SecretKeyLost"], "that of before");
  assert.equal(start.secrets.report()?.problem, "");
});

test("an upgrade seals what lies beside the store, before the agent uses any of it", async () => {
  using folder = new TemporaryFolder();
  mkdirSync(folder.file("pods/uid-1/tokens"), { recursive: true });
  mkdirSync(folder.file("image_manager"));
  const token = JSON.stringify({ token: "a.plain.token", issuedAtMs: 1, expiresAtMs: 2, purpose: "p" });
  writeFileSync(folder.file("pods/uid-1/tokens/v-0.json"), token);
  const hash = "ab".repeat(32);
  writeFileSync(folder.file("image_manager/pulled-1"), JSON.stringify({ credentialHash: hash }));
  await using _ = await Start.of(folder);
  for (const text of ["a.plain.token", hash]) assert.deepEqual(filesWith(folder.path, text), []);
});

test("a provider that is named and not there: Secrets are kept with a key that ends with the process", async () => {
  using folder = new TemporaryFolder();
  writeFileSync(folder.file("file"), "");
  const text = `${WITH_HUB.replace("file}", `file, keyFile: ${folder.file("file")}/under/a/file}`)}`;
  {
    await using start = await Start.of(folder, text);
    assert.equal(start.condition, "True KeyProviderUnavailable");
    assert.deepEqual(start.events, ["SecretKeyUnavailable"]);
    assert.equal(start.secrets.report()?.provider, "memory");
    await start.apply([secretOf("a")]);
    assert.equal(start.condition, "True KeyProviderUnavailable");
    assert.ok(!existsSync(folder.file("store-keys.json")));
  }
  await using start = await Start.of(folder);
  assert.equal(start.condition, "True KeyLostOrDamaged", "and are asked for at the next start");
});
