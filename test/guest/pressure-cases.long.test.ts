/**
 * Random mixes of pods on a board of 512 MB that runs short of memory, disk, inodes or processes, each judged by an
 * oracle that shares no code with eviction. `PICOLET_MIXES=50` runs fifty (as `npm run chaos` does),
 * `PICOLET_MIX_SEED=2,14` these two; without either a short one runs: a fork bomb, for which an innocent pod of less
 * priority goes first.
 *
 * Then pods that take 100 MiB a second and more, which both the agent and the kernel's OOM killer end: in any order,
 * only the leaking pod goes. With `PICOLET_MIXES` components too: the emulated board takes minutes to transpile them.
 * And a pod that may be a component instead, which stays.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { guestMissing } from "../support/guest/guest.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";
import { PressureBoard } from "../support/pressure/pressure-board.ts";
import { type MixedPod, type PressureMix, pressureMix } from "../support/pressure/pressure-mixes.ts";
import { judge } from "../support/pressure/pressure-oracle.ts";
import { makeTar } from "../support/unit/images/tar.ts";
import { textComponent } from "../support/unit/wasm/text-components.ts";
import { testComponent } from "../support/wasm/components.ts";
import { transpiledFiles } from "../support/wasm/loaded-component.ts";

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
/**
 * Touches 600 MiB, more than the board has, a page after the other. To grow a mebibyte at a time takes minutes on an
 * emulated processor.
 */
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

/**
 * As a container it waits for its gate and then takes ever more memory; as a component it holds a constant amount. Both
 * are started with `sh hold`: the container reads a file of that name in its folder, the component takes it as its
 * command.
 */
const EITHER = "picolet.example/either:1";
const GATE = "/root/gate";
const SCRIPT = "until [ -e /gate/open ]; do sleep 0.2; done; exec load leak 30\n";
const either = (): object => ({
  ...podOf(
    "either",
    {
      ...{ name: "app", image: EITHER, imagePullPolicy: "Never", command: ["sh", "hold"] },
      volumeMounts: [
        { name: "gate", mountPath: "/gate" },
        { name: "gate", mountPath: "/hold", subPath: "hold" },
      ],
    },
    { hostNetwork: true, restartPolicy: "Always", volumes: [{ name: "gate", hostPath: { path: GATE } }] },
  ),
  metadata: { name: "either", annotations: { "wasm.picolet.io/under-pressure": "component" } },
});

/** The image of containers by another name, and the component by the same. */
async function haveEither(): Promise<void> {
  const { guest } = board;
  const transpiled = await transpiledFiles("script.c", "/var/lib/picolet/wasm/transpiled");
  const component = readFileSync(await testComponent("script.c"));
  const files = { "/root/script.wasm": component, [`${GATE}/hold`]: SCRIPT, ...transpiled };
  await guest.output("tar -xf - -C /", { input: makeTar(files) });
  await guest.output(
    `ctr images tag ${BUSYBOX_IMAGE} ${EITHER} && edgectl image import /root/script.wasm --name ${EITHER}`,
  );
}

test("a container that takes too much goes on as a component where it may, every other process stays", {
  skip,
}, async () => {
  const { agent, fleet, guest } = board;
  await haveEither();
  await othersRun();
  const others = await processes();
  await fleet.apply(either());
  const told = (reason: string) =>
    agent.waitForEvent(
      `${reason} of either`,
      (event) => event.reason === reason && event.involvedObject.name === "either",
    );
  await told("ComponentsReady");
  const before = (await agent.waitForPods("it runs", (all) => isReady(all.get("either")))).get("either");
  await guest.output(`touch ${GATE}/open`);
  assert.match((await told("SwitchedToComponent")).message, /The node was low on resource: memory\./);
  const pods = await agent.waitForPods("it runs as a component", (all) => {
    const pod = all.get("either");
    return isReady(pod) && (pod?.status?.containerStatuses?.[0]?.containerID ?? "").startsWith("picolet-wasm:");
  });
  const { metadata, status } = pods.get("either") ?? assert.fail("it is there");
  assert.equal(metadata.uid, before?.metadata.uid);
  const [container] = status?.containerStatuses ?? [];
  // Where the kernel was first, it was restarted as a container, and did it again.
  assert.ok((container?.restartCount ?? 0) >= 1, board.log);
  assert.equal(container?.lastState.terminated?.exitCode, 137, board.log);
  assert.equal(status?.conditions?.find(({ type }) => type === "picolet.io/Runtime")?.reason, "Component");
  const mine = new RegExp(`pod${metadata.uid}`);
  const now = (await processes()).split("\n");
  assert.equal(now.filter((line) => !mine.test(line)).join("\n"), others, board.log);
  assert.ok(
    now.some((line) => mine.test(line) && line.includes(" MainThread ")),
    now.join("\n"),
  );
  await fleet.kubectl(["delete", "pod", "either", "--wait=true", "--timeout=100s"]);
});

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
      await guest.output(`/opt/picolet/dist/board/bin/edgectl image import /root/component.wasm --name ${name}`);
    }
    items.push(podOf("quiet", component(COMPONENT, ["hold"]), asComponent));
  }
  await fleet.apply({ apiVersion: "v1", kind: "List", items });
  await agent.waitForPods("the others run", (all) => all.size === items.length && [...all.values()].every(isReady));
  await agent.waitForStatus("the node is calm", ({ conditions }) =>
    conditions.some(({ type, status }) => type === "MemoryPressure" && status === "False"),
  );
}

/** Processes of all pods, of the agent and of containerd, with their names and cgroups. */
async function processes(): Promise<string> {
  return await board.guest.output(
    "for pid in $(systemctl show -P MainPID picolet containerd; find /sys/fs/cgroup/kubepods* -name cgroup.procs -exec cat {} + | sort -n); do echo $pid $(cat /proc/$pid/comm /proc/$pid/cgroup); done",
  );
}
