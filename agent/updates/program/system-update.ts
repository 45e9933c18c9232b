/** The system as a whole: RAUC writes a bundle into the slot that does not run. Nothing of the board changes yet. */
import { rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import type { Clock, Random } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { downloadBlob } from "@picolet/runtime-wasm/registry/blob-download.ts";
import type { Descriptor } from "@picolet/runtime-wasm/registry/documents.ts";
import type { RegistryClient } from "@picolet/runtime-wasm/registry/registry-client.ts";
import { DEFAULT_PULL_LIMITS } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";
import type { UpdateAnswer, UpdateTask } from "../update-task.ts";
import { BlobServer } from "./blob-server.ts";
import { BytePace } from "./byte-pace.ts";
import { complaintOf, type RunCommand } from "./commands.ts";
import { withArtifact } from "./find-update.ts";
import { isOtherVersion } from "./version-rules.ts";

export interface UpdateProgramComponents {
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  readonly random: Random;
  readonly run: RunCommand;
  readonly onInstalling: () => void;
}

type SystemTask = Extract<UpdateTask, { want: "os" }>;

const BUNDLE = "bundle.raucb";
/** What is left of the disk besides a bundle that has to be stored first. */
export const SPARE_BYTES = 64 * MEBIBYTE;

export async function updateSystem(
  components: UpdateProgramComponents,
  task: SystemTask,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const { source } = task;
  if (source.kind === "file") {
    return await install(components, task, { path: source.path, bytes: () => 0, totalBytes: 0 }, signal);
  }
  return withArtifact(
    source,
    { kind: "os", compatible: task.compatible },
    async ({ layer, version }, registry) => {
      // Not signed, but it spares the board the rest; RAUC's own answer decides.
      if (!isOtherVersion(version, task)) return { kind: "current", version };
      const canStream = await hasNetworkBlockDevice(components, signal);
      return await (canStream ? streamed : stored)(components, task, layer, registry, signal);
    },
    signal,
  );
}

async function streamed(
  components: UpdateProgramComponents,
  task: SystemTask,
  layer: Descriptor,
  registry: RegistryClient,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const { clock, random } = components;
  const pace = new BytePace(clock, task.bytesPerSecond);
  await using server = new BlobServer({ clock, random, registry, pace }, layer);
  const path = await server.listen(signal);
  try {
    return await install(components, task, { path, bytes: () => server.bytes, totalBytes: layer.sizeBytes }, signal);
  } catch (error) {
    // RAUC has it as a read error of a disk.
    throw server.failure ?? error;
  }
}

/** Without the kernel's network block devices the bundle is fetched as a whole, and goes on where it was cut off. */
async function stored(
  components: UpdateProgramComponents,
  task: SystemTask,
  layer: Descriptor,
  registry: RegistryClient,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const { clock, random } = components;
  const path = join(task.directory, BUNDLE);
  await checkRoom(task.directory, layer.sizeBytes);
  const pace = new BytePace(clock, task.bytesPerSecond);
  let bytes = 0;
  const onBytes = (count: number): void => {
    bytes = count;
  };
  const passed = (count: number, stop: AbortSignal): Promise<void> => pace.passed(count, stop);
  const download = { clock, random, registry, onBytes, passed };
  await downloadBlob(download, { blob: layer, path, limits: DEFAULT_PULL_LIMITS }, signal);
  const answer = await install(components, task, { path, bytes: () => bytes, totalBytes: layer.sizeBytes }, signal);
  await rm(path, { force: true });
  return answer;
}

/** @throws `resource_exhausted` */
export async function checkRoom(directory: string, sizeBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const free = bavail * bsize;
  if (free >= sizeBytes + SPARE_BYTES) return;
  const [needed, there] = [sizeBytes + SPARE_BYTES, free].map((bytes) => Math.ceil(bytes / MEBIBYTE));
  const message = `it needs ${needed} MiB of free disk below ${directory}, and there are ${there}`;
  throw new PicoletError("resource_exhausted", message, { retryable: true });
}

async function hasNetworkBlockDevice({ run }: UpdateProgramComponents, signal: AbortSignal): Promise<boolean> {
  return (await run(["modprobe", "nbd"], signal).catch(ignore("no modprobe, no module")))?.exitCode === 0;
}

interface Bundle {
  /** For RAUC: a path or a URL. */
  readonly path: string;
  readonly bytes: () => number;
  readonly totalBytes: number;
}

async function install(
  components: UpdateProgramComponents,
  task: SystemTask,
  bundle: Bundle,
  signal: AbortSignal,
): Promise<UpdateAnswer> {
  const { run, onInstalling } = components;
  const info = await run(["rauc", "info", "--output-format=json", bundle.path], signal);
  if (info.exitCode !== 0) throw new PicoletError("invalid", `RAUC does not accept it: ${complaintOf(info)}`);
  const { version, compatible } = parseBundleInfo(info.stdout);
  if (compatible !== task.compatible)
    throw new PicoletError("invalid", `it is for ${compatible}, this board is ${task.compatible}`);
  if (!isOtherVersion(version, task)) return { kind: "current", version };
  const answer = (): UpdateAnswer => ({
    ...{ kind: "prepared", version, slot: otherSlot(task.slot) },
    ...{ bytes: bundle.bytes(), totalBytes: bundle.totalBytes },
  });
  if (!task.install) return answer();
  onInstalling();
  const installed = await run(["rauc", "install", bundle.path], signal);
  if (installed.exitCode !== 0)
    throw new PicoletError("failed", `RAUC could not install it: ${complaintOf(installed)}`, { retryable: true });
  await stayOnThisSlot(run, signal);
  return answer();
}

const otherSlot = (slot: string): string => (slot === "A" ? "B" : "A");

/** RAUC would boot what it has installed with the next start of the board, at any time (`activate-installed`). */
async function stayOnThisSlot(run: RunCommand, signal: AbortSignal): Promise<void> {
  const result = await run(["rauc", "status", "mark-active", "booted"], signal);
  if (result.exitCode === 0) return;
  throw new PicoletError("failed", `RAUC cannot keep the running slot active: ${complaintOf(result)}`, {
    retryable: true,
  });
}

/** Reads `rauc info --output-format=json`. @throws `corrupt` */
export function parseBundleInfo(text: string): { readonly version: string; readonly compatible: string } {
  try {
    const info: unknown = JSON.parse(text);
    if (isRecord(info) && typeof info.version === "string" && typeof info.compatible === "string")
      return { version: info.version.slice(0, 128), compatible: info.compatible.slice(0, 128) };
  } catch (cause) {
    throw new PicoletError("corrupt", "rauc info prints no JSON", { cause });
  }
  throw new PicoletError("corrupt", "rauc info names neither version nor compatible");
}
