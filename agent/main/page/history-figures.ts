import { statfsSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { HistoryFigures } from "@picolet/protocol/page/board-data.ts";
import type { Stall, StallRecord } from "../../core/node/usage.ts";
import { machineUsage } from "../../stats/machine-usage.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";

const NANOSECONDS_PER_MILLISECOND = 1_000_000;
const PERCENT = 100;

/** The averages of the last minute, which is the interval of samples. */
const shareOf = (record: StallRecord | undefined): number =>
  record === undefined ? Number.NaN : (record.some satisfies Stall).avg60 / PERCENT;

/** The figures of the history: counters become what they grew by since the last call. */
export class HistoryFiguresOfNode {
  readonly #view: NodeAgentView;
  readonly #rootDir: string;
  #cpuNanoseconds = Number.NaN;
  #atMs = 0;
  #day = "";
  #written = Number.NaN;

  constructor(view: NodeAgentView, rootDir: string) {
    this.#view = view;
    this.#rootDir = rootDir;
    this.next();
  }

  next(): HistoryFigures {
    const { cpuNanoseconds, workingSetBytes, memoryLimitBytes = Number.NaN, pressure } = machineUsage("/proc");
    const disk = statfsSync(this.#rootDir);
    const { state } = this.#view.tunnel();
    return {
      memoryAvailableBytes: memoryLimitBytes - workingSetBytes,
      memoryBytes: memoryLimitBytes,
      cpuShare: this.#cpuShare(cpuNanoseconds),
      memoryPressureShare: shareOf(pressure?.memory),
      cpuPressureShare: shareOf(pressure?.cpu),
      ioPressureShare: shareOf(pressure?.io),
      diskAvailableBytes: disk.bavail * disk.bsize,
      diskBytes: disk.blocks * disk.bsize,
      writtenBytes: this.#writtenBytes(),
      agentBytes: this.#view.agent().anonBytes,
      pods: this.#view.pods().length,
      tunnel: state === "disabled" ? Number.NaN : Number(state === "connected"),
    };
  }

  #cpuShare(cpuNanoseconds: number): number {
    const atMs = performance.now();
    const busyMs = (cpuNanoseconds - this.#cpuNanoseconds) / NANOSECONDS_PER_MILLISECOND;
    const share = busyMs / (atMs - this.#atMs) / availableParallelism();
    [this.#cpuNanoseconds, this.#atMs] = [cpuNanoseconds, atMs];
    return Math.min(1, share);
  }

  /** The flash meter counts by day. */
  #writtenBytes(): number {
    const { day, today } = this.#view.flash();
    const bytes = today.bytes ?? Number.NaN;
    const grown = day === this.#day ? bytes - this.#written : this.#day === "" ? Number.NaN : bytes;
    [this.#day, this.#written] = [day, bytes];
    return grown;
  }
}
