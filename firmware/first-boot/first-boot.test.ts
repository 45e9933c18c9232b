/** The first boot on real files, in a folder that stands for the board's disk. */
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CA_HASH, cutAfter, PowerCut, TestBoard, TOKEN } from "@picolet/test/support/unit/firmware/test-board.ts";
import { boardReport, earlyReport } from "./board-report.ts";
import { firstBoot } from "./first-boot.ts";

const FILE = `# my board
hub:
  server: hub.example.com
  token: ${TOKEN} # for ten boards
  caHash: ${CA_HASH}
  proxy: http://board:secret@proxy.example:3128
node:
  nameRule: edge-{serial:8}
  labels: {rack: "7", answer: "yes"}
  taints: [{key: edge, effect: NoSchedule}]
network:
  ethernet: {address: 192.168.1.20/24, gateway: 192.168.1.1, dns: [192.168.1.1]}
  vlans: [{id: 7}]
  wifi: [{ssid: 'Home "x"', password: 'pa"ss word', country: DE}]
time: {servers: [ntp.example.com], zone: Europe/Berlin}
proxy: {httpProxy: "http://user:pa$s@proxy.example:3128", noProxy: [10.0.0.0/8, localhost]}
ssh: {authorizedKeys: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBhBW1Dv5Gyu0AM0FWzkQhAUHHMO4oVGYjIVQ5vSCL2l owner", access: operate}
registries: [{host: "registry.example:5000", mirrors: ["http://10.0.0.2:5000"], username: me, password: secret}]
staticPods:
  - {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: nginx}]}}
console: {login: off, access: admin}
watchdog: {timeout: 10s}
config: {maxPods: 20}
`;
/** Each change of it is cut: one file of each kind is enough. */
const SHORT = `hub: {server: a, token: ${TOKEN}, caHash: "${CA_HASH}"}
node: {nameRule: "edge-{mac:6}"}
staticPods:
  - {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: nginx}]}}
`;
const OTHER = `node: {name: other}\nstaticPods:\n  - {apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {containers: [{name: c, image: db}]}}\n`;
const IDENTITY = "/var/lib/picolet/identity/identity.pem";

test("a board gets all that its file says, secrets for root alone", async () => {
  using board = new TestBoard(FILE);
  const { findings, hostname } = await firstBoot(board.board());
  assert.deepEqual(findings, {
    ...{ result: "applied", problems: [], notes: [], nodeName: "edge-deadbeef" },
    hub: "https://hub.example.com:10270",
  });
  assert.equal(hostname, "edge-deadbeef");
  assert.equal(
    board.read("/etc/picolet/config.yaml"),
    [
      "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 20\nnodeName: edge-deadbeef\nhub:",
      "  server: https://hub.example.com:10270\n  tokenFile: /etc/picolet/join-token",
      `  caHash: ${CA_HASH}\n  proxy: http://board:secret@proxy.example:3128\nnodeLabels:\n  rack: "7"\n  answer: "yes"`,
      "registerWithTaints:\n  - key: edge\n    effect: NoSchedule\nwasm:\n  registries:\n    - host: registry.example:5000",
      "      mirrors:\n        - http://10.0.0.2:5000\n  proxy:\n    httpProxy: http://user:pa$s@proxy.example:3128\n    noProxy: 10.0.0.0/8,localhost\n",
    ].join("\n"),
  );
  assert.equal(board.read("/etc/picolet/join-token"), `${TOKEN}\n`);
  assert.equal(JSON.parse(board.read("/etc/picolet/manifests/first-boot-default-web.yaml")).metadata.name, "web");
  assert.deepEqual(JSON.parse(board.read("/var/lib/picolet/config.json")), {
    auths: { "registry.example:5000": { auth: "bWU6c2VjcmV0" } },
  });
  const run = Object.fromEntries(
    Object.entries(board.tree("/run")).filter(([path]) => !path.endsWith("findings.json")),
  );
  assert.deepEqual(run, {
    "/run/picolet-board/authorized_keys":
      "644 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBhBW1Dv5Gyu0AM0FWzkQhAUHHMO4oVGYjIVQ5vSCL2l owner\n",
    "/run/picolet-board/certs.d/registry.example:5000/hosts.toml":
      '644 server = "https://registry.example:5000"\n\n[host."http://10.0.0.2:5000"]\n  capabilities = ["pull", "resolve"]\n\n[host."https://registry.example:5000"]\n  capabilities = ["pull", "resolve"]\n',
    "/run/picolet-board/console-access": "644 admin\n",
    "/run/picolet-board/console-off": "644 console.login is false in picolet.yaml\n",
    "/run/picolet-board/hostname": "644 edge-deadbeef\n",
    "/run/picolet-board/proxy.env":
      '600 HTTP_PROXY="http://user:pa\\$s@proxy.example:3128"\nNO_PROXY="10.0.0.0/8,localhost"\n',
    "/run/picolet-board/ssh-access": "644 operate\n",
    "/run/picolet-board/wpa_supplicant.conf":
      '600 country=DE\nupdate_config=0\nnetwork={\n\tssid=486f6d6520227822\n\tkey_mgmt=WPA-PSK WPA-PSK-SHA256 SAE\n\tpsk="pa"ss word"\n\tieee80211w=1\n\tpriority=1\n}\n',
    "/run/picolet-board/zone": "644 Europe/Berlin\n",
    "/run/systemd/network/50-picolet-ethernet.network":
      "644 [Match]\nName=en* eth* end*\nType=ether\n\n[Network]\nVLAN=vlan7\nDHCP=no\nAddress=192.168.1.20/24\nDNS=192.168.1.1\n\n[Route]\nGateway=192.168.1.1\n",
    "/run/systemd/network/50-picolet-vlan7.netdev": "644 [NetDev]\nName=vlan7\nKind=vlan\n\n[VLAN]\nId=7\n",
    "/run/systemd/network/50-picolet-vlan7.network":
      "644 [Match]\nName=vlan7\n\n[Network]\nDHCP=yes\n\n[DHCPv4]\nUseHostname=no\n",
    "/run/systemd/network/50-picolet-wifi-00.network":
      '644 [Match]\nWLANInterfaceType=station\nSSID="Home \\"x\\""\n\n[Network]\nDHCP=yes\n\n[DHCPv4]\nUseHostname=no\nRouteMetric=600\n',
    "/run/systemd/system.conf.d/50-picolet.conf": "644 [Manager]\nRuntimeWatchdogSec=10s\n",
    "/run/systemd/timesyncd.conf.d/50-picolet.conf": "644 [Time]\nNTP=ntp.example.com\n",
  });
  for (const secret of ["config.yaml", "join-token", "manifests/first-boot-default-web.yaml"])
    assert.equal(board.mode(`/etc/picolet/${secret}`), 0o600);
  assert.equal(board.mode("/var/lib/picolet/config.json"), 0o600);
});

test("an unchanged file is not applied again, and what is kept comes back into an empty /run", async () => {
  using board = new TestBoard(FILE);
  await firstBoot(board.board());
  const [disk, run] = [board.disk(), board.tree("/run/systemd")];
  rmSync(join(board.root, "run"), { recursive: true });
  const written: string[] = [];
  const { findings } = await firstBoot(
    board.board((files) => ({
      ...{ read: files.read.bind(files), modeOf: files.modeOf.bind(files), list: files.list.bind(files) },
      ...{ isFolder: files.isFolder.bind(files), makeFolder: files.makeFolder.bind(files) },
      ...{ link: files.link.bind(files), rename: files.rename.bind(files), remove: files.remove.bind(files) },
      syncFolder: files.syncFolder.bind(files),
      write: (path, content, mode) => {
        written.push(path);
        files.write(path, content, mode);
      },
    })),
  );
  assert.equal(findings.result, "unchanged");
  assert.deepEqual(board.disk(), disk);
  assert.deepEqual(board.tree("/run/systemd"), run);
  assert.deepEqual(
    written.filter((path) => !path.startsWith("/run/")),
    [],
  );
});

test("a wrong file changes nothing that ran before", async () => {
  using board = new TestBoard(FILE);
  await firstBoot(board.board());
  const { boot: _, ...before } = { ...board.tree("/data"), ...board.tree("/etc"), boot: "" };
  board.write("/boot/picolet/picolet.yaml", FILE.replace("caHash", "cahash"));
  const { findings } = await firstBoot(board.board());
  assert.equal(findings.result, "refused");
  assert.deepEqual(findings.problems, [
    "line 2: hub.caHash: Required value: a token is shown only to a hub that is known by its CA: caHash or caFile",
    "line 5: hub.cahash: Unknown field, did you mean caHash?",
  ]);
  assert.equal(findings.nodeName, "edge-deadbeef");
  assert.deepEqual({ ...board.tree("/data"), ...board.tree("/etc") }, before);
});

test("a board that was never set up starts with what the image gives it, whatever its file says", async () => {
  using board = new TestBoard("hub: [");
  board.write("/usr/share/picolet-image/agent.yaml", 'containerRuntimeEndpoint: ""\n');
  const { findings } = await firstBoot(board.board());
  assert.equal(findings.result, "refused");
  assert.match(board.read("/etc/picolet/config.yaml"), /^containerRuntimeEndpoint: ""\nnodeName: picolet-aabbcc$/m);
  board.write("/boot/picolet/picolet.yaml", OTHER);
  assert.equal((await firstBoot(board.board())).findings.result, "applied");
  assert.match(board.read("/etc/picolet/config.yaml"), /^containerRuntimeEndpoint: ""\nnodeName: other$/m);
});

test("another file takes away what only the first one said, and nothing that others wrote", async () => {
  using board = new TestBoard(FILE);
  board.write(
    "/etc/picolet/config.yaml",
    "# by hand\nmaxOpenFiles: 5000\nwasm: {spareRunners: 2}\nnodeLabels:\n  own: label\n",
  );
  board.write("/etc/picolet/manifests/own.yaml", "kind: Pod\n");
  await firstBoot(board.board());
  assert.match(board.read("/etc/picolet/config.yaml"), /spareRunners: 2/);
  board.write("/boot/picolet/picolet.yaml", OTHER);
  await firstBoot(board.board());
  assert.deepEqual(board.tree("/etc/picolet/manifests"), {
    "/etc/picolet/manifests/first-boot-default-db.yaml": `600 ${board.read("/etc/picolet/manifests/first-boot-default-db.yaml")}`,
    "/etc/picolet/manifests/own.yaml": "644 kind: Pod\n",
  });
  assert.equal(
    board.read("/etc/picolet/config.yaml"),
    "# by hand\nmaxOpenFiles: 5000\nwasm: { spareRunners: 2 }\nnodeLabels:\n  own: label\nnodeName: other\n",
  );
});

test("a name by rule stays while the rule stays, also when the board's numbers change", async () => {
  using board = new TestBoard("node: {nameRule: 'edge-{mac:6}'}\n");
  assert.equal((await firstBoot(board.board())).findings.nodeName, "edge-aabbcc");
  board.write("/boot/picolet/picolet.yaml", "node: {nameRule: 'edge-{mac:6}', labels: {a: b}}\n");
  const changed = { ...board.board(), facts: { serial: undefined, mac: "020000000001", release: {} } };
  assert.equal((await firstBoot(changed)).findings.nodeName, "edge-aabbcc");
  board.write("/boot/picolet/picolet.yaml", "node: {nameRule: 'pump-{mac:6}'}\n");
  assert.equal((await firstBoot(changed)).findings.nodeName, "pump-000001");
});

test("a file of a wrong name is read and named, and so is what is missing", async () => {
  using board = new TestBoard();
  assert.deepEqual((await firstBoot(board.board())).findings.notes, ["there is no picolet.yaml"]);
  board.write("/boot/picolet/Picolet.yaml.txt", OTHER);
  const { findings } = await firstBoot(board.board());
  assert.equal(findings.nodeName, "other");
  assert.match(findings.notes.join(), /Picolet\.yaml\.txt is read: its right name is picolet\.yaml/);
});

test("the partition that cannot be read costs nothing that was there", async () => {
  using board = new TestBoard(FILE);
  await firstBoot(board.board());
  const before = board.disk();
  const broken = { use: () => Promise.reject(new Error("no such card")) };
  const { findings, hostname } = await firstBoot({ ...board.board(), partition: broken });
  assert.equal(hostname, "edge-deadbeef");
  assert.match(findings.notes.join(), /cannot be read: no such card/);
  assert.deepEqual(board.disk(), before);
});

const STATUS = { addresses: ["end0 192.168.1.20"], tunnel: { state: "connected" }, slot: "A" };

test("the token goes once the board has joined, and nothing else of the file changes", async () => {
  using board = new TestBoard(FILE.replaceAll("\n", "\r\n"));
  const { findings } = await firstBoot(board.board());
  await earlyReport({ ...board.board(), slot: "A" }, findings);
  assert.match(board.read("/boot/picolet/picolet-report.txt"), /picolet\.yaml +applied\r\n/);
  await boardReport({ ...board.board(), ...STATUS, tunnel: { state: "connecting", problem: "no route" } });
  assert.match(board.read("/boot/picolet/picolet-report.txt"), /not connected: no route/);
  assert.match(board.read("/boot/picolet/picolet.yaml"), new RegExp(TOKEN));
  board.write(IDENTITY, "certificate");
  await boardReport({ ...board.board(), ...STATUS });
  assert.equal(
    board.read("/boot/picolet/picolet.yaml"),
    FILE.replace(`${TOKEN} # for ten boards`, '"" # for ten boards').replaceAll("\n", "\r\n"),
  );
  const report = board.read("/boot/picolet/picolet-report.txt");
  assert.match(report, /Hub +https:\/\/hub\.example\.com:10270: has joined\r\n/);
  assert.match(report, /Token +used, and wiped from picolet\.yaml\r\n/);
  assert.doesNotMatch(report, /[^\r]\n/);
  for (const [path, content] of Object.entries(board.disk())) assert.equal(content.includes(TOKEN), false, path);
  assert.equal((await firstBoot(board.board())).findings.result, "unchanged");
});

test("a token for another hub stays until that hub has given its certificate", async () => {
  using board = new TestBoard(FILE);
  board.write(IDENTITY, "of the hub before");
  await firstBoot(board.board());
  await boardReport({ ...board.board(), ...STATUS, tunnel: undefined });
  assert.match(board.read("/boot/picolet/picolet.yaml"), new RegExp(TOKEN));
  board.write(IDENTITY, "of this hub");
  await boardReport({ ...board.board(), ...STATUS, tunnel: undefined });
  assert.doesNotMatch(board.read("/boot/picolet/picolet.yaml"), new RegExp(TOKEN));
});

test("the report is written only when it differs, and says what went wrong before", async () => {
  using board = new TestBoard(FILE.replace(`${TOKEN} # for ten boards`, '""'));
  board.write("/run/picolet-problems", "factory reset: the data partition is made again\n");
  await firstBoot(board.board());
  await boardReport({ ...board.board(), ...STATUS });
  assert.match(
    board.read("/boot/picolet/picolet-report.txt"),
    /Notes:\r\n {2}factory reset: .*\r\n {2}hub\.token is empty/,
  );
  let writes = 0;
  const { partition } = board.board();
  const counted: typeof partition = {
    use: (access, task) => {
      writes += Number(access === "write");
      return partition.use(access, task);
    },
  };
  await boardReport({ ...board.board(), ...STATUS, partition: counted });
  assert.equal(writes, 0);
});

test("a wrong file that stays is reported once, and so is another one", async () => {
  using board = new TestBoard("nmae: a\n");
  const path = "/boot/picolet/picolet-report.txt";
  const report = async (): Promise<void> => {
    const { findings } = await firstBoot(board.board());
    await earlyReport({ ...board.board(), slot: "A" }, findings);
  };
  await report();
  assert.match(board.read(path), /nmae: Unknown field/);
  board.write(path, `${board.read(path)}Addresses of later\r\n`);
  await report();
  assert.match(board.read(path), /Addresses of later/);
  board.write("/boot/picolet/picolet.yaml", "nmae: a\nnoed: {}\n");
  await report();
  assert.match(board.read(path), /noed: Unknown field, did you mean node\?/);
  assert.doesNotMatch(board.read(path), /Addresses of later/);
});

/** Runs `task` with a cut after each of its changes, and once more. @returns how many cuts there were */
async function cutEverywhere(
  prepare: () => Promise<TestBoard>,
  task: (board: ReturnType<TestBoard["board"]>) => Promise<unknown>,
): Promise<number> {
  using whole = await prepare();
  await task(whole.board());
  const expected = whole.disk();
  for (let count = 0; ; count += 1) {
    using board = await prepare();
    try {
      await task(board.board(cutAfter(count)));
      return count;
    } catch (error) {
      assert.ok(error instanceof PowerCut, String(error));
    }
    rmSync(join(board.root, "run"), { recursive: true, force: true });
    await firstBoot(board.board());
    await task(board.board());
    const left = Object.fromEntries(Object.entries(board.disk()).filter(([path]) => !path.endsWith(".new")));
    assert.deepEqual(left, expected, `after a cut at change ${count}`);
  }
}

test("a power cut at any change of the first boot costs nothing: the next boot comes to the same", async () => {
  const cuts = await cutEverywhere(async () => new TestBoard(SHORT), firstBoot);
  assert.ok(cuts > 25, String(cuts));
});

test("nor does one while another file is applied", async () => {
  const cuts = await cutEverywhere(async () => {
    const board = new TestBoard(SHORT);
    await firstBoot(board.board());
    board.write("/boot/picolet/picolet.yaml", OTHER);
    return board;
  }, firstBoot);
  assert.ok(cuts > 20, String(cuts));
});

test("nor does one while the token is wiped and the report is written", async () => {
  const cuts = await cutEverywhere(
    async () => {
      const board = new TestBoard(SHORT);
      await firstBoot(board.board());
      board.write(IDENTITY, "certificate");
      return board;
    },
    (board) => boardReport({ ...board, ...STATUS }),
  );
  assert.ok(cuts > 20, String(cuts));
});

test("nor does one after which another file is there: nothing is left of the first one", async () => {
  using expected = new TestBoard(SHORT);
  await firstBoot(expected.board());
  expected.write("/boot/picolet/picolet.yaml", OTHER);
  await firstBoot(expected.board());
  for (let count = 0; ; count += 1) {
    using board = new TestBoard(SHORT);
    const isCut = await firstBoot(board.board(cutAfter(count))).then(
      () => false,
      () => true,
    );
    board.write("/boot/picolet/picolet.yaml", OTHER);
    await firstBoot(board.board());
    // The record alone remembers that there was a token.
    const [left, right] = [board, expected].map((each) => ({ ...each.disk(), "/data/first-boot/state.json": "" }));
    assert.deepEqual(left, right, `after a cut at change ${count}`);
    if (!isCut) break;
  }
});
