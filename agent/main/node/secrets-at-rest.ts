/** Encryption of kept Secrets and tokens on this node: the keys at the start, and their report. */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { ignoreCancelled } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { SecretsAtRestReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import { unloadModules } from "../../budget/unload-modules.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { PressureCondition } from "../../core/node/node-pressure.ts";
import { nodeReference } from "../../core/store/store-ports.ts";
import { RECORDS_FOLDER } from "../../images/pulls/pull-records.ts";
import type { DataKeys } from "../../keys/data-keys.ts";
import type { ProviderKind } from "../../keys/key-file.ts";
import { KEY_FILE } from "../../keys/key-file-name.ts";
import { DurableFolderOnDisk } from "../../security/durable-folder.ts";
import type { Store } from "../../store/store.ts";

/** Where the provider `file` keeps its key unless the configuration names another place. */
const DEFAULT_KEY_FILE = "store.key";

/** After the boot a TPM's driver may be loaded within seconds; pods that run do not wait for it, new ones do. */
const PROVIDER_WAITS = [seconds(1), seconds(2), seconds(3)];

/**
 * The providers' code is dropped again: keys are unlocked once.
 * @returns undefined for a node that belongs to no hub and has no keys: it keeps no Secrets
 */
export async function unlockSecrets(
  { clock, log }: { readonly clock: Clock; readonly log: Log },
  { configuration, rootDir }: { readonly configuration: Configuration; readonly rootDir: string },
  signal: AbortSignal,
): Promise<DataKeys | undefined> {
  if (configuration.hub === null && !existsSync(join(rootDir, KEY_FILE))) return undefined;
  const { keyProvider, keyFile } = configuration.secretsAtRest;
  const [{ unlockDataKeys }, { makeKeyProviders }] = await Promise.all([
    import("../../keys/unlock.ts"),
    import("../../keys/key-providers.ts"),
  ]);
  const folderAt = (path: string): DurableFolderOnDisk => new DurableFolderOnDisk({ path });
  const providers = makeKeyProviders({ rootDir, folderAt, keyFile: keyFile || join(rootDir, DEFAULT_KEY_FILE) });
  const keys = await unlockDataKeys(
    { clock, log, providers, folder: folderAt(rootDir) },
    { choice: keyProvider as ProviderKind | "auto", waits: PROVIDER_WAITS },
    signal,
  );
  if (keys.isDurable && !keys.isScrubbed) await sealOldFiles(rootDir, keys, log);
  unloadModules("unlock", "key-providers");
  return keys;
}

/** Seals files beside the store that a version without encryption at rest left. The store seals its own rows. */
async function sealOldFiles(rootDir: string, sealer: DataKeys, log: Log): Promise<void> {
  const [{ sealPlainTokens }, { dropPlainHashes }] = await Promise.all([
    import("../../volumes/types/plain-tokens.ts"),
    import("../../images/pulls/plain-records.ts"),
  ]);
  sealPlainTokens({ rootDir, sealer, log });
  const records = join(rootDir, RECORDS_FOLDER);
  if (existsSync(records)) dropPlainHashes(new DurableFolderOnDisk({ path: records }), readdirSync(records), log);
  unloadModules("plain-tokens", "plain-records");
}

/** Tells what cannot be opened, or is not kept: a condition of the node while it is so, an event of it once. */
export class SecretsAtRest implements Component {
  readonly name = "secrets at rest";
  readonly #keys: DataKeys | undefined;
  readonly #store: Pick<Store, "unreadable" | "events">;
  readonly #nodeName: string;
  readonly #pressure: WatchSource<readonly PressureCondition[]>;

  constructor(
    components: { readonly keys: DataKeys | undefined; readonly store: Pick<Store, "unreadable" | "events"> },
    init: { readonly nodeName: string },
  ) {
    this.#keys = components.keys;
    this.#store = components.store;
    this.#nodeName = init.nodeName;
    this.#pressure = new WatchSource(this.#conditions([]));
  }

  /** Empty as long as nothing was ever wrong. */
  get pressure(): Watch<readonly PressureCondition[]> {
    return this.#pressure;
  }

  report(): SecretsAtRestReport | null {
    const report = this.#keys?.report();
    return report === undefined ? null : { ...report, unreadable: this.#store.unreadable.current.size };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { problem } = this.#keys ?? {};
    const regarding = nodeReference(this.#nodeName);
    if (problem !== undefined) {
      const [reason, effect] = EVENTS[problem.kind];
      const message = `${effect} (${problem.reason})`;
      this.#store.events.record({ regarding, type: "Warning", reason, message });
    }
    try {
      for await (const _ of this.#store.unreadable.changes(signal))
        this.#pressure.set(this.#conditions(this.#pressure.current));
    } catch (error) {
      ignoreCancelled(error);
    }
  }

  #conditions(before: readonly PressureCondition[]): readonly PressureCondition[] {
    const { size } = this.#store.unreadable.current;
    const condition = { type: "SecretsUnreadable" } as const;
    const why = this.#keys?.problem === undefined ? "" : `: ${this.#keys.problem.reason}`;
    if (size > 0) {
      const message = `${size} stored Secrets cannot be decrypted; the hub is asked for them again${why}`;
      return [{ ...condition, status: "True", reason: "KeyLostOrDamaged", message }];
    }
    if (this.#keys?.isDurable === false) {
      const message = `Secrets are stored with a key that ends with this process${why}`;
      return [{ ...condition, status: "True", reason: "KeyProviderUnavailable", message }];
    }
    if (before.length === 0) return before;
    return [
      { ...condition, status: "False", reason: "SecretsReadable", message: "all stored Secrets can be decrypted" },
    ];
  }
}

const EVENTS = {
  lost: ["SecretKeyLost", "stored Secrets cannot be decrypted any more, the hub is asked for them again"],
  unavailable: ["SecretKeyUnavailable", "the key provider does not work; running pods go on"],
} as const;
