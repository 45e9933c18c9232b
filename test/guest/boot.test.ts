/** The board that tests of tight memory run on: what it is, and how fast it is there. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { after, test } from "node:test";
import { Guest, guestMissing } from "../support/guest/guest.ts";

const skip = guestMissing() ?? false;
const secondsSince = (start: number): string => ((performance.now() - start) / 1_000).toFixed(1);
const ownFolders = (): string[] => readdirSync(tmpdir()).filter((name) => name.startsWith("picolet-guest-"));

let guest: Guest;

after(async () => {
  await guest?.[Symbol.asyncDispose]();
});

test("guests see nothing of one another, and nothing stays of one that has ended", { skip }, async (context) => {
  let start = performance.now();
  const before = ownFolders();
  await using first = await Guest.start();
  context.diagnostic(`the first guest was there after ${secondsSince(start)} s`);
  const made = ownFolders().filter((name) => !before.includes(name));
  assert.equal(made.length, 1);
  await first.output("touch /root/mark");
  start = performance.now();
  guest = await Guest.start();
  context.diagnostic(`the next one after ${secondsSince(start)} s`);
  assert.equal((await guest.output("ls /root")).trim(), "");

  const { pid } = first;
  await first[Symbol.asyncDispose]();
  assert.deepEqual(
    ownFolders().filter((name) => made.includes(name)),
    [],
  );
  assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
});

test("a guest is a board of 512 MB with systemd, pure cgroup v2 and pressure figures", { skip }, async () => {
  assert.equal((await guest.output("stat -f -c %t /sys/fs/cgroup")).trim(), "63677270", "cgroup2fs");
  assert.equal((await guest.output("grep -c cgroup /proc/mounts")).trim(), "1", "nothing of cgroup v1");
  const controllers = (await guest.output("cat /sys/fs/cgroup/cgroup.controllers")).trim().split(" ");
  for (const each of ["cpu", "memory", "io", "pids", "cpuset"]) assert.ok(controllers.includes(each), each);
  for (const each of ["cpu", "memory", "io"])
    assert.match(await guest.output(`cat /proc/pressure/${each}`), /^some avg10=/);
  assert.equal((await guest.output("cat /proc/1/comm")).trim(), "systemd");
  assert.equal((await guest.output("systemctl is-system-running")).trim(), "running");
  const totalKiB = Number(/^MemTotal: +(\d+) kB/.exec(await guest.output("cat /proc/meminfo"))?.[1]);
  assert.ok(totalKiB > 460 * 1024 && totalKiB <= 512 * 1024, `${totalKiB} KiB`);
  assert.ok(Math.abs(Number(await guest.output("date +%s")) - Date.now() / 1_000) < 30);
});

test("commands overlap, are told whole, end with their code, and go with what they started", { skip }, async () => {
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7 + (index >> 8)) & 0xff));
  await guest.upload("/root/a folder/it's.bin", bytes, 0o600);
  assert.deepEqual(await guest.download("/root/a folder/it's.bin"), bytes);
  assert.equal((await guest.output("stat -c %a /root/*/*.bin")).trim(), "600");
  assert.deepEqual(await guest.run("echo out; echo err >&2; exit 3"), {
    stdout: "out\n",
    stderr: "err\n",
    exitCode: 3,
  });
  assert.equal((await guest.run("kill -9 $$")).exitCode, 137);
  assert.equal((await guest.run("cat", { input: "" })).stdout, "");

  // Each waits for the other: one after the other they would never end.
  await guest.output("mkfifo /root/there /root/back");
  const answers = await Promise.all([
    guest.output("echo question > /root/there; cat /root/back"),
    guest.output("read line < /root/there; echo answer to $line > /root/back"),
  ]);
  assert.equal(answers[0], "answer to question\n");
  await assert.rejects(
    guest.run("sleep 1000 & echo $! > /root/pid; wait", { timeoutMs: 2_000 }),
    /took longer than 2000 ms/,
  );
  // The process that it had started goes too.
  await guest.output("while kill -0 $(cat /root/pid) 2>/dev/null; do sleep 0.1; done", { timeoutMs: 60_000 });
});
