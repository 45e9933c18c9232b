/**
 * Pulls from registries, each in a process of its own and a folder of its own, `<root>/<hash of the name>`, in which what
 * has come stays when the pull is cut off: the next one of the same name goes on there. Loaded with the first pull.
 */
import { createHash } from "node:crypto";
import { mkdir, readdir, rm, rmdir, stat, utimes } from "node:fs/promises";
import { isPicoletError, PicoletError } from "../../../protocol/errors.ts";
import type { RegistryReference } from "../../../protocol/image-reference.ts";
import { type Clock, type Log, type Millis, seconds } from "../../../protocol/ports.ts";
import type { CgroupPort } from "../../contract/cgroups.ts";
import type { PullOptions, PullProgress } from "../../contract/runtime-adapter.ts";
import { orCancelled } from "../cancellation.ts";
import { fileError } from "../files.ts";
import { MAX_PULLS, pullCgroup } from "../one-off-cgroups.ts";
import type { ProxySettings } from "./proxies.ts";
import { runPullChild } from "./pull-child.ts";
import { endpointsOf, type RegistryConfiguration } from "./registries.ts";
import { DEFAULT_PULL_LIMITS, type PulledComponent, type PullLimits, type PullRequest } from "./request.ts";

export interface RegistryPullsComponents {
  readonly clock: Pick<Clock, "sleep" | "wall">;
  readonly cgroups: CgroupPort | undefined;
  readonly log: Log;
}

export interface RegistryPullsInit {
  readonly nodePath: string;
  /** The bundled pull child, or `pull-main.ts`. */
  readonly pullPath: string;
  /** cgroupfs path, to which a number is added; undefined: their memory is watched, not limited. */
  readonly cgroupPath?: string | undefined;
  readonly registries?: readonly RegistryConfiguration[] | undefined;
  /** Undefined: registries are asked directly. */
  readonly proxies?: ProxySettings | undefined;
  readonly limits?: Partial<PullLimits> | undefined;
}

/** Where this node's pulls are, and what they may bring. */
export interface PullsPlace {
  /** Absolute; this class's own. */
  readonly directory: string;
  readonly maxComponentBytes: number;
}

/** Of one process: 94 MiB resident at its most, of which half are Node's own pages. */
const MEMORY_LIMIT_BYTES = 160 * 1024 * 1024;
/** Only there to end one that hangs: 32 MiB at 1 KiB a second take nine hours. */
const TIMEOUT = seconds(12 * 3600);
/** Folders of pulls that were cut off; each has one component's bytes at most. */
const MAX_FOLDERS = 8;
/** After that, nobody wants it any more. */
const MAX_AGE: Millis = seconds(7 * 24 * 3600);

export class RegistryPulls {
  readonly #components: RegistryPullsComponents;
  readonly #init: RegistryPullsInit;
  readonly #place: PullsPlace;
  /** By canonical name: the last one that was asked for. */
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #progress = new Map<string, PullProgress>();
  readonly #busy = new Set<number>();
  #freed = Promise.withResolvers<void>();

  constructor(components: RegistryPullsComponents, init: RegistryPullsInit, place: PullsPlace) {
    this.#components = components;
    this.#init = init;
    this.#place = place;
  }

  /** How far a pull is that is under way. */
  progress(canonical: string): PullProgress | undefined {
    return this.#progress.get(canonical);
  }

  /**
   * @param known components that are here, by the digests of the manifests that lead to them
   * @param adopt takes the component over; its file is gone afterwards
   */
  async pull<T>(
    reference: RegistryReference,
    options: PullOptions,
    known: Readonly<Record<string, string>>,
    adopt: (component: PulledComponent) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    const { canonical } = reference;
    return this.#inTurn(canonical, signal, async () => {
      const directory = `${this.#place.directory}/${folderOf(canonical)}`;
      try {
        await this.#prepare(directory);
        const request = this.#request("component", reference, options, { directory, known });
        const answer = await this.#run(request, canonical, signal);
        if (answer.kind !== "component") throw new PicoletError("internal", "the pull process answers something else");
        const { component, peakRssKiB } = answer;
        const adopted = await adopt(component);
        await rm(directory, { recursive: true, force: true });
        this.#components.log.info("pulled a component", { image: canonical, digest: component.digest, peakRssKiB });
        return adopted;
      } catch (error) {
        await this.#leave(directory, error);
        throw fileError(error, "cannot write what is pulled");
      } finally {
        this.#progress.delete(canonical);
      }
    });
  }

  /** `linux/arm64`, `wasi/wasm` … of what a registry has by this name. */
  async platforms(reference: RegistryReference, options: PullOptions, signal: AbortSignal): Promise<readonly string[]> {
    const request = this.#request("platforms", reference, options, { directory: this.#place.directory, known: {} });
    const answer = await this.#run(request, undefined, signal);
    if (answer.kind !== "platforms") throw new PicoletError("internal", "the pull process answers something else");
    return answer.platforms;
  }

  /** Takes away what was left by pulls that nobody took up again. */
  async sweep(): Promise<void> {
    const { directory } = this.#place;
    const now = this.#components.clock.wall().getTime();
    const names = await readdir(directory).catch(() => []);
    const busy = new Set([...this.#turns.keys()].map(folderOf));
    const found = await Promise.all(
      names.map(async (name) => ({ name, atMs: (await stat(`${directory}/${name}`).catch(() => undefined))?.mtimeMs })),
    );
    const idle = found.filter(({ name }) => !busy.has(name)).sort((one, other) => (other.atMs ?? 0) - (one.atMs ?? 0));
    for (const [index, { name, atMs = 0 }] of idle.entries()) {
      // A board whose clock was behind has some from the future.
      const isOld = Math.abs(now - atMs) > MAX_AGE;
      if (isOld || index >= MAX_FOLDERS) await rm(`${directory}/${name}`, { recursive: true, force: true });
    }
  }

  async #prepare(directory: string): Promise<void> {
    await this.sweep();
    await mkdir(directory, { recursive: true });
    const now = this.#components.clock.wall();
    await utimes(directory, now, now);
  }

  /** What has come may be gone on with, but for what there is no room for. */
  async #leave(directory: string, error: unknown): Promise<void> {
    if (isPicoletError(error, "resource_exhausted")) await rm(directory, { recursive: true, force: true });
    else await rmdir(directory).catch(() => undefined);
  }

  #request(
    want: PullRequest["want"],
    { domain, repository, tag, digest }: RegistryReference,
    { credentials, credentialsFrom }: PullOptions,
    more: Pick<PullRequest, "directory" | "known">,
  ): PullRequest {
    return {
      ...{ want, repository, tag, digest, credentials, credentialsFrom },
      endpoints: endpointsOf(domain, this.#init.registries ?? []),
      proxies: this.#init.proxies ?? { httpProxy: "", httpsProxy: "", noProxy: "" },
      maxComponentBytes: this.#place.maxComponentBytes,
      limits: { ...DEFAULT_PULL_LIMITS, ...this.#init.limits },
      ...more,
    };
  }

  async #run(request: PullRequest, canonical: string | undefined, signal: AbortSignal) {
    const slot = await this.#slot(signal);
    const { nodePath, pullPath, cgroupPath } = this.#init;
    const init = {
      ...{ nodePath, pullPath, timeout: TIMEOUT, memoryLimitBytes: MEMORY_LIMIT_BYTES },
      cgroupPath: cgroupPath === undefined ? undefined : pullCgroup(cgroupPath, slot),
    };
    const onProgress = (bytes: number, totalBytes: number): void => {
      if (canonical !== undefined)
        this.#progress.set(canonical, { bytes, totalBytes, isTransferring: bytes < totalBytes });
    };
    try {
      return await runPullChild(this.#components, init, request, onProgress, signal);
    } finally {
      this.#busy.delete(slot);
      this.#freed.resolve();
      this.#freed = Promise.withResolvers();
    }
  }

  /** The number of a process that may run now. */
  async #slot(signal: AbortSignal): Promise<number> {
    for (;;) {
      for (let slot = 0; slot < MAX_PULLS; slot += 1) {
        if (this.#busy.has(slot)) continue;
        this.#busy.add(slot);
        return slot;
      }
      await orCancelled(this.#freed.promise, signal, "the wait for other pulls");
    }
  }

  /** One at a time for each name, which has one folder. */
  async #inTurn<T>(canonical: string, signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    for (let before = this.#turns.get(canonical); before !== undefined; before = this.#turns.get(canonical)) {
      await orCancelled(before, signal, "the wait for another pull of the same image");
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turns.set(canonical, promise);
    try {
      return await task();
    } finally {
      this.#turns.delete(canonical);
      resolve();
    }
  }
}

const folderOf = (canonical: string): string => createHash("sha256").update(canonical).digest("hex").slice(0, 40);
