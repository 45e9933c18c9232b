/**
 * Images that are both: one index with an image for containers, busybox, and a component, which do what the same words
 * say.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { arch } from "node:os";
import { join } from "node:path";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { artifact, type IndexLine, indexOf, WASM_CONFIG } from "../unit/images/oci-content.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { testComponent } from "../wasm/components.ts";
import type { Containerd } from "./containerd.ts";
import type { Registry } from "./real-registry.ts";
import { BUSYBOX_APPLETS } from "./test-images.ts";

const ARCHITECTURE: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };
const OWN = `linux/${ARCHITECTURE[arch()] ?? arch()}`;
const CONTAINER_IMAGE = "localhost/says:1";

/**
 * The behaviour of `script.c` with `say TEXT hold` in a container, which reports that it is one. It leaves a mark in
 * /data, and holds HOARD MiB when /gate/$GATE exists.
 */
const SAYS = `#!/bin/sh
echo "$1 in a container"
[ ! -d /data ] || echo "left by a container" > /data/mark
if [ -n "$HOARD" ]; then
  while [ ! -e "/gate/$GATE" ]; do sleep 0.1; done
  awk 'BEGIN { block = sprintf("%1048576s", ""); while (i < ENVIRON["HOARD"]) kept[i++] = block i; system("sleep 3600") }' &
fi
trap 'exit 0' TERM
while :; do sleep 3600 & wait $!; done
`;

export type Half = "component" | "container" | "foreign";

/** Brings the container half into `containerd`, from where it is pushed. */
export function importSays(containerd: Containerd): void {
  using folder = new TempFolder();
  const script = join(folder.path, "say");
  writeFileSync(script, SAYS);
  mkdirSync(join(folder.path, "build"));
  const links = Object.fromEntries([...BUSYBOX_APPLETS, "awk"].map((applet) => [`bin/${applet}`, "busybox"]));
  const files = { "bin/busybox": "/bin/busybox", "bin/say": script };
  const recipe = { name: CONTAINER_IMAGE, files, links, command: ["/bin/say"] };
  containerd.importArchive(buildImageArchive(recipe, join(folder.path, "build")));
}

/**
 * Pushes an index of these halves. `foreign` is an image for another machine.
 * @param containerd has the container half (`importSays`)
 * @returns its name
 */
export async function pushDual(
  registry: Registry,
  containerd: Containerd,
  repository: string,
  halves: readonly Half[],
): Promise<string> {
  const lines: IndexLine[] = [];
  for (const half of halves) {
    if (half === "component") {
      const component = readFileSync(await testComponent("script.c"));
      const document = artifact(component);
      await registry.pushContent(repository, "component", document, [component, WASM_CONFIG]);
      lines.push({ document, platform: "wasip2/wasm" });
    } else {
      registry.push(containerd, CONTAINER_IMAGE, `${repository}:container`);
      const document = await registry.document(repository, "container");
      lines.push({ document, platform: half === "container" ? OWN : "linux/riscv64" });
    }
  }
  await registry.pushContent(repository, "1", indexOf(lines), []);
  return `${registry.address}/${repository}:1`;
}
