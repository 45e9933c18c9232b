/** The samples of this board's usage, put together. */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { FlashReport, TunnelReport } from "@picolet/protocol/local-api/status.ts";
import type { BoardFigures } from "@picolet/protocol/telemetry/usage-sample.ts";
import { anonBytes } from "../../budget/own-memory.ts";
import type { NodeFilesystems, NodeUsage, UsageSampler } from "../../core/node/usage.ts";
import { evictionDistances } from "../../plan/eviction/eviction-distances.ts";
import { filesystemObservations, usageObservations } from "../../plan/eviction/eviction-signals.ts";
import { evictionThresholds } from "../../plan/eviction/eviction-thresholds.ts";
import { SampleTaker } from "../../samples/sample-taker.ts";
import { type SampleFile, Samples } from "../../samples/samples.ts";
import { DurableFolderOnDisk } from "../../security/durable-folder.ts";
import type { AgentBase } from "../base/agent-base.ts";

export interface SamplesParts {
  readonly usage: Pick<UsageSampler, "sample" | "filesystems">;
  readonly flash: () => FlashReport;
}

const FOLDER = "samples";
const FILE = "unsent.json";
const NEW_FILE = "unsent.json.new";
const QUEUE_BYTES = 8;

/** @param every undefined while no hub wants any */
export function makeSamples(base: AgentBase, parts: SamplesParts, every: Watch<number | undefined>): Samples {
  const { ports, init, startedAt } = base;
  const { clock, log } = ports;
  const taker = new SampleTaker(
    { usage: parts.usage, clock, isTimeKnown: () => clock.isConfirmed, board: boardFigures(base, parts) },
    {
      bootId: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
      agentSinceSeconds: Math.floor(startedAt.getTime() / 1000),
    },
  );
  return new Samples(
    { take: (signal) => taker.take(signal), file: sampleFile(join(init.args.rootDir, FOLDER)), clock, log },
    { queue: randomBytes(QUEUE_BYTES).toString("hex"), every },
  );
}

function boardFigures(
  { init, node, cluster }: AgentBase,
  { flash }: SamplesParts,
): (usage: NodeUsage, filesystems: NodeFilesystems | undefined) => BoardFigures {
  const thresholds = evictionThresholds(init.configuration);
  return (usage, filesystems) => {
    const { user, system } = process.cpuUsage();
    const distances = evictionDistances(thresholds, usageObservations(usage, node.maxPids));
    const ofDisks = filesystems === undefined ? undefined : filesystemObservations(filesystems);
    const diskDistances = ofDisks === undefined ? undefined : evictionDistances(thresholds, ofDisks);
    return withoutUndefined({
      agentCpuMs: Math.floor((user + system) / 1000),
      agentAnonymousBytes: anonBytes(),
      ...tunnelFigures(cluster.link?.report()),
      flashTodayBytes: flash().today.bytes ?? undefined,
      memoryDistanceBytes: distances.get("memory.available"),
      nodefsDistanceBytes: diskDistances?.get("nodefs.available"),
      imagefsDistanceBytes:
        filesystems?.imagefs === filesystems?.nodefs ? undefined : diskDistances?.get("imagefs.available"),
      processesDistance: distances.get("pid.available"),
    });
  };
}

const tunnelFigures = (report: TunnelReport | undefined) => ({
  tunnelReceivedBytes: report?.bytesReceived,
  tunnelSentBytes: report?.bytesSent,
  tunnelSessions: report?.sessions,
});

function withoutUndefined<Name extends string>(
  figures: Readonly<Record<Name, number | undefined>>,
): Readonly<Partial<Record<Name, number>>> {
  const known = Object.entries<number | undefined>(figures).filter(([, value]) => value !== undefined);
  return Object.fromEntries(known) as Partial<Record<Name, number>>;
}

function sampleFile(path: string): SampleFile {
  const folder = (): DurableFolderOnDisk => new DurableFolderOnDisk({ path });
  return {
    read: () => folder().read(FILE),
    write: (text) => {
      const files = folder();
      files.write(NEW_FILE, text);
      files.rename(NEW_FILE, FILE);
      files.sync();
    },
    remove: () => {
      const files = folder();
      files.remove(FILE);
      files.sync();
    },
  };
}
