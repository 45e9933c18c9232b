/** Boards of which the keys of what is sealed at rest come from one provider or another, over starts and losses. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { DataKeys } from "@picolet/agent/keys/data-keys.ts";
import type { KeyFolder, ProviderKind } from "@picolet/agent/keys/key-file.ts";
import { KEY_FILE } from "@picolet/agent/keys/key-file-name.ts";
import { type KeyProvidersInit, makeKeyProviders } from "@picolet/agent/keys/key-providers.ts";
import { unlockDataKeys } from "@picolet/agent/keys/unlock.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";
import { MemoryKeyFolder } from "../store/sealers.ts";
import { TemporaryFolder } from "../store/store-samples.ts";

export const NEVER = new AbortController().signal;
export const IDENTITY = ["object", "Secret/default/a"];
export const PLAIN = Buffer.from("correct horse battery staple");

/** Files on the disk, without what makes them durable. */
export class DiskFolder implements KeyFolder {
  readonly #memory = new MemoryKeyFolder();
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  read(name: string): string | undefined {
    const path = join(this.#path, name);
    return existsSync(path) ? readFileSync(path, "utf8") : undefined;
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.#path, name), text, { mode: 0o600 });
  }

  rename(from: string, to: string): void {
    this.write(to, this.read(from) ?? "");
    rmSync(join(this.#path, from));
  }

  remove(name: string): void {
    rmSync(join(this.#path, name), { force: true });
  }

  sync(): void {
    this.#memory.sync();
  }
}

/** A board: its folder and its devices stay from start to start. */
export class Board {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly path: string;
  readonly folder: KeyFolder;
  devices: Partial<KeyProvidersInit>;

  constructor(t: TestContext, devices: Partial<KeyProvidersInit> = {}) {
    const folder = new TemporaryFolder();
    t.after(() => folder[Symbol.dispose]());
    this.path = folder.path;
    this.folder = new DiskFolder(this.path);
    this.devices = devices;
  }

  start(choice: ProviderKind | "auto" = "auto"): Promise<DataKeys> {
    const none = { tpmDevice: "/nonexistent", systemdFolder: "/nonexistent", nvmemFolder: "/nonexistent" };
    const providers = makeKeyProviders({
      ...none,
      ...{ rootDir: this.path, keyFile: join(this.path, "store.key"), folderAt: (path) => new DiskFolder(path) },
      ...this.devices,
    });
    return unlockDataKeys({ clock: this.clock, log: this.log, folder: this.folder, providers }, { choice }, NEVER);
  }

  file(name: string): string {
    return join(this.path, name);
  }
}

export const seal = (keys: DataKeys): Buffer => keys.seal(IDENTITY, PLAIN);
export const opens = (keys: DataKeys, box: Buffer): boolean => keys.open(IDENTITY, box)?.equals(PLAIN) === true;

/** Checks the common rules of a provider once it has made a key. */
export async function keepsItsKey(
  board: Board,
  kind: ProviderKind,
  choice: ProviderKind | "auto" = "auto",
): Promise<Buffer> {
  const first = await board.start(choice);
  assert.equal(first.problem, undefined);
  assert.equal(first.report().provider, kind);
  assert.ok(first.isDurable);
  const box = seal(first);
  const next = await board.start(choice);
  assert.equal(next.generation, 1);
  assert.ok(opens(next, box), "the next start has the same key");
  assert.ok(!readFileSync(board.file(KEY_FILE), "utf8").includes(PLAIN.toString()));
  return box;
}

/** Checks that data of an earlier start cannot be opened, and that the agent's new key stays. */
export async function losesItsKey(board: Board, box: Buffer, reason: RegExp): Promise<void> {
  const keys = await board.start();
  assert.equal(keys.problem?.kind, "lost");
  assert.match(keys.problem?.reason ?? "", reason);
  assert.ok(!opens(keys, box));
  assert.ok(keys.isDurable);
  const next = await board.start();
  assert.equal(next.problem, undefined, "said once");
  assert.ok(opens(next, seal(keys)));
  assert.ok(existsSync(board.file("store-keys.lost.json")), "for who brings the provider back");
}

/** The provider is not there now: nothing of its keys is given up. */
export async function waitsForItsKey(board: Board, box: Buffer): Promise<void> {
  const before = readFileSync(board.file(KEY_FILE), "utf8");
  const keys = await board.start();
  assert.equal(keys.problem?.kind, "unavailable");
  assert.ok(!keys.isDurable);
  assert.ok(!opens(keys, box));
  assert.ok(opens(keys, seal(keys)), "it goes on with a key of its own");
  assert.equal(readFileSync(board.file(KEY_FILE), "utf8"), before);
}
