/** The kernel's log as the real kernel has it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { accessSync, constants, existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { KernelLog } from "./kernel-log.ts";
import { type MakeRecordWait, privateRecordWait, publicRecordWait } from "./record-wait.ts";

function refused(): string | false {
  try {
    accessSync("/dev/kmsg", constants.R_OK | constants.W_OK);
    return process.getuid?.() === 0 ? false : "needs root";
  } catch {
    return "needs /dev/kmsg";
  }
}
const skip = refused();

/** Reads to the end. @returns the records of kills */
function rest(log: KernelLog): readonly string[] {
  const texts: string[] = [];
  for (let record = log.next(); record.kind !== "end"; record = log.next())
    if (record.kind === "record") texts.push(record.text);
  return texts;
}
const more = (log: KernelLog): Promise<void> => new Promise((resolve) => log.whenMore(resolve));

test("this Node has the private parts that spare a wakeup every two seconds", () => {
  assert.notEqual(privateRecordWait(), undefined, "Node has changed: agents poll for records every two seconds");
});

test("without the private parts there is no private way", () => {
  const refused = (): never => {
    throw new Error("No such module");
  };
  for (const binding of [refused, () => undefined, () => ({}) as never])
    assert.equal(privateRecordWait(binding), undefined);
});

/** Polls in every turn of the event loop instead of every two seconds. */
const clock = { sleep: () => new Promise<void>((resolve) => setImmediate(resolve)) };
const WAYS: readonly (readonly [name: string, waitFor: MakeRecordWait])[] = [
  ["Node's private parts", privateRecordWait() ?? (() => assert.fail("they are not there"))],
  ["public parts alone", publicRecordWait(clock)],
];

const MEMORY = "/sys/fs/cgroup/memory";
const skipKill = existsSync(`${MEMORY}/memory.limit_in_bytes`)
  ? skip
  : "needs the memory controller of cgroup v1, as root";

for (const [name, waitFor] of WAYS) {
  test(`waits for more, again and again, and gives what it has waited for (${name})`, { skip }, async () => {
    using log = new KernelLog({ waitFor });
    rest(log);
    for (const round of [1, 2, 3]) {
      const text = `picolet test ${process.pid}: kill ${round}`;
      const told = more(log);
      writeFileSync("/dev/kmsg", `${text}\n`);
      // Others write there too.
      for (let seen = ""; !seen.includes(text); seen = rest(log).join()) await told;
    }
  });

  test(`the last callback is called once, and reading meanwhile does no harm (${name})`, {
    skip,
  }, async () => {
    using log = new KernelLog({ waitFor });
    rest(log);
    let first = 0;
    log.whenMore(() => {
      first += 1;
    });
    writeFileSync("/dev/kmsg", "picolet test: one that is read by somebody else\n");
    rest(log);
    const told = more(log);
    const text = `picolet test ${process.pid}: kill 4`;
    writeFileSync("/dev/kmsg", `${text}\n`);
    await told;
    assert.match(rest(log).join(), new RegExp(text));
    assert.equal(first, 0);
  });

  test(`a closed log calls no one back (${name})`, { skip }, async () => {
    const log = new KernelLog({ waitFor });
    rest(log);
    log.whenMore(() => assert.fail("told"));
    log[Symbol.dispose]();
    using other = new KernelLog({ waitFor });
    rest(other);
    const told = more(other);
    writeFileSync("/dev/kmsg", "picolet test: nobody hears that\n");
    await told;
    assert.throws(() => log.next(), { code: "unavailable" });
  });

  test(`the real kernel's kill of a real process is reported and read (${name})`, { skip: skipKill }, async () => {
    const folder = `${MEMORY}/picolet-test-oom-${process.pid}`;
    mkdirSync(folder);
    try {
      writeFileSync(`${folder}/memory.limit_in_bytes`, String(8 * 1024 * 1024));
      using log = new KernelLog({ waitFor });
      rest(log);
      const told = more(log);
      const script = `echo $$ > ${folder}/cgroup.procs; exec tail /dev/zero`;
      assert.throws(() => execFileSync("sh", ["-c", script], { stdio: "ignore" }));
      await told;
      const texts = rest(log).join("");
      assert.match(texts, /oom-kill:constraint=CONSTRAINT_MEMCG.*picolet-test-oom-.*task=tail/);
    } finally {
      rmdirSync(folder);
    }
  });
}
