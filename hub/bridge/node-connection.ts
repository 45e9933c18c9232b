/** Shared parts of the writers of one connected node. */

import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import { describeError, type ErrorCode, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { FleetCache } from "./fleet-cache.ts";

export interface NodeConnection {
  readonly node: string;
  /** Acts as the node: the API server's own rules for nodes apply to everything that it writes. */
  readonly client: KubeClient;
  /** The hub itself, for what a node may not do: read a pod that may not be its own, change a pod's tolerations. */
  readonly hubClient: KubeClient;
  readonly cache: FleetCache;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Requests of one node at a time, so that a node that has been away for weeks leaves room for the others. */
export const MAX_CONCURRENT_WRITES = 8;

/**
 * Runs `task` for all of `items`, a few at a time. One that fails keeps the others from nothing.
 * @throws the first failure, when all have ended; `cancelled` as soon as those that began have
 */
export async function forEachConcurrently<T>(
  items: Iterable<T>,
  most: number,
  task: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  const failures: unknown[] = [];
  let isCancelledAll = false;
  const work = async (): Promise<void> => {
    for (let next = iterator.next(); !next.done && !isCancelledAll; next = iterator.next()) {
      try {
        await task(next.value);
      } catch (error) {
        isCancelledAll ||= isCancelled(error);
        failures.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: most }, work));
  if (failures.length > 0) throw failures[0];
}

/** @returns undefined when it failed with one of `codes` */
export async function undefinedOn<T>(codes: readonly ErrorCode[], task: Promise<T>): Promise<T | undefined> {
  try {
    return await task;
  } catch (error) {
    if (codes.some((code) => isPicoletError(error, code))) return undefined;
    throw error;
  }
}

/** A refusal that may have another cause than what was asked for (rights not there yet): to be tried again. */
export const retryableRefusal = (error: unknown, what: string): PicoletError =>
  new PicoletError("unavailable", `cannot ${what}`, { retryable: true, cause: error });

/** A namespace that is being deleted accepts nothing new, so the write is dropped. */
export const isTerminating = (error: unknown): boolean =>
  isPicoletError(error, "permission_denied") && /is being terminated/.test(describeError(error));

/** For what is done in the background. */
export const logFailure =
  (log: Log, message: string, fields: Readonly<Record<string, unknown>>) =>
  (error: unknown): void => {
    if (!isCancelled(error)) log.warn(message, { ...fields, error: describeError(error) });
  };
