/**
 * What is known of one process of several containers, in `<state>/dense/<id>/`:
 *
 *     group.json   DenseGroupFile: whose it is
 *     mounts       of its jail, fstab(5)
 *     reaper       who waits for it; `runner`, who keeps its mounts; `host`, it itself; `exit`, its exit code
 *     fatal        what Node complained of
 *     blame        DenseTermination, when the agent has ended it for what one container did
 *     own/         its own: host.json, `control` (its socket), `turn` (whose stack ran last)
 *     places/      mount points, one a container
 */
import { chownSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { DenseHostLaunch } from "../../shared/messages/dense-messages.ts";
import type { Identity } from "../../shared/messages/launch.ts";
import { HOST_FILE } from "../isolation/jail.ts";
import { type ProcessId, parseProcessId } from "../state/process-id.ts";
import { readUntrusted } from "../state/untrusted-file.ts";

export interface DenseGroup {
  readonly namespace: string;
  readonly identity: Identity | undefined;
  /** True when it may reach the node's network. */
  readonly network: boolean;
}

export interface DenseGroupFile extends DenseGroup {
  /** cgroupfs path; undefined: it has none. */
  readonly cgroupPath: string | undefined;
}

/** The reason why the agent has ended the process. */
export interface DenseTermination {
  /** The container whose doing it was. */
  readonly container: string;
  readonly message: string;
}

const FOLDER_MODE = 0o755;
/** An id of a container: 64 hexadecimal digits. */
const MAX_TURN_BYTES = 64;
const MAX_FATAL_BYTES = 4096;

export class ProcessFolder {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  make(group: DenseGroupFile): void {
    for (const each of ["", "/own", "/places"]) {
      mkdirSync(this.path + each, { recursive: true, mode: FOLDER_MODE });
    }
    const { identity } = group;
    if (identity !== undefined) chownSync(`${this.path}/own`, identity.uid, identity.gid);
    this.#write("group.json", JSON.stringify(group));
  }

  /** @param own where the process sees its own folder */
  writeLaunch(identity: Identity | undefined, own: string): void {
    const launch: DenseHostLaunch = {
      // Root is root from the start.
      identity: identity?.uid === 0 ? undefined : identity,
      socketPath: `${own}/control`,
      turnPath: `${own}/turn`,
    };
    writeFileSync(`${this.path}/own/host.json`, JSON.stringify(launch), { mode: 0o644 });
  }

  get socketPath(): string {
    return `${this.path}/own/control`;
  }

  get fatalPath(): string {
    return `${this.path}/fatal`;
  }

  /** Undefined for one that was never more than begun. */
  group(): DenseGroupFile | undefined {
    return this.#json<DenseGroupFile>("group.json");
  }

  /** Its process. Without a jail it is the reaper's own child. */
  process(): ProcessId | undefined {
    return this.#process(HOST_FILE) ?? (this.#text("mounts") === undefined ? this.#process("runner") : undefined);
  }

  /** The process in whose mount namespace its containers' mounts are made. */
  mounter(): ProcessId | undefined {
    return this.#process("runner");
  }

  reaper(): ProcessId | undefined {
    return this.#process("reaper");
  }

  /** The container whose stack ran last; the process itself says so, and it may say anything. */
  turn(): string {
    return readUntrusted(`${this.path}/own/turn`, MAX_TURN_BYTES) ?? "";
  }

  writeBlame(blame: DenseTermination): void {
    this.#write("blame", JSON.stringify(blame));
  }

  blame(): DenseTermination | undefined {
    return this.#json<DenseTermination>("blame");
  }

  fatal(): string {
    return (readUntrusted(`${this.path}/fatal`, MAX_FATAL_BYTES) ?? "").trim();
  }

  makePlace(id: string): void {
    mkdirSync(`${this.path}/places/${id}`, { mode: FOLDER_MODE });
  }

  /** A mount on it goes with it, in any namespace (rmdir(2)). */
  removePlace(id: string): void {
    rmSync(`${this.path}/places/${id}`, { recursive: true, force: true });
  }

  places(): readonly string[] {
    return readdirSync(`${this.path}/places`);
  }

  remove(): void {
    rmSync(this.path, { recursive: true, force: true });
  }

  #process(name: string): ProcessId | undefined {
    return parseProcessId(this.#text(name) ?? "");
  }

  #json<T>(name: string): T | undefined {
    try {
      return JSON.parse(this.#text(name) ?? "") as T;
    } catch (error) {
      if (error instanceof SyntaxError) return undefined;
      throw error;
    }
  }

  #text(name: string): string | undefined {
    try {
      return readFileSync(`${this.path}/${name}`, "utf8");
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw error;
    }
  }

  #write(name: string, content: string): void {
    const path = `${this.path}/${name}`;
    writeFileSync(`${path}.new`, content, { mode: 0o600 });
    renameSync(`${path}.new`, path);
  }
}
