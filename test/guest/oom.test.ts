/** The order of the OOM killer's victims on a board of 512 MB, and the reports about them. cgroup v2. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { containerPod } from "../support/agent/node-fixtures.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { Guest, guestMissing } from "../support/guest/guest.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";

const skip = guestMissing() ?? false;

let guest: Guest;
let agent: GuestAgent;

before(async () => {
  if (skip !== false) return;
  guest = await Guest.start();
  agent = await guest.agent({ config: { oomScoreAdj: -998 } });
});

after(async () => {
  if (skip === false) await guest?.[Symbol.asyncDispose]();
});

const scoreOf = async (pid: number | string): Promise<number> =>
  Number(await guest.output(`cat /proc/${pid}/oom_score_adj`));

test("the agent, sandboxes and containers have the kubelet's scores", { skip }, async () => {
  const besteffort = containerPod("besteffort", undefined, { hostNetwork: true });
  const resources = { requests: { cpu: "500m", memory: "16Mi" }, limits: { cpu: "500m", memory: "16Mi" } };
  const guaranteed = containerPod("guaranteed", undefined, { hostNetwork: true }) as { spec: { containers: object[] } };
  guaranteed.spec.containers = guaranteed.spec.containers.map((each) => ({ ...each, resources }));
  await agent.writeManifest("besteffort.json", besteffort);
  await agent.writeManifest("guaranteed.json", guaranteed);
  await agent.waitForPods("both run", (pods) => pods.size === 2 && [...pods.values()].every(isReady));
  assert.equal(await scoreOf(await agent.pid()), -998);
  const all = await guest.output(
    'for each in /sys/fs/cgroup/kubepods*/ /sys/fs/cgroup/kubepods.slice/; do find $each -name cgroup.procs -exec cat {} + 2>/dev/null; done | sort -u | while read pid; do echo "$(cat /proc/$pid/comm) $(cat /proc/$pid/oom_score_adj)"; done',
  );
  const scores = new Set(all.trim().split("\n"));
  assert.ok(scores.has("pause -998"), all);
  // By score, not by name: a container that has just started may still be called runc:[2:INIT].
  const ofOthers = [...scores]
    .filter((each) => !each.startsWith("pause "))
    .map((each) => Number(each.split(" ").at(-1)));
  assert.deepEqual([...new Set(ofOthers)].sort(), [-997, 1000], all);
});

/** Processes of the agent, the runtime, and both pods that behave. */
const processes = async (): Promise<string> =>
  await guest.output(
    "systemctl show -P MainPID picolet containerd; find /sys/fs/cgroup/kubepods* -name cgroup.procs -exec cat {} + | sort -n",
  );

test("a machine out of memory: the agent, the pods and what observes live on", { skip }, async () => {
  const others = await processes();
  // What is read again and again would keep the kernel from it for a minute: who takes the memory is not of those that
  // are spared.
  await guest.output(
    "for each in system.slice init.scope; do systemctl set-property --runtime $each MemoryMin=96M; done",
  );
  const hog = guest.run(
    "systemd-run --quiet --wait --unit hog --slice hog -p OOMScoreAdjust=1000 /usr/lib/guest/load leak 0",
  );
  let isOver = false;
  const ended = hog.finally(() => {
    isOver = true;
  });
  let looks = 0;
  // A look takes the processor from what is looked at, so the guest pauses before each.
  for (; !isOver; looks += 1) await guest.output("sleep 0.2; grep MemAvailable /proc/meminfo");
  assert.notEqual((await ended).exitCode, 0);
  assert.ok(looks > 1, `${looks} looks`);
  assert.match(await guest.output("dmesg"), /Out of memory: Killed process \d+ \(load\)/);
  assert.equal(await processes(), others);
  assert.equal((await agent.status()).ready, true);
  assert.equal((await guest.output("systemctl is-active containerd courier")).trim(), "active\nactive");
});

test("the node's event of the machine that was out of memory names the victim", { skip }, async () => {
  const [, pid, name] = /Out of memory: Killed process (\d+) \((\w+)\)/.exec(await guest.output("dmesg")) ?? [];
  assert.equal(name, "load");
  const { message, type, involvedObject } = await agent.waitForEvent(
    "the event of the system's OOM",
    ({ reason }) => reason === "SystemOOM",
  );
  assert.equal(message, `System OOM encountered, victim process: load, pid: ${pid}`);
  assert.deepEqual([type, involvedObject.kind, involvedObject.name], ["Warning", "Node", "guest"]);
});

/** Ends with its container alone: what makes it leak is a child of a shell that would go on for a day. */
const leaking = (name: string, command: readonly string[]): unknown => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: {
    hostNetwork: true,
    restartPolicy: "Never",
    terminationGracePeriodSeconds: 1,
    containers: [{ name: "app", image: BUSYBOX_IMAGE, command, resources: { limits: { memory: "32Mi" } } }],
  },
});

/** The first process of a container; and a child, with which its container goes as a whole. */
const OVER_ITS_LIMIT = {
  first: ["load", "leak", "0"],
  another: ["load", "leak", "0"],
  child: ["sh", "-c", "load leak 0 & sleep 86400"],
};

test("containers that go over their limits at the same time are OOMKilled with 137, all of them, and nothing else is", {
  skip,
}, async () => {
  const others = await processes();
  const items = Object.entries(OVER_ITS_LIMIT).map(([name, command]) => leaking(name, command));
  await agent.writeManifest("leaks.json", { apiVersion: "v1", kind: "List", items });
  const names = Object.keys(OVER_ITS_LIMIT).map((name) => `${name}-guest`);
  const pods = await agent.waitForPods("the leaks have ended", (all) =>
    names.every((name) => ["Failed", "Succeeded"].includes(all.get(name)?.status?.phase ?? "")),
  );
  for (const name of names) {
    const { phase, containerStatuses } = pods.get(name)?.status ?? {};
    const { reason, exitCode } = containerStatuses?.[0]?.state.terminated ?? {};
    assert.deepEqual({ phase, reason, exitCode }, { phase: "Failed", reason: "OOMKilled", exitCode: 137 }, name);
  }
  await agent.removeManifest("leaks.json");
  await agent.waitForPods("the leaks are gone", (all) => names.every((name) => !all.has(name)));
  assert.equal(await processes(), others);
});

test("an error of the disk's file system is a condition and an event of the node", { skip }, async () => {
  await guest.output("echo damaged > /sys/fs/ext4/vda/trigger_fs_error");
  const type = "picolet.io/StorageErrors";
  const { conditions } = await agent.waitForStatus("the condition", (status) =>
    status.conditions.some((each) => each.type === type && each.status === "True"),
  );
  const { reason, message } = conditions.find((each) => each.type === type) ?? {};
  assert.equal(reason, "FileSystemHasErrors");
  assert.match(message ?? "", /^the file system on vda has errors: back up/);
  await agent.waitForEvent("the event", (event) => event.reason === "FileSystemHasErrors");
});
