/** The board that tests of tight memory run on: what it is, how fast it is there, and that an agent lives on it. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { isReady } from "../../scripts/follow-pods.ts";
import { Guest, guestMissing } from "../support/guest.ts";
import type { GuestAgent } from "../support/guest-agent.ts";
import { BUSYBOX_IMAGE } from "../support/image-archive.ts";

const skip = guestMissing() ?? false;
const MIB = 2 ** 20;
const secondsSince = (start: number): string => ((performance.now() - start) / 1_000).toFixed(1);

test("a guest is a board of 512 MB with systemd, pure cgroup v2 and pressure figures", { skip }, async (context) => {
  let start = performance.now();
  await using first = await Guest.start();
  context.diagnostic(`the first guest was there after ${secondsSince(start)} s`);
  await first.output("touch /root/mark");
  start = performance.now();
  await using guest = await Guest.start();
  context.diagnostic(`the next one after ${secondsSince(start)} s`);

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
  assert.equal((await guest.output("ls /root")).trim(), "", "one guest sees nothing of another");
  assert.ok(Math.abs(Number(await guest.output("date +%s")) - Date.now() / 1_000) < 30);
});

test("commands overlap, are told whole, end with their code, and go with what they started", { skip }, async () => {
  await using guest = await Guest.start();
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
  // What it had started goes too.
  await guest.output("while kill -0 $(cat /root/pid) 2>/dev/null; do sleep 0.1; done", { timeoutMs: 60_000 });
});

test("what observes a guest goes on while the kernel has no memory left", { skip }, async () => {
  await using guest = await Guest.start();
  // What is read again and again would keep the kernel from it for a minute.
  await guest.output("systemctl set-property --runtime system.slice MemoryMin=96M");
  const hog = guest.run("systemd-run --quiet --wait --unit hog /usr/lib/guest/load leak 0");
  let looks = 0;
  const looking = (async (): Promise<void> => {
    for (let isOver = false; !isOver; looks += 1) {
      const { stdout } = await guest.run("grep MemAvailable /proc/meminfo; systemctl is-active hog");
      isOver = /^failed$/m.test(stdout);
    }
  })();
  assert.notEqual((await hog).exitCode, 0);
  await looking;
  assert.ok(looks > 1, `${looks} looks`);
  assert.match(await guest.output("dmesg"), /Out of memory: Killed process \d+ \(load\)/);
  assert.equal((await guest.output("systemctl is-active containerd courier")).trim(), "active\nactive");
});

test("an agent on the board runs containers and components, and is back after a power cut", {
  skip,
}, async (context) => {
  await using guest = await Guest.start();
  const start = performance.now();
  const agent = await guest.agent();
  context.diagnostic(`the agent answered after ${secondsSince(start)} s`);
  const { node, ready } = await agent.waitForStatus("the node is ready", (status) => status.ready);
  assert.deepEqual([node, ready], ["guest", true]);
  await agent.writeManifest("pods.yaml", manifests());
  const isUp = (pods: Parameters<Parameters<typeof agent.waitForPods>[1]>[0]): boolean =>
    isReady(pods.get("container-guest")) && isReady(pods.get("component-guest"));
  const pods = await agent.waitForPods("both run", isUp);
  context.diagnostic(`a container and a component ran after ${secondsSince(start)} s`);
  for (const name of ["container-guest", "component-guest"]) {
    const uid = pods.get(name)?.metadata.uid ?? "";
    const values =
      "cd $(find /sys/fs/cgroup -type d -name '*$UID') && cat memory.max cpu.max pids.max cgroup.controllers";
    const [memory, cpu, , controllers] = (await guest.output(values.replace("$UID", uid))).split("\n");
    assert.deepEqual([memory, cpu], [String(48 * MIB), "100000 100000"], name);
    assert.match(controllers ?? "", /cpu .*memory.* pids/, name);
  }
  await writesAreMetered(agent);
  await guest.output("systemctl enable picolet; sync");
  await guest.cutPower();
  await agent.answers();
  await agent.waitForPods("both run again", isUp);
  context.diagnostic(`they ran again after a power cut, ${secondsSince(start)} s from the start`);
});

test("nothing stays of guests that have ended", { skip }, async () => {
  const own = (): string[] => readdirSync(tmpdir()).filter((name) => name.startsWith("picolet-guest-"));
  const before = own();
  const guest = await Guest.start();
  const made = own().filter((name) => !before.includes(name));
  assert.equal(made.length, 1);
  const { pid } = guest;
  await guest[Symbol.asyncDispose]();
  assert.deepEqual(
    own().filter((name) => made.includes(name)),
    [],
  );
  assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
});

/** By the pod's cgroup: of the container that has written nothing is left but its files. An agent that ends takes a last look. */
async function writesAreMetered(agent: GuestAgent): Promise<void> {
  const volumeMounts = [{ name: "data", mountPath: "/data" }];
  const write = ["dd", "if=/dev/zero", "of=/data/zeros", "bs=1M", "count=24", "conv=fsync"];
  await agent.writeManifest("writer.yaml", {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "writer" },
    spec: {
      volumes: [{ name: "data", emptyDir: {} }],
      initContainers: [{ name: "write", image: BUSYBOX_IMAGE, command: write, volumeMounts }],
      containers: [{ name: "app", image: BUSYBOX_IMAGE, command: ["load", "hold", "0"] }],
    },
  });
  await agent.waitForPods("the writer has written", (all) => isReady(all.get("writer-guest")));
  await agent.stop();
  await agent.start();
  const { today } = (await agent.status()).flash;
  const written = today.pods.find(({ name }) => name === "default/writer-guest")?.bytes ?? 0;
  assert.ok(written >= 24 * MIB && written < 32 * MIB, JSON.stringify(today));
}

function manifests(): unknown {
  const pod = (name: string, spec: Readonly<Record<string, unknown>>, container: Readonly<Record<string, unknown>>) => {
    const resources = { limits: { memory: "48Mi", cpu: "1" } };
    const containers = [{ name: "app", resources, ...container }];
    return { apiVersion: "v1", kind: "Pod", metadata: { name }, spec: { ...spec, containers } };
  };
  return {
    apiVersion: "v1",
    kind: "List",
    items: [
      pod("container", {}, { image: BUSYBOX_IMAGE, command: ["load", "hold", "8"] }),
      pod("component", { runtimeClassName: "wasm" }, { image: "file:///opt/picolet/dist/examples/hello.wasm" }),
    ],
  };
}
