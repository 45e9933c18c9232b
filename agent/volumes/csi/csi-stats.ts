import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { CsiDriver, CsiDrivers } from "./csi-drivers.ts";
import { csiNode, NodeCapability, UsageUnit } from "./csi-messages.ts";

/** The kubelet's `volumeStatsAggPeriod`: drivers are asked at most this often for one volume. */
const MAX_AGE_MS = 60_000;
/** A driver that hangs delays no answer longer; the kubelet gives it two minutes, in the background. */
const TIMEOUT_MS = 5_000;
/** Bounds memory; a node has 110 pods with a handful of volumes. The oldest figure goes first. */
const MAX_KEPT = 1_000;

/** In the terms of `FilesystemUsage`. */
export interface CsiUsage {
  readonly capacityBytes: number;
  readonly availableBytes: number;
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  readonly inodesUsed: number;
}

/** The usage of volumes, as their drivers report it. */
export class CsiStats {
  readonly #drivers: CsiDrivers;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #kept = new Map<string, { readonly atMs: number; readonly usage: CsiUsage | undefined }>();

  constructor(components: { readonly drivers: CsiDrivers; readonly clock: Clock; readonly log: Log }) {
    this.#drivers = components.drivers;
    this.#clock = components.clock;
    this.#log = components.log;
  }

  /** @returns undefined where the driver has no figures, or did not answer */
  async of({ driver, handle, path, stagingPath }: CsiPlace, signal: AbortSignal): Promise<CsiUsage | undefined> {
    const found = this.#drivers.get(driver);
    if (found?.capabilities.has(NodeCapability.getVolumeStats) !== true) return undefined;
    const now = this.#clock.monotonic();
    const kept = this.#kept.get(path);
    if (kept !== undefined && now - kept.atMs < MAX_AGE_MS) return kept.usage;
    const usage = await this.#ask(found, { driver, handle, path, stagingPath }, signal);
    this.#kept.delete(path);
    this.#kept.set(path, { atMs: now, usage });
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MAX_KEPT && oldest !== undefined) this.#kept.delete(oldest);
    return usage;
  }

  async #ask(
    driver: CsiDriver,
    { handle, path, stagingPath }: CsiPlace,
    signal: AbortSignal,
  ): Promise<CsiUsage | undefined> {
    try {
      const request = { volumeId: handle, volumePath: path, stagingTargetPath: stagingPath };
      const { usage } = await this.#drivers.call(driver, csiNode.stats, request, signal, TIMEOUT_MS);
      const [bytes, inodes] = [UsageUnit.bytes, UsageUnit.inodes].map((unit) =>
        usage.find((each) => each.unit === unit),
      );
      if (bytes === undefined) return undefined;
      return {
        capacityBytes: amount(bytes.total),
        availableBytes: amount(bytes.available),
        usedBytes: amount(bytes.used),
        inodes: amount(inodes?.total),
        inodesFree: amount(inodes?.available),
        inodesUsed: amount(inodes?.used),
      };
    } catch (error) {
      if (isCancelled(error)) throw error;
      this.#log.debug("cannot read the usage of a CSI volume", {
        driver: driver.name,
        volume: handle,
        error: describeError(error),
      });
      return undefined;
    }
  }
}

interface CsiPlace {
  readonly driver: string;
  readonly handle: string;
  /** Where the volume is published. */
  readonly path: string;
  /** "" where it is not staged. */
  readonly stagingPath: string;
}

/** A driver may answer anything. */
const amount = (value: number | undefined): number => (value !== undefined && value >= 0 ? value : 0);
