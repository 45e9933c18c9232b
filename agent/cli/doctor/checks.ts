/**
 * The checks of `edgectl doctor`: what a board needs beside the agent. To add one, write a function and put it into
 * `CHECKS`; it reads the machine through `BoardMachine` alone.
 */
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { RELEASED_AT_MS } from "@picolet/protocol/version.ts";
import type { BoardMachine } from "./board-machine.ts";

/** The fields of the agent's configuration that checks depend on. */
export interface BoardSettings {
  /** `containerRuntimeEndpoint`; "": the node runs components only. */
  readonly runtimeEndpoint: string;
  /** `hub.server`, all of them. */
  readonly hubs: readonly string[];
  /** `hub.proxy`; "": hubs are reached directly. */
  readonly proxy: string;
  readonly rootDir: string;
}

export interface Finding {
  /** "problem": pods, or the hub, do without something. "warning": the board works, but less well. */
  readonly state: "good" | "warning" | "problem";
  readonly message: string;
  /** The remedy for a person to apply; missing where all is good. */
  readonly advice?: string;
  readonly fix?: Fix;
}

export interface Fix {
  /** In the imperative: "add cgroup_enable=memory to /boot/firmware/cmdline.txt". */
  readonly what: string;
  readonly needsReboot?: boolean;
  /** @throws `failed` */
  readonly apply: () => void;
}

export interface Check {
  readonly name: string;
  readonly run: (machine: BoardMachine, settings: BoardSettings) => Finding | Promise<Finding>;
}

/** Evicting for disk begins near a tenth; half a GiB takes one image. */
const MIN_FREE_SHARE = 0.1;
const MIN_FREE_BYTES = 512 * MEBIBYTE;
const MIN_FREE_INODES = 10_000;
/** A tunnel works beyond it; exec and logs become tiresome. */
const SLOW_HUB_MS = 1000;
/** The ports of URLs that name none. */
const HTTPS_PORT = 443;
const HTTP_PORT = 80;
const MODULES_FILE = "/etc/modules-load.d/picolet.conf";
const SYSCTL_FILE = "/etc/sysctl.d/90-picolet.conf";
const CONTAINERD_CONFIG = "/etc/containerd/config.toml";
const CNI_FOLDER = "/etc/cni/net.d";
const CNI_CONFIG = `${CNI_FOLDER}/10-picolet.conflist`;
const CNI_PLUGINS = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
/** The Raspberry Pi's firmware reads one line from here. */
const COMMAND_LINES = ["/boot/firmware/cmdline.txt", "/boot/cmdline.txt"];

const good = (message: string): Finding => ({ state: "good", message });
const warning = (message: string, advice: string, fix?: Fix): Finding => found("warning", message, advice, fix);
const problem = (message: string, advice: string, fix?: Fix): Finding => found("problem", message, advice, fix);

const found = (state: Finding["state"], message: string, advice: string, fix: Fix | undefined): Finding =>
  fix === undefined ? { state, message, advice } : { state, message, advice, fix };

function checkKernel({ architecture, kernel }: BoardMachine): Finding {
  if (architecture !== "arm64" && architecture !== "x64")
    return problem(`${architecture} is no architecture of picolet`, "install a 64-bit system: arm64 or x86_64");
  const [major = 0, minor = 0] = kernel.split(".").map(Number);
  const text = `Linux ${kernel} on ${architecture}`;
  if (major > 5 || (major === 5 && minor >= 4)) return good(text);
  return problem(text, "use Linux 5.4 or later");
}

function checkCgroups({ exists, read }: BoardMachine): Finding {
  if (exists("/sys/fs/cgroup/cgroup.controllers")) return good("version 2");
  if (read("/proc/cgroups") === undefined)
    return problem("the kernel has none", "use a kernel with CONFIG_CGROUPS: no pod can be limited without");
  return warning("version 1", "boot with systemd.unified_cgroup_hierarchy=1: version 2 protects requests of memory");
}

function checkMemoryCgroup(machine: BoardMachine): Finding {
  if (hasMemoryController(machine)) return good("the memory controller is on");
  const path = COMMAND_LINES.find((each) => machine.exists(each));
  const advice = "add cgroup_enable=memory to the kernel's command line, and reboot";
  if (path === undefined) return problem("the memory controller is off", advice);
  const line = machine.read(path)?.trim() ?? "";
  if (/\bcgroup_enable=memory\b/.test(line))
    return problem("the memory controller is off until the next boot", "reboot");
  return problem("the memory controller is off", advice, {
    what: `add cgroup_enable=memory to ${path}`,
    needsReboot: true,
    apply: () => machine.write(path, `${line.replace(/ ?\bcgroup_disable=memory\b/, "")} cgroup_enable=memory\n`),
  });
}

function hasMemoryController({ read }: BoardMachine): boolean {
  const controllers = read("/sys/fs/cgroup/cgroup.controllers");
  if (controllers !== undefined) return controllers.split(/\s+/).includes("memory");
  return /^memory\s+\d+\s+\d+\s+1$/m.test(read("/proc/cgroups") ?? "");
}

async function checkRuntime(machine: BoardMachine, { runtimeEndpoint }: BoardSettings): Promise<Finding> {
  if (runtimeEndpoint === "") return good("none is configured: this node runs components only");
  const path = runtimeEndpoint.replace(/^unix:\/\//, "");
  const config = machine.read(CONTAINERD_CONFIG);
  const disabled = /^\s*disabled_plugins\s*=\s*\[[^\]]*"(?:io\.containerd\.grpc\.v1\.)?cri"[^\]]*\]/m;
  if (path.includes("containerd") && config !== undefined && disabled.test(config)) {
    return problem(`CRI is switched off in ${CONTAINERD_CONFIG}`, "Docker's package does so; switch it on", {
      what: `take "cri" out of disabled_plugins in ${CONTAINERD_CONFIG}, and restart containerd`,
      apply: () => {
        const withCri = (line: string): string => line.replace(/\s*"(?:io\.containerd\.grpc\.v1\.)?cri"\s*,?/, "");
        machine.write(CONTAINERD_CONFIG, config.replace(disabled, withCri));
        machine.output("systemctl", "restart", "containerd");
      },
    });
  }
  const answer = await machine.dial({ path });
  if (typeof answer === "number") return good(`${path} answers`);
  return problem(
    `nothing answers at ${path}: ${answer}`,
    'install containerd and runc, or set containerRuntimeEndpoint: "" for components only',
  );
}

function checkNetwork(machine: BoardMachine, { runtimeEndpoint }: BoardSettings): Finding {
  if (runtimeEndpoint === "") return good("containers have no network here: there is no runtime");
  const folder = CNI_PLUGINS.find((each) => machine.exists(`${each}/loopback`));
  if (folder === undefined)
    return problem("there are no CNI plugins", "install containernetworking-plugins: no pod starts without a network");
  const configured = machine
    .list(CNI_FOLDER)
    .filter((name) => /\.(?:conf|conflist|json)$/.test(name))
    .sort();
  if (configured[0] !== undefined) return good(`${CNI_FOLDER}/${configured[0]}, plugins in ${folder}`);
  const fix = { what: `write ${CNI_CONFIG}, a bridge on 10.88.0.0/16`, apply: () => machine.write(CNI_CONFIG, BRIDGE) };
  return problem(`there is no network in ${CNI_FOLDER}`, "write one, or install one with a network add-on", fix);
}

/** A network of this node alone, as a bridge; pods reach out through it. */
const BRIDGE = `${JSON.stringify(
  {
    cniVersion: "0.4.0",
    name: "picolet",
    plugins: [
      {
        ...{ type: "bridge", bridge: "cni0", isGateway: true, ipMasq: true, hairpinMode: true },
        ipam: { type: "host-local", ranges: [[{ subnet: "10.88.0.0/16" }]], routes: [{ dst: "0.0.0.0/0" }] },
      },
      { type: "portmap", capabilities: { portMappings: true } },
    ],
  },
  undefined,
  2,
)}\n`;

function checkModules(machine: BoardMachine, { runtimeEndpoint }: BoardSettings): Finding {
  if (runtimeEndpoint === "") return good("components need none");
  const missing = [
    ...(/^nodev\toverlay$/m.test(machine.read("/proc/filesystems") ?? "") ? [] : ["overlay"]),
    ...(machine.exists("/proc/sys/net/bridge") ? [] : ["br_netfilter"]),
  ];
  if (missing.length === 0) return good("overlay and br_netfilter are there");
  return problem(`missing: ${missing.join(", ")}`, `modprobe ${missing.join(" && modprobe ")}`, {
    what: `load ${missing.join(" and ")} now and at each boot (${MODULES_FILE})`,
    apply: () => {
      machine.write(MODULES_FILE, "overlay\nbr_netfilter\n");
      for (const module of missing) machine.output("modprobe", module);
    },
  });
}

function checkForwarding(machine: BoardMachine, { runtimeEndpoint }: BoardSettings): Finding {
  if (runtimeEndpoint === "") return good("components need none");
  if (machine.read("/proc/sys/net/ipv4/ip_forward")?.trim() === "1") return good("on");
  return problem("off: no pod reaches beyond this node", "sysctl -w net.ipv4.ip_forward=1", {
    what: `switch it on now and at each boot (${SYSCTL_FILE})`,
    apply: () => {
      machine.write(SYSCTL_FILE, "net.ipv4.ip_forward = 1\n");
      machine.output("sysctl", "-q", "-p", SYSCTL_FILE);
    },
  });
}

function checkUserNamespaces({ read }: BoardMachine): Finding {
  if (Number(read("/proc/sys/user/max_user_namespaces") ?? 0) > 0) return good("allowed");
  return warning("not allowed", "set user.max_user_namespaces above 0: components are isolated less without them");
}

function checkClock(machine: BoardMachine): Finding {
  const shown = new Date(machine.now()).toISOString();
  if (machine.now() < RELEASED_AT_MS)
    return problem(
      `${shown} is in the past`,
      "set the clock, or let a time server do it: certificates are judged by it",
    );
  const synchronized = machine.output("timedatectl", "show", "--property=NTPSynchronized", "--value")?.trim();
  if (synchronized !== "no") return good(synchronized === "yes" ? `${shown}, by a time server` : shown);
  return warning(`${shown}, by no time server`, "timedatectl set-ntp true", {
    what: "let a time server set it",
    apply: () => void machine.output("timedatectl", "set-ntp", "true"),
  });
}

function checkDisk(machine: BoardMachine, { rootDir }: BoardSettings): Finding {
  const path = [rootDir, "/var/lib", "/"].find((each) => machine.exists(each)) ?? "/";
  const free = machine.freeSpace(path);
  if (free === undefined) return warning(`${path} cannot be measured`, "see whether its file system is mounted");
  const share = Math.round((free.bytes / Math.max(1, free.totalBytes)) * 100);
  const text = `${Math.floor(free.bytes / MEBIBYTE)} MiB free on ${path} (${share} %)`;
  if (free.bytes < MIN_FREE_BYTES || free.bytes < free.totalBytes * MIN_FREE_SHARE)
    return warning(text, "make room: pods are evicted when less than a tenth is free");
  // btrfs and others count none.
  if (free.inodes > 0 && free.inodes < MIN_FREE_INODES)
    return warning(`${text}, ${free.inodes} inodes`, "make room: an image has thousands of files");
  return good(text);
}

function checkSwap({ read }: BoardMachine): Finding {
  const devices = (read("/proc/swaps") ?? "").trim().split("\n").slice(1);
  const onDisk = devices.filter((line) => !line.startsWith("/dev/zram"));
  if (devices.length === 0) return good("none");
  if (onDisk.length === 0) return good("zram alone");
  const names = onDisk.map((line) => line.split(/\s+/)[0]).join(", ");
  return warning(`${names} is on a disk`, "use zram: swap wears flash, and a thrashing node answers no hub");
}

async function checkHub(machine: BoardMachine, { hubs, proxy }: BoardSettings): Promise<Finding> {
  if (hubs.length === 0) return good("none is configured: this node runs static pods");
  if (proxy !== "") return await checkProxy(machine, proxy);
  const failures: string[] = [];
  for (const server of hubs) {
    const url = URL.canParse(server) ? new URL(server) : undefined;
    if (url === undefined) {
      failures.push(`${server} is no URL`);
      continue;
    }
    const port = Number(url.port || HTTPS_PORT);
    const answer = await machine.dial({ host: url.hostname.replace(/^\[|\]$/g, ""), port });
    if (typeof answer === "string") failures.push(`${server}: ${answer}`);
    else if (answer > SLOW_HUB_MS)
      return warning(`${server} answers after ${Math.round(answer)} ms`, "exec and logs will be slow");
    else return good(`${server} answers after ${Math.round(answer)} ms`);
  }
  return problem(
    failures.join("; "),
    "see whether the name is right, and whether a firewall lets TCP out to that port",
  );
}

/** Dials the proxy alone: `edgectl status` shows whether it lets the board through to the hub. */
async function checkProxy(machine: BoardMachine, text: string): Promise<Finding> {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined) return problem("hub.proxy is no URL", "write it as http://proxy.example:3128");
  const port = Number(url.port || HTTP_PORT);
  const answer = await machine.dial({ host: url.hostname.replace(/^\[|\]$/g, ""), port });
  const name = `the proxy ${url.hostname}:${port}`;
  if (typeof answer === "string") return problem(`${name}: ${answer}`, "see whether hub.proxy is right");
  return good(`${name} on the way to it answers after ${Math.round(answer)} ms`);
}

/** The TPM that other programs can use too. */
const TPM = "/dev/tpmrm0";
const KEY_PLACES: Readonly<Record<string, string>> = {
  tpm2: "in the TPM 2.0",
  "systemd-creds": "a credential of systemd",
  "rpi-otp": "in the Raspberry Pi's OTP",
  file: "a file",
};

function checkSecrets(machine: BoardMachine, { rootDir }: BoardSettings): Finding {
  const provider = keyProviderIn(machine.read(`${rootDir}/store-keys.json`));
  const hasTpm = machine.exists(TPM);
  if (provider === undefined) return good(`no key is stored yet${hasTpm ? "; the TPM 2.0 will hold it" : ""}`);
  const place = `their key is ${KEY_PLACES[provider.kind] ?? provider.kind}`;
  const isInTpm = provider.kind === "tpm2" || provider.boundTo === "host+tpm2";
  if (isInTpm && !hasTpm)
    return problem(`${place}, and there is no ${TPM}`, "see whether the firmware's setup has switched the TPM off");
  if (isInTpm) return good(provider.kind === "tpm2" ? place : `${place}, bound to the TPM 2.0`);
  if (!hasTpm) return good(place);
  return warning(
    `${place}, and this board has a TPM 2.0`,
    "install tpm2-tools, and set secretsAtRest: {keyProvider: tpm2} in the configuration: a stolen disk has the key",
  );
}

/** The provider that the key file names; the agent alone verifies the file. */
function keyProviderIn(text: string | undefined): { readonly kind: string; readonly boundTo?: string } | undefined {
  try {
    const { provider } = JSON.parse(text ?? "null") ?? {};
    return typeof provider?.kind === "string" ? provider : undefined;
  } catch {
    return undefined;
  }
}

export const CHECKS: readonly Check[] = [
  { name: "kernel", run: checkKernel },
  { name: "cgroups", run: checkCgroups },
  { name: "memory cgroup", run: checkMemoryCgroup },
  { name: "runtime", run: checkRuntime },
  { name: "pod network", run: checkNetwork },
  { name: "kernel modules", run: checkModules },
  { name: "forwarding", run: checkForwarding },
  { name: "user namespaces", run: checkUserNamespaces },
  { name: "clock", run: checkClock },
  { name: "disk", run: checkDisk },
  { name: "swap", run: checkSwap },
  { name: "stored Secrets", run: checkSecrets },
  { name: "hub", run: checkHub },
];
