import { readFile } from "node:fs/promises";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { ImageMounts, ResolvedImage } from "@picolet/runtime-contract/runtime-adapter.ts";
import { CRI_NAMESPACE } from "../wire/containerd-services.ts";
import { type CriClient, failure } from "../wire/cri-client.ts";
import { ImageService, RuntimeService } from "../wire/cri-messages.ts";

/** Mounting takes some ten milliseconds, unpacking a large image minutes. */
const CTR_TIMEOUT_MS = 600_000;
/**
 * The first versions that mount images themselves (`Mount.image` of CRI). containerd 2.1 does, but ignores
 * `image_sub_path` and shows the whole image (containerd issue 11580).
 */
const MOUNT_BY_THEMSELVES: ReadonlyMap<string, readonly [major: number, minor: number]> = new Map([
  ["containerd", [2, 2]],
  ["cri-o", [1, 31]],
]);
/** containerd keeps a snapshot with this label, and its parents, even when the image is removed. */
const KEEP_LABEL = "containerd.io/gc.root";

/** Images as volumes: by the runtime itself where it can, else through containerd's own command line. */
export class CriImageMounts implements ImageMounts {
  readonly #client: CriClient;
  readonly #imageClient: CriClient;
  /** Asked once: a runtime that is exchanged has another version after the agent's next start at the latest. */
  #byRuntime: boolean | undefined;

  constructor(components: { readonly client: CriClient; readonly imageClient: CriClient }) {
    this.#client = components.client;
    this.#imageClient = components.imageClient;
  }

  async mount(
    image: ResolvedImage,
    target: string,
    forOthers: boolean,
    signal: AbortSignal,
  ): Promise<"mounted" | "byRuntime"> {
    if (!forOthers && (await this.#mountsByItself(signal))) return "byRuntime";
    if (await isMounted(target)) return "mounted";
    const reference = await this.#referenceOf(image, signal);
    // A crash has left the snapshot without its mount.
    await this.#removeSnapshot(target, signal);
    await this.#ctr(["images", "mount", reference, target], signal);
    await this.#ctr(["snapshots", "label", target, `${KEEP_LABEL}=true`], signal);
    return "mounted";
  }

  async unmount(target: string, signal: AbortSignal): Promise<void> {
    const isThere = await isMounted(target);
    if (!isThere && (await this.#mountsByItself(signal))) return;
    if (isThere) await this.#ctr(["images", "unmount", target], signal);
    await this.#removeSnapshot(target, signal);
  }

  async #mountsByItself(signal: AbortSignal): Promise<boolean> {
    if (this.#byRuntime === undefined) {
      try {
        const { runtimeName, runtimeVersion } = await this.#client.call(RuntimeService.version, {}, signal);
        this.#byRuntime = supportsImageMounts(runtimeName, runtimeVersion);
      } catch (error) {
        throw failure(error, "cannot ask the container runtime for its version");
      }
    }
    return this.#byRuntime;
  }

  /** A name of it that ctr knows: digests by themselves are none. */
  async #referenceOf({ id, requested }: ResolvedImage, signal: AbortSignal): Promise<string> {
    const { image } = await this.#imageClient.call(ImageService.imageStatus, { image: { image: id } }, signal);
    const name = image?.repoTags[0] ?? image?.repoDigests[0];
    if (name === undefined) throw new PicoletError("not_found", `image ${requested} is not there any more`, RETRY);
    return name;
  }

  async #removeSnapshot(target: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#ctr(["snapshots", "rm", target], signal);
    } catch (error) {
      if (isCancelled(error) || !describeError(error).includes("not found")) throw error;
    }
    // ctr keeps what it mounts for a day by a lease of the same name.
    try {
      await this.#ctr(["leases", "rm", target], signal);
    } catch (error) {
      if (isCancelled(error) || !describeError(error).includes("not found")) throw error;
    }
  }

  #ctr(args: readonly string[], signal: AbortSignal): Promise<void> {
    const all = ["--address", this.#imageClient.socketPath, "--namespace", CRI_NAMESPACE, ...args];
    const options = { signal, timeout: CTR_TIMEOUT_MS, killSignal: "SIGKILL" } as const;
    return new Promise((resolve, reject) => {
      // Loaded when it is needed, 0.5 MiB: most pods mount no image.
      process.getBuiltinModule("node:child_process").execFile("ctr", all, options, (error, _, stderr) => {
        if (error === null) resolve();
        else if (signal.aborted) reject(new PicoletError("cancelled", "the mount of an image was cancelled"));
        else {
          const cause = stderr.trim() === "" ? error : new Error(stderr.trim().replace(/^ctr: /, ""));
          reject(new PicoletError("unavailable", `cannot run ctr ${args.slice(0, 2).join(" ")}`, { cause, ...RETRY }));
        }
      });
    });
  }
}

const RETRY = { retryable: true } as const;

/** @param version such as `1.6.20~ds1` or `v2.1.0` */
export function supportsImageMounts(runtime: string, version: string): boolean {
  const since = MOUNT_BY_THEMSELVES.get(runtime);
  const [, major = "0", minor = "0"] = /^v?(\d+)\.(\d+)/.exec(version) ?? [];
  if (since === undefined) return false;
  return Number(major) > since[0] || (Number(major) === since[0] && Number(minor) >= since[1]);
}

async function isMounted(target: string): Promise<boolean> {
  // The kernel writes some characters by their number.
  const escaped = target.replace(/[ \t\n\\]/g, (each) => `\\${each.charCodeAt(0).toString(8).padStart(3, "0")}`);
  return (await readFile("/proc/self/mountinfo", "utf8")).includes(` ${escaped} `);
}
