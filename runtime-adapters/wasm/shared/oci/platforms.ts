/** The platforms of an image. Pure. */
import type { ImagePlatforms } from "@picolet/runtime-contract/runtime-adapter.ts";

/** The name of a component's platform here, for images of all builders. */
export const COMPONENT_PLATFORM = "wasi/wasm";

export const isComponentPlatform = (platform: string): boolean => /^[^/]*\/wasm(?:32)?(?:\/|$)/.test(platform);

/** Node's names of architectures that OCI has others for. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };

/** @param architecture of this node, as Node calls it */
export function platformsOf(platforms: readonly string[], architecture: string = process.arch): ImagePlatforms {
  const own = `linux/${ARCHITECTURES[architecture] ?? architecture}`;
  return {
    component: platforms.some(isComponentPlatform),
    container: platforms.some((each) => each === own || each.startsWith(`${own}/`)),
    platforms,
  };
}
