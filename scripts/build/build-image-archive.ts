/** Makes a container image out of files of this machine, with no network and no image builder: only `tar`. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { arch } from "node:os";
import { dirname, join } from "node:path";

export interface ImageRecipe {
  /** With tag: `localhost/busybox:1`. */
  readonly name: string;
  /** Files of the one layer: path in the image without leading slash → file on this machine. */
  readonly files: Readonly<Record<string, string>>;
  /** Symbolic links of the layer: path → target. */
  readonly links?: Readonly<Record<string, string>>;
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  readonly environment?: readonly string[];
  /** The setuid programs in `files`, owned by root. */
  readonly setuid?: readonly string[];
  /** The user of its programs unless a pod names another: `1234`. */
  readonly user?: string;
  /** The Go name of its programs' architecture. Default: this machine's. */
  readonly architecture?: string;
}

const BUILD = "dist/images";
const ARCHITECTURE: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

/**
 * Writes a `docker save` archive of the image.
 * @param build the folder to work in
 * @returns its path
 */
export function buildImageArchive(recipe: ImageRecipe, build = BUILD): string {
  const folder = join(build, recipe.name.replaceAll(/[^a-z0-9.]+/gi, "_"));
  const root = join(folder, "root");
  mkdirSync(root, { recursive: true });
  for (const [path, source] of Object.entries(recipe.files)) {
    const target = join(root, path);
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(source, target);
    chmodSync(target, recipe.setuid?.includes(path) ? 0o4755 : 0o755);
  }
  for (const [path, target] of Object.entries(recipe.links ?? {})) {
    const link = join(root, path);
    mkdirSync(dirname(link), { recursive: true });
    if (!existsSync(link)) symlinkSync(target, link);
  }
  const tarFlags = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
  execFileSync("tar", [...tarFlags, "-C", root, "-cf", join(folder, "layer.tar"), "."]);
  const diffId = sha256(readFileSync(join(folder, "layer.tar")));
  const config = JSON.stringify({
    architecture: recipe.architecture ?? ARCHITECTURE[arch()] ?? arch(),
    os: "linux",
    config: { Entrypoint: recipe.entrypoint, Cmd: recipe.command, Env: recipe.environment, User: recipe.user },
    rootfs: { type: "layers", diff_ids: [`sha256:${diffId}`] },
    history: [{ created: "1970-01-01T00:00:00Z", created_by: "picolet" }],
  });
  const configName = `${sha256(config)}.json`;
  writeFileSync(join(folder, configName), config);
  const manifest = [{ Config: configName, RepoTags: [recipe.name], Layers: ["layer.tar"] }];
  writeFileSync(join(folder, "manifest.json"), JSON.stringify(manifest));
  const archive = `${folder}.tar`;
  execFileSync("tar", [...tarFlags, "-C", folder, "-cf", archive, "manifest.json", configName, "layer.tar"]);
  return archive;
}

const sha256 = (data: string | Buffer): string => createHash("sha256").update(data).digest("hex");
