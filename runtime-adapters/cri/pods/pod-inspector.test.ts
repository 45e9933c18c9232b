import assert from "node:assert/strict";
import { test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import { answer, refuse, ScriptedCri } from "@picolet/test/support/unit/cri/scripted-cri.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { CriClient } from "../wire/cri-client.ts";
import { ContainerState, podCalls, RuntimeService } from "../wire/cri-messages.ts";
import { LABEL } from "./labels.ts";
import { OwnedIds } from "./owned-ids.ts";
import { PodInspector } from "./pod-inspector.ts";

const UID = podUid("mine");
const CALLS = podCalls([]);
const LABELS = new Map([
  [LABEL.owner, "me"],
  [LABEL.podUid, UID],
]);

/** @returns how a container's end is seen that the runtime shows with `exitCode` and `reason` */
async function seen(exitCode: number, reason: string, isKilled: boolean | undefined): Promise<string> {
  using server = await ScriptedCri.start((method, stream) => {
    if (method === "ListPodSandbox") return answer(stream, CALLS.listPodSandbox.response.encode({ items: [] }));
    if (method === "ListContainers") {
      const listed = { id: "c", podSandboxId: "s", state: ContainerState.exited, labels: LABELS };
      return answer(stream, CALLS.listContainers.response.encode({ containers: [listed] }));
    }
    if (method !== "ContainerStatus") return refuse(stream, 12);
    const status = { id: "c", state: ContainerState.exited, exitCode, reason, labels: LABELS };
    return answer(stream, RuntimeService.containerStatus.response.encode({ status }));
  });
  using client = new CriClient({ clock: new VirtualClock() }, { endpoint: server.endpoint, requestTimeoutMs: 1_000 });
  const killed = isKilled === undefined ? undefined : { has: (id: string) => isKilled && id === "c" };
  const inspector = new PodInspector({ client, owned: new OwnedIds(client, "me"), killed }, { owner: "me" });
  const { containers } = await inspector.inspect(UID, new AbortController().signal);
  const state = containers[0]?.state;
  return state?.kind === "exited" ? state.reason : "";
}

test("a failure that the runtime has no reason for is OOMKilled when the kernel says so", async () => {
  assert.equal(await seen(137, "Error", true), "OOMKilled");
  assert.equal(await seen(3, "", true), "OOMKilled");
});

test("the runtime's own reason stays, and so does a success", async () => {
  assert.equal(await seen(128, "StartError", true), "StartError");
  assert.equal(await seen(0, "", true), "Completed");
  assert.equal(await seen(137, "OOMKilled", false), "OOMKilled");
});

test("where the kernel says nothing it is the runtime's word", async () => {
  assert.equal(await seen(137, "", false), "Error");
  assert.equal(await seen(137, "Error", undefined), "Error");
});
