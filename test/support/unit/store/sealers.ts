/** Data keys for tests: without a provider, and with files in memory. */
import { DataKeys, newDataKey, type UnlockedKeys } from "@picolet/agent/keys/data-keys.ts";
import type { KeyFolder } from "@picolet/agent/keys/key-file.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";

/** A folder in memory. */
export class MemoryKeyFolder implements KeyFolder {
  readonly files = new Map<string, string>();
  /** Thrown by the next call that writes. */
  failure: Error | undefined;

  read(name: string): string | undefined {
    return this.files.get(name);
  }

  write(name: string, text: string): void {
    if (this.failure !== undefined) throw this.failure;
    this.files.set(name, text);
  }

  rename(from: string, to: string): void {
    const text = this.files.get(from);
    if (text === undefined) throw new Error(`there is no ${from}`);
    this.files.delete(from);
    this.files.set(to, text);
  }

  remove(name: string): void {
    this.files.delete(name);
  }

  sync(): void {
    // Nothing is lost here.
  }
}

export interface SealerInit {
  readonly clock?: VirtualClock;
  readonly folder?: KeyFolder;
  /** The seed of the data key of generation 1, and of the key-encryption key. */
  readonly seed?: number;
  readonly scrubbed?: boolean;
}

/** Keys that follow from `seed`: another process has the same. */
export function sealerOf({
  clock = new VirtualClock(),
  folder,
  seed = 7,
  scrubbed = false,
}: SealerInit = {}): DataKeys {
  const key = { ...newDataKey(1, clock.wall()), key: Buffer.alloc(32, seed) };
  const unlocked: UnlockedKeys = {
    ...{ id: "test", kek: Buffer.alloc(32, seed + 1), keys: [key], scrubbed },
    provider: { kind: "file", path: "/nowhere/store.key" },
  };
  return new DataKeys(
    { clock, log: new RecordedLog(), folder: folder ?? new MemoryKeyFolder() },
    { unlocked, problem: undefined },
  );
}
