import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import type { ImageInfo, RuntimeAdapter, RuntimeStatus } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DeviceResources } from "../core/pods/container-devices.ts";
import type { NodeCondition } from "./node-conditions.ts";
import { type CsiState, type NodeReportInit, nodeReport } from "./node-report.ts";

export interface NodeReportsComponents {
  /** The one that runs containers first: it names the node's runtime. */
  readonly adapters: readonly RuntimeAdapter[];
  readonly conditions: Watch<readonly NodeCondition[]>;
  /** JSON of an `UpdateReport`; undefined: nothing is reported. */
  readonly updates: Watch<string | undefined>;
  /** Undefined until something needs CSI. Missing: never. */
  readonly csi?: Watch<CsiState | undefined>;
  /** Counts of devices. Missing: there are none. */
  readonly devices?: Watch<DeviceResources> | undefined;
  /** As the Node's annotation shows them; "": there are none. */
  readonly shownDevices?: () => string;
  /** JSON of the DRA drivers whose ResourceSlices stay; undefined: not known yet. */
  readonly draDrivers?: Watch<string | undefined>;
  /** Fires with every pod that starts or ends: images may have come. */
  readonly podsChanged: Watch<unknown>;
  readonly addresses: () => readonly string[];
  readonly runtimeStatus: (adapter: RuntimeAdapter) => RuntimeStatus | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** The wait after a change of pods, so that a burst of pods is one report of images. */
const AFTER_PODS = seconds(10);
/** The wait after a change of devices, so that a hub with loose cables is one report of the Node's annotation. */
const AFTER_DEVICES = seconds(10);

/**
 * Keeps `report` current: updates it at once when a condition changes, soon after pods change, and every `interval` in
 * any case.
 */
export class NodeReports implements Component {
  readonly name = "node reports";
  readonly #components: NodeReportsComponents;
  readonly #init: NodeReportInit & { readonly interval: Millis };
  readonly #report: WatchSource<NodeReportContent>;
  readonly #alarm: Alarm;
  /** The last images of each runtime. */
  readonly #images = new Map<RuntimeAdapter, readonly ImageInfo[]>();
  #shownDevices: string | undefined;

  /**
   * @param init `interval`: `nodeStatusReportFrequency`, at which things without an event (addresses, disks) are read
   */
  constructor(components: NodeReportsComponents, init: NodeReportInit & { readonly interval: Millis }) {
    this.#components = components;
    this.#init = init;
    this.#alarm = new Alarm(components.clock);
    this.#report = new WatchSource(this.#current());
  }

  /** Changes only when something in it does. */
  get report(): Watch<NodeReportContent> {
    return this.#report;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { conditions, updates, csi, devices, shownDevices, draDrivers, podsChanged, clock } = this.#components;
    const follow = async (watch: Watch<unknown>): Promise<void> => {
      for await (const _ of watch.changes(signal)) this.#update();
    };
    const followPods = async (): Promise<void> => {
      for await (const _ of podsChanged.changes(signal)) this.#alarm.set(AFTER_PODS);
    };
    const followDevices = async (): Promise<void> => {
      if (devices === undefined || shownDevices === undefined) return;
      for await (const _ of devices.changes(signal)) {
        await clock.sleep(AFTER_DEVICES, signal);
        this.#shownDevices = shownDevices();
        this.#update();
      }
    };
    const followImages = async (): Promise<void> => {
      while (!signal.aborted) {
        await this.#readImages(signal);
        this.#update();
        this.#alarm.set(this.#init.interval);
        await this.#alarm.ring(signal);
      }
    };
    const followed = [conditions, updates, csi, devices, draDrivers].filter((watch) => watch !== undefined);
    await Promise.all([...followed.map(follow), followPods(), followDevices(), followImages()]);
  }

  #current(): NodeReportContent {
    const { adapters, conditions, updates, csi, devices, draDrivers, addresses, runtimeStatus } = this.#components;
    const capacity = { ...this.#init.capacity, ...devices?.current.capacity };
    const allocatable = { ...this.#init.allocatable, ...devices?.current.allocatable };
    return nodeReport(
      { ...this.#init, capacity, allocatable },
      {
        conditions: conditions.current,
        updates: updates.current,
        csi: csi?.current,
        ...{ draDrivers: draDrivers?.current, devices: this.#shownDevices },
        addresses: addresses(),
        runtimes: adapters.flatMap((adapter) => runtimeStatus(adapter) ?? []),
        images: [...this.#images.values()].flat(),
      },
    );
  }

  #update(): void {
    const next = this.#current();
    if (JSON.stringify(next) !== JSON.stringify(this.#report.current)) this.#report.set(next);
  }

  /** A runtime that cannot say keeps nothing else back, and what it said last stands. */
  async #readImages(signal: AbortSignal): Promise<void> {
    const { adapters, log } = this.#components;
    const asked = adapters.map(async (adapter) => {
      try {
        this.#images.set(adapter, await adapter.images.list(signal));
      } catch (error) {
        if (isCancelled(error)) throw error;
        log.debug("cannot list images", { runtime: adapter.name, error: describeError(error) });
      }
    });
    await Promise.all(asked);
  }
}
