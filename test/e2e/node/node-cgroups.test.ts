/**
 * The limits of all pods together, of the system, and of the agent with its runtime: the real agent on this machine's
 * own cgroups.
 */
import assert from "node:assert/strict";
import { on, once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { allReady, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { removeCgroups } from "../../support/unit/machine/test-cgroups.ts";
import { testComponent } from "../../support/wasm/components.ts";

const hierarchies = await detectCgroups();
const skip = hierarchies.kind === "v1" && process.geteuid?.() === 0 ? false : "needs root on a machine with cgroup v1";
const SCRIPT = "picolet.example/script:1";
const mountOf = (controller: string): string =>
  (hierarchies.kind === "v1" ? hierarchies.controllers.get(controller) : undefined) ?? "";
const cgroupValue = (path: string, file: string): string =>
  readFileSync(join(mountOf(file.split(".")[0] ?? ""), path, file), "utf8").trim();

const pod = (name: string, resources: unknown): unknown => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: {
    runtimeClassName: "wasm",
    terminationGracePeriodSeconds: 5,
    containers: [{ name: "app", image: SCRIPT, imagePullPolicy: "Never", args: ["hold"], resources }],
  },
});

describe("node allocatable is enforced", { skip }, () => {
  test("a reserved cgroup that is not there keeps the agent from starting, and it says which", async () => {
    await using node = nodeWith(undefined, {
      config: {
        kubeReserved: { memory: "64Mi" },
        kubeReservedCgroup: "/picolet-nowhere",
        enforceNodeAllocatable: ["pods", "kube-reserved"],
      },
    });
    const agent = node.spawn();
    const [code] = await once(agent, "close");
    assert.notEqual(code, 0);
    assert.match(node.log, /cannot enforce Kube Reserved Cgroup Limits on .*picolet-nowhere.*has some missing paths/);
  });

  test("pods, system and agent have what the configuration gives them", async () => {
    const reserved = `/picolet-reserved-${process.pid}`;
    for (const controller of ["cpu", "cpuset", "memory", "pids", "hugetlb"])
      if (mountOf(controller) !== "") mkdirSync(join(mountOf(controller), reserved), { recursive: true });
    try {
      await using node = nodeWith(undefined, {
        config: {
          kubeReserved: { cpu: "100m", memory: "64Mi", pid: "500" },
          systemReserved: { cpu: "200m", memory: "128Mi" },
          systemReservedCgroup: reserved,
          enforceNodeAllocatable: ["pods", "system-reserved"],
          podPidsLimit: 64,
        },
      });
      await node.start();
      assert.equal(cgroupValue(reserved, "cpu.shares"), "204", node.log);
      assert.equal(cgroupValue(reserved, "memory.limit_in_bytes"), String(128 * MEBIBYTE));
      edgectl(node, "image", "import", await testComponent("script.c"), "--name", SCRIPT);
      node.writeManifest("b.json", pod("b", { requests: { cpu: "100m", memory: "40Mi" }, limits: { memory: "80Mi" } }));
      node.writeManifest("e.json", pod("e", {}));
      await node.waitForPods("two pods", allReady(2));
      const total = /^MemTotal:\s+(\d+) kB/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1];
      const root = `${node.cgroupRoot}/kubepods`;
      const all = Number(cgroupValue(root, "memory.limit_in_bytes"));
      assert.ok(Math.abs(all - (Number(total) * 1024 - 192 * MEBIBYTE)) < MEBIBYTE, `${all}`);
      assert.ok(Number(cgroupValue(root, "pids.max")) > 1000);
      assert.equal(cgroupValue(`${root}/burstable`, "cpu.shares"), "102");
      const told = await node.waitForEvent(
        "the limit of all pods",
        ({ reason }) => reason === "NodeAllocatableEnforced",
      );
      assert.match(
        told.message,
        /^Updated (limits on system reserved cgroup \/picolet-reserved|Node Allocatable limit)/,
      );
      const [name] = podsIn(`${root}/burstable`);
      assert.equal(cgroupValue(`${root}/burstable/${name}`, "memory.limit_in_bytes"), String(80 * MEBIBYTE));
      assert.equal(cgroupValue(`${root}/burstable/${name}`, "pids.max"), "64");
      // The next agent corrects a change that was made while no agent ran.
      await node.kill();
      writeFileSync(join(mountOf("memory"), root, "burstable", name ?? "", "memory.limit_in_bytes"), "-1");
      writeFileSync(join(mountOf("memory"), root, "memory.limit_in_bytes"), "-1");
      const limit = (): string | undefined => cgroupValue(`${root}/burstable/${name}`, "memory.limit_in_bytes");
      const watcher = watch(join(mountOf("memory"), root, "burstable", name ?? "", "memory.limit_in_bytes"));
      const changes = on(watcher, "change", { signal: AbortSignal.timeout(60_000) });
      await node.start();
      // Opening the file for a write counts as a change too.
      while (limit() !== String(80 * MEBIBYTE)) await changes.next();
      watcher.close();
      assert.equal(Number(cgroupValue(root, "memory.limit_in_bytes")), all);
      await node.drain();
    } finally {
      if (existsSync(join(mountOf("memory"), reserved))) await removeCgroups(reserved);
    }
  });
});

const podsIn = (tier: string): readonly string[] =>
  readdirSync(join(mountOf("memory"), tier)).filter((name) => name.startsWith("pod"));
