/**
 * Pods that take 100 MiB a second and more on a board of 512 MB, where the agent and the kernel's OOM killer are after the same: whoever
 * is first, the pod that leaks goes, and nothing else. With `PICOLET_MIXES` set (as `npm run chaos` does) components too: to transpile
 * them takes the emulated board minutes.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { isReady } from "../../scripts/follow-pods.ts";
import { testComponent, textComponent } from "../support/components.ts";
import { Fleet, kubectlMissing } from "../support/fleet.ts";
import { Guest, guestMissing } from "../support/guest.ts";
import type { GuestAgent } from "../support/guest-agent.ts";
import { OUTSIDE_ADDRESS } from "../support/guest-machine.ts";
import { BUSYBOX_IMAGE } from "../support/image-archive.ts";

const skip = guestMissing() ?? (kubectlMissing("1.32") || false);
const WITH_COMPONENTS = process.env.PICOLET_MIXES !== undefined;
const NODE = "guest";
const COMPONENT = "picolet.example/script:1";
const LEAK = "picolet.example/leak:1";
/** Touches 600 MiB, more than the board has, a page after the other. To grow a mebibyte at a time takes minutes on an emulated processor. */
const LEAK_TEXT = `(component
  (core module $program-module
    (memory 1)
    (func (export "run") (result i32)
      (local $at i32)
      (drop (memory.grow (i32.const 9600)))
      (loop $again
        (i32.store (local.get $at) (i32.const -1))
        (local.set $at (i32.add (local.get $at) (i32.const 4096)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 629145600))))
      (i32.const 0)))
  (core instance $program (instantiate $program-module))
  (func $run (result (result)) (canon lift (core func $program "run")))
  (instance $run-interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run-interface)))`;

let guest: Guest;
let fleet: Fleet;
let agent: GuestAgent;

before(async () => {
  if (skip !== false) return;
  guest = await Guest.start();
  fleet = await Fleet.start(["--server-name", OUTSIDE_ADDRESS]);
  const { host, port } = guest.letReach(fleet.tunnelPort);
  agent = await guest.agent({
    config: {
      hub: { ...(await fleet.joinConfig()), server: `https://${host}:${port}` },
      evictionPressureTransitionPeriod: "0s",
    },
    files: WITH_COMPONENTS
      ? {
          "/root/script.wasm": readFileSync(await testComponent("script.c")),
          "/root/leak.wasm": readFileSync(await textComponent(LEAK_TEXT)),
        }
      : {},
  });
  await fleet.untilNodeReady(NODE);
  await fleet.apply(podOf("idle", container(["load", "hold", "5"])));
  await fleet.apply(podOf("still", container(["load", "hold", "10"])));
  if (WITH_COMPONENTS) {
    await guest.output(`/opt/picolet/dist/bin/edgectl image import /root/leak.wasm --name ${LEAK}`);
    await guest.output(`/opt/picolet/dist/bin/edgectl image import /root/script.wasm --name ${COMPONENT}`);
    await fleet.apply(podOf("quiet", component(COMPONENT, ["hold"]), { runtimeClassName: "wasm" }));
  }
  await agent.waitForPods(
    "the others run",
    (pods) => pods.size === (WITH_COMPONENTS ? 3 : 2) && [...pods.values()].every(isReady),
  );
});

after(async () => {
  await using all = new AsyncDisposableStack();
  for (const each of [fleet, guest]) if (each !== undefined) all.use(each);
});

const container = (command: readonly string[]) => ({ name: "app", image: BUSYBOX_IMAGE, command });
const component = (image: string, args: readonly string[]) => ({ name: "app", image, imagePullPolicy: "Never", args });

const podOf = (name: string, only: object, spec: object = {}): unknown => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: { nodeName: NODE, restartPolicy: "Never", containers: [only], ...spec },
});

/** Of all pods, of the agent and of containerd, with their names and cgroups. */
const processes = async (): Promise<string> =>
  await guest.output(
    "for pid in $(systemctl show -P MainPID picolet containerd; find /sys/fs/cgroup/kubepods* -name cgroup.procs -exec cat {} + | sort -n); do echo $pid $(cat /proc/$pid/comm /proc/$pid/cgroup); done",
  );

const leaks = {
  "container that leaks 100 MiB a second": { only: container(["load", "leak", "100"]), spec: {} },
  ...(WITH_COMPONENTS
    ? { "component that leaks as fast as it can": { only: component(LEAK, []), spec: { runtimeClassName: "wasm" } } }
    : {}),
};

for (const [kind, { only, spec }] of Object.entries(leaks)) {
  test(`a ${kind} goes, every other process stays`, { skip }, async (context) => {
    await agent.waitForStatus("the node is calm", ({ conditions }) =>
      conditions.some(({ type, status }) => type === "MemoryPressure" && status === "False"),
    );
    const others = await processes();
    await fleet.apply(podOf("leak", only, spec));
    const pods = await agent.waitForPods("the leak has ended", (all) =>
      ["Failed", "Succeeded"].includes(all.get("leak")?.status?.phase ?? ""),
    );
    const { reason, message, containerStatuses } = pods.get("leak")?.status ?? {};
    const how = reason ?? containerStatuses?.[0]?.state.terminated?.reason;
    // It has run, and is not refused.
    assert.ok(containerStatuses?.[0]?.state.terminated?.startedAt, message);
    context.diagnostic(`${how}: ${message ?? ""}`);
    assert.ok(
      how === "Evicted" || how === "OOMKilled",
      `${how}\n${JSON.stringify(pods.get("leak"))}\n${await agent.log()}`,
    );
    await fleet.kubectl(["delete", "pod", "leak", "--wait=true", "--timeout=100s"]);
    await agent.waitForPods("the leak is gone", (all) => !all.has("leak"));
    assert.equal(await processes(), others, await agent.log());
  });
}
