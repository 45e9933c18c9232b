import assert from "node:assert/strict";
import { test } from "node:test";
import { GIBIBYTE } from "@picolet/protocol/units.ts";
import { RELEASED_AT_MS } from "@picolet/protocol/version.ts";
import type { BoardMachine, DialTarget, FreeSpace } from "./board-machine.ts";
import { type BoardSettings, CHECKS, type Finding } from "./checks.ts";

const COMMAND_LINE = "/boot/firmware/cmdline.txt";
const CONTAINERD = "/etc/containerd/config.toml";

/** A board whose files are a map. */
class FakeMachine implements BoardMachine {
  architecture = "arm64";
  kernel = "6.12.47+rpt-rpi-v8";
  wall = RELEASED_AT_MS + 1000;
  space: FreeSpace | undefined = { bytes: 20 * GIBIBYTE, totalBytes: 32 * GIBIBYTE, inodes: 1_000_000 };
  answers: (target: DialTarget) => number | string = () => 12;
  readonly programs = new Map<string, string>([["timedatectl show --property=NTPSynchronized --value", "yes\n"]]);
  readonly ran: string[] = [];
  readonly files = new Map<string, string>([
    ["/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"],
    ["/usr/lib/cni/loopback", ""],
    ["/etc/cni/net.d/10-bridge.conflist", "{}"],
    ["/proc/filesystems", "nodev\tsysfs\nnodev\toverlay\n\text4\n"],
    ["/proc/sys/net/bridge", ""],
    ["/proc/sys/net/ipv4/ip_forward", "1\n"],
    ["/proc/sys/user/max_user_namespaces", "15000\n"],
    ["/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n"],
    ["/var/lib", ""],
  ]);
  now = (): number => this.wall;
  read = (path: string): string | undefined => this.files.get(path);
  list = (path: string): readonly string[] =>
    [...this.files.keys()].filter((each) => each.startsWith(`${path}/`)).map((each) => each.slice(path.length + 1));
  exists = (path: string): boolean => this.files.has(path);
  freeSpace = (): FreeSpace | undefined => this.space;
  output = (...words: readonly string[]): string | undefined => {
    this.ran.push(words.join(" "));
    return this.programs.get(words.join(" "));
  };
  dial = (target: DialTarget): Promise<number | string> => Promise.resolve(this.answers(target));
  write = (path: string, content: string): void => void this.files.set(path, content);
}

const SETTINGS: BoardSettings = {
  runtimeEndpoint: "unix:///run/containerd/containerd.sock",
  hubs: ["https://hub.example:10270"],
  proxy: "",
  rootDir: "/var/lib/picolet",
};

async function finding(name: string, machine: FakeMachine, settings: BoardSettings = SETTINGS): Promise<Finding> {
  const check = CHECKS.find((each) => each.name === name);
  assert.ok(check !== undefined, name);
  return await check.run(machine, settings);
}

test("a board that has all is good, with containers and with components only", async () => {
  for (const settings of [SETTINGS, { ...SETTINGS, runtimeEndpoint: "", hubs: [] }])
    for (const { name, run } of CHECKS) assert.equal((await run(new FakeMachine(), settings)).state, "good", name);
});

const BROKEN: readonly (readonly [string, Finding["state"], RegExp, (machine: FakeMachine) => void])[] = [
  ["kernel", "problem", /arm is no architecture/, (machine) => void Object.assign(machine, { architecture: "arm" })],
  ["kernel", "problem", /Linux 4\.19/, (machine) => void Object.assign(machine, { kernel: "4.19.0" })],
  ["cgroups", "problem", /has none/, (machine) => void machine.files.delete("/sys/fs/cgroup/cgroup.controllers")],
  ["memory cgroup", "problem", /is off/, (machine) => memoryOff(machine)],
  [
    "runtime",
    "problem",
    /nothing answers at .*ENOENT/,
    (machine) => void Object.assign(machine, { answers: () => "ENOENT" }),
  ],
  ["pod network", "problem", /no CNI plugins/, (machine) => void machine.files.delete("/usr/lib/cni/loopback")],
  ["kernel modules", "problem", /missing: overlay/, (machine) => void machine.files.set("/proc/filesystems", "ext4\n")],
  ["forwarding", "problem", /off/, (machine) => void machine.files.set("/proc/sys/net/ipv4/ip_forward", "0\n")],
  [
    "user namespaces",
    "warning",
    /not allowed/,
    (machine) => void machine.files.delete("/proc/sys/user/max_user_namespaces"),
  ],
  ["clock", "problem", /in the past/, (machine) => void Object.assign(machine, { wall: RELEASED_AT_MS - 1 })],
  [
    "disk",
    "warning",
    /100 MiB free/,
    (machine) => void Object.assign(machine, { space: { bytes: 100 * 1024 ** 2, totalBytes: GIBIBYTE, inodes: 9 } }),
  ],
  [
    "disk",
    "warning",
    /5000 inodes/,
    (machine) =>
      void Object.assign(machine, { space: { bytes: 9 * GIBIBYTE, totalBytes: 9 * GIBIBYTE, inodes: 5000 } }),
  ],
  ["swap", "warning", /\/dev\/mmcblk0p3 is on a disk/, (machine) => swapOn(machine)],
  [
    "hub",
    "problem",
    /hub\.example:10270: ECONNREFUSED/,
    (machine) => void Object.assign(machine, { answers: () => "ECONNREFUSED" }),
  ],
  ["hub", "warning", /answers after 2500 ms/, (machine) => void Object.assign(machine, { answers: () => 2500 })],
];

const KEYS = "/var/lib/picolet/store-keys.json";

for (const [provider, hasTpm, state, message] of [
  [undefined, false, "good", /^no key is stored yet$/],
  [undefined, true, "good", /the TPM 2\.0 will hold it/],
  [{ kind: "tpm2" }, true, "good", /^their key is in the TPM 2\.0$/],
  [{ kind: "tpm2" }, false, "problem", /there is no \/dev\/tpmrm0/],
  [{ kind: "systemd-creds", boundTo: "host+tpm2" }, true, "good", /bound to the TPM/],
  [{ kind: "systemd-creds", boundTo: "host" }, true, "warning", /credential of systemd, and this board has a TPM/],
  [{ kind: "systemd-creds", boundTo: "host" }, false, "good", /^their key is a credential of systemd$/],
  [{ kind: "file" }, true, "warning", /a file, and this board has a TPM/],
] as const)
  test(`stored Secrets: ${JSON.stringify(provider)} with${hasTpm ? "" : "out"} a TPM`, async () => {
    const machine = new FakeMachine();
    if (provider !== undefined) machine.files.set(KEYS, JSON.stringify({ version: 1, provider }));
    if (hasTpm) machine.files.set("/dev/tpmrm0", "");
    const found = await finding("stored Secrets", machine);
    assert.equal(found.state, state);
    assert.match(found.message, message);
    assert.equal(found.advice === undefined, state === "good");
  });

test("stored Secrets: a key file that is cut off is the agent's business", async () => {
  const machine = new FakeMachine();
  machine.files.set(KEYS, '{"version": 1, "prov');
  assert.equal((await finding("stored Secrets", machine)).state, "good");
});

function memoryOff(machine: FakeMachine): void {
  machine.files.set("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n");
}

function swapOn(machine: FakeMachine): void {
  machine.files.set("/proc/swaps", "Filename\tType\n/dev/zram0 partition\n/dev/mmcblk0p3 partition 100\n");
}

for (const [name, state, message, breakIt] of BROKEN)
  test(`${name}: ${message.source}`, async () => {
    const machine = new FakeMachine();
    breakIt(machine);
    const found = await finding(name, machine);
    assert.equal(found.state, state);
    assert.match(found.message, message);
    assert.ok((found.advice ?? "").length > 10, "it says what to do");
  });

test("a Raspberry Pi's command line gets the memory cgroup on its one line, once", async () => {
  const machine = new FakeMachine();
  memoryOff(machine);
  machine.files.set(COMMAND_LINE, "console=serial0,115200 cgroup_disable=memory root=PARTUUID=1-02 rootwait\n");
  const { fix } = await finding("memory cgroup", machine);
  assert.equal(fix?.needsReboot, true);
  fix?.apply();
  assert.equal(machine.read(COMMAND_LINE), "console=serial0,115200 root=PARTUUID=1-02 rootwait cgroup_enable=memory\n");
  const again = await finding("memory cgroup", machine);
  assert.match(again.message, /until the next boot/);
  assert.equal(again.fix, undefined);
});

for (const [before, after] of [
  ['disabled_plugins = ["cri"]', "disabled_plugins = []"],
  ['disabled_plugins = ["cri", "aufs"]', 'disabled_plugins = [ "aufs"]'],
  ['disabled_plugins = [\n  "aufs",\n  "io.containerd.grpc.v1.cri",\n]', 'disabled_plugins = [\n  "aufs",\n]'],
] as const)
  test(`Docker's containerd gets its CRI back: ${JSON.stringify(before)}`, async () => {
    const machine = new FakeMachine();
    machine.files.set(CONTAINERD, `version = 2\n${before}\n[plugins]\n`);
    const { state, fix } = await finding("runtime", machine);
    assert.equal(state, "problem");
    fix?.apply();
    assert.equal(machine.read(CONTAINERD), `version = 2\n${after}\n[plugins]\n`);
    assert.deepEqual(machine.ran, ["systemctl restart containerd"]);
    assert.equal((await finding("runtime", machine)).state, "good");
  });

test("a node without a network gets a bridge, which is valid JSON and nothing else is touched", async () => {
  const machine = new FakeMachine();
  machine.files.delete("/etc/cni/net.d/10-bridge.conflist");
  const { fix } = await finding("pod network", machine);
  const before = [...machine.files.keys()];
  fix?.apply();
  assert.deepEqual([...machine.files.keys()], [...before, "/etc/cni/net.d/10-picolet.conflist"]);
  assert.equal(JSON.parse(machine.read("/etc/cni/net.d/10-picolet.conflist") ?? "").plugins[0].type, "bridge");
  assert.equal((await finding("pod network", machine)).state, "good");
});

test("modules and forwarding are switched on now, and at each boot", async () => {
  const machine = new FakeMachine();
  machine.files.delete("/proc/sys/net/bridge");
  machine.files.set("/proc/sys/net/ipv4/ip_forward", "0\n");
  (await finding("kernel modules", machine)).fix?.apply();
  (await finding("forwarding", machine)).fix?.apply();
  assert.equal(machine.read("/etc/modules-load.d/picolet.conf"), "overlay\nbr_netfilter\n");
  assert.equal(machine.read("/etc/sysctl.d/90-picolet.conf"), "net.ipv4.ip_forward = 1\n");
  assert.deepEqual(machine.ran, ["modprobe br_netfilter", "sysctl -q -p /etc/sysctl.d/90-picolet.conf"]);
});

test("where a proxy leads to the hub it is the proxy that is dialled", async () => {
  const machine = new FakeMachine();
  const dialled: DialTarget[] = [];
  machine.answers = (target) => {
    dialled.push(target);
    return dialled.length === 1 ? 20 : "ETIMEDOUT";
  };
  const proxied = { ...SETTINGS, proxy: "http://me:secret@proxy.example" };
  const [there, gone] = [await finding("hub", machine, proxied), await finding("hub", machine, proxied)];
  assert.deepEqual([there.state, gone.state], ["good", "problem"]);
  assert.match(`${there.message} ${gone.message}`, /^the proxy proxy\.example:80 .*20 ms the proxy .*: ETIMEDOUT$/);
  assert.deepEqual(new Set(dialled.map((each) => JSON.stringify(each))).size, 1);
});

test("of several hubs one that answers is enough, and each is dialled at its own port", async () => {
  const machine = new FakeMachine();
  const dialled: DialTarget[] = [];
  machine.answers = (target) => {
    dialled.push(target);
    return dialled.length === 1 ? "ETIMEDOUT" : 20;
  };
  const hubs = ["https://[2001:db8::1]:10270", "wss://other.example"];
  assert.equal((await finding("hub", machine, { ...SETTINGS, hubs })).state, "good");
  assert.deepEqual(dialled, [
    { host: "2001:db8::1", port: 10270 },
    { host: "other.example", port: 443 },
  ]);
});
