/**
 * Pods on cgroup v1 whose cgroups systemd makes, on any machine that has both: their values in the kernel's files, what
 * systemd and a next agent make of them, and what is left of them.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { cgroupNames } from "@picolet/protocol/cgroup/cgroup-names.ts";
import type { QosClass } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import { restartsOf } from "../agent/agent-process.ts";
import { containerIdOf, containerPod } from "../agent/node-fixtures.ts";
import { testComponent } from "../wasm/components.ts";
import { transpiledFiles } from "../wasm/loaded-component.ts";
import type { BoardMachine } from "./board-machine.ts";
import type { GuestAgent, GuestAgentOptions } from "./guest-agent.ts";

const ROOT = "/sys/fs/cgroup";
const NAMES = cgroupNames("systemd", "/");
const COMPONENT = "/root/script.wasm";
const MANIFEST = "pods.json";
const UNLIMITED = "9223372036854771712";

type Values = readonly [shares: string, quota: string, memory: string];

interface Expected {
  readonly qos: QosClass;
  readonly resources: object;
  readonly values: Values;
}

/** Containers, and a component. */
const PODS: Readonly<Record<string, Expected>> = {
  g: {
    qos: "Guaranteed",
    resources: { limits: { cpu: "500m", memory: "48Mi" } },
    values: ["512", "50000", String(48 * MEBIBYTE)],
  },
  b: {
    qos: "Burstable",
    resources: { requests: { cpu: "100m", memory: "20Mi" }, limits: { memory: "60Mi" } },
    values: ["102", "-1", String(60 * MEBIBYTE)],
  },
  e: { qos: "BestEffort", resources: {}, values: ["2", "-1", UNLIMITED] },
  component: {
    qos: "Guaranteed",
    resources: { limits: { cpu: "500m", memory: "60Mi" } },
    values: ["512", "50000", String(60 * MEBIBYTE)],
  },
};

/** The options that the agent needs. */
export const cgroupV1Agent = async (): Promise<GuestAgentOptions> => ({
  config: { cgroupDriver: "systemd", kubeReserved: { cpu: "100m", memory: "64Mi", pid: "500" }, podPidsLimit: 100 },
  files: {
    [COMPONENT]: readFileSync(await testComponent("script.c")),
    // An emulated board takes a minute to transpile it.
    ...(await transpiledFiles("script.c", "/var/lib/picolet/wasm/transpiled")),
  },
});

/** Runs the pods, and removes them. */
export async function holdsOnCgroupV1(machine: BoardMachine, agent: GuestAgent): Promise<void> {
  const items = Object.entries(PODS).map(([name, { resources }]) => manifest(name, resources));
  await agent.writeManifest(MANIFEST, { apiVersion: "v1", kind: "List", items });
  const run = (all: PodsByName): boolean => all.size === items.length && [...all.values()].every(isReady);
  const pods = await agent.waitForPods("all run", run);
  assert.doesNotMatch(await agent.log(1_000), /within 30 s/, "each job of systemd is seen to end");
  await haveTheirValues(machine, pods);
  const before = await written(machine);
  await machine.output("systemctl daemon-reload && systemctl set-property --runtime system.slice CPUShares=500");
  assert.equal(await written(machine), before, "systemd writes the same");

  const pid = await agent.pid();
  await machine.output("systemctl kill --kill-whom=main --signal=KILL picolet");
  await machine.output(`until [ $(systemctl show -P MainPID picolet) != ${pid} ]; do sleep 0.2; done`);
  await machine.output("until [ $(systemctl show -P MainPID picolet) != 0 ]; do sleep 0.2; done");
  await agent.answers();
  const again = await agent.waitForPods("all run still", run);
  for (const [name, pod] of again)
    assert.deepEqual([containerIdOf(pod), restartsOf(pod)], [containerIdOf(pods.get(name)), 0], name);
  assert.equal(await written(machine), before, "the next agent writes the same");
  await haveTheirValues(machine, again);

  await agent.removeManifest(MANIFEST);
  await agent.waitForPods("an empty node", (all) => all.size === 0);
  assert.equal(await machine.output(`find ${ROOT} -type d -name '*kubepods*pod*'`), "");
  assert.equal(await machine.output("systemctl list-units --all --plain --no-legend 'kubepods*pod*'"), "");
}

function manifest(name: string, resources: object): unknown {
  const pod = containerPod(name, undefined, { hostNetwork: true }) as { readonly spec: { containers: object[] } };
  const containers = pod.spec.containers.map((each) => ({ ...each, resources }));
  if (name !== "component") return { ...pod, spec: { ...pod.spec, containers } };
  const container = { name: "app", image: `file://${COMPONENT}`, args: ["hold"], resources };
  return { ...pod, spec: { runtimeClassName: "wasm", containers: [container] } };
}

const FILES = ["memory.limit_in_bytes", "cpu.shares", "cpu.cfs_quota_us", "pids.max", "cpuset.cpus"];

/** All values of ours, by file, and how many processes are where. */
async function written(machine: BoardMachine): Promise<string> {
  const named = FILES.map((name) => `-name ${name}`).join(" -o ");
  const values = await machine.output(`find ${ROOT} -path '*kubepods*' \\( ${named} \\) | sort | xargs grep -H .`);
  const processes = await machine.output(
    `find ${ROOT} -path '*kubepods*' -name cgroup.procs | sort | xargs grep -c . || true`,
  );
  return `${values}${processes}`;
}

async function haveTheirValues(machine: BoardMachine, pods: PodsByName): Promise<void> {
  const lines = async (line: string): Promise<readonly string[]> => (await machine.output(line)).trimEnd().split("\n");
  for (const [name, { qos, values }] of Object.entries(PODS)) {
    const pod = pods.get(`${name}-guest`) ?? assert.fail(name);
    const slice = NAMES.pod(qos, pod.metadata.uid ?? "");
    // The agent names a component's cgroup, the runtime a container's.
    const inside = name === "component" ? [] : [`/cri-containerd-${containerIdOf(pod)}.scope`];
    for (const folder of ["", ...inside].map((each) => `${slice}${each}`)) {
      const files = [
        `cpu${folder}/cpu.shares`,
        `cpu${folder}/cpu.cfs_quota_us`,
        `memory${folder}/memory.limit_in_bytes`,
      ];
      assert.deepEqual(await lines(`cd ${ROOT} && cat ${files.join(" ")}`), values, folder);
    }
    assert.deepEqual(await lines(`cat ${ROOT}/pids${slice}/pids.max`), ["100"], slice);
    const unit = slice.slice(slice.lastIndexOf("/") + 1);
    assert.deepEqual(await lines(`systemctl show -P ActiveState ${unit}; systemctl show -P Transient ${unit}`), [
      ...["active", "yes"],
    ]);
    for (const controller of ["cpu", "memory", "pids", "cpuset", "freezer"])
      assert.notEqual(await machine.output(`find ${ROOT}/${controller}${slice} -name cgroup.procs -exec cat {} +`), "");
  }
}
