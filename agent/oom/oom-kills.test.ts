import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type OomKill, OomKillReader } from "./oom-kills.ts";

/** As /dev/kmsg gives them; the kernel's own have a facility of 0. */
const record = (message: string, prefix = 6): string => `${prefix},4711,32911312303,-;${message}\n SUBSYSTEM=memory\n`;

function killsIn(...messages: readonly string[]): readonly OomKill[] {
  const reader = new OomKillReader();
  return messages.map((message) => reader.read(record(message))).filter((kill) => kill !== undefined);
}

const SYSTEM = [
  "stress invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=1000",
  "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/kubepods/besteffort/pod1/abc,task=stress,pid=1234,uid=0",
  "Out of memory: Killed process 1234 (stress) total-vm:9444828kB, anon-rss:31608kB, file-rss:41028kB, shmem-rss:0kB, UID:0 pgtables:612kB oom_score_adj:1000",
  "oom_reaper: reaped process 1234 (stress), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
];
const CGROUP = [
  "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=065c,mems_allowed=0,oom_memcg=/kubepods/podx/065c,task_memcg=/kubepods/podx/065c,task=MainThread,pid=2905,uid=0",
  "Memory cgroup out of memory: Killed process 2905 (MainThread) total-vm:9444828kB, anon-rss:31608kB, UID:0 pgtables:612kB oom_score_adj:999",
];

describe("OOM kills", () => {
  test("the machine's, with the victim and its cgroup; returned once", () => {
    const kill = { pid: 1234, process: "stress", isSystem: true, cgroup: "/kubepods/besteffort/pod1/abc" };
    assert.deepEqual(killsIn(...SYSTEM), [kill]);
  });

  test("a cgroup's is none of the machine's, unless it is the root's", () => {
    const kill = { pid: 2905, process: "MainThread", isSystem: false, cgroup: "/kubepods/podx/065c" };
    assert.deepEqual(killsIn(...CGROUP), [kill]);
    const ofRoot = (CGROUP[0] ?? "").replace("oom_memcg=/kubepods/podx/065c", "oom_memcg=/");
    assert.deepEqual(killsIn(ofRoot), [{ ...kill, isSystem: true }]);
  });

  test("all that a memory.oom.group takes along are cgroup kills of their own", () => {
    const other = "Memory cgroup out of memory: Killed process 2906 (helper) total-vm:1kB, oom_score_adj:999";
    const grouped = "Tasks in /kubepods/podx/065c are going to be killed due to memory.oom.group set";
    assert.deepEqual(
      killsIn(...CGROUP, grouped, CGROUP[1] ?? "", other).map(({ pid, isSystem }) => [pid, isSystem]),
      [
        [2905, false],
        [2906, false],
      ],
    );
  });

  test("one that the kernel writes twice, because all of its cgroup is killed, is returned once, also without the verdict", () => {
    const grouped = "Tasks in /kubepods/podx/065c are going to be killed due to memory.oom.group set";
    for (const texts of [SYSTEM, SYSTEM.slice(2)])
      assert.deepEqual(
        killsIn(...texts, grouped, SYSTEM[2] ?? "").map(({ pid }) => pid),
        [1234],
      );
  });

  test("the verdict may have been lost: the last line says enough", () => {
    const kill = { pid: 1234, process: "stress", isSystem: true, cgroup: undefined };
    assert.deepEqual(killsIn(SYSTEM[2] ?? ""), [kill]);
  });

  test("kernels before 5.0: of a candidate's child, and of a cgroup", () => {
    const old = [
      "Out of memory: Kill process 100 (parent) score 900 or sacrifice child",
      "Killed process 101 (child) total-vm:100kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
    ];
    assert.deepEqual(killsIn(...old), [{ pid: 101, process: "child", isSystem: true, cgroup: undefined }]);
    const cgroup = [
      "Task in /kubepods/pod7/aa killed as a result of limit of /kubepods/pod7",
      "Memory cgroup out of memory: Kill process 200 (app) score 1900 or sacrifice child",
      "Killed process 200 (app) total-vm:100kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
    ];
    assert.deepEqual(killsIn(...cgroup), [{ pid: 200, process: "app", isSystem: false, cgroup: "/kubepods/pod7/aa" }]);
  });

  test("a process may call itself anything", () => {
    const named = (task: string): string => (SYSTEM[1] ?? "").replace("task=stress,", `task=${task},`);
    assert.equal(killsIn(named("a,pid=1,uid=0"))[0]?.process, "a,pid=1,uid=0");
    assert.equal(killsIn(named("a,pid=1,uid=0"))[0]?.pid, 1234);
    assert.equal(killsIn(named("x\\x0ay\\x20z"))[0]?.process, "x?y z");
    const brackets = "Out of memory: Killed process 7 (a) (b)) total-vm:1kB";
    assert.deepEqual(killsIn(brackets), [{ pid: 7, process: "a) (b)", isSystem: true, cgroup: undefined }]);
  });

  test("what others write into the kernel's log is nothing", () => {
    const reader = new OomKillReader();
    for (const message of SYSTEM) assert.equal(reader.read(record(message, 14)), undefined);
    assert.equal(reader.read(record(`evil: ${SYSTEM[2]}`)), undefined);
  });

  test("any text: no error, and a valid pid", () => {
    const pieces = fc.constantFrom(
      ...SYSTEM,
      ...CGROUP,
      "Killed process ",
      "oom-kill:",
      "pid=",
      ",task=",
      "(",
      ")",
      "\\x",
    );
    const message = fc.oneof(
      fc.string(),
      fc.array(pieces).map((all) => all.join("")),
    );
    const text = fc.oneof(
      fc.string(),
      message.map((each) => record(each)),
      fc.string({ unit: "binary" }),
    );
    fc.assert(
      fc.property(fc.array(text), (records) => {
        const reader = new OomKillReader();
        for (const each of records) {
          const kill = reader.read(each);
          if (kill !== undefined) assert.ok(Number.isSafeInteger(kill.pid) && kill.process.length <= 60);
        }
      }),
      { numRuns: 500 },
    );
  });
});
