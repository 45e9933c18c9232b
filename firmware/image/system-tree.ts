/**
 * The read-only system of a slot: Debian's packages, picolet's own, and `tree/`, finished without running any of it.
 */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  lchownSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Board, compatibleOf, type Flavour } from "./boards.ts";
import type { BuildTools } from "./build-tools.ts";

const own = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Files of Debian's packages that a board does not use. */
const UNUSED = [
  "usr/share/{doc,doc-base,man,info,locale,perl,perl5,i18n,bash-completion,lintian,bug,debconf,initramfs-tools,gcc,gdb,polkit-1,pam-configs,mime,zsh,fish,reportbug,menu,applications,readline,terminfo,X11,glib-2.0,common-licenses,libc-bin,keyrings}",
  "usr/bin/{perl*,containerd-stress,containerd-shim,containerd-shim-runc-v1,gpgv*,apt*,dpkg*,debconf*,ucf*,systemd-cgtop,systemd-analyze,localedef,openssl,tss2_*,ssh-add,ssh-agent,ssh-keyscan,scp,ssh,slogin,sftp,lsinitramfs,unmkinitramfs,linux-*}",
  "usr/sbin/{tc,update-initramfs,mkinitramfs,dpkg*,e4crypt,zic,iconvconfig,update-*,adduser,deluser,addgroup,delgroup,cfdisk}",
  "usr/lib/*-linux-gnu/{perl*,gconv,libapt*,cryptsetup,libtss2-{fapi,tcti-libtpms,tcti-mssim,tcti-spi-helper,tcti-swtpm}*,security/pam_userdb.so}",
  "usr/lib/{apt,dpkg,klibc,initramfs-tools,linux,lsb,init,ucf,runit-helper,pcrlock.d,kernel,environment.d,systemd/boot,systemd/ukify}",
  "usr/lib/udev/hwdb.d/*-{OUI,pci-*,usb-*,bluetooth-*,acpi-*,sdio-*,autosuspend*,evdev,keyboard,mouse,pointingstick,touchpad,joystick,av-*,photo*,analyzers,imds,dmi-*,input-*,camera*,led*,seat*}*",
  "usr/lib/cni/{dhcp,ipvlan,macvlan,sbr,vlan,vrf,host-device,static,ptp,dummy}",
  "usr/lib/systemd/system-generators/systemd-{gpt-auto,hibernate-resume,rc-local,sysv,system-update,tpm2,ssh,fstab}-generator",
  "usr/lib/systemd/system/{apt-*,dpkg-*,e2scrub*,systemd-firstboot.service,systemd-pcr*,systemd-tpm2*,systemd-machine-id-commit.service,ssh@*,ssh.socket,sshd-*,systemd-hwdb-update.service,ldconfig.service,systemd-update-done.service,systemd-sysusers.service,systemd-journal-flush.service,systemd-journal-catalog-update.service,systemd-hibernate*,systemd-boot-*,systemd-growfs*,systemd-remount-fs.service,systemd-binfmt.service,dm-event.*,debug-shell.service}",
  "usr/lib/systemd/system/sockets.target.wants/systemd-{creds,hostnamed,initctl,pcr*,sysext}.socket",
  "usr/lib/udev/rules.d/{60-cdrom_id,60-infiniband,60-persistent-alsa,60-persistent-storage-{mtd,tape},60-sensor,60-tpm-udev,64-btrfs,70-{camera,joystick,memory,mouse,touchpad},75-probe_mtd,78-sound-card,96-e2scrub}.rules",
  "usr/lib/systemd/{catalog,systemd-hibernate-resume,systemd-pcr*,systemd-sysupdate,systemd-coredump}",
  "usr/{games,include,src,local}",
  "etc/{apt,dpkg,init.d,rc*.d,cron*,logrotate.d,initramfs-tools,kernel,ufw,update-motd.d,sv,runit,debconf.conf,adduser.conf,deluser.conf,ucf.conf,dhcp,ifplugd,network,resolv.conf,machine-id,hostname,fstab,xdg,gss,X11,e2scrub.conf,depmod.d,binfmt.d,containerd,motd}",
  "boot/{System.map,config,initrd}*",
  "dev/*",
  "var/{cache,lib,log,backups,spool,tmp,local,mail,opt}/*",
  "usr/lib/modules/*/{build,source}",
  // Hardware that no board of ours has.
  "usr/lib/modules/*/kernel/{sound,arch/x86/kvm,drivers/{infiniband,media,isdn,parport,pcmcia,comedi,fpga,accessibility,accel,ntb,vdpa,gnss,greybus,mfd/cros*,atm,block/drbd,edac,firewire,hid/intel*,isdn,memstick,message,misc/{mei,vmw*,habanalabs},nvdimm,platform/x86,ptp,staging,target,thunderbolt,video,xen}}",
  "usr/lib/modules/*/kernel/drivers/{input/{joystick,tablet,gameport,touchscreen},iio,leds,mtd,power,rapidio,scsi/{qla*,lpfc,mpt3sas,bfa,megaraid*,aacraid,hisi_sas,be2iscsi,bnx2*,cxgb*,qed*,mpi3mr,smartpqi,aic*,csiostor,elx,fcoe,fnic,snic,isci,libfc,libsas,mvsas,pm8001,arcmsr,sym53c8xx_2,scsi_transport_*,3w-*,advansys*,am53c974*,dc395x*,esas2r,hpsa*,hptiop*,initio*,ipr*,ips*,pmcraid*,stex*,wd719x*,xen*,vmw*,mvumi*,myr*},infiniband}",
  "usr/lib/modules/*/kernel/fs/{xfs,btrfs,gfs2,ocfs2,f2fs,jfs,reiserfs,ceph,dlm,udf,ubifs,jffs2,nilfs2,smb,nfsd,orangefs,afs,9p,bcachefs,befs,bfs,coda,cramfs,efs,ecryptfs,erofs,freevxfs,hfs,hfsplus,hpfs,isofs,minix,omfs,pstore,qnx4,qnx6,romfs,sysv,ufs,zonefs,affs,adfs,quota}",
  "usr/lib/modules/*/kernel/net/{appletalk,atm,ax25,batman-adv,ceph,dccp,decnet,ieee802154,ipx,mac802154,mpls,mptcp,netrom,openvswitch,rds,rose,rxrpc,sctp,smc,sunrpc,tipc,x25,6lowpan,nfc,9p,hsr,l2tp,phonet,lapb,kcm,qrtr,vmw_vsock}",
  "usr/lib/modules/*/kernel/drivers/net/{wireless/{ath/{ath1*,wil6210},ti,marvell,quantenna,purelifi,silabs,st,rsi,zydas,atmel,intersil,admtek,legacy,ralink},ethernet/{mellanox,chelsio,qlogic,emulex,cisco,sfc,netronome,huawei,fungible,pensando,cavium,brocade,neterion,myricom,sun,3com,8390,dec,smsc,silan,sis,tehuti,toshiba,adaptec,agere,alacritech,alteon,amazon,ec_bhf*,google,micrel,microsoft,natsemi,packetengines,rdc,rocker,dlink,wangxun,engleder},fddi,hippi,arcnet,hamradio,can,wan,ppp,slip,wwan,vmxnet3,ieee802154,plip,caif,fjes}",
  "usr/lib/modules/*/kernel/drivers/gpu/drm/{amd,nouveau,radeon,i915,xe,gma500,ast,mgag200,vmwgfx,qxl,etnaviv,msm,nova,hyperv,ci,gud,udl,vboxvideo,tegra,rockchip,mediatek,exynos,panfrost,panthor,lima,hisilicon,imx,meson,amlogic,bridge,panel,sun4i,tidss,xlnx,rcar-du,renesas,arm,omapdrm,mxsfb,kmb,ingenic,stm,sti,loongson,solomon,sprd,verisilicon,aspeed,atmel-hlcdc,armada,fsl-dcu,pl111}",
];

/**
 * Removes what is not wanted of the extracted packages.
 * @param modules kernel modules that stay, as globs below the kernel's folder of modules
 */
export function pruneSystem(root: string, modules: readonly string[] = []): void {
  const kept = modules.flatMap((pattern) => globSync(`usr/lib/modules/*/kernel/${pattern}`, { cwd: root }));
  const aside = join(root, "kept-modules");
  const move = (from: string, to: string): void => {
    for (const path of kept) {
      mkdirSync(dirname(join(to, path)), { recursive: true });
      renameSync(join(from, path), join(to, path));
    }
  };
  move(root, aside);
  for (const pattern of UNUSED)
    for (const path of globSync(pattern, { cwd: root })) rmSync(join(root, path), { recursive: true, force: true });
  move(aside, root);
  rmSync(aside, { recursive: true, force: true });
}
export const PRUNE_RECIPE = UNUSED.join("\n");

export interface SystemParts {
  readonly board: Board;
  readonly flavour: Flavour;
  readonly version: string;
  /** PEM: updates must be signed by one that leads to it. */
  readonly keyring: string;
  /** picolet's own Debian package. */
  readonly deb: string;
  /** The program that reads picolet.yaml. */
  readonly firstBoot: string;
  /** An archive of the image that sandboxes are made of, for containers. */
  readonly pauseArchive: string | undefined;
}

/** Finishes the tree `root`, a folder of the tools' work, in place. */
export function finishSystem(tools: BuildTools, root: string, parts: SystemParts): void {
  const { board, flavour, version } = parts;
  const tree = join(tools.work, root);
  execFileSync("dpkg-deb", ["--extract", parts.deb, tree], { stdio: ["ignore", "ignore", "inherit"] });
  rmSync(join(tree, "usr/share/doc"), { recursive: true, force: true });
  rmSync(join(tree, "usr/share/man"), { recursive: true, force: true });
  mkdirSync(join(tree, "usr/lib/picolet-image"), { recursive: true });
  cpSync(parts.firstBoot, join(tree, "usr/lib/picolet-image/first-boot.cjs"));
  lay(own("tree"), tree);
  for (const each of [flavour, board.name]) if (existsSync(own(each))) lay(own(each), tree);
  if (parts.pauseArchive !== undefined) copyFileSync(parts.pauseArchive, join(tree, "usr/lib/picolet-image/pause.tar"));
  writeBoardFiles(tree, board, flavour, version, parts.keyring);
  writeAccounts(tools, root);
  finishWithTools(tools, root);
  writeCertificates(tree);
  linkBusybox(tree);
  for (const folder of PLACES) mkdirSync(join(tree, folder), { recursive: true });
}

/** Mount points, as the root cannot be written. */
const PLACES = [
  ...["data", "boot/picolet", "dev", "proc", "sys", "run", "tmp", "var", "root", "mnt", "home"],
  ...["etc/picolet", "etc/ssh/host-keys", "etc/systemd/network"],
];

/** Copies what a folder of this room has over the tree. What may be executed stays so. */
function lay(folder: string, tree: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isDirectory()) continue;
    const source = join(entry.parentPath, entry.name);
    const target = join(tree, source.slice(folder.length));
    mkdirSync(dirname(target), { recursive: true });
    rmSync(target, { force: true });
    cpSync(source, target, { verbatimSymlinks: true });
    if (entry.isFile()) chmodSync(target, modeOf(source));
  }
}

/** Modes of `tree/` by path: git keeps no more of them than whether a file may be executed. */
const MODES: readonly (readonly [RegExp, number])[] = [[/\/etc\/sudoers\.d\//, 0o440]];

const modeOf = (path: string): number =>
  MODES.find(([pattern]) => pattern.test(path))?.[1] ?? ((lstatSync(path).mode & 0o111) === 0 ? 0o644 : 0o755);

function writeBoardFiles(tree: string, board: Board, flavour: Flavour, version: string, keyring: string): void {
  const compatible = compatibleOf(board, flavour);
  const release = { VERSION: version, BOARD: board.name, FLAVOUR: flavour, COMPATIBLE: compatible };
  const lines = Object.entries(release).map(([name, value]) => `${name}=${value}\n`);
  const files = {
    "etc/picolet-release": lines.join(""),
    "etc/rauc/system.conf": raucConfiguration(compatible, existsSync(join(tree, AFTER_INSTALL))),
    "etc/rauc/keyring.pem": keyring,
    "etc/machine-id": "",
    "etc/fstab": "",
  };
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    writeFileSync(join(tree, path), content);
  }
  const links = {
    "etc/resolv.conf": "/run/systemd/resolve/resolv.conf",
    "etc/hostname": "/run/picolet-board/hostname",
    "etc/localtime": "/run/picolet-board/localtime",
    "etc/mtab": "../proc/self/mounts",
  };
  for (const [path, target] of Object.entries(links)) {
    rmSync(join(tree, path), { force: true });
    symlinkSync(target, join(tree, path));
  }
}

/** Boards whose kernel is outside of the slot's own partition have it. */
const AFTER_INSTALL = "usr/lib/picolet-image/after-install";

/** RAUC 1.13; docs of `system.conf`. Which slot boots is `boot-slots`'s business. */
const raucConfiguration = (compatible: string, hasAfterInstall: boolean): string => `[system]
compatible=${compatible}
bootloader=custom
# The boot check decides when the new system may boot.
activate-installed=false
bundle-formats=verity
data-directory=/data/rauc
max-bundle-download-size=1073741824

[handlers]
bootloader-custom-backend=/usr/lib/picolet-image/boot-slots
${hasAfterInstall ? `post-install=/${AFTER_INSTALL}\n` : ""}
[keyring]
path=/etc/rauc/keyring.pem
# A board without a clock may be older than the certificate when it starts.
use-bundle-signing-time=true

[slot.rootfs.0]
device=/run/picolet-disk/root-a
type=raw
bootname=A

[slot.rootfs.1]
device=/run/picolet-disk/root-b
type=raw
bootname=B
`;

/** Writes the accounts that the scripts of base-passwd and other packages would have made. */
function writeAccounts(tools: BuildTools, root: string): void {
  const tree = join(tools.work, root);
  const read = (name: string): string => readFileSync(join(tree, "usr/share/base-passwd", name), "utf8");
  const users = read("passwd.master").replaceAll(/:\*:/g, ":x:");
  writeFileSync(join(tree, "etc/passwd"), users);
  writeFileSync(join(tree, "etc/group"), read("group.master").replaceAll(/:\*:/g, ":x:"));
  const names = users.split("\n").filter((line) => line !== "");
  writeFileSync(join(tree, "etc/shadow"), names.map((line) => `${line.split(":")[0]}:*:19000:0:99999:7:::\n`).join(""));
  tools.run("systemd-sysusers", [`--root=${inside(tools, root)}`]);
  chmodSync(join(tree, "etc/shadow"), 0o640);
  for (const path of globSync("etc/{passwd,group,shadow,gshadow}-", { cwd: tree })) rmSync(join(tree, path));
  for (const path of globSync("etc/.pwd.lock", { cwd: tree })) rmSync(join(tree, path));
}

/** Absolute for the tools. */
const inside = (tools: BuildTools, root: string): string =>
  `/work/${tools.work.slice(tools.work.lastIndexOf("/") + 1)}/${root}`;

function finishWithTools(tools: BuildTools, root: string): void {
  const path = inside(tools, root);
  tools.run("depmod", ["-b", path, kernelVersion(join(tools.work, root))]);
  tools.run("systemd-hwdb", [`--root=${path}`, "--usr", "update"]);
  const tree = join(tools.work, root);
  nameSourcesAlike(tools, join(tree, "usr/lib/udev/hwdb.bin"));
  rmSync(join(tree, "usr/lib/udev/hwdb.d"), { recursive: true });
  tools.run("systemctl", [`--root=${path}`, "preset-all"]);
  // Units that other units or the settings of this image ask for.
  tools.run("systemctl", [`--root=${path}`, "set-default", "multi-user.target"]);
  tools.run("systemctl", [`--root=${path}`, "mask", ...MASKED]);
}

const MASKED = [
  ...["systemd-firstboot.service", "systemd-remount-fs.service"],
  // logind's, for screens, whose drivers udev loads where there is one.
  "modprobe@drm.service",
  // File systems that take kernel memory on every board, for tools that mount them themselves.
  ...["sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount", "dev-hugepages.mount"],
  ...["sys-fs-fuse-connections.mount", "proc-sys-fs-binfmt_misc.automount"],
];
/** The database names its sources, in a folder whose name is made by chance. */
function nameSourcesAlike(tools: BuildTools, path: string): void {
  const folder = tools.work.slice(tools.work.lastIndexOf("/") + 1);
  const text = readFileSync(path, "latin1").replaceAll(`/work/${folder}/`, `/work/${"-".repeat(folder.length)}/`);
  writeFileSync(path, text, "latin1");
}

/** The kernel's own name for its release, a folder of modules. */
export const kernelVersion = (tree: string): string => readdirSync(join(tree, "usr/lib/modules"))[0] ?? "";

/** ca-certificates' script would have joined them. */
function writeCertificates(tree: string): void {
  const folder = join(tree, "usr/share/ca-certificates");
  const names = globSync("**/*.crt", { cwd: folder }).sort();
  const all = names.map((name) => readFileSync(join(folder, name), "utf8").trimEnd());
  mkdirSync(join(tree, "etc/ssl/certs"), { recursive: true });
  writeFileSync(join(tree, "etc/ssl/certs/ca-certificates.crt"), `${all.join("\n")}\n`);
  rmSync(folder, { recursive: true });
}

/** Commands that no package of the image has. */
const APPLETS = [
  "clear",
  "cmp",
  "less",
  "more",
  "ping",
  "nslookup",
  "vi",
  "wget",
  "xz",
  "tar",
  "top",
  "awk",
  "ip",
  "diff",
  "which",
];

function linkBusybox(tree: string): void {
  for (const name of APPLETS)
    if (!["usr/bin", "usr/sbin"].some((folder) => existsSync(join(tree, folder, name))))
      symlinkSync("busybox", join(tree, "usr/bin", name));
  for (const name of [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
  ]) {
    const path = join(tree, "usr/sbin", name);
    if (existsSync(join(tree, "usr/sbin/xtables-nft-multi")) && !existsSync(path))
      symlinkSync("xtables-nft-multi", path);
  }
  if (!existsSync(join(tree, "usr/bin/sh"))) symlinkSync("dash", join(tree, "usr/bin/sh"));
}

/** Times and owners that do not depend on who builds, where and when. */
export function settleTree(tree: string, epoch: number): void {
  const entries = readdirSync(tree, { recursive: true, withFileTypes: true });
  for (const entry of entries.reverse()) lutimesSync(join(entry.parentPath, entry.name), epoch, epoch);
  lutimesSync(tree, epoch, epoch);
  lchownSync(tree, 0, 0);
}
