/** Brings images and components from the FAT partition to the runtimes, each once by its content. */
import { hash } from "node:crypto";
import { describeError } from "@picolet/protocol/errors.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import type { BootPartition } from "./boot-partition.ts";
import { type DurableFiles, replaceFile } from "./durable-files.ts";
import type { BoardFile } from "./plan/board-file-fields.ts";
import { KEPT } from "./plan/places.ts";

export const PRELOADED_FILE = `${KEPT}/preloaded.json`;

export interface PreloadInit {
  readonly files: DurableFiles;
  readonly partition: BootPartition;
  /** @throws with the program's own words */
  readonly run: (command: string, args: readonly string[]) => Promise<void>;
  /** SHA-256 of a file, in hexadecimal digits. @throws when it cannot be read */
  readonly digestOf: (path: string) => Promise<string>;
  /** Undefined: there is no such file. Size and time of change tell whether it is read at all. */
  readonly stampOf: (path: string) => string | undefined;
  readonly show: (line: string) => void;
}

interface Item {
  readonly file: string;
  /** Undefined: an archive of images, which has their names. */
  readonly component: string | undefined;
}

/** Stamps and digests of what was brought, by a hash of file and name. */
type Preloaded = Readonly<Record<string, { readonly stamp: string; readonly digest: string }>>;

/** @returns one line for each item that failed; it is tried again at the next boot */
export async function preload(
  { images = [], components = [] }: NonNullable<BoardFile["preload"]>,
  init: PreloadInit,
): Promise<readonly string[]> {
  const items: readonly Item[] = [
    ...images.map((file) => ({ file, component: undefined })),
    ...components.map(({ file, name }) => ({ file, component: name })),
  ];
  const before = readPreloaded(init.files);
  // What is not wished any more is forgotten.
  let kept: Preloaded = Object.fromEntries(
    items.map(keyOf).flatMap((key) => (before[key] === undefined ? [] : [[key, before[key]]])),
  );
  if (items.length === 0) return [];
  const failures: string[] = [];
  await init.partition.use("read", async (folder) => {
    for (const [index, item] of items.entries()) {
      try {
        const entry = await bring(
          item,
          `${folder}/${item.file.replaceAll("\\", "/")}`,
          kept[keyOf(item)],
          init,
          `${index + 1}/${items.length}`,
        );
        kept = { ...kept, [keyOf(item)]: entry };
        replaceFile(init.files, PRELOADED_FILE, Buffer.from(JSON.stringify(kept)), 0o600);
      } catch (error) {
        failures.push(`preload of ${item.file} failed: ${describeError(error)}`);
      }
    }
  });
  return failures;
}

const keyOf = ({ file, component = "" }: Item): string => hash("sha256", `${file}\0${component}`);

async function bring(
  { file, component }: Item,
  path: string,
  before: Preloaded[string] | undefined,
  { run, digestOf, stampOf, show }: PreloadInit,
  count: string,
): Promise<Preloaded[string]> {
  const stamp = stampOf(path);
  if (stamp === undefined) throw new Error("there is no such file on this partition");
  if (before?.stamp === stamp) return before;
  const digest = await digestOf(path);
  if (before?.digest === digest) return { stamp, digest };
  show(`preload ${count}: ${file}`);
  if (component === undefined) await run("ctr", ["-n", "k8s.io", "images", "import", path]);
  else await run("edgectl", ["image", "import", path, "--name", component]);
  return { stamp, digest };
}

function readPreloaded(files: DurableFiles): Preloaded {
  try {
    const value: unknown = JSON.parse(files.read(PRELOADED_FILE)?.toString("utf8") ?? "{}");
    return isRecord(value) ? (value as Preloaded) : {};
  } catch {
    return {};
  }
}
