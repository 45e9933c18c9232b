import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { arch } from "node:os";
import { dirname, join } from "node:path";
import { buildImageArchive } from "./build-image-archive.ts";

export const CONTAINER_EXAMPLE_IMAGE = "picolet.example/web:1";

const PAGE = `<!doctype html>
<title>picolet</title>
<h1>A container on picolet</h1>
`;

/**
 * The image of `examples/web`: a web server that serves one page. The server is the one inside esbuild, which npm has
 * brought anyway as one static executable for this machine's architecture: an image with no network and no compiler.
 * `--watch=forever`, or it would end when it finds its standard input closed.
 * @returns the archive's path
 */
export function buildContainerExample(): string {
  const folder = "dist/examples/web";
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "index.html"), PAGE);
  const esbuild = dirname(createRequire(import.meta.url).resolve("esbuild/package.json"));
  const server = createRequire(join(esbuild, "package.json")).resolve(`@esbuild/linux-${arch()}/bin/esbuild`);
  return buildImageArchive({
    name: CONTAINER_EXAMPLE_IMAGE,
    files: { "bin/serve": server, "www/index.html": join(folder, "index.html") },
    entrypoint: ["/bin/serve", "--servedir=/www", "--serve=0.0.0.0:8080", "--watch=forever"],
  });
}
