/** picolet:board/config and wasi:config: the files of one mount of the component, read again with each call. */
import { closeSync, constants, fstatSync, openSync, readdirSync, readSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type * as Config from "@picolet/wit/generated/picolet-board-config.js";
import { fdPath, O_PATH, resolvePath } from "../../host/paths.ts";
import { Failure } from "../../resources/failure.ts";

/** Kubernetes' limit for a whole ConfigMap. */
const MAX_VALUE_BYTES = MEBIBYTE;
const MAX_KEYS = 1024;
/** Where the payload of ConfigMaps and their like is: a link that is changed to another folder with each update. */
const PAYLOAD = "..data";

const failure = (error: Config.Error): Failure<Config.Error> => new Failure(error);
const notThere = (error: unknown): boolean => error instanceof Failure && error.payload === "no-entry";

/** @param root an open directory, O_PATH is enough; undefined: no volume is named, there are no keys. */
export function configImports(root: number | undefined) {
  const board: typeof Config = {
    get: (key) => (root === undefined ? undefined : reading(() => value(root, key))),
    getAll: () => (root === undefined ? [] : reading(() => all(root))),
  };
  const wasi = { get: asWasi(board.get), getAll: asWasi(board.getAll) };
  return { "picolet:board/config": board, "wasi:config/store": wasi, "wasi:config/runtime": wasi };
}

/** Its errors are `upstream` and `io`. */
function asWasi<A extends unknown[], R>(read: (...args: A) => R): (...args: A) => R {
  return (...args) => {
    try {
      return read(...args);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      throw failure({ tag: "io", val: (error.payload as Config.Error).val });
    }
  };
}

function reading<R>(read: () => R): R {
  try {
    return read();
  } catch (error) {
    if (error instanceof Failure && typeof error.payload === "object") throw error;
    const why = error instanceof Failure ? String(error.payload) : errnoOf(error) || "io";
    throw failure({ tag: "io", val: `cannot read the configuration: ${why}` });
  }
}

const isKey = (name: string): boolean => name !== "" && !name.startsWith(".") && !/[/\0]/.test(name);

/** Undefined for a missing key, or one that is no file. Links are followed within the volume, never out of it. */
function value(directory: number, key: string): string | undefined {
  if (!isKey(key)) return undefined;
  try {
    using path = resolvePath(directory, key, true);
    // Opening a pipe without a writer would block forever.
    const fd = openSync(path.path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      return fstatSync(fd).isFile() ? text(fd, key) : undefined;
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (notThere(error) || errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

function text(fd: number, key: string): string {
  const { size } = fstatSync(fd);
  if (size > MAX_VALUE_BYTES) throw failure({ tag: "unfit", val: `the value of ${key} has ${size} bytes` });
  const bytes = Buffer.allocUnsafeSlow(size);
  let length = 0;
  for (let count = -1; count !== 0 && length < size; length += count) {
    count = readSync(fd, bytes, length, size - length, length);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, length));
  } catch {
    throw failure({ tag: "unfit", val: `the value of ${key} is no UTF-8` });
  }
}

function all(root: number): [string, string][] {
  const fd = openPayload(root);
  try {
    const keys = readdirSync(fdPath(fd)).filter(isKey);
    if (keys.length > MAX_KEYS) throw failure({ tag: "unfit", val: `there are ${keys.length} keys` });
    return keys.sort().flatMap((key) => {
      const found = value(fd, key);
      return found === undefined ? [] : [[key, found] as [string, string]];
    });
  } finally {
    closeSync(fd);
  }
}

/** Opens the folder of the current payload. An update replaces the link, not this folder. */
function openPayload(root: number): number {
  try {
    using path = resolvePath(root, PAYLOAD, true);
    return openSync(path.path, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if (!notThere(error) && errnoOf(error) !== "ENOENT") throw error;
    return openSync(fdPath(root), O_PATH | constants.O_DIRECTORY);
  }
}
