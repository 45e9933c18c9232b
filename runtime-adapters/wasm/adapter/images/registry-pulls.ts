/**
 * Pulls from registries, each in a process of its own and a folder of its own, `<root>/<hash of the name>`, in which
 * what has come stays when the pull is cut off: the next one of the same name goes on there. Loaded with the first
 * pull.
 */
import { createHash } from "node:crypto";
import { mkdir, readdir, rm, rmdir, stat, utimes } from "node:fs/promises";
import { joinSignals, rejectOnAbort } from "@picolet/protocol/async/abort.ts";
import { FairSlots } from "@picolet/protocol/async/fair-slots.ts";
import { MinimumRate } from "@picolet/protocol/async/minimum-rate.ts";
import { ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { type Clock, type Log, type Millis, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import type { PullOptions, PullProgress, SignedImage } from "@picolet/runtime-contract/runtime-adapter.ts";
import { fileError } from "../../shared/files/durable-files.ts";
import {
  DEFAULT_PULL_LIMITS,
  type PulledComponent,
  type PullLimits,
  type PullRequest,
} from "../../shared/messages/pull-request.ts";
import type { ProxySettings } from "../../shared/oci/proxies.ts";
import { endpointsOf, type RegistryConfiguration } from "../../shared/oci/registries.ts";
import { MAX_PULLS, pullCgroup } from "../processes/one-off-cgroups.ts";
import { runPullChild } from "../processes/pull-child.ts";

export interface RegistryPullsComponents {
  readonly clock: Pick<Clock, "sleep" | "wall" | "monotonic">;
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

/**
 * Bounds one process: 72 MiB resident at its most (30 MiB over HTTPS, or out of a layer), of which 43 are Node's own.
 */
const MEMORY_LIMIT_BYTES = 160 * MEBIBYTE;
/** Only there to end one that hangs: 32 MiB at 1 KiB a second take nine hours. */
const TIMEOUT = seconds(12 * 3600);
/** The share of MAX_PULLS for one registry, so that a silent one leaves the others a process at once. */
const MAX_PULLS_OF_REGISTRY = MAX_PULLS - 1;
/** The least rate that counts as progress while others wait, as slow as the slowest links are. */
const LEAST_BYTES_PER_SECOND = 1024;
/** Between two checks whether a pull is in others' way. Nothing but two numbers is compared. */
const CONTENTION_CHECK_INTERVAL = seconds(1);
/** Folders of pulls that were cut off; each has one component's bytes at most. */
const MAX_FOLDERS = 8;
/** After this time a partial pull is removed. */
const MAX_AGE: Millis = seconds(7 * 24 * 3600);

export class RegistryPulls {
  readonly #components: RegistryPullsComponents;
  readonly #init: RegistryPullsInit;
  readonly #place: PullsPlace;
  /** By canonical name: the last one that was asked for. */
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #progress = new Map<string, PullProgress>();
  readonly #places = new FairSlots({
    total: MAX_PULLS,
    perGroup: MAX_PULLS_OF_REGISTRY,
    what: "the wait for other pulls",
  });

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
        const answer = await this.#run(reference.domain, request, canonical, signal);
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
    const answer = await this.#run(reference.domain, request, undefined, signal);
    if (answer.kind !== "platforms") throw new PicoletError("internal", "the pull process answers something else");
    return answer.platforms;
  }

  /** The digest that a name stands for, and the signatures that the registry has of it. */
  async signatures(reference: RegistryReference, options: PullOptions, signal: AbortSignal): Promise<SignedImage> {
    const request = this.#request("signatures", reference, options, { directory: this.#place.directory, known: {} });
    const answer = await this.#run(reference.domain, request, undefined, signal);
    if (answer.kind !== "signatures") throw new PicoletError("internal", "the pull process answers something else");
    return answer.signed;
  }

  /** Removes what is left of pulls that were not continued. */
  async sweep(): Promise<void> {
    const { directory } = this.#place;
    const now = this.#components.clock.wall().getTime();
    const names = await readdir(directory).catch(() => []);
    const busy = new Set([...this.#turns.keys()].map(folderOf));
    const found = await Promise.all(
      names.map(async (name) => ({
        name,
        atMs: (await stat(`${directory}/${name}`).catch(ignore("it was removed meanwhile")))?.mtimeMs,
      })),
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

  /** Keeps what was received for the next attempt, except when there is no room for it. */
  async #leave(directory: string, error: unknown): Promise<void> {
    if (isPicoletError(error, "resource_exhausted")) await rm(directory, { recursive: true, force: true });
    else await rmdir(directory).catch(ignore("it holds what the next pull continues with"));
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

  async #run(registry: string, request: PullRequest, canonical: string | undefined, signal: AbortSignal) {
    using place = await this.#places.take(registry, signal);
    using life = joinSignals(signal);
    const { nodePath, pullPath, cgroupPath } = this.#init;
    const init = {
      ...{ nodePath, pullPath, timeout: TIMEOUT, memoryLimitBytes: MEMORY_LIMIT_BYTES },
      cgroupPath: cgroupPath === undefined ? undefined : pullCgroup(cgroupPath, place.index),
    };
    const pace = new MinimumRate(this.#components.clock, LEAST_BYTES_PER_SECOND);
    let isWhole = false;
    const onProgress = (bytes: number, totalBytes: number): void => {
      pace.update(bytes);
      isWhole = bytes >= totalBytes;
      if (canonical !== undefined) this.#progress.set(canonical, { bytes, totalBytes, isTransferring: !isWhole });
    };
    let crowdedOut: PicoletError | undefined;
    const { clock } = this.#components;
    const { contendedTimeoutMs, contendedLimitMs } = request.limits;
    let freeAt = clock.monotonic();
    const isInTheWay = (): boolean => {
      if (!place.isContended) freeAt = clock.monotonic();
      const waited = clock.monotonic() - freeAt;
      return place.isContended && !isWhole && (pace.idle >= contendedTimeoutMs || waited >= contendedLimitMs);
    };
    const watching = this.#until(isInTheWay, life.signal).then(() => {
      crowdedOut = inTheWay(registry, pace.idle, contendedTimeoutMs);
      life.abort();
    }, ignore("the pull has ended"));
    try {
      const answer = await runPullChild(this.#components, init, request, onProgress, life.signal);
      place.report(true);
      return answer;
    } catch (error) {
      if (signal.aborted) throw error;
      place.report(!isPicoletError(crowdedOut ?? error, "unavailable"));
      throw crowdedOut ?? error;
    } finally {
      life.abort();
      await watching;
    }
  }

  async #until(condition: () => boolean, signal: AbortSignal): Promise<void> {
    while (!condition()) await this.#components.clock.sleep(CONTENTION_CHECK_INTERVAL, signal);
  }

  /** One at a time for each name, which has one folder. */
  async #inTurn<T>(canonical: string, signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    for (let before = this.#turns.get(canonical); before !== undefined; before = this.#turns.get(canonical)) {
      await rejectOnAbort(before, signal, "the wait for another pull of the same image");
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

function inTheWay(registry: string, idle: Millis, contendedTimeoutMs: number): PicoletError {
  const why =
    idle >= contendedTimeoutMs
      ? `sent next to nothing for ${Math.round(idle / 1000)} s, and pulls from other registries wait`
      : "is slow, and pulls from other registries wait; this pull will continue later from where it stopped";
  return new PicoletError("unavailable", `${registry} ${why}`, { retryable: true });
}

const folderOf = (canonical: string): string => createHash("sha256").update(canonical).digest("hex").slice(0, 40);
