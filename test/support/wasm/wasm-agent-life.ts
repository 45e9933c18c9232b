/**
 * A program: one life of an agent that does one thing after another to a few component pods, until it is killed.
 * Its argument is an `AgentLife` as JSON. It says `alive` after its first deed.
 */

import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { CgroupTree } from "@picolet/agent/resources/cgroup-tree.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { Action, DesiredPod, ObservedPod, SandboxLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapterInit } from "@picolet/runtime-wasm/adapter/adapter-settings.ts";
import { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";
import { seededRandom } from "../unit/ports/seeded-random.ts";

export interface AgentLife {
  readonly seed: number;
  readonly init: WasmAdapterInit;
  readonly imageId: string;
  readonly pods: readonly (Pick<SandboxLaunch, "logDirectory" | "cgroupParent"> & { readonly desired: DesiredPod })[];
}

const NEVER = new AbortController().signal;

async function live({ seed, init, imageId, pods }: AgentLife): Promise<never> {
  const log = new RecordedLog();
  const cgroups = new CgroupTree({ log, clock: systemClock }, { hierarchies: await detectCgroups() });
  const adapter = new WasmAdapter(
    { clock: systemClock, log, cgroups, hostIps: () => [], warn: () => undefined, services: {} },
    init,
  );
  const random = seededRandom(seed);
  let isFirst = true;
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random.next() * list.length)];
  for (;;) {
    const pod = pick(pods);
    if (pod === undefined) throw new Error("there are no pods");
    const { desired, logDirectory, cgroupParent } = pod;
    const observed = await adapter.inspect(desired.uid, NEVER);
    const action = pick(possible(observed, { imageId, logDirectory, cgroupParent }));
    if (action === undefined) continue;
    await adapter.apply(desired, action, NEVER).catch((error: unknown) => {
      // A container may have ended meanwhile, or its sandbox; anything else is a fault.
      if (!isPicoletError(error, "conflict") && !isPicoletError(error, "not_found")) throw error;
    });
    if (isFirst) process.stdout.write("alive");
    isFirst = false;
  }
}

function possible(
  { sandboxes, containers }: ObservedPod,
  pod: Pick<SandboxLaunch, "logDirectory" | "cgroupParent"> & { readonly imageId: string },
): Action[] {
  const { imageId, ...folders } = pod;
  const [newest] = sandboxes;
  const next = (list: readonly { readonly attempt: number }[]): number =>
    Math.max(-1, ...list.map((each) => each.attempt)) + 1;
  if (newest === undefined || newest.state === "notReady") {
    const sandbox = { attempt: next(sandboxes), hostname: "", dns: undefined, ...folders };
    return [
      { kind: "createSandbox", sandbox },
      ...sandboxes.map(({ id }) => ({ kind: "removeSandbox", sandboxId: id }) as const),
    ];
  }
  const attempt = next(containers);
  const start = (...args: string[]): Action => ({
    kind: "startContainer",
    container: {
      name: "main",
      attempt,
      hash: "hash",
      backoff: millis(0),
      image: { requested: "localhost/workload:1", id: imageId },
      command: [],
      args,
      env: [],
      workingDir: "",
      mounts: [],
      logPath: `main/${attempt}.log`,
    },
  });
  const ofContainers = containers.map(({ id, state }): Action => {
    if (state.kind === "exited") return { kind: "removeContainer", containerId: id };
    return { kind: "stopContainer", containerId: id, gracePeriod: millis(0) };
  });
  const sandboxId = newest.id;
  return [start("sleep"), start("sleep"), start("exit", "0"), ...ofContainers, { kind: "stopSandbox", sandboxId }];
}

await live(JSON.parse(process.argv[2] ?? "") as AgentLife);
