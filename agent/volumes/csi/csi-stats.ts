import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { CsiDriver, CsiDrivers } from "./csi-drivers.ts";
import { csiNode, NodeCapability, UsageUnit } from "./csi-messages.ts";

/** The kubelet's `volumeStatsAggPeriod`: drivers are asked at most this often for one volume. */
const MAX_AGE_MS = 60_000;
/** A driver that hangs delays an answer once by this; later answers do without it until it has answered. */
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

/** A driver's report of one volume. */
export interface CsiFigures {
  /** Undefined: it has no figures. */
  readonly usage: CsiUsage | undefined;
  /** Undefined: the driver lacks VOLUME_CONDITION. */
  readonly condition: { readonly isAbnormal: boolean; readonly message: string } | undefined;
}

interface Kept {
  readonly atMs: number;
  /** Undefined: the driver did not answer. */
  readonly figures: CsiFigures | undefined;
}

/** The usage and the health of volumes, as their drivers report them. */
export class CsiStats {
  readonly #drivers: CsiDrivers;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #kept = new Map<string, Kept>();
  /** Questions under way, so that a driver that hangs is asked once for a volume. */
  readonly #asked = new Map<string, Promise<CsiFigures | undefined>>();

  constructor(components: { readonly drivers: CsiDrivers; readonly clock: Clock; readonly log: Log }) {
    this.#drivers = components.drivers;
    this.#clock = components.clock;
    this.#log = components.log;
  }

  /** @returns undefined where the driver has no figures, or did not answer */
  async of(place: CsiPlace, signal: AbortSignal): Promise<CsiFigures | undefined> {
    const { driver, path } = place;
    const found = this.#drivers.get(driver);
    if (found?.capabilities.has(NodeCapability.getVolumeStats) !== true) return undefined;
    const kept = this.#kept.get(path);
    if (kept !== undefined && this.#clock.monotonic() - kept.atMs < MAX_AGE_MS) return kept.figures;
    const asked = this.#asked.get(path) ?? this.#ask(found, place, signal);
    // It did not answer the last time: no caller waits for it again until it has.
    return kept !== undefined && kept.figures === undefined ? undefined : await asked;
  }

  #ask(driver: CsiDriver, place: CsiPlace, signal: AbortSignal): Promise<CsiFigures | undefined> {
    const { path } = place;
    const asked = this.#call(driver, place, signal).then((figures) => {
      this.#asked.delete(path);
      this.#keep(path, { atMs: this.#clock.monotonic(), figures });
      return figures;
    });
    this.#asked.set(path, asked);
    return asked;
  }

  #keep(path: string, kept: Kept): void {
    this.#kept.delete(path);
    this.#kept.set(path, kept);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MAX_KEPT && oldest !== undefined) this.#kept.delete(oldest);
  }

  /** Never rejects. */
  async #call(
    driver: CsiDriver,
    { handle, path, stagingPath }: CsiPlace,
    signal: AbortSignal,
  ): Promise<CsiFigures | undefined> {
    try {
      const request = { volumeId: handle, volumePath: path, stagingTargetPath: stagingPath };
      const { usage, volumeCondition } = await this.#drivers.call(driver, csiNode.stats, request, signal, TIMEOUT_MS);
      const hasCondition = driver.capabilities.has(NodeCapability.volumeCondition) && volumeCondition !== undefined;
      const { abnormal, message } = volumeCondition ?? { abnormal: false, message: "" };
      const condition = hasCondition ? { isAbnormal: abnormal, message: message.slice(0, MAX_MESSAGE) } : undefined;
      return { usage: usageOf(usage), condition };
    } catch (error) {
      if (!isCancelled(error))
        this.#log.debug("cannot read the usage of a CSI volume", {
          driver: driver.name,
          volume: handle,
          error: describeError(error),
        });
      return undefined;
    }
  }
}

/** Longest text of a condition that becomes an event, as long as an event's message. */
const MAX_MESSAGE = 1024;

interface CsiPlace {
  readonly driver: string;
  readonly handle: string;
  /** Where the volume is published. */
  readonly path: string;
  /** "" where it is not staged. */
  readonly stagingPath: string;
}

interface ReportedUsage {
  readonly available: number;
  readonly total: number;
  readonly used: number;
  readonly unit: number;
}

function usageOf(usage: readonly ReportedUsage[]): CsiUsage | undefined {
  const [bytes, inodes] = [UsageUnit.bytes, UsageUnit.inodes].map((unit) => usage.find((each) => each.unit === unit));
  if (bytes === undefined) return undefined;
  return {
    capacityBytes: amount(bytes.total),
    availableBytes: amount(bytes.available),
    usedBytes: amount(bytes.used),
    inodes: amount(inodes?.total),
    inodesFree: amount(inodes?.available),
    inodesUsed: amount(inodes?.used),
  };
}

/** A driver may answer anything. */
const amount = (value: number | undefined): number => (value !== undefined && value >= 0 ? value : 0);
