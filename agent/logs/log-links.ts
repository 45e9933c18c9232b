import { lstatSync, mkdirSync, readdirSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { aborted } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, type Log, millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { PodView } from "../plan/pod-view.ts";

/** NAME_MAX of Linux. */
const MAX_NAME_CHARACTERS = 255;
const SUFFIX = ".log";
const FOLDER_MODE = 0o755;
/**
 * Bounds the links that one start checks; a node has 110 pods of a few containers. Others stay until the next start.
 */
const MAX_ENTRIES = 10_000;
/** Runs that have been replaced are removed soon after the pod's status has changed, which changes nothing of it. */
const CHECK_AGAIN = seconds(10);

export interface LogLinksComponents {
  /** The workers' current views. */
  readonly views: () => Iterable<PodView>;
  /** Fires when one of them may have changed. */
  readonly changes: Watch<unknown>;
  /** @returns whether `views` has everything that the runtimes had when the agent started */
  readonly isSettled: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

export interface LogLinksInit {
  /** The kubelet's `/var/log/containers`. */
  readonly folder: string;
  /** Only links into this folder are managed; others have another owner. */
  readonly podLogsDir: string;
}

/**
 * Log collectors look for `<pod>_<namespace>_<container>-<id>.log` in one folder: links to the logs of all containers
 * that there are, kept as the kubelet keeps them.
 */
export class LogLinks implements Component {
  readonly name = "links to logs";
  readonly #components: LogLinksComponents;
  readonly #init: LogLinksInit;
  readonly #alarm: Alarm;
  /** The existing links with their pods; `undefined` for a link of an earlier agent. */
  readonly #links = new Map<string, PodUid | undefined>();
  #isSettled = false;
  #hasChanged = false;

  constructor(components: LogLinksComponents, init: LogLinksInit) {
    this.#components = components;
    this.#init = init;
    this.#alarm = new Alarm(components.clock);
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      mkdirSync(this.#init.folder, { recursive: true, mode: FOLDER_MODE });
      this.#takeOver();
    } catch (error) {
      // Only collectors of logs need the links: the node works without them.
      this.#components.log.warn("cannot keep links to logs", { error: describeError(error) });
      await aborted(signal);
      return;
    }
    await Promise.all([this.#follow(signal), this.#keep(signal)]);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for await (const _ of this.#components.changes.changes(signal)) {
      this.#hasChanged = true;
      this.#alarm.set(millis(0));
    }
  }

  async #keep(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#alarm.ring(signal);
      if (this.#hasChanged) this.#alarm.set(CHECK_AGAIN);
      this.#hasChanged = false;
      this.#check();
    }
  }

  /** Links of an agent before this one; those that lead nowhere go at once. */
  #takeOver(): void {
    const { folder, podLogsDir } = this.#init;
    const entries = readdirSync(folder, { withFileTypes: true }).slice(0, MAX_ENTRIES);
    for (const { name } of entries.filter((entry) => entry.isSymbolicLink())) {
      const target = readlinkSync(join(folder, name));
      if (!target.startsWith(join(podLogsDir, "/"))) continue;
      if (!isThere(target)) this.#remove(name);
      else this.#links.set(name, undefined);
    }
  }

  #check(): void {
    this.#isSettled ||= this.#components.isSettled();
    const unknown = new Set<PodUid>();
    const named = new Set<string>();
    for (const view of this.#components.views()) {
      if (view.observed === undefined) unknown.add(view.desired.uid);
      for (const container of view.observed?.containers ?? []) {
        const name = linkName(view, container);
        if (container.state.kind === "created" || name === undefined) continue;
        named.add(name);
        this.#make(view.desired.uid, name, container.logPath);
      }
    }
    for (const [name, uid] of this.#links) {
      const isKept = uid === undefined ? !this.#isSettled : unknown.has(uid);
      if (!isKept && !named.has(name)) this.#remove(name);
    }
  }

  #make(uid: PodUid, name: string, logPath: string): void {
    const isKnown = this.#links.has(name);
    this.#links.set(name, uid);
    if (isKnown) return;
    try {
      // A container whose log has been taken away gets no link that leads nowhere.
      if (isThere(logPath)) symlinkSync(logPath, join(this.#init.folder, name));
    } catch (error) {
      if (errnoOf(error) === "EEXIST") return;
      this.#components.log.warn("cannot make a link to a log", { path: logPath, error: describeError(error) });
    }
  }

  #remove(name: string): void {
    this.#links.delete(name);
    try {
      rmSync(join(this.#init.folder, name), { force: true });
    } catch (error) {
      this.#components.log.warn("cannot remove a link to a log", { name, error: describeError(error) });
    }
  }
}

const isThere = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined;

/** Cut as the kubelet cuts it. `undefined` where names of a runtime's make no name of a file. */
export function linkName({ desired }: PodView, { name: container, id }: ObservedContainer): string | undefined {
  const { namespace, name } = desired.pod.metadata;
  const whole = `${name}_${namespace}_${container}-${id}`;
  if (/[/\0]/.test(whole)) return undefined;
  return `${whole.slice(0, MAX_NAME_CHARACTERS - SUFFIX.length)}${SUFFIX}`;
}
