/**
 * Random mixes of pods on a board of 512 MB that runs short of memory, disk, inodes or processes, each judged by an oracle
 * that knows nothing of the code that evicts. `PICOLET_MIXES=50` runs fifty (as `npm run chaos` does), `PICOLET_MIX_SEED=2,14`
 * these two; without either one runs that is soon over: a fork bomb, for which an innocent pod of less priority goes first.
 *
 * Then pods that take 100 MiB a second and more, where the agent and the kernel's OOM killer are after the same: whoever is first,
 * the pod that leaks goes, and nothing else. With `PICOLET_MIXES` components too: to transpile them takes the emulated board minutes.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { isReady } from "../../scripts/follow-pods.ts";
import { testComponent, textComponent } from "../support/components.ts";
import { kubectlMissing } from "../support/fleet.ts";
import { guestMissing } from "../support/guest.ts";
import { BUSYBOX_IMAGE } from "../support/image-archive.ts";
import { PressureBoard } from "../support/pressure-board.ts";
import { type MixedPod, type PressureMix, pressureMix } from "../support/pressure-mixes.ts";
import { judge } from "../support/pressure-oracle.ts";

const skip = guestMissing() ?? (kubectlMissing("1.32") || false);
const { PICOLET_MIXES, PICOLET_MIX_SEED } = process.env;
const SEEDS =
  PICOLET_MIX_SEED !== undefined
    ? PICOLET_MIX_SEED.split(",").map(Number)
    : PICOLET_MIXES !== undefined
      ? Array.from({ length: Number(PICOLET_MIXES) }, (_, index) => index + 1)
      : [25];

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

let board: PressureBoard;

before(async () => {
  if (skip === false) board = await PressureBoard.start();
});

after(async () => {
  await board?.[Symbol.asyncDispose]();
});

for (const seed of SEEDS) {
  const mix = pressureMix(seed);
  test(`mix ${seed}: ${inShort(mix)}`, { skip }, async (context) => {
    const start = performance.now();
    const reached = (what: string): void =>
      context.diagnostic(`${((performance.now() - start) / 1_000).toFixed(0)} s: ${what}`);
    const observed = await board.run(mix, reached).catch((error: unknown) => {
      throw new Error(`mix ${seed} was not over\n${board.log}`, { cause: error });
    });
    const problems = judge(mix, observed);
    const shown = [...problems, ...observed.told.map(({ reason, name }) => `told: ${reason} ${name}`)];
    if (problems.length > 0) shown.push(JSON.stringify([...observed.pods], undefined, 1), board.log);
    assert.deepEqual(problems, [], shown.join("\n"));
  });
}

function inShort({ pods }: PressureMix): string {
  const one = (pod: MixedPod): string => {
    const what =
      pod.usesUp === undefined ? `holds ${pod.holdMiB}` : `uses up ${pod.usesUp} at ${pod.rate || "full speed"}`;
    const asks =
      pod.requestMiB === undefined ? "" : ` of ${pod.requestMiB}${pod.limitMiB === undefined ? "" : " at most"}`;
    return `${pod.source === "static" ? "static" : pod.priority} ${pod.runtime} ${what}${asks}`;
  };
  return pods.map(one).join(", ");
}

const container = (command: readonly string[]) => ({ name: "app", image: BUSYBOX_IMAGE, command });
const component = (image: string, args: readonly string[]) => ({ name: "app", image, imagePullPolicy: "Never", args });

const podOf = (name: string, only: object, spec: object = { hostNetwork: true }): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: { nodeName: board.nodeName, restartPolicy: "Never", containers: [only], ...spec },
});

const asComponent = { runtimeClassName: "wasm" };
const withComponents = PICOLET_MIXES !== undefined;
const leaks = {
  "container that leaks 100 MiB a second": () => podOf("leak", container(["load", "leak", "100"])),
  ...(withComponents
    ? { "component that leaks as fast as it can": () => podOf("leak", component(LEAK, []), asComponent) }
    : {}),
};

for (const [kind, leak] of Object.entries(leaks)) {
  test(`a ${kind} goes, every other process stays`, { skip }, async (context) => {
    const { agent, fleet } = board;
    await othersRun();
    const others = await processes();
    await fleet.apply(leak());
    const pods = await agent.waitForPods("the leak has ended", (all) =>
      ["Failed", "Succeeded"].includes(all.get("leak")?.status?.phase ?? ""),
    );
    const { reason, message, containerStatuses } = pods.get("leak")?.status ?? {};
    const how = reason ?? containerStatuses?.[0]?.state.terminated?.reason;
    // It has run, and is not refused.
    assert.ok(containerStatuses?.[0]?.state.terminated?.startedAt, message);
    context.diagnostic(`${how}: ${message ?? ""}`);
    assert.ok(how === "Evicted" || how === "OOMKilled", `${how}\n${JSON.stringify(pods.get("leak"))}\n${board.log}`);
    await fleet.kubectl(["delete", "pod", "leak", "--wait=true", "--timeout=100s"]);
    await agent.waitForPods("the leak is gone", (all) => !all.has("leak"));
    assert.equal(await processes(), others, board.log);
  });
}

/** Two that behave, with components three; and the node is calm. */
async function othersRun(): Promise<void> {
  const { agent, fleet, guest } = board;
  const items = [podOf("idle", container(["load", "hold", "5"])), podOf("still", container(["load", "hold", "10"]))];
  if (withComponents) {
    for (const [name, path] of [
      [LEAK, await textComponent(LEAK_TEXT)],
      [COMPONENT, await testComponent("script.c")],
    ] as const) {
      await guest.upload("/root/component.wasm", readFileSync(path));
      await guest.output(`/opt/picolet/dist/bin/edgectl image import /root/component.wasm --name ${name}`);
    }
    items.push(podOf("quiet", component(COMPONENT, ["hold"]), asComponent));
  }
  await fleet.apply({ apiVersion: "v1", kind: "List", items });
  await agent.waitForPods("the others run", (all) => all.size === items.length && [...all.values()].every(isReady));
  await agent.waitForStatus("the node is calm", ({ conditions }) =>
    conditions.some(({ type, status }) => type === "MemoryPressure" && status === "False"),
  );
}

/** Of all pods, of the agent and of containerd, with their names and cgroups. */
async function processes(): Promise<string> {
  return await board.guest.output(
    "for pid in $(systemctl show -P MainPID picolet containerd; find /sys/fs/cgroup/kubepods* -name cgroup.procs -exec cat {} + | sort -n); do echo $pid $(cat /proc/$pid/comm /proc/$pid/cgroup); done",
  );
}
