/** The RAUC bundle that updates a board to this system: signed, in the verity format, with the adaptive block index. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { BuildTools } from "./build-tools.ts";
import type { SigningKey } from "./signing-key.ts";

export interface BundleParts {
  readonly compatible: string;
  readonly version: string;
  /** In the tools' work folder. */
  readonly slot: string;
  readonly key: SigningKey;
  /** Small rather than soon. */
  readonly compress: boolean;
}

/** @returns its path in the tools' work folder */
export function makeBundle(tools: BuildTools, { compatible, version, slot, key, compress }: BundleParts): string {
  const folder = join(tools.work, "bundle");
  mkdirSync(folder);
  tools.run("ln", [slot, "bundle/rootfs.img"]);
  writeFileSync(
    join(folder, "manifest.raucm"),
    `[update]\ncompatible=${compatible}\nversion=${version}\n\n[bundle]\nformat=verity\n\n` +
      "[image.rootfs]\nfilename=rootfs.img\nadaptive=block-hash-index\n",
  );
  writeFileSync(join(tools.work, "update.key"), key.key, { mode: 0o600 });
  writeFileSync(join(tools.work, "update.crt"), key.certificate);
  const path = "update.raucb";
  const squash = `--mksquashfs-args=-comp zstd -Xcompression-level ${compress ? 15 : 1} -processors 2`;
  tools.runOutside("rauc", ["bundle", "--cert=update.crt", "--key=update.key", squash, "bundle", path], ["mksquashfs"]);
  return path;
}
