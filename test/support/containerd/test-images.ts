/** Container images for tests, made from what Debian's packages bring: busybox, and a pause program of three lines. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
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

/** The program that holds a sandbox's namespaces: it waits forever and uses almost no memory. */
const PAUSE_SOURCE = `
void _start(void) {
  for (;;) {
#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(34) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = 73;
    register long a __asm__("x0") = 0, b __asm__("x1") = 0, c __asm__("x2") = 0, d __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(a) : "r"(number), "r"(b), "r"(c), "r"(d) : "memory");
#endif
  }
}
`;

const TARGETS = { amd64: "x86_64-linux-gnu", arm64: "aarch64-linux-gnu" };

export function buildPauseArchive(name = PAUSE_IMAGE, architecture?: keyof typeof TARGETS): string {
  return built(
    name,
    (folder) => {
      const source = join(folder, "pause.c");
      const program = join(folder, "pause");
      writeFileSync(source, PAUSE_SOURCE);
      const target = architecture === undefined ? [] : [`--target=${TARGETS[architecture]}`];
      execFileSync("clang", [...target, "-Os", "-static", "-nostdlib", "-fuse-ld=lld", "-o", program, source]);
      return { files: { pause: program }, entrypoint: ["/pause"], ...(architecture && { architecture }) };
    },
    architecture && `-${architecture}`,
  );
}
