import assert from "node:assert/strict";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "../../test/support/temp-folder.ts";
import { endLeakedShims } from "./leaked-shims.ts";

const SOCKET = "/run/containerd/containerd.sock";
const SHIM = "containerd-shim";

/** A process as /proc shows it. */
interface Shown {
  readonly pid: number;
  readonly parent?: number;
  readonly command?: string;
  readonly address?: string;
  readonly cwd?: string;
}

function procWith(folder: TempFolder, processes: readonly Shown[]): void {
  for (const { pid, parent = 1, command = SHIM, address = SOCKET, cwd = "/run/tasks/.a (deleted)" } of processes) {
    const own = folder.at(String(pid));
    mkdirSync(own);
    writeFileSync(`${own}/stat`, `${pid} (${command}) S ${parent} 1 1 0`);
    const words = ["/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "a", "-address", address];
    writeFileSync(`${own}/cmdline`, `${words.join("\0")}\0`);
    symlinkSync(cwd, `${own}/cwd`);
  }
}

test("a shim is ended whose folder is gone and in which nothing runs; no other, and nothing that is no shim", () => {
  using folder = new TempFolder();
  procWith(folder, [
    { pid: 10 },
    { pid: 11, cwd: "/run/tasks/a" },
    { pid: 12 },
    { pid: 13, parent: 12, command: "pause) S 10 (" },
    { pid: 14, address: "/run/other/containerd.sock" },
    { pid: 15, command: "sh" },
    { pid: 16, address: "" },
  ]);
  mkdirSync(folder.at("17"));
  mkdirSync(folder.at("self"));
  const killed: number[] = [];
  const ended = endLeakedShims(SOCKET, { procRoot: folder.path, end: ({ pid }) => void killed.push(pid) });
  assert.deepEqual(ended, [10]);
  assert.deepEqual(killed, [10]);
});

test("here nothing of a runtime that is not there is found", () => {
  assert.deepEqual(endLeakedShims("/nowhere/containerd.sock"), []);
});
