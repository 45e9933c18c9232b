/** A real agent with its page on a free port, pods that run and fail, and a day of history. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BLOCK_BYTES, encodeBlock, RING_BLOCKS } from "@picolet/agent/page/history-ring.ts";
import { HISTORY_SERIES, type HistoryFigures } from "@picolet/protocol/page/board-data.ts";
import { GIBIBYTE } from "@picolet/protocol/units.ts";
import type { AgentNode } from "../agent/agent-process.ts";

/** The configuration of a page for a test. */
export const PAGE_CONFIG = { page: { enabled: true, address: "127.0.0.1", port: 0 } };

/** The page's port, once the agent listens there. */
export function pagePort(node: AgentNode): number | undefined {
  const port = /listens.*part=page.*port=(\d+)/.exec(node.log)?.[1];
  return port === undefined ? undefined : Number(port);
}

const SAMPLES = 20;
const MINUTE_S = 60;
/** Between two boots. */
const GAP_S = 300;

/** Writes the last day as a board would have: memory that rises and falls, and a restart in the middle. */
export function writeHistory(node: AgentNode): void {
  const folder = join(node.directory, "root", "page");
  mkdirSync(folder, { recursive: true });
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
  const ring = Buffer.alloc(RING_BLOCKS * BLOCK_BYTES);
  const nowMs = Date.now();
  const uptimeS = Math.floor(Number(process.hrtime.bigint()) / 1e9);
  const blocks = 72;
  for (let sequence = 0; sequence < blocks; sequence += 1) {
    const isOld = (blocks - sequence - 1) * SAMPLES * MINUTE_S > uptimeS + GAP_S;
    const bootedAtMs = isOld ? nowMs - 30 * 3_600_000 : nowMs - uptimeS * 1000;
    const samples = Array.from({ length: SAMPLES }, (_, index) => {
      const ago = ((blocks - sequence) * SAMPLES - index) * MINUTE_S;
      const phase = ago / 7000;
      const figures: Record<string, number> = {};
      for (const name of HISTORY_SERIES) figures[name] = Number.NaN;
      figures.memoryBytes = 4 * GIBIBYTE;
      figures.memoryAvailableBytes = (2.2 + Math.sin(phase) * 0.9) * GIBIBYTE;
      figures.cpuShare = 0.3 + Math.sin(phase * 5) * 0.2;
      figures.memoryPressureShare = Math.max(0, Math.sin(phase) * 0.2);
      figures.ioPressureShare = Math.max(0, Math.cos(phase) * 0.1);
      figures.diskBytes = 29 * GIBIBYTE;
      figures.diskAvailableBytes = (20 - (ago < 40_000 ? 2 : 0)) * GIBIBYTE;
      figures.writtenBytes = 300_000 * (1 + Math.sin(phase * 9));
      figures.pods = isOld ? 3 : 2;
      figures.tunnel = ago > 20_000 && ago < 30_000 ? 0 : 1;
      return {
        uptimeSeconds: Math.max(0, Math.floor((nowMs - bootedAtMs) / 1000 - ago)),
        figures: figures as HistoryFigures,
      };
    });
    const block = encodeBlock({ sequence, boot: isOld ? "earlier" : boot, bootedAtMs, samples });
    ring.set(block, (sequence % RING_BLOCKS) * BLOCK_BYTES);
  }
  writeFileSync(join(folder, "history"), ring);
}
