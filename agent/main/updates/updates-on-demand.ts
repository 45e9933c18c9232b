/** Updates of this board: loaded with the first that is asked for, and where one was carried out before. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import type {
  UpdateHoldRequest,
  UpdateInstallAnswer,
  UpdateInstallRequest,
  UpdateStatusAnswer,
} from "@picolet/protocol/local-api/status.ts";
import {
  AGENT_PACKAGE_ANNOTATION,
  CONFIGURATION_ANNOTATION,
  OS_IMAGE_ANNOTATION,
} from "@picolet/protocol/updates/node-updates.ts";
import type { UpdateControl } from "../../core/node/update-control.ts";
import { readSoftware } from "../../updates/board-software.ts";
import type { Updates } from "../../updates/updates.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { UpdatesParts } from "./make-updates.ts";

const FOLDER = "updates";
const ASKING = [OS_IMAGE_ANNOTATION, AGENT_PACKAGE_ANNOTATION, CONFIGURATION_ANNOTATION];
export class UpdatesOnDemand implements Component, UpdateControl {
  readonly name = "updates";
  readonly #base: AgentBase;
  readonly #parts: UpdatesParts;
  readonly #report = new WatchSource<string | undefined>(undefined);
  readonly #directory: string;
  readonly #software: ReturnType<typeof readSoftware>;
  readonly #asked = new WatchSource(false);
  #loading: Promise<Updates> | undefined;

  constructor(base: AgentBase, parts: UpdatesParts) {
    const { rootDir } = base.init.args;
    this.#base = base;
    this.#parts = parts;
    this.#directory = join(rootDir, FOLDER);
    this.#software = readSoftware({ root: "", rootDir });
    const { image } = this.#software;
    if (image !== undefined)
      this.#report.set(JSON.stringify({ osVersion: image.version, slot: image.slot, updates: [] }));
  }

  /** See `Updates.report`. */
  get report(): Watch<string | undefined> {
    return this.#report;
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#untilAsked(signal);
    if (signal.aborted) return;
    const updates = await this.#load();
    using life = joinSignals(signal);
    const forward = async (): Promise<void> => {
      for await (const text of updates.report.changes(life.signal)) if (text !== undefined) this.#report.set(text);
    };
    const forwarding = forward();
    try {
      await updates.run(life.signal);
    } finally {
      life.abort();
      await forwarding;
    }
  }

  async status(): Promise<UpdateStatusAnswer> {
    return (await this.#load()).status();
  }

  async hold(request: UpdateHoldRequest): Promise<UpdateStatusAnswer> {
    (await this.#load()).hold(request);
    return this.status();
  }

  async release(): Promise<UpdateStatusAnswer> {
    (await this.#load()).release();
    return this.status();
  }

  async install(request: UpdateInstallRequest, signal: AbortSignal): Promise<UpdateInstallAnswer> {
    const updates = await this.#load();
    this.#asked.set(true);
    return await updates.install(request, signal);
  }

  async #untilAsked(signal: AbortSignal): Promise<void> {
    if (existsSync(join(this.#directory, "progress.json")) || this.#isAskedByNode()) return;
    using either = joinSignals(signal);
    const first = async (watch: Watch<unknown>, isAsked: () => boolean): Promise<void> => {
      for await (const _ of watch.changes(either.signal)) if (isAsked()) return;
    };
    await Promise.race([
      first(this.#base.cluster.node, () => this.#isAskedByNode()),
      first(this.#asked, () => this.#asked.current),
    ]);
    either.abort();
  }

  #isAskedByNode(): boolean {
    const metadata = this.#base.cluster.node.current?.metadata;
    const annotations = isRecord(metadata) && isRecord(metadata.annotations) ? metadata.annotations : {};
    return ASKING.some((name) => Object.hasOwn(annotations, name));
  }

  #load(): Promise<Updates> {
    const make = async (): Promise<Updates> => {
      const { makeUpdates } = await import("./make-updates.ts");
      return await makeUpdates(this.#base, this.#parts, { directory: this.#directory, software: this.#software });
    };
    this.#loading ??= make().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }
}
