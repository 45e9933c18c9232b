/** Container images for tests, made from what Debian's packages bring: busybox, and a pause program of three lines. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildImageArchive, type ImageRecipe } from "@picolet/scripts/build/build-image-archive.ts";

const BUILD = "dist/test-images";

export const BUSYBOX_IMAGE = "localhost/busybox:1";
export const PAUSE_IMAGE = "localhost/pause:1";

/**
 * Builds an archive once for all tests, and so that several may do it at the same moment.
 * @param recipe makes what the image is built of in the folder it is given
 */
function built(name: string, recipe: (folder: string) => Omit<ImageRecipe, "name">, suffix = ""): string {
  const archive = join(BUILD, `${name.replaceAll(/[^a-z0-9.]+/gi, "_")}${suffix}.tar`);
  const sourceChangedAt = statSync(fileURLToPath(import.meta.url)).mtimeMs;
  if (existsSync(archive) && statSync(archive).mtimeMs > sourceChangedAt) return archive;
  mkdirSync(BUILD, { recursive: true });
  const folder = mkdtempSync(join(BUILD, "making-"));
  renameSync(buildImageArchive({ name, ...recipe(folder) }, folder), archive);
  rmSync(folder, { recursive: true });
  return archive;
}

/** The programs of busybox that images of it have a name for. */
export const BUSYBOX_APPLETS = [
  "sh",
  "sleep",
  "echo",
  "cat",
  "env",
  "ls",
  "kill",
  "printf",
  "true",
  "false",
  "test",
  "id",
  "ip",
  "wget",
  "nc",
  "httpd",
  "mount",
  "touch",
  "date",
  "head",
  "dd",
  "hostname",
  "stat",
  "ps",
  "seq",
  "stty",
  "tar",
  "tty",
  "wc",
];

/** busybox, with `/bin/sh` and the other usual names linked to it. */
export function buildBusyboxArchive(name = BUSYBOX_IMAGE): string {
  const links = Object.fromEntries(BUSYBOX_APPLETS.map((applet) => [`bin/${applet}`, "busybox"]));
  return built(name, () => ({ files: { "bin/busybox": "/bin/busybox" }, links, command: ["/bin/sh"] }));
}

/** The program that holds a sandbox's namespaces, as in images of boards. */
const PAUSE_SOURCE = fileURLToPath(import.meta.resolve("@picolet/firmware/image/pause.c"));

const TARGETS = { amd64: "x86_64-linux-gnu", arm64: "aarch64-linux-gnu" };

export function buildPauseArchive(name = PAUSE_IMAGE, architecture?: keyof typeof TARGETS): string {
  return built(
    name,
    (folder) => {
      const program = join(folder, "pause");
      const target = architecture === undefined ? [] : [`--target=${TARGETS[architecture]}`];
      execFileSync("clang", [...target, "-Os", "-static", "-nostdlib", "-fuse-ld=lld", "-o", program, PAUSE_SOURCE]);
      return { files: { pause: program }, entrypoint: ["/pause"], ...(architecture && { architecture }) };
    },
    architecture && `-${architecture}`,
  );
}
