import { mkdir, realpath } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Mounter } from "../files/mounter.ts";
import type { PodPaths } from "../files/pod-paths.ts";
import type { VolumeType } from "./volume-type.ts";

const FOLDER = "nfs";
const FOLDER_MODE = 0o750;

/** An export of a server, as a volume of a pod or of a claim has it. */
export interface NfsExport {
  /** The pod's volume, or the persistent volume. */
  readonly name: string;
  readonly server: string;
  readonly path: string;
  readonly readOnly: boolean;
  readonly mountOptions: readonly string[];
}

/**
 * Mounts the export for the pod, with the host's mount.nfs, unless it is mounted.
 * @returns the mount point
 */
export async function mountNfs(
  { paths, mounter }: { readonly paths: PodPaths; readonly mounter: Mounter },
  { uid }: DesiredPod,
  { name, server, path, readOnly, mountOptions }: NfsExport,
  signal: AbortSignal,
): Promise<string> {
  const target = paths.volume(uid, FOLDER, name);
  await mkdir(dirname(target), { recursive: true, mode: FOLDER_MODE });
  // The mount itself is not read: a server that is away would block the agent.
  const canonical = join(await realpath(dirname(target)), basename(target));
  if (mounter.mountPointsWithin(canonical).includes(canonical)) return target;
  await mkdir(target, { recursive: true, mode: FOLDER_MODE });
  const host = server.includes(":") && !server.startsWith("[") ? `[${server}]` : server;
  const options = [...(readOnly ? ["ro"] : []), ...mountOptions];
  await mounter.mountNetwork(`${host}:${path}`, target, "nfs", options, signal);
  return target;
}

export const nfs: VolumeType = {
  folder: FOLDER,
  makeHandler: (services) => ({
    plan:
      (pod, { name, nfs: source }) =>
      async (signal) => {
        const { server = "", path = "", readOnly = false } = source ?? {};
        await mountNfs(services, pod, { name, server, path, readOnly, mountOptions: [] }, signal);
      },
    locate: ({ uid }, { name, nfs: source }) => ({
      path: services.paths.volume(uid, FOLDER, name),
      readOnly: source?.readOnly === true,
    }),
  }),
};
