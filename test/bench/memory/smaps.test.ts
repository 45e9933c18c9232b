import assert from "node:assert/strict";
import { test } from "node:test";
import { classify, MAPPING_OWNERS, mappedMemoryOf, parseSmaps } from "./smaps.ts";

const mapping = (range: string, permissions: string, path: string, anonKiB: number, rssKiB = anonKiB): string => {
  const entry = `${range} ${permissions} 00000000 00:00 0 ${path === "" ? "" : `      ${path}`}\n`;
  return `${entry}Size: 4096 kB\nRss:  ${rssKiB} kB\nAnonymous:  ${anonKiB} kB\nVmFlags: rd\n`;
};

const SMAPS = [
  mapping("00400000-06000000", "r-xp", "/opt/node", 0, 30_000),
  mapping("06b56000-06b7d000", "rw-p", "/opt/node", 140, 150),
  mapping("06b7d000-06bb6000", "rw-p", "", 116),
  mapping("10709000-10995000", "rw-p", "[heap]", 2468),
  mapping("72deb480000-72deb4c0000", "rw-p", "", 256),
  mapping("7f0dad403000-7f0dad407000", "r--p", "/lib/sqlite.node", 16, 100),
  mapping("7f0dad563000-7f0dadd63000", "rw-p", "", 8),
  mapping("7f0dadfa0000-7f0dadfa4000", "rw-p", "", 20),
  mapping("7f0dd61b0000-7f0dd61f0000", "rw-p", "", 250),
  mapping("7f0dd61f0000-7f0de61a0000", "---p", "", 0),
  mapping("7fff2d3d9000-7fff2d3fa000", "rw-p", "[stack]", 76),
  mapping("7fff2d3fb000-7fff2d3fc000", "r-xp", "[vdso]", 1),
].join("");

test("each mapping of a process on Node has its owner", () => {
  const { anonKiB, filesKiB } = classify(parseSmaps(SMAPS), [0x7f0dadd61bf0]);
  assert.deepEqual(anonKiB, {
    "V8 heap": 256,
    "V8 code": 250,
    "malloc: brk": 2468,
    "malloc: mapped": 20,
    "stacks of threads": 84,
    "data of node": 256,
    "data of libraries": 16,
    "not attributed": 1,
  });
  assert.deepEqual(filesKiB, { node: 30_010, "sqlite.node": 84 });
});

test("all anonymous memory of this process has an owner", () => {
  const { anonKiB } = mappedMemoryOf(process.pid);
  const sum = MAPPING_OWNERS.reduce((all, owner) => all + anonKiB[owner], 0);
  assert.ok(anonKiB["V8 heap"] > 2048 && anonKiB["V8 heap"] < sum, JSON.stringify(anonKiB));
  assert.ok(anonKiB["not attributed"] < 0.05 * sum, JSON.stringify(anonKiB));
});
