/** Asks a CRI socket for its sandboxes, one call after the other, and reports the cost to its parent. */
import { readFileSync } from "node:fs";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { LABEL } from "@picolet/runtime-cri/pods/labels.ts";
import { relistCalls } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import type { ClientFigures } from "./cri-floor.ts";

const TIMEOUT_MS = 60_000;
const [path = "", count = "0"] = process.argv.slice(2);
const calls = Number(count);
const { listPodSandbox } = relistCalls([LABEL.podUid]);
const client = new GrpcClient({ clock: systemClock }, { path });
const { signal } = new AbortController();

const anonMiB = (): number => {
  const kib = /^Anonymous:\s+(\d+) kB/m.exec(readFileSync("/proc/self/smaps_rollup", "utf8"))?.[1];
  return Math.round((Number(kib) / 1024) * 10) / 10;
};
const list = async (times: number): Promise<void> => {
  for (let call = 0; call < times; call += 1) await client.unary(listPodSandbox, {}, TIMEOUT_MS, signal);
};

await list(calls / 10);
const anonMiBBefore = anonMiB();
const startedAt = performance.now();
const cpuBefore = process.cpuUsage();
await list(calls - calls / 10);
const seconds = (performance.now() - startedAt) / 1000;
const cpu = process.cpuUsage(cpuBefore);
const timed = calls - calls / 10;
const figures: ClientFigures = {
  calls,
  callsPerSecond: Math.round(timed / seconds),
  cpuMicrosecondsPerCall: Math.round((cpu.user + cpu.system) / timed),
  anonMiBBefore,
  anonMiBAfter: anonMiB(),
};
client[Symbol.dispose]();
process.send?.(figures);
process.disconnect?.();
