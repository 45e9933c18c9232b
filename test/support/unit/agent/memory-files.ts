import type { RecordFiles } from "@picolet/agent/images/pulls/pull-records.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

/** A folder of small files in memory, which may be full. */
export class MemoryFiles implements RecordFiles {
  readonly files = new Map<string, string>();
  isFull = false;
  isUnreadable = false;
  writes = 0;

  read(name: string): string | undefined {
    if (this.isUnreadable) throw new PicoletError("unavailable", `cannot read ${name}`);
    return this.files.get(name);
  }

  write(name: string, text: string): void {
    if (this.isFull) throw new Error("ENOSPC: no space left on device");
    this.writes += 1;
    this.files.set(name, text);
  }

  rename(from: string, to: string): void {
    this.files.set(to, this.files.get(from) ?? "");
    this.files.delete(from);
  }

  remove(name: string): void {
    this.files.delete(name);
  }

  sync(): void {
    // There is no disk.
  }
}
