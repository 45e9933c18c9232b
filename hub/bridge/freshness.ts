/**
 * Checks that this replica knows everything that another one may have sent a node. Each replica follows the cluster at
 * its own pace: a node that comes over from a replica that is ahead would be asked to remove the pod that it has just
 * started.
 */

import { type KubeClient, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isOlder, keyOf, type Reflector } from "@picolet/hub-core/kube-client/reflector.ts";
import { ignoreCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Backoff, type BackoffPolicy, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { StoredPod } from "./stored-objects.ts";

/** Up to so many nodes are asked for one by one; for more, all pods are listed at once, by their metadata. */
const FEW_NODES = 4;
const PAGE = 500;
/** A fleet that comes back is checked in batches: the next begins when this is over. */
const LEAST_INTERVAL = seconds(1);
/** Events arrive within milliseconds. After this time the watch is opened again. */
const PATIENCE = seconds(5);
const RETRY: BackoffPolicy = { first: millis(200), max: seconds(10), jitter: FULL_JITTER, least: millis(100) };

interface Components {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export interface FreshnessInit {
  readonly pods: Reflector<StoredPod>;
  readonly onFresh: (node: string) => void;
}

/** The objects that a list showed and the watch has not brought yet. */
interface Gap {
  /** By path; undefined: a pod that is gone. */
  readonly awaited: Map<string, string | undefined>;
  closed: (() => void) | undefined;
}

export class Freshness {
  readonly #components: Components;
  readonly #init: FreshnessInit;
  readonly #life = new AbortController();
  #waiting = new Set<string>();
  #gap: Gap | undefined;
  #isRunning = false;

  constructor(components: Components, init: FreshnessInit) {
    this.#components = components;
    this.#init = init;
  }

  /** Answers by `onFresh` when everything is here that was in the cluster when this was called. */
  check(node: string): void {
    this.#waiting.add(node);
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#run()
      .catch(ignoreCancelled)
      .finally(() => {
        this.#isRunning = false;
      });
  }

  /** Must be called for every change. @param version undefined: gone */
  podChanged(path: string, version: string | undefined): void {
    const { awaited, closed } = this.#gap ?? {};
    if (awaited === undefined || !awaited.has(path)) return;
    const wanted = awaited.get(path);
    if (version !== undefined && (wanted === undefined || isOlder(version, wanted))) return;
    awaited.delete(path);
    if (awaited.size === 0) closed?.();
  }

  [Symbol.dispose](): void {
    this.#life.abort();
  }

  async #run(): Promise<void> {
    const { clock, random, log } = this.#components;
    const { signal } = this.#life;
    const backoff = new Backoff(random, RETRY);
    // Those that come in one turn are answered together.
    await Promise.resolve();
    while (this.#waiting.size > 0) {
      const nodes = this.#waiting;
      this.#waiting = new Set();
      try {
        await this.#answer(nodes, signal);
        backoff.reset();
        if (nodes.size > FEW_NODES) await clock.sleep(LEAST_INTERVAL, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        if (backoff.failures === 0)
          log.warn("cannot see whether the pods are up to date", { error: describeError(error) });
        for (const node of nodes) this.#waiting.add(node);
        await clock.sleep(backoff.next(), signal);
      }
    }
  }

  async #answer(nodes: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    if (nodes.size > FEW_NODES) await this.#catchUp(nodes, "spec.nodeName!=", signal);
    else for (const node of nodes) await this.#catchUp([node], `spec.nodeName=${node}`, signal);
    for (const node of nodes) this.#init.onFresh(node);
  }

  async #catchUp(nodes: Iterable<string>, fieldSelector: string, signal: AbortSignal): Promise<void> {
    for (;;) {
      const awaited = await this.#gapOf(nodes, fieldSelector, signal);
      if (awaited.size === 0) return;
      await this.#isClosed({ awaited, closed: undefined }, signal);
      if (awaited.size === 0) return;
      // The awaited change may never come, or the watch may be deaf: list again.
      this.#init.pods.reopen();
    }
  }

  /** Until the watch has brought all of it, or patience is at its end. */
  async #isClosed(gap: Gap, signal: AbortSignal): Promise<void> {
    using patience = joinSignals(signal);
    gap.closed = () => patience.abort();
    this.#gap = gap;
    try {
      await this.#components.clock.sleep(PATIENCE, patience.signal);
    } catch (error) {
      if (signal.aborted) throw error;
    } finally {
      this.#gap = undefined;
    }
  }

  async #gapOf(
    nodes: Iterable<string>,
    fieldSelector: string,
    signal: AbortSignal,
  ): Promise<Map<string, string | undefined>> {
    const { store } = this.#init.pods;
    const listed = new Map<string, string>();
    let listVersion = "";
    for (let token: string | undefined, isFirst = true; isFirst || token !== undefined; isFirst = false) {
      const options = {
        fieldSelector,
        metadataOnly: true,
        limit: PAGE,
        ...(token === undefined ? {} : { continue: token }),
      };
      const page = await this.#components.client.list(PODS, options, signal);
      for (const { metadata } of page.items) {
        listed.set(keyOf(metadata.namespace, metadata.name), metadata.resourceVersion ?? "");
      }
      listVersion = page.resourceVersion;
      token = page.continue;
    }
    const awaited = new Map<string, string | undefined>();
    for (const [path, version] of listed) {
      const known = store.get(path);
      if (known === undefined || isOlder(known.resourceVersion, version)) awaited.set(path, version);
    }
    for (const node of nodes) {
      for (const path of store.keysBy("node", node)) {
        const known = store.get(path);
        const isLater = known !== undefined && isOlder(listVersion, known.resourceVersion);
        if (!listed.has(path) && !isLater) awaited.set(path, undefined);
      }
    }
    return awaited;
  }
}
