/**
 * The disk, kernel and initial RAM disk that test guests boot from (`guest.ts`): Debian for the guest's
 * architecture with systemd, containerd and Node, made from packages with no loop mounts and no network but the
 * machine's own package sources. Kept below `node_modules/.cache/picolet/guest` by a hash of its recipe.
 */
import { type ExecFileSyncOptions, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { makeRuntimeTree } from "../containerd/runtime-release.ts";
import { BUSYBOX_APPLETS, BUSYBOX_IMAGE, buildPauseArchive, PAUSE_IMAGE } from "../containerd/test-images.ts";
import { makeDebianTree } from "../debian/debian-tree.ts";
import { GUEST_ARCHITECTURES, type GuestArchitecture } from "./guest-architecture.ts";

/** Parts of `dist/board` that the image has already. */
export const LARGE_PARTS = ["lib/node", "lib/node_modules"];
export const GUEST_CACHE = "node_modules/.cache/picolet/guest";
/** Where a guest has the containerd of another suite; empty in most. */
export const RUNTIME_PLACE = "/opt/runtime";
const CONFORMANCE_TOOL = fileURLToPath(new URL("../../conformance/image/tool.c", import.meta.url));
const SOURCES = fileURLToPath(new URL("image", import.meta.url));

/** The one disk: root, images and volumes. Small enough to be filled, and its inodes used up, within seconds. */
const DISK_MIB = 1536;
const INODES = 40_000;

const PACKAGES = [
  "systemd-sysv",
  "udev",
  "dbus",
  "kmod",
  "containerd",
  "runc",
  "containernetworking-plugins",
  "iptables",
  "apparmor",
  "busybox-static",
  "iproute2",
  "e2fsprogs",
  "util-linux",
  "mount",
  "libstdc++6",
  "libatomic1",
  "openssl",
];
/** Files of the packages that a guest without logins does not use. */
const UNUSED = [
  "usr/share/{doc,man,locale,perl,info,i18n,zoneinfo,bash-completion,lintian}",
  "usr/lib/cni/{bandwidth,dhcp,firewall,ipvlan,macvlan,ptp,sbr,static,tuning,vlan,vrf,host-device}",
  "usr/bin/{perl*,containerd-shim,containerd-shim-runc-v1,gpgv,apt*}",
  "usr/lib/udev/hwdb*",
  "usr/lib/{x86_64,aarch64}-linux-gnu/{perl*,gconv,libapt*,*.a,*.o}",
  "usr/{include,lib/gcc}",
  "boot/{System.map,config}*",
  // They make units of files that are not there, at each boot and each `daemon-reload`.
  "lib/systemd/system-generators/*",
  "var/cache/*",
  "var/lib/{apt,dpkg}",
  "lib/modules/*/kernel/drivers/{gpu,infiniband,hv,media,scsi,ata,usb,md,nvme,xen,target,nvdimm,net/ethernet,message,input}",
  "lib/modules/*/kernel/{sound,crypto/ccp}",
  "lib/modules/*/kernel/fs/{xfs,btrfs,gfs2,ocfs2,nfs,nfsd,f2fs,jfs,reiserfs,cifs,smb,ceph,dlm,udf,ubifs,jffs2,nilfs2,smbfs_common,fscache,cachefiles}",
];
/** Units that must not start: they cost seconds of an emulated processor, and disturb the measurements. */
const MASKED = [
  "apt-daily.timer",
  "apt-daily-upgrade.timer",
  "console-getty.service",
  "dev-hugepages.mount",
  "dev-mqueue.mount",
  "dpkg-db-backup.timer",
  "e2scrub_all.timer",
  "e2scrub_reap.service",
  "fstrim.timer",
  "getty.target",
  "kmod-static-nodes.service",
  "ldconfig.service",
  "serial-getty@ttyS0.service",
  "serial-getty@ttyAMA0.service",
  "sys-kernel-config.mount",
  "sys-kernel-debug.mount",
  "sys-kernel-tracing.mount",
  "systemd-ask-password-console.path",
  "systemd-ask-password-wall.path",
  "systemd-binfmt.service",
  "systemd-firstboot.service",
  "systemd-hwdb-update.service",
  "systemd-journal-catalog-update.service",
  "systemd-journal-flush.service",
  "systemd-logind.service",
  "systemd-machine-id-commit.service",
  "systemd-pcrphase.service",
  "systemd-pcrphase-initrd.service",
  "systemd-pcrphase-sysinit.service",
  "systemd-pstore.service",
  "systemd-random-seed.service",
  "systemd-remount-fs.service",
  "systemd-repart.service",
  "systemd-sysusers.service",
  "systemd-tmpfiles-clean.timer",
  "systemd-udev-settle.service",
  "systemd-udev-trigger.service",
  "systemd-update-done.service",
  "systemd-update-utmp.service",
  "systemd-update-utmp-runlevel.service",
  "systemd-user-sessions.service",
];
/** Modules that must be loaded by name, because the guest's boot has no device manager that would ask for them. */
const LOADED_MODULES = ["virtio_net", "overlay", "bridge", "br_netfilter", "veth", "xt_comment", "zram"];

const INIT = `#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
for each in /modules/*; do /bin/busybox insmod $each; done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
`;

const CONTAINERD = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs","io.containerd.snapshotter.v1.zfs","io.containerd.snapshotter.v1.devmapper","io.containerd.snapshotter.v1.aufs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  disable_apparmor = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  BinaryName = "runc"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
`;

export const NETWORK = {
  cniVersion: "0.4.0",
  name: "guest",
  plugins: [
    {
      type: "bridge",
      bridge: "cni0",
      isGateway: true,
      ipMasq: false,
      ipam: { type: "host-local", ranges: [[{ subnet: "10.88.0.0/16" }]], routes: [{ dst: "0.0.0.0/0" }] },
    },
    { type: "portmap", capabilities: { portMappings: true }, snat: false },
  ],
};

/**
 * The files that the packages' own scripts would have made, and those that are special to this guest. Path → content.
 */
const FILES: Readonly<Record<string, string>> = {
  "etc/hostname": "guest\n",
  "etc/hosts": "127.0.0.1 localhost guest\n",
  "etc/machine-id": "0c9d1c8c3b5f4d2e8a7b6c5d4e3f2a1b\n",
  "etc/fstab": "",
  "etc/resolv.conf": "",
  "etc/passwd":
    "root:x:0:0:root:/root:/bin/bash\nmessagebus:x:100:100::/nonexistent:/usr/sbin/nologin\nsystemd-network:x:106:106::/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
  "etc/group":
    "root:x:0:\nadm:x:4:\nsystemd-network:x:106:\ntty:x:5:\ndisk:x:6:\nkmem:x:15:\ndialout:x:20:\ncdrom:x:24:\ntape:x:26:\naudio:x:29:\nvideo:x:44:\nutmp:x:43:\nlp:x:7:\ninput:x:101:\nsgx:x:102:\nkvm:x:103:\nrender:x:104:\nsystemd-journal:x:105:\nmessagebus:x:100:\nnogroup:x:65534:\n",
  "etc/shadow": "root:*:19000:0:99999:7:::\nmessagebus:*:19000::::::\nnobody:*:19000::::::\n",
  "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
  "etc/modules-load.d/guest.conf": `${LOADED_MODULES.join("\n")}\n`,
  "etc/sysctl.d/90-guest.conf": "net.ipv4.ip_forward=1\nkernel.printk=4 4 1 7\nkernel.core_pattern=|/bin/false\n",
  "etc/systemd/journald.conf.d/guest.conf":
    "[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\nForwardToConsole=yes\nMaxLevelConsole=warning\nRateLimitBurst=0\n",
  "etc/systemd/system.conf.d/guest.conf": "[Manager]\nDefaultTimeoutStartSec=300s\nDefaultTimeoutStopSec=300s\n",
  "etc/containerd/config.toml": CONTAINERD,
  "etc/cni/net.d/10-guest.conflist": JSON.stringify(NETWORK),
  "etc/systemd/system/observer.slice":
    "[Unit]\nDefaultDependencies=no\n[Slice]\nCPUWeight=10000\nMemoryMin=12M\nIOWeight=1000\n",
  // The kernel would take the agent's own code away from it, as it can be read again, and evicting would wait for the
  // disk.
  "etc/systemd/system/picolet.slice": "[Unit]\nDefaultDependencies=no\n[Slice]\nMemoryMin=80M\n",
  "etc/systemd/system/courier.service": `[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/usr/lib/guest/courier\nSlice=observer.slice\nOOMScoreAdjust=-1000\nNice=-20\nTasksMax=infinity\nMemoryMin=12M\nEnvironment=HOME=/root PATH=${RUNTIME_PLACE}/usr/bin:/opt/picolet/dist/board/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/guest/applets CONTAINERD_NAMESPACE=k8s.io\n`,
  "etc/systemd/system/network.service":
    "[Unit]\nDefaultDependencies=no\nAfter=systemd-modules-load.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n" +
    "ExecStart=/bin/busybox ip link set lo up\nExecStart=/bin/busybox ip addr add 10.0.2.15/24 dev eth0\nExecStart=/bin/busybox ip link set eth0 up\nExecStart=/bin/busybox ip route add default via 10.0.2.2\n",
  // Its own minute and a half is short where the machine under the emulated one is busy.
  "etc/systemd/system/systemd-modules-load.service.d/guest.conf": "[Service]\nTimeoutSec=300\n",
  // A board's root file system is not one mount of many: what runs in pods' mount namespaces is seen by all.
  "etc/systemd/system/containerd.service.d/guest.conf": "[Unit]\nAfter=network.service\n[Service]\nExecStartPre=\n",
};
const WANTED = ["courier.service", "network.service", "containerd.service"];

export interface GuestImage {
  readonly key: string;
  readonly kernel: string;
  readonly initialRamDisk: string;
  /** ext4, raw, sparse. It is copied before use and never written. */
  readonly disk: string;
}

/** Why no guest can run here; `undefined` when one can. */
export function guestMissing({ needed } = GUEST_ARCHITECTURES.amd64): string | undefined {
  if (process.arch !== "x64") return "the guest is for amd64 machines";
  if (process.getuid?.() !== 0) return "building the guest needs root";
  const programs = ["/usr/bin/mmdebstrap", ...needed, "/usr/sbin/mke2fs", "/usr/bin/clang", "/bin/busybox"];
  const missing = programs.filter((path) => !existsSync(path));
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}

/** Builds the image where it is not there yet: 20 to 30 s. One process at a time does it. */
export function guestImage(architecture: GuestArchitecture): GuestImage {
  const key = recipeKey(architecture);
  const folder = join(GUEST_CACHE, `image-${key}`);
  if (!existsSync(folder)) {
    mkdirSync(GUEST_CACHE, { recursive: true });
    takeAwayOldOnes(GUEST_CACHE);
    const making = mkdtempSync(join(GUEST_CACHE, `making-${process.pid}-`));
    try {
      build(making, architecture);
      renameSync(making, folder);
    } finally {
      rmSync(making, { recursive: true, force: true });
    }
  }
  return {
    key,
    kernel: join(folder, "kernel"),
    initialRamDisk: join(folder, "initrd"),
    disk: join(folder, "disk"),
  };
}

/** Removes images that dead processes were making, and those that were not used for a week. */
function takeAwayOldOnes(cache: string): void {
  for (const name of readdirSync(cache)) {
    const path = join(cache, name);
    const owner = /^making-(\d+)-/.exec(name)?.[1];
    const isOld = Date.now() - statSync(path).mtimeMs > 7 * 24 * 3_600_000;
    if (owner === undefined ? isOld : !existsSync(`/proc/${owner}`)) rmSync(path, { recursive: true, force: true });
  }
}

/** Changes with everything that the guest is made of, except packages' versions. */
export function recipeKey(architecture: GuestArchitecture): string {
  const { name: ownName, release, runtimeSuite, packages, cpu } = architecture;
  const hash = createHash("sha256").update(JSON.stringify([ownName, release, runtimeSuite, packages, cpu]));
  const own = [
    fileURLToPath(import.meta.url),
    fileURLToPath(new URL("guest-architecture.ts", import.meta.url)),
    ...readdirSync(SOURCES)
      .sort()
      .map((name) => join(SOURCES, name)),
  ];
  for (const path of [...own, CONFORMANCE_TOOL, "/etc/os-release", "/bin/busybox"]) hash.update(readFileSync(path));
  for (const name of ["node", "better-sqlite3", "@bytecodealliance/jco-transpile"])
    hash.update(readFileSync(`node_modules/${name}/package.json`));
  for (const path of boardFiles(architecture).filter((each) => statSync(each).isDirectory()))
    hash.update(readdirSync(path, { recursive: true }).sort().join());
  return hash.digest("hex").slice(0, 16);
}

/** The parts of a board's distribution that a build seldom changes. */
const boardFiles = ({ platform }: GuestArchitecture): readonly string[] =>
  LARGE_PARTS.map((name) => join(distributionFolder("board", platform), name));

function build(folder: string, architecture: GuestArchitecture): void {
  const tree = join(folder, "tree");
  const { name, release, packages, runtimeSuite } = architecture;
  makeDebianTree(tree, { variant: "extract", packages: [...PACKAGES, ...packages], architecture: name, release });
  const version = readdirSync(join(tree, "lib/modules"))[0] ?? "";
  copyFileSync(join(tree, `boot/vmlinuz-${version}`), join(folder, "kernel"));
  for (const program of ["courier", "load", "bridge"])
    compile(join(SOURCES, `${program}.c`), join(tree, "usr/lib/guest", program), architecture.compilerFlags(tree));
  compile(CONFORMANCE_TOOL, join(tree, "usr/lib/guest/tool"), architecture.compilerFlags(tree));
  for (const pattern of UNUSED)
    for (const path of globSync(pattern, { cwd: tree })) rmSync(join(tree, path), { recursive: true, force: true });
  finish(tree, version, architecture);
  if (runtimeSuite !== undefined) addRuntime(tree, runtimeSuite, architecture);
  buildInitialRamDisk(tree, version, folder, architecture);
  for (const path of boardFiles(architecture)) {
    const target = join(tree, "opt/picolet/dist/board/lib", basename(path));
    mkdirSync(dirname(target), { recursive: true });
    cpSync(path, target, { recursive: true, dereference: true });
  }
  saveImages(tree, folder, architecture);
  const disk = join(folder, "disk");
  quietly("mke2fs", [
    ...[
      "-q",
      "-t",
      "ext4",
      "-b",
      "4096",
      "-N",
      String(INODES),
      "-m",
      "0",
      "-O",
      "^metadata_csum,^64bit",
      "-J",
      "size=8",
    ],
    ...["-E", "lazy_itable_init=0,root_owner=0:0", "-d", tree, disk, `${DISK_MIB}M`],
  ]);
  rmSync(tree, { recursive: true });
}

/** The containerd of another suite in place of the guest's own, which stays and is not started. */
function addRuntime(tree: string, suite: string, { name }: GuestArchitecture): void {
  const place = join(tree, RUNTIME_PLACE);
  makeRuntimeTree(place, suite, RUNTIME_PLACE, name);
  for (const left of ["usr/share", "usr/lib/systemd", "usr/include", "var", "etc", "dev", "tmp"])
    rmSync(join(place, left), { recursive: true, force: true });
  const dropIn = join(tree, "etc/systemd/system/containerd.service.d/suite.conf");
  const path = `${RUNTIME_PLACE}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin`;
  const lines = [
    "[Service]",
    "ExecStart=",
    `ExecStart=${RUNTIME_PLACE}/usr/bin/containerd`,
    `Environment=PATH=${path}`,
  ];
  writeFileSync(dropIn, `${lines.join("\n")}\n`);
  const config = join(tree, "etc/containerd/config.toml");
  const own = readFileSync(config, "utf8").replace('BinaryName = "', `$&${RUNTIME_PLACE}/usr/bin/`);
  writeFileSync(config, own);
}

function finish(tree: string, version: string, { run }: GuestArchitecture): void {
  const unit = readFileSync(join(SOURCES, "picolet.service"), "utf8");
  for (const [path, content] of Object.entries({ ...FILES, "etc/systemd/system/picolet.service": unit })) {
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    rmSync(join(tree, path), { force: true });
    writeFileSync(join(tree, path), content);
  }
  const units = join(tree, "etc/systemd/system");
  for (const unit of MASKED) symlinkSync("/dev/null", join(units, unit));
  mkdirSync(join(units, "multi-user.target.wants"), { recursive: true });
  for (const unit of WANTED) {
    const path = existsSync(join(units, unit)) ? `/etc/systemd/system/${unit}` : `/lib/systemd/system/${unit}`;
    symlinkSync(path, join(units, "multi-user.target.wants", unit));
  }
  rmSync(join(units, "default.target"), { force: true });
  symlinkSync("/lib/systemd/system/multi-user.target", join(units, "default.target"));
  for (const name of [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
  ]) {
    rmSync(join(tree, "usr/sbin", name), { force: true });
    symlinkSync("xtables-nft-multi", join(tree, "usr/sbin", name));
  }
  mkdirSync(join(tree, "opt/picolet"), { recursive: true });
  const output = (path: string, args: (root: string) => readonly string[]): string => {
    const [program = "", ...rest] = run(tree, path, args);
    return quietly(program, rest).toString();
  };
  output("/sbin/depmod", (root) => ["-b", root, version]);
  const applets = join(tree, "usr/lib/guest/applets");
  mkdirSync(applets, { recursive: true });
  for (const name of output("/bin/busybox", () => ["--list"])
    .trim()
    .split("\n"))
    symlinkSync("/bin/busybox", join(applets, name));
  if (!existsSync(join(tree, "bin/sh"))) symlinkSync("busybox", join(tree, "bin/sh"));
}

function buildInitialRamDisk(tree: string, version: string, folder: string, { bootModules }: GuestArchitecture): void {
  const root = join(folder, "ram-disk");
  for (const name of ["bin", "dev", "modules", "root"]) mkdirSync(join(root, name), { recursive: true });
  copyFileSync(join(tree, "bin/busybox"), join(root, "bin/busybox"));
  writeFileSync(join(root, "init"), INIT);
  chmodSync(join(root, "init"), 0o755);
  const kernel = join(tree, "lib/modules", version);
  const dependencies = readFileSync(join(kernel, "modules.dep"), "utf8");
  for (const [place, path] of modulesToLoad(bootModules, dependencies).entries()) {
    const content = path.endsWith(".xz")
      ? quietly("xz", ["-dc", join(kernel, path)])
      : readFileSync(join(kernel, path));
    writeFileSync(join(root, "modules", `${String(place).padStart(2, "0")}-${basename(path, ".xz")}`), content);
  }
  const names = globSync("**", { cwd: root }).filter((name) => name !== ".");
  const archive = quietly("busybox", ["cpio", "-o", "-H", "newc"], { cwd: root, input: names.join("\n") });
  writeFileSync(join(folder, "initrd"), archive);
  rmSync(root, { recursive: true });
}

/** Paths of the boot modules and of what they need, in the order to load them in. */
function modulesToLoad(bootModules: readonly string[], dependencies: string): readonly string[] {
  const lines = dependencies.split("\n").map((line) => line.split(/:? /));
  const ordered = bootModules.flatMap((name) => {
    const line = lines.find(([path = ""]) => basename(path).replace(/\.ko.*$/, "") === name);
    return (line ?? []).map((path) => path.replace(/:$/, "")).reverse();
  });
  return [...new Set(ordered)];
}

function compile(source: string, output: string, flags: readonly string[]): void {
  mkdirSync(dirname(output), { recursive: true });
  const all = [...flags, "-Os", "-static", "-s", "-Wall", "-Werror", "-o", output, source];
  quietly("clang", all);
}

/** The images that pods of the guest are made of, to be imported when it boots for the first time. */
function saveImages(tree: string, folder: string, { name }: GuestArchitecture): void {
  const busybox = buildImageArchive(
    {
      name: BUSYBOX_IMAGE,
      architecture: name,
      files: { "bin/busybox": join(tree, "bin/busybox"), "bin/load": join(tree, "usr/lib/guest/load") },
      links: Object.fromEntries(BUSYBOX_APPLETS.map((applet) => [`bin/${applet}`, "busybox"])),
      command: ["/bin/sh"],
    },
    folder,
  );
  const images = join(tree, "usr/lib/guest/images");
  mkdirSync(images);
  for (const archive of [busybox, buildPauseArchive(PAUSE_IMAGE, name)])
    copyFileSync(archive, join(images, basename(archive)));
  rmSync(busybox);
  rmSync(busybox.replace(/\.tar$/, ""), { recursive: true });
}

/** @throws with what the program said on its standard error */
function quietly(program: string, args: readonly string[], options: ExecFileSyncOptions = {}): Buffer {
  return execFileSync(program, args, {
    ...options,
    stdio: [options.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    maxBuffer: 256 * 2 ** 20,
  }) as Buffer;
}
