/**
 * Makes components runnable: jco transpiles each once for its digest and the version of the transpiler, one at a time
 * on the whole node, into `<root>/<sha256>-<version>/`. Files there are checked against their manifest before an agent
 * uses them for the first time, and by size and time of change from then on; damaged ones are made again.
 */
import { mkdir, readdir, readFile, rm, stat } from "node:fs/promises";
import { rejectOnAbort } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Clock, Log, MonotonicMs } from "@picolet/protocol/ports.ts";
import {
  fileError,
  renameDurably,
  sha256OfFile,
  syncDirectory,
  TemporaryNames,
} from "../../shared/files/durable-files.ts";
import type { TranspiledComponent } from "../../shared/messages/launch.ts";
import { type CacheManifest, MANIFEST_NAME, TRANSPILER_VERSION } from "../../shared/messages/transpile-request.ts";
import type { TranspileChildComponents, TranspileChildInit } from "../processes/transpile-child.ts";

export interface TranspilerComponents extends TranspileChildComponents {
  readonly clock: Pick<Clock, "sleep" | "monotonic">;
  readonly log: Log;
}

export interface TranspilerInit extends TranspileChildInit {
  /** Absolute; this class's own. */
  readonly cacheDirectory: string;
}

/** Components waiting for the one transpiler; a node has some dozens at all. Full: the start is tried again later. */
const MAX_WAITING = 64;

/**
 * Components that could not be made runnable, by what a start is refused without another try: a name and a line each.
 */
const MAX_REFUSED = 256;
/** One that took all its time is left alone for this many times as long: others wait for the one transpiler. */
const PAUSE_PER_TIMEOUT = 5;

interface Refusal {
  readonly error: PicoletError;
  /** Undefined: for as long as this agent lives, for neither the component nor what judges it changes. */
  readonly until: MonotonicMs | undefined;
}

interface CacheEntry {
  readonly component: TranspiledComponent;
  /** Size, inode and time of change of every file, when it was checked. */
  readonly stamp: string;
}

export class Transpiler implements AsyncDisposable {
  readonly #components: TranspilerComponents;
  readonly #init: TranspilerInit;
  readonly #temporaryNames: TemporaryNames;
  readonly #disposed = new AbortController();
  /** One for each component in use. */
  readonly #checked = new Map<string, CacheEntry>();
  readonly #underway = new Map<string, Promise<CacheEntry>>();
  readonly #refused = new Map<string, Refusal>();
  #turn: Promise<unknown> = Promise.resolve();
  #swept: Promise<void> | undefined;
  #peakRssKiB = 0;

  constructor(components: TranspilerComponents, init: TranspilerInit) {
    this.#components = components;
    this.#init = init;
    this.#temporaryNames = new TemporaryNames(`${init.cacheDirectory}/tmp`);
  }

  /** The greatest resident size of any transpilation so far, KiB; 0 before the first. */
  get peakRssKiB(): number {
    return this.#peakRssKiB;
  }

  /**
   * From the cache, or transpiled now. A caller that gives up leaves the transpilation to those after it. Starts are
   * tried again every few seconds: what was refused is refused again without the seconds and the memory that it takes
   * to find out.
   * @throws `invalid` for a component that jco refuses, `resource_exhausted` when it takes too much memory or too many
   * wait.
   */
  async get(sha256: string, componentPath: string, signal: AbortSignal): Promise<TranspiledComponent> {
    const checked = this.#checked.get(sha256);
    if (checked !== undefined && checked.stamp === (await stampOf(checked.component))) return checked.component;
    let task = this.#underway.get(sha256);
    if (task === undefined) {
      this.#refuseAgain(sha256);
      if (this.#underway.size >= MAX_WAITING) {
        throw new PicoletError("resource_exhausted", `more than ${MAX_WAITING} components wait to be transpiled`, {
          retryable: true,
        });
      }
      task = this.#make(sha256, componentPath).finally(() => this.#underway.delete(sha256));
      this.#underway.set(sha256, task);
    }
    return (await rejectOnAbort(task, signal, "the wait for the transpiler")).component;
  }

  #refuseAgain(sha256: string): void {
    const refusal = this.#refused.get(sha256);
    if (refusal === undefined) return;
    if (refusal.until === undefined || this.#components.clock.monotonic() < refusal.until) throw refusal.error;
    this.#refused.delete(sha256);
  }

  /** Remembers errors that the component itself causes, or that take so long that others must come first. */
  #remember(sha256: string, error: unknown): void {
    if (!(error instanceof PicoletError)) return;
    const isFinal = !error.retryable && (error.code === "invalid" || error.code === "resource_exhausted");
    if (!isFinal && error.code !== "deadline_exceeded") return;
    const pause = this.#init.timeout * PAUSE_PER_TIMEOUT;
    const until = isFinal ? undefined : ((this.#components.clock.monotonic() + pause) as MonotonicMs);
    const [oldest] = this.#refused.keys();
    if (this.#refused.size >= MAX_REFUSED && oldest !== undefined) this.#refused.delete(oldest);
    this.#refused.set(sha256, { error, until });
  }

  /**
   * Takes away what was made from components that are not among these. @returns bytes on disk, of each of which there
   * is something
   */
  async keepOnly(components: ReadonlySet<string>): Promise<ReadonlyMap<string, number>> {
    if (!(await exists(this.#init.cacheDirectory))) return new Map();
    await this.#sweep();
    const sizes = new Map<string, number>();
    for (const name of await readdir(this.#init.cacheDirectory)) {
      const sha256 = name.slice(0, name.indexOf("-"));
      if (!name.endsWith(`-${TRANSPILER_VERSION}`) || this.#underway.has(sha256)) continue;
      if (components.has(sha256)) sizes.set(sha256, await sizeOf(`${this.#init.cacheDirectory}/${name}`));
      else await this.remove(sha256);
    }
    return sizes;
  }

  async remove(sha256: string): Promise<void> {
    this.#checked.delete(sha256);
    this.#refused.delete(sha256);
    await rm(this.#directory(sha256), { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort();
    await Promise.allSettled(this.#underway.values());
  }

  async #make(sha256: string, componentPath: string): Promise<CacheEntry> {
    await this.#sweep();
    let entry = await this.#fromCache(sha256);
    if (entry === undefined) {
      await this.#inTurn(() => this.#transpile(sha256, componentPath));
      entry = await this.#fromCache(sha256);
    }
    if (entry === undefined) throw new PicoletError("corrupt", `cannot keep the transpiled component sha256:${sha256}`);
    this.#checked.set(sha256, entry);
    return entry;
  }

  #inTurn(task: () => Promise<void>): Promise<void> {
    const mine = this.#turn.then(task);
    this.#turn = mine.catch(ignore("the caller of this task reports it"));
    return mine;
  }

  async #transpile(sha256: string, componentPath: string): Promise<void> {
    const outputDirectory = this.#temporaryNames.next();
    try {
      await mkdir(outputDirectory, { recursive: true });
      const request = { componentPath, sha256, outputDirectory };
      // With Node's child processes, which an agent without components does not need.
      const { runTranspileChild } = await import("../processes/transpile-child.ts");
      const { peakRssKiB, isLean, missed } = await runTranspileChild(
        this.#components,
        this.#init,
        request,
        this.#disposed.signal,
      );
      this.#peakRssKiB = Math.max(this.#peakRssKiB, peakRssKiB);
      await syncDirectory(outputDirectory);
      await rm(this.#directory(sha256), { recursive: true, force: true });
      await renameDurably(outputDirectory, this.#directory(sha256));
      const digest = `sha256:${sha256}`;
      this.#components.log.info("transpiled a component", { digest, peakRssKiB });
      // Once for each, as it is transpiled once.
      if (!isLean) {
        this.#components.log.warn("a component has glue of jco's own, which grows with its calls", { digest, missed });
      } else if (missed.length > 0) {
        this.#components.log.warn("a component has some glue of jco's own, which takes more memory", {
          digest,
          missed,
        });
      }
    } catch (error) {
      await rm(outputDirectory, { recursive: true, force: true });
      this.#remember(sha256, error);
      throw fileError(error, `cannot transpile the component sha256:${sha256}`);
    }
  }

  /** Undefined when there is nothing usable. */
  async #fromCache(sha256: string): Promise<CacheEntry | undefined> {
    const directory = this.#directory(sha256);
    try {
      const manifest = JSON.parse(await readFile(`${directory}/${MANIFEST_NAME}`, "utf8")) as CacheManifest;
      const { script, modules } = manifest;
      for (const file of manifest.files) {
        if ((await sha256OfFile(`${directory}/${file.name}`)) !== file.sha256)
          throw new Error(`${file.name} was changed`);
      }
      const component = { directory, script, modules };
      return { component, stamp: await stampOf(component) };
    } catch (error) {
      if (errnoOf(error) === "ENOENT" && !(await exists(directory))) return undefined;
      this.#components.log.warn("a transpiled component is damaged and is made again", { directory, error });
      return undefined;
    }
  }

  #directory(sha256: string): string {
    return `${this.#init.cacheDirectory}/${sha256}-${TRANSPILER_VERSION}`;
  }

  /** Once: what an agent that died left half-made, and what other versions of the transpiler made. */
  #sweep(): Promise<void> {
    this.#swept ??= this.#sweepNow().catch((error: unknown) => {
      this.#swept = undefined;
      throw fileError(error, `cannot use the folder ${this.#init.cacheDirectory}`);
    });
    return this.#swept;
  }

  async #sweepNow(): Promise<void> {
    const { cacheDirectory } = this.#init;
    await mkdir(cacheDirectory, { recursive: true });
    for (const name of await readdir(cacheDirectory)) {
      if (name.endsWith(`-${TRANSPILER_VERSION}`)) continue;
      await rm(`${cacheDirectory}/${name}`, { recursive: true, force: true });
    }
    await mkdir(`${cacheDirectory}/tmp`);
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

/** The size of the files in a folder; one that is removed meanwhile counts nothing. */
async function sizeOf(directory: string): Promise<number> {
  const names = await readdir(directory).catch(() => []);
  const stats = await Promise.all(
    names.map((name) => stat(`${directory}/${name}`).catch(ignore("it was removed meanwhile"))),
  );
  return stats.reduce((sum, each) => sum + (each?.size ?? 0), 0);
}

/** Changes when any of its files does; undefined when one is gone. */
async function stampOf({ directory, script, modules }: TranspiledComponent): Promise<string> {
  const names = [script, ...modules.map((each) => each.name)];
  const stats = await Promise.all(
    names.map((name) => stat(`${directory}/${name}`).catch(ignore("it was removed meanwhile"))),
  );
  return stats.map((each) => (each === undefined ? "gone" : `${each.ino}:${each.size}:${each.ctimeMs}`)).join(" ");
}
