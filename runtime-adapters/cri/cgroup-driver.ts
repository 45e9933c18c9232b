import type { CgroupDriver } from "@picolet/protocol/cgroup/cgroup-names.ts";
import { isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { CriClient, failure } from "./wire/cri-client.ts";
import { RuntimeService } from "./wire/cri-messages.ts";

const SYSTEMD = 0;

/**
 * Asks the runtime which cgroup driver it uses (CRI's RuntimeConfig: containerd 2, CRI-O). `undefined`: it does not
 * say, or does not know the call. @throws PicoletError when the call fails
 */
export async function runtimeCgroupDriver(
  components: { readonly clock: Clock },
  init: { readonly endpoint: string; readonly requestTimeoutMs: number },
  signal: AbortSignal,
): Promise<CgroupDriver | undefined> {
  const client = new CriClient(components, init);
  try {
    const { linux } = await client.call(RuntimeService.runtimeConfig, {}, signal);
    if (linux === undefined) return undefined;
    return linux.cgroupDriver === SYSTEMD ? "systemd" : "cgroupfs";
  } catch (error) {
    if (!isCancelled(error) && isPicoletError(error, "unimplemented")) return undefined;
    throw failure(error, "cannot ask the container runtime for its cgroup driver");
  } finally {
    client[Symbol.dispose]();
  }
}
