import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { arch } from "node:os";
import { makeTar } from "./tar.ts";

const ARCHITECTURE: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };
const sha256 = (data: string | Uint8Array): string => createHash("sha256").update(data).digest("hex");

export const tinyImage = (index: number): string => `localhost/tiny-${index}:1`;

/** An archive of `docker save` with images that differ in the one small file that each has. @returns their names */
export function writeTinyImages(path: string, count: number): readonly string[] {
  const files: Record<string, string | Uint8Array> = {};
  const manifest = Array.from({ length: count }, (_, index) => {
    const layer = makeTar({ content: `image ${index}\n` });
    const layerName = `${index}/layer.tar`;
    const config = JSON.stringify({
      architecture: ARCHITECTURE[arch()] ?? arch(),
      os: "linux",
      config: { Cmd: ["/content"] },
      rootfs: { type: "layers", diff_ids: [`sha256:${sha256(layer)}`] },
    });
    const configName = `${sha256(config)}.json`;
    files[layerName] = layer;
    files[configName] = config;
    return { Config: configName, RepoTags: [tinyImage(index)], Layers: [layerName] };
  });
  writeFileSync(path, makeTar({ "manifest.json": JSON.stringify(manifest), ...files }));
  return manifest.flatMap(({ RepoTags }) => RepoTags);
}
