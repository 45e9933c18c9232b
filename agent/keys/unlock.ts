/**
 * Chooses the provider of the key-encryption key and unlocks the data keys, once at the start. The agent gets keys in
 * any case: what an earlier process sealed with a lost key is requested from the hub again.
 */
import { randomBytes } from "node:crypto";
import { describeError, ignore, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Millis } from "@picolet/protocol/ports.ts";
import {
  appendDataKey,
  DataKeys,
  isRotationDue,
  type KeyProblem,
  newDataKey,
  saveKeys,
  type UnlockedKeys,
} from "./data-keys.ts";
import {
  type KeyFile,
  type KeyFolder,
  type ProviderKind,
  type ProviderRecord,
  parseKeyFile,
  unwrapKey,
} from "./key-file.ts";
import { KEY_FILE } from "./key-file-name.ts";
import type { KeyProvider } from "./key-providers.ts";

/** The last key file that could not be used, for an operator who brings its provider back. */
const LOST_KEY_FILE = "store-keys.lost.json";

export interface UnlockComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** Where the key file is. */
  readonly folder: KeyFolder;
  /** In the order in which they are preferred. */
  readonly providers: readonly KeyProvider[];
}

export interface UnlockInit {
  /**
   * `auto`: the provider in use as long as it works, else the best that this board has. A provider that is named takes
   * the place of the one in use.
   */
  readonly choice: ProviderKind | "auto";
  /**
   * How long to wait before each further try while the provider is not there: its driver may be loading. Default: none.
   */
  readonly waits?: readonly Millis[];
}

/** The state of the key file. */
type Found =
  | { readonly kind: "none" }
  | { readonly kind: "unlocked"; readonly keys: UnlockedKeys }
  | { readonly kind: "problem"; readonly problem: KeyProblem };

/** Never throws; `signal` ends the waiting alone. */
export async function unlockDataKeys(
  { clock, log, folder, providers }: UnlockComponents,
  { choice, waits = [] }: UnlockInit,
  signal: AbortSignal,
): Promise<DataKeys> {
  let found = await readKeys(folder, providers);
  for (const wait of waits) {
    if (found.kind !== "problem" || found.problem.kind !== "unavailable" || signal.aborted) break;
    await clock
      .sleep(wait, signal)
      .catch(ignore("the keys are read once more, and the loop ends when the wait is cancelled"));
    found = await readKeys(folder, providers);
  }
  const kept = found.kind === "unlocked" ? found.keys : undefined;
  let problem = found.kind === "problem" ? found.problem : undefined;
  if (problem !== undefined) log.error("the keys of stored Secrets cannot be used", { ...problem });
  let unlocked: UnlockedKeys | undefined;
  try {
    const inUse = providers.find(({ kind }) => kind === kept?.provider.kind);
    const hasMoved = kept !== undefined && inUse?.hasMoved?.(kept.provider) === true;
    const isWanted = !hasMoved && (choice === "auto" || kept?.provider.kind === choice);
    // A provider that only is not there now may come back: nothing of its keys is given up, unless another one is
    // named.
    const isWaitedFor = problem?.kind === "unavailable" && (choice === "auto" || problem.provider === choice);
    if (kept !== undefined && isWanted) unlocked = renewed(folder, kept, clock.wall());
    else if (!isWaitedFor) {
      if (problem !== undefined) setAside(folder);
      unlocked = await changeProvider({ folder, providers, log }, choice, kept, clock.wall());
    }
  } catch (error) {
    const reason = describeError(error);
    log.error("Secrets are sealed with a key that ends with this process", { reason });
    problem = { kind: "unavailable", provider: choice === "auto" ? "unknown" : choice, reason };
    // The data stays readable: the current provider remains.
    unlocked = kept;
  }
  return new DataKeys({ clock, log, folder }, { unlocked, problem });
}

async function readKeys(folder: KeyFolder, providers: readonly KeyProvider[]): Promise<Found> {
  let file: KeyFile | undefined;
  try {
    const text = folder.read(KEY_FILE);
    if (text === undefined) return { kind: "none" };
    file = parseKeyFile(text);
    const { provider: record, id, scrubbed } = file;
    const provider = providers.find(({ kind }) => kind === record.kind);
    if (provider === undefined) throw new Error(`there is no provider ${record.kind}`);
    const kek = await provider.recover(record);
    const keys = file.keys.map((each) => unwrapKey(kek, id, each)).filter((each) => each !== undefined);
    if (keys.length === 0)
      return lost(record.kind, "the data keys do not open with the key that the provider gave: it is another one");
    return { kind: "unlocked", keys: { id, provider: record, kek, keys, scrubbed } };
  } catch (error) {
    const kind = isPicoletError(error, "corrupt") ? "lost" : "unavailable";
    return {
      kind: "problem",
      problem: { kind, provider: file?.provider.kind ?? "unknown", reason: describeError(error) },
    };
  }
}

const lost = (provider: ProviderKind, reason: string): Found => ({
  kind: "problem",
  problem: { kind: "lost", provider, reason },
});

/** Rotates keys that grew old while the agent did not run. A disk that refuses leaves them as they are. */
function renewed(folder: KeyFolder, kept: UnlockedKeys, now: Date): UnlockedKeys {
  const newest = kept.keys.at(-1);
  if (newest !== undefined && !isRotationDue(newest, now)) return kept;
  const next = { ...kept, keys: appendDataKey(kept.keys, now) };
  saveKeys(folder, next);
  return next;
}

/**
 * The old data keys stay until every row is sealed with a new one: the old key-encryption key may be in a copy of the
 * disk. One file holds all of it, so a power cut leaves the old provider or the new one.
 */
async function changeProvider(
  { folder, providers, log }: Pick<UnlockComponents, "folder" | "providers" | "log">,
  choice: ProviderKind | "auto",
  kept: UnlockedKeys | undefined,
  now: Date,
): Promise<UnlockedKeys> {
  const provider = await chooseProvider(providers, choice);
  const { kek, record } = await provider.create();
  const next: UnlockedKeys = {
    id: kept?.id ?? randomBytes(8).toString("hex"),
    provider: record,
    kek,
    keys: kept === undefined ? [newDataKey(1, now)] : appendDataKey(kept.keys, now),
    scrubbed: kept?.scrubbed ?? false,
  };
  saveKeys(folder, next);
  log.info("stored Secrets are encrypted", { provider: record.kind, before: kept?.provider.kind ?? "nothing" });
  if (kept !== undefined) discard(providers, kept.provider, log);
  return next;
}

/** @throws `unavailable` when the board does not have the one that is named */
async function chooseProvider(providers: readonly KeyProvider[], choice: ProviderKind | "auto"): Promise<KeyProvider> {
  const there: KeyProvider[] = [];
  for (const provider of providers) {
    if (choice !== "auto" && provider.kind !== choice) continue;
    const missing = await provider.missing();
    if (missing === undefined) there.push(provider);
    else if (choice !== "auto") throw new Error(`cannot use the key provider ${choice}: ${missing}`);
  }
  for (const provider of there) if (await provider.isBoundToBoard()) return provider;
  const [first] = there;
  if (first === undefined) throw new Error(`cannot use the key provider ${choice}: this picolet does not know it`);
  return first;
}

function discard(providers: readonly KeyProvider[], record: ProviderRecord, log: Log): void {
  try {
    providers.find(({ kind }) => kind === record.kind)?.discard?.(record);
  } catch (error) {
    log.warn("cannot remove the key of the provider before", { error: describeError(error) });
  }
}

function setAside(folder: KeyFolder): void {
  if (folder.read(KEY_FILE) === undefined) return;
  folder.rename(KEY_FILE, LOST_KEY_FILE);
  folder.sync();
}
