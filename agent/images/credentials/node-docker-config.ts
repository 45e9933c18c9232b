/** The node's own registry configuration, at the kubelet's paths. */
import { readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type DockerConfigFormat, MAX_DOCKER_CONFIG_BYTES } from "./docker-config.ts";

/**
 * The first of `config.json` below the agent's root directory, `~/.docker` and `/.docker`, then `.dockercfg` below the
 * root directory, `~` and `/`.
 * @returns undefined when there is none
 * @throws `invalid` for one that cannot be read
 */
export function readNodeDockerConfig(
  rootDir: string,
  home: string = homedir(),
): { readonly path: string; readonly text: string; readonly format: DockerConfigFormat } | undefined {
  const candidates: readonly (readonly [path: string, format: DockerConfigFormat])[] = [
    [join(rootDir, "config.json"), "config.json"],
    [join(home, ".docker/config.json"), "config.json"],
    ["/.docker/config.json", "config.json"],
    [join(rootDir, ".dockercfg"), ".dockercfg"],
    [join(home, ".dockercfg"), ".dockercfg"],
    ["/.dockercfg", ".dockercfg"],
  ];
  for (const [path, format] of candidates) {
    const text = readIfThere(path);
    if (text !== undefined) return { path, text, format };
  }
  return undefined;
}

function readIfThere(path: string): string | undefined {
  try {
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats === undefined) return undefined;
    if (!stats.isFile()) throw new PicoletError("invalid", "it is no file");
    if (stats.size > MAX_DOCKER_CONFIG_BYTES)
      throw new PicoletError("invalid", `it is larger than ${MAX_DOCKER_CONFIG_BYTES} bytes`);
    return readFileSync(path, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOTDIR") return undefined;
    throw new PicoletError("invalid", `cannot read ${path}`, { cause });
  }
}
