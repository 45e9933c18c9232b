import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { formatCpuSet } from "./cpu-set.ts";
import { type CpuState, formatCpuState, readCpuState } from "./cpu-state.ts";
import { formatMemoryState, readMemoryState } from "./memory-state.ts";
import { writeStateFile } from "./state-file.ts";

const GOLDEN = new URL("../../test/golden/topology/", import.meta.url).pathname;
const folder = mkdtempSync("/dev/shm/picolet-state-");
after(() => rmSync(folder, { recursive: true }));

const golden = (name: string): string => join(GOLDEN, name);
const file = (text: string): string => {
  const path = join(folder, "state");
  writeFileSync(path, text);
  return path;
};
const pleaseDrain = (why: string, manager: "CPU" | "memory", path: string): string =>
  `could not restore state from checkpoint: ${why}, please drain this node and delete the ${manager} manager checkpoint file "${path}" before restarting Kubelet`;

for (const [name, policy] of [
  ["cpu-none.json", "none"],
  ["cpu-static-empty.json", "static"],
  ["cpu-static-pods.json", "static"],
] as const) {
  test(`a kubelet's ${name} is read, and written to the byte`, () => {
    const state = readCpuState(golden(name), policy) ?? assert.fail();
    assert.equal(formatCpuState(policy, state), readFileSync(golden(name), "utf8"));
  });
}

for (const [name, policy] of [
  ["memory-none.json", "None"],
  ["memory-static.json", "Static"],
] as const) {
  test(`a kubelet's ${name} is read, and written to the byte`, () => {
    const state = readMemoryState(golden(name), policy) ?? assert.fail();
    assert.equal(formatMemoryState(policy, state), readFileSync(golden(name), "utf8"));
  });
}

test("what is in the files is what was meant", () => {
  const { shared, exclusive } = readCpuState(golden("cpu-static-pods.json"), "static") ?? assert.fail();
  assert.equal(formatCpuSet(shared), "0,3,8-11");
  const own = exclusive.get("b7a1c6de-0000-4000-8000-000000000002");
  assert.deepEqual([...(own?.get("main") ?? [])], [1, 2]);
  const memory = readMemoryState(golden("memory-static.json"), "Static");
  assert.equal(memory?.machine[0]?.memoryMap.memory?.free, 2 * 1024 ** 3);
});

test("a file that is not there is none", () => {
  assert.equal(readCpuState(join(folder, "none"), "static"), undefined);
  assert.equal(readMemoryState(join(folder, "none"), "Static"), undefined);
});

const cpu = readFileSync(golden("cpu-static-pods.json"), "utf8");
const REFUSED: readonly (readonly [what: string, text: string, why: string])[] = [
  [
    "of another policy",
    readFileSync(golden("cpu-none.json"), "utf8"),
    'configured policy "static" differs from state checkpoint policy "none"',
  ],
  ["with another set", cpu.replace('"0,3,8-11"', '"0-11"'), "checkpoint is corrupted"],
  ["with another checksum", cpu.replace(/\d+\}$/, "1}"), "checkpoint is corrupted"],
  ["cut short", cpu.slice(0, 40), "checkpoint is corrupted"],
  ["that is empty", "", "checkpoint is corrupted"],
  ["with a set that is none", '{"policyName":"static","defaultCpuSet":"0-x"}', 'could not parse default cpu set "0-x"'],
  [
    "with a container's set that is none",
    '{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"3-1"}}}',
    'could not parse cpuset "3-1" for container "c" in pod "u"',
  ],
  [
    "of the first format, with containers",
    readFileSync(golden("cpu-v1.json"), "utf8"),
    "error migrating v1 checkpoint state to v2 checkpoint state: containerID 'cafe02' not found in initial containers list",
  ],
];

for (const [what, text, why] of REFUSED) {
  test(`a CPU state file ${what} is refused in the kubelet's words`, () => {
    const path = file(text);
    assert.throws(() => readCpuState(path, "static"), { code: "conflict", message: pleaseDrain(why, "CPU", path) });
  });
}

test("a file without a checksum is from before there were any", () => {
  const state = readCpuState(file('{"policyName":"static","defaultCpuSet":"0-1"}'), "static");
  assert.equal(formatCpuSet(state?.shared ?? []), "0-1");
});

test("a memory state file of another policy, without a checksum or changed is refused in the kubelet's words", () => {
  const text = readFileSync(golden("memory-static.json"), "utf8");
  const corrupted = "checkpoint is corrupted";
  const cases: [string, string, string][] = [
    [text, "None", '[memorymanager] configured policy "None" differs from state checkpoint policy "Static"'],
    [text.replace('"size":5', '"size":6'), "Static", corrupted],
    [text.replace(/,"checksum":\d+/, ""), "Static", corrupted],
  ];
  for (const [content, policy, why] of cases) {
    const path = file(content);
    assert.throws(() => readMemoryState(path, policy), { message: pleaseDrain(why, "memory", path) });
  }
});

test("any file is read or refused", () => {
  const texts = fc.oneof(
    fc.string(),
    fc.json(),
    fc
      .tuple(fc.nat(cpu.length), fc.string({ maxLength: 3 }))
      .map(([at, put]) => cpu.slice(0, at) + put + cpu.slice(at + 1)),
    fc
      .record(
        {
          policyName: fc.anything(),
          defaultCpuSet: fc.anything(),
          entries: fc.anything(),
          checksum: fc.anything(),
          machineState: fc.anything(),
        },
        { requiredKeys: [] },
      )
      .map((each) => JSON.stringify(each, (_, value: unknown) => (typeof value === "bigint" ? Number(value) : value))),
  );
  const reads = [(path: string) => readCpuState(path, "static"), (path: string) => readMemoryState(path, "Static")];
  fc.assert(
    fc.property(texts, (text) => {
      const path = file(text);
      for (const read of reads) {
        try {
          assert.notEqual(read(path), undefined);
        } catch (error) {
          assert.ok(isPicoletError(error, "conflict"), String(error));
        }
      }
    }),
  );
});

test("any assignment is read as it was written", () => {
  const sets = fc.uniqueArray(fc.nat(300), { maxLength: 20 }).map((cpus) => new Set(cpus));
  const pods = fc.array(fc.tuple(fc.uuid(), fc.array(fc.tuple(fc.string(), sets), { minLength: 1, maxLength: 3 })), {
    maxLength: 4,
  });
  fc.assert(
    fc.property(sets, pods, (shared, entries) => {
      const state: CpuState = { shared, exclusive: new Map(entries.map(([uid, own]) => [uid, new Map(own)])) };
      assert.deepEqual(readCpuState(file(formatCpuState("static", state)), "static"), state);
    }),
  );
});

test("a file is replaced as a whole, and nothing is left beside it", () => {
  const path = join(folder, "deep", "state");
  writeStateFile(path, "one");
  writeStateFile(path, "two");
  assert.equal(readFileSync(path, "utf8"), "two");
  assert.deepEqual(readdirSync(join(folder, "deep")), ["state"]);
});
