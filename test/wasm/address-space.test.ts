/**
 * Components where a process has few addresses, as with kernels of 39 bits (512 GiB, of which each linear memory takes
 * 8): here with less, so that few components are enough.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { test } from "node:test";
import { GIBIBYTE } from "@picolet/protocol/units.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { AgentNode } from "../support/agent/agent-process.ts";
import { runningProcesses } from "../support/unit/machine/processes.ts";
import { testComponent } from "../support/wasm/components.ts";

/** Room for seven linear memories, and Node. */
const FEW = 64 * GIBIBYTE;
const PODS = 10;
const PRLIMIT = "/usr/bin/prlimit";
const skip = existsSync(PRLIMIT) ? false : `not installed: ${PRLIMIT}`;

test("a process that is full of linear memories passes further components on to another", { skip }, async () => {
  const image = `file://${resolve(await testComponent("script.c"))}`;
  const podOf = (name: string, annotations: Readonly<Record<string, string>>): string =>
    JSON.stringify({
      ...{ apiVersion: "v1", kind: "Pod", metadata: { name, annotations } },
      spec: {
        ...{ runtimeClassName: "wasm", terminationGracePeriodSeconds: 1 },
        containers: [{ name: "app", image, imagePullPolicy: "IfNotPresent", args: ["hold"] }],
      },
    });
  await using node = new AgentNode({ program: () => [PRLIMIT, `--as=${FEW}`, "dist/board/bin/picolet"] });
  await node.start();
  const names = Array.from({ length: PODS }, (_, index) => `dense-${index}`);
  for (const name of names) await node.writeManifest(`${name}.json`, podOf(name, { "wasm.picolet.io/mode": "dense" }));
  await node.writeManifest("alone.json", podOf("alone", {}));
  const pods = await node.waitForPods("all run", (all) => all.size === PODS + 1 && [...all.values()].every(isReady));
  assert.ok([...pods.values()].every(({ status }) => status?.containerStatuses?.[0]?.restartCount === 0));
  const limited = runningProcesses().filter(({ words }) => {
    return words.some((word) => word.endsWith("wasm-dense.cjs")) && words.join(" ").includes(node.directory);
  });
  assert.ok(limited.length >= 2, `${PODS} components are in ${limited.length} processes`);
});

test("a process without addresses for a linear memory says so", { skip }, () => {
  const module = import.meta.resolve("@picolet/runtime-wasm/shared/component/trap-message.ts");
  const script = `
    const { startMessage, lacksAddresses } = await import(${JSON.stringify(module)});
    const memories = [];
    try {
      for (;;) memories.push(new WebAssembly.Memory({ initial: 1, maximum: 16 }));
    } catch (error) {
      console.log(memories.length, lacksAddresses(error), startMessage(error));
    }`;
  const args = [`--as=${FEW}`, process.execPath, "--input-type=module", "--eval", script];
  const [made, lacks, ...message] = execFileSync(PRLIMIT, args, { encoding: "utf8" }).trim().split(" ");
  assert.ok(Number(made) >= 5 && Number(made) <= 8, `${made} memories`);
  assert.equal(lacks, "true");
  assert.match(message.join(" "), /^its process has no addresses left for a linear memory, of which each takes 8 GiB/);
});
