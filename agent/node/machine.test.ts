import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { hugePages, type Machine, maxPids, nodeCapacity, nodeInfo, readMachine, swapBytes } from "./machine.ts";

function tree(files: Readonly<Record<string, string>>): { readonly root: string } & Disposable {
  const root = mkdtempSync(join(tmpdir(), "machine-"));
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return { root, [Symbol.dispose]: () => rmSync(root, { recursive: true }) };
}

test("this machine says who it is", async () => {
  const machine = await readMachine();
  assert.equal(machine.bootID, readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim());
  assert.ok(machine.kernelVersion.length > 0);
  assert.ok(machine.cpus >= 1);
  const capacity = await nodeCapacity(machine, "/", 110);
  const memTotal = /^MemTotal:\s+(\d+) kB/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1];
  assert.equal(capacity.memory, `${memTotal}Ki`);
  assert.match(capacity["ephemeral-storage"], /^[1-9]\d*Ki$/);
  assert.equal(capacity.pods, "110");
});

test("a board without DMI is named by its device tree", async () => {
  using board = tree({
    "etc/machine-id": "0123456789abcdef\n",
    "etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 13 (\\"trixie\\")"\n',
    "proc/device-tree/serial-number": "10000000abcdef01\0",
  });
  const machine = await readMachine(board.root);
  assert.equal(machine.machineID, "0123456789abcdef");
  assert.equal(machine.systemUUID, "10000000abcdef01");
  assert.equal(machine.osImage, 'Debian GNU/Linux 13 ("trixie")');
});

test("a machine that says nothing is still a node", async () => {
  using empty = tree({});
  const machine = await readMachine(empty.root);
  assert.deepEqual([machine.machineID, machine.systemUUID, machine.bootID, machine.osImage], ["", "", "", "Linux"]);
});

test("huge pages are reported by size, also sizes of which there are none", async () => {
  using board = tree({
    "sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": "0\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "2\n",
  });
  const expected = { "hugepages-64Ki": "0", "hugepages-2Mi": "6Mi", "hugepages-1Gi": "2Gi" };
  assert.deepEqual(await hugePages(board.root), expected);
  using empty = tree({});
  assert.deepEqual(await hugePages(empty.root), {});
});

test("the fewer of processes and threads is what there can be", async () => {
  using board = tree({
    "proc/sys/kernel/pid_max": "32768\n",
    "proc/sys/kernel/threads-max": "3712\n",
    "proc/meminfo": "MemTotal:  500000 kB\nSwapTotal:         249852 kB\n",
  });
  assert.deepEqual([await maxPids(board.root), await swapBytes(board.root)], [3712, 249_852 * 1024]);
  assert.equal((await readMachine(board.root)).swapBytes, 249_852 * 1024);
  using narrow = tree({ "proc/sys/kernel/pid_max": "1500\n", "proc/sys/kernel/threads-max": "3712\n" });
  assert.equal(await maxPids(narrow.root), 1200);
  using empty = tree({});
  assert.deepEqual([await maxPids(empty.root), await swapBytes(empty.root)], [undefined, 0]);
});

test("nodeInfo names the first runtime as the kubelet does", () => {
  const machine: Machine = {
    machineID: "m",
    systemUUID: "s",
    bootID: "b",
    kernelVersion: "6.12",
    osImage: "Debian",
    architecture: "arm64",
    cpus: 4,
    memoryBytes: 2 ** 29,
  };
  const info = nodeInfo(machine, "v0.1.0", [
    { runtime: "containerd", version: "1.7.2", conditions: [] },
    { runtime: "picolet-wasm", version: "0.1.0", conditions: [] },
  ]);
  assert.equal(info.containerRuntimeVersion, "containerd://1.7.2");
  assert.equal(info.architecture, "arm64");
  assert.equal(nodeInfo(machine, "v0.1.0", []).containerRuntimeVersion, "");
  assert.equal("swap" in info, false);
  assert.deepEqual(nodeInfo({ ...machine, swapBytes: 4096 }, "v0.1.0", []).swap, { capacity: 4096 });
});
