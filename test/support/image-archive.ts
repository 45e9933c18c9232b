/** Container images for tests, made from what Debian's packages bring: busybox, and a pause program of three lines. */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildImageArchive } from "../../scripts/image-archive.ts";

const BUILD = "dist/test-images";

export const BUSYBOX_IMAGE = "localhost/busybox:1";
export const PAUSE_IMAGE = "localhost/pause:1";

/** busybox, with `/bin/sh` and the other usual names linked to it. */
export function buildBusyboxArchive(name = BUSYBOX_IMAGE): string {
  const applets = [
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
  ];
  const links = Object.fromEntries(applets.map((applet) => [`bin/${applet}`, "busybox"]));
  return buildImageArchive({ name, files: { "bin/busybox": "/bin/busybox" }, links, command: ["/bin/sh"] });
}

/** What holds a sandbox's namespaces: waits for ever and uses next to no memory. */
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

export function buildPauseArchive(name = PAUSE_IMAGE): string {
  mkdirSync(BUILD, { recursive: true });
  const source = join(BUILD, "pause.c");
  const program = join(BUILD, "pause");
  writeFileSync(source, PAUSE_SOURCE);
  execFileSync("clang", ["-Os", "-static", "-nostdlib", "-fuse-ld=lld", "-o", program, source]);
  return buildImageArchive({ name, files: { pause: program }, entrypoint: ["/pause"] });
}
