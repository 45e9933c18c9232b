/**
 * A guest for tests of devices: Debian's kernel for machines (the one for clouds has neither GPIO nor I2C), the modules
 * that make devices, Node, and one program, all in a RAM disk. It says what it has to on its console, and is over when
 * that program is.
 */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { deviceAddon } from "@picolet/runtime-wasm/shared/devices/runner-packages.ts";
import { build } from "esbuild";
import { testComponent, testPrograms } from "../wasm/components.ts";
import { transpiledFiles } from "../wasm/loaded-component.ts";
import { GUEST_ARCHITECTURES } from "./guest-architecture.ts";
import { GUEST_CACHE } from "./guest-image.ts";

const CPU = GUEST_ARCHITECTURES.amd64.cpu;
/** In the order in which they need each other. */
const MODULES = ["i2c-dev", "i2c-stub", "hid", "uhid", "hid-mcp2221", "hid-cp2112"];
const STUB_ADDRESS = "0x50";
/** Generous, as for other guests: an emulated processor beside other tests. */
const LIMIT_MS = 450_000;

const INIT = `#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
ip link set lo up
for each in ${MODULES.slice(0, 1).concat(MODULES.slice(2)).join(" ")}; do insmod /modules/$each.ko; done
insmod /modules/i2c-stub.ko chip_addr=${STUB_ADDRESS}
cd /app && /bin/node /app/program.cjs
poweroff -f
`;

/** The one that Debian's `linux-image-amd64` stands for now. */
function kernelPackage(isSecond = false): string {
  const depends = spawnSync("apt-cache", ["depends", "linux-image-amd64"], { encoding: "utf8" });
  const name = /Depends: (linux-image-\S+)/.exec(depends.stdout)?.[1];
  if (name !== undefined) return name;
  if (isSecond) throw new Error("cannot build the guest: this machine's package sources have no linux-image-amd64");
  execFileSync("apt-get", ["-qq", "update"], { stdio: ["ignore", "ignore", "inherit"] });
  return kernelPackage(true);
}

/** Kernel and modules, of the machine's own package sources; kept. */
function kernel(): { readonly image: string; readonly modules: string } {
  const name = kernelPackage();
  const folder = resolve(GUEST_CACHE, `kernel-${name}-${MODULES.join("-")}`);
  if (!existsSync(folder)) {
    mkdirSync(GUEST_CACHE, { recursive: true });
    const making = mkdtempSync(join(resolve(GUEST_CACHE), `making-${process.pid}-`));
    execFileSync("apt-get", ["-qq", "-o", "APT::Sandbox::User=root", "download", name], {
      cwd: making,
      stdio: ["ignore", "ignore", "inherit"],
    });
    const [archive = ""] = globSync("*.deb", { cwd: making });
    execFileSync("dpkg-deb", ["--extract", archive, "."], { cwd: making });
    rmSync(join(making, archive));
    for (const path of globSync("**/*.ko", { cwd: making })) {
      if (MODULES.includes(basename(path, ".ko"))) copyFileSync(join(making, path), join(making, basename(path)));
    }
    copyFileSync(join(making, globSync("boot/vmlinuz-*", { cwd: making })[0] ?? ""), join(making, "vmlinuz"));
    for (const each of ["lib", "boot", "usr"]) rmSync(join(making, each), { recursive: true, force: true });
    renameSync(making, folder);
  }
  return { image: join(folder, "vmlinuz"), modules: folder };
}

/** The whole of the guest, as cpio(1) writes it. */
async function ramDisk(modules: string, folder: string): Promise<string> {
  const root = join(folder, "root");
  for (const each of ["bin", "dev", "proc", "sys", "tmp", "modules", "app"])
    mkdirSync(join(root, each), { recursive: true });
  const put = (source: string, path: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    cpSync(source, join(root, path), { recursive: true, dereference: true });
  };
  put("/bin/busybox", "bin/busybox");
  put(process.execPath, "bin/node");
  for (const each of librariesOf(process.execPath)) put(each, each);
  for (const each of MODULES) put(join(modules, `${each}.ko`), `modules/${each}.ko`);
  const addon = deviceAddon(import.meta.filename);
  const addons = addon.slice(addon.lastIndexOf("/node_modules/"));
  put(addon, `app${addons}`);
  put(join(dirname(addon), "../package.json"), `app${dirname(dirname(addons))}/package.json`);
  const { runnerPath, devicesPath } = await testPrograms();
  put(runnerPath, "app/wasm-runner.cjs");
  put(devicesPath, "app/wasm-devices.cjs");
  for (const name of ["pins", "async-pins", "serial"] as const) {
    put(await testComponent(`${name}.c`), `app/${name}.wasm`);
    for (const [path, content] of Object.entries(await transpiledFiles(`${name}.c`, "/app/root/transpiled"))) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), content);
    }
  }
  await build({
    entryPoints: ["test/support/guest/device-guest-program.ts"],
    ...{ bundle: true, format: "cjs", platform: "node", target: "node24", logLevel: "warning" },
    outfile: join(root, "app/program.cjs"),
  });
  writeFileSync(join(root, "init"), INIT);
  chmodSync(join(root, "init"), 0o755);
  const names = globSync("**", { cwd: root }).filter((name) => name !== ".");
  const archive = join(folder, "initrd");
  execFileSync("sh", ["-c", `busybox cpio -o -H newc > '${archive}' 2>/dev/null`], {
    cwd: root,
    input: names.join("\n"),
  });
  rmSync(root, { recursive: true });
  return archive;
}

const librariesOf = (program: string): string[] =>
  [...execFileSync("ldd", [program], { encoding: "utf8" }).matchAll(/(\/\S+) \(0x/g)].map(([, path = ""]) => path);

/** Runs it to its end. @returns what the program told, by name */
export async function runDeviceGuest(): Promise<{
  readonly told: ReadonlyMap<string, unknown>;
  readonly console: string;
}> {
  const folder = mkdtempSync(join(tmpdir(), "picolet-device-guest-"));
  try {
    const { image, modules } = kernel();
    const initialRamDisk = await ramDisk(modules, folder);
    const text = await run(argumentsOf(image, initialRamDisk, join(folder, "cable")));
    const results = [...text.matchAll(/^RESULT (.*?)\r?$/gm)].map(
      ([, json = ""]) => JSON.parse(json) as [string, unknown],
    );
    return { told: new Map(results), console: text };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The second and the third serial port are one cable. */
const argumentsOf = (image: string, initialRamDisk: string, cable: string): string[] => [
  ...["-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-no-reboot"],
  // Time goes by with what is computed, and not while nothing is: drivers wait for an answer for four seconds.
  ...["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off", "-cpu", CPU, "-m", "768"],
  ...["-kernel", image, "-initrd", initialRamDisk],
  ...[
    "-append",
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on",
  ],
  ...["-serial", "stdio"],
  ...["-chardev", `socket,id=near,path=${cable},server=on,wait=off`, "-serial", "chardev:near"],
  ...["-chardev", `socket,id=far,path=${cable}`, "-serial", "chardev:far"],
];

function run(args: readonly string[]): Promise<string> {
  const child = spawn("setpriv", ["--pdeathsig", "KILL", "qemu-system-x86_64", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (more: string) => {
      text += more;
    });
  }
  return new Promise((done, fail) => {
    const timer = setTimeout(() => {
      child.kill("SIGKILL");
      fail(new Error(`the guest did not end:\n${text}`));
    }, LIMIT_MS);
    child.once("error", fail);
    child.once("close", () => {
      clearTimeout(timer);
      done(text);
    });
  });
}
