/** A board for tests: a folder that stands for its disk. */
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { FolderPartition } from "@picolet/firmware/first-boot/boot-partition.ts";
import { type DurableFiles, FilesOnDisk } from "@picolet/firmware/first-boot/durable-files.ts";
import type { Board } from "@picolet/firmware/first-boot/first-boot.ts";
import { TempFolder } from "../machine/temp-folder.ts";

export const CA_HASH = `sha256:${"ab".repeat(32)}`;
export const TOKEN = "abcdef.0123456789abcdef";
export const FACTS = {
  serial: "10000000deadbeef",
  mac: "dca632aabbcc",
  release: { VERSION: "1.2.3", BOARD: "raspberrypi" },
};

export class TestBoard implements Disposable {
  readonly #folder = new TempFolder();

  /** @param file the text of picolet.yaml */
  constructor(file?: string) {
    mkdirSync(this.#folder.at("boot/picolet"), { recursive: true });
    if (file !== undefined) this.write("/boot/picolet/picolet.yaml", file);
  }

  get root(): string {
    return this.#folder.path;
  }

  /** @param wrap changes how files are written */
  board(wrap: (files: DurableFiles) => DurableFiles = (files) => files): Board {
    return {
      files: wrap(new FilesOnDisk(this.root)),
      partition: new FolderPartition("/boot/picolet"),
      facts: FACTS,
      machine: { memoryBytes: 536_870_912 },
      run: "/run",
    };
  }

  write(path: string, content: string | Uint8Array): void {
    mkdirSync(dirname(join(this.root, path)), { recursive: true });
    writeFileSync(join(this.root, path), content);
  }

  read(path: string): string {
    return readFileSync(join(this.root, path), "utf8");
  }

  has(path: string): boolean {
    return statSync(join(this.root, path), { throwIfNoEntry: false }) !== undefined;
  }

  mode(path: string): number {
    return statSync(join(this.root, path)).mode & 0o777;
  }

  /** Every file below `folder` with its content and mode. */
  tree(folder: string): Readonly<Record<string, string>> {
    if (!this.has(folder)) return {};
    const whole = join(this.root, folder);
    const files = readdirSync(whole, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
    const entries = files.map((each) => {
      const path = join(each.parentPath, each.name).slice(this.root.length);
      return [path, `${this.mode(path).toString(8)} ${this.read(path)}`] as const;
    });
    return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** All that a power cut must not change. */
  disk(): Readonly<Record<string, string>> {
    return { ...this.tree("/boot"), ...this.tree("/data"), ...this.tree("/etc"), ...this.tree("/var") };
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

export class PowerCut extends Error {}

/** Every change takes effect, or half of it, and then the power is off: from the `count`th change on all fail. */
export function cutAfter(count: number): (files: DurableFiles) => DurableFiles {
  let left = count;
  return (files) => {
    const change = (task: () => void, half?: () => void): void => {
      if (left === 0) {
        half?.();
        left = -1;
      }
      if (left < 0) throw new PowerCut("the power is off");
      left -= 1;
      task();
    };
    return {
      read: (path, limit) => files.read(path, limit),
      modeOf: (path) => files.modeOf(path),
      isFolder: (path) => files.isFolder(path),
      list: (folder) => files.list(folder),
      makeFolder: (path, mode) => change(() => files.makeFolder(path, mode)),
      write: (path, content, mode) =>
        change(
          () => files.write(path, content, mode),
          () => files.write(path, content.subarray(0, content.length / 2), mode),
        ),
      link: (target, path) => change(() => files.link(target, path)),
      rename: (from, to) => change(() => files.rename(from, to)),
      remove: (path) => change(() => files.remove(path)),
      syncFolder: (path) => change(() => files.syncFolder(path)),
    };
  };
}
