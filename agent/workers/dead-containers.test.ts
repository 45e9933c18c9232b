/**
 * What is kept of containers that have ended, and what goes when the disk is full: the agent over a fake runtime, on
 * virtual time.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { filePod, SmallAgent, SmallBoard } from "@picolet/test/support/unit/agent/small-agent.ts";

const { signal } = new AbortController();

const statusOf = (agent: SmallAgent, pod: DesiredPod) => agent.status(pod)?.containerStatuses?.[0];
const apiPod = (name: string, command: readonly string[]): DesiredPod => ({
  ...filePod(name, command, { restartPolicy: "Never" }),
  ...{ uid: podUid(name), source: "api", origin: "" },
});

async function deleteDead(agent: SmallAgent): Promise<void> {
  const done = agent.workers.deleteDead(signal);
  await agent.pass(1000);
  await done;
  await agent.pass(1000);
}

describe("dead containers", () => {
  test("of each container one is kept beside the one that runs; under pressure none, and the status forgets nothing", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = filePod("web", ["run-for", "700000", "3"]);
    await agent.want(pod);
    for (let round = 0; round < 3; round += 1) await agent.pass(720_000);
    assert.deepEqual(agent.containers(pod), ["app/3 running", "app/2 exited"]);
    const before = statusOf(agent, pod);
    assert.equal(before?.lastState.terminated?.exitCode, 3);
    await deleteDead(agent);
    assert.deepEqual(agent.containers(pod), ["app/3 running"]);
    assert.deepEqual(statusOf(agent, pod), before);
    await agent.pass(720_000);
    assert.deepEqual(agent.containers(pod), ["app/4 running", "app/3 exited"]);
    assert.equal(statusOf(agent, pod)?.restartCount, 4);
  });

  test("one that waits for its back-off stays: it is what the next run is judged by", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = filePod("loop", ["exit", "1"]);
    await agent.want(pod);
    await agent.pass(35_000);
    const before = agent.containers(pod);
    assert.equal(before.length, 1);
    await deleteDead(agent);
    assert.deepEqual(agent.containers(pod), before);
    assert.equal(statusOf(agent, pod)?.state.waiting?.reason, "CrashLoopBackOff");
  });

  test("a pod of the API server that is over leaves its status alone; so it does for the next agent", async () => {
    using board = new SmallBoard();
    const pod = apiPod("job", ["exit", "0"]);
    await using agent = new SmallAgent(board);
    await agent.order(pod);
    await agent.pass(2000);
    const before = agent.status(pod);
    assert.equal(before?.phase, "Succeeded");
    await deleteDead(agent);
    const { sandboxes, containers } = board.runtime.inspect(pod.uid);
    assert.deepEqual([sandboxes, containers], [[], []]);
    assert.deepEqual(agent.status(pod)?.containerStatuses, before?.containerStatuses);
    assert.equal(agent.status(pod)?.phase, "Succeeded");
    await agent.pass(700_000);
    assert.deepEqual(board.runtime.inspect(pod.uid).containers, []);
  });

  test("one of the node's own keeps its containers: without them it would run again after a power cut", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = filePod("job", ["exit", "0"], { restartPolicy: "Never" });
    await agent.want(pod);
    await agent.pass(2000);
    await deleteDead(agent);
    assert.deepEqual(agent.containers(pod), ["app/0 exited"]);
  });

  test("a pod whose runtime does not answer does not keep the others", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pods = ["a", "b"].map((name) => apiPod(name, ["exit", "0"]));
    await agent.order(...pods);
    await agent.pass(2000);
    board.onCall = ({ kind, uid }) =>
      uid === "a" && kind === "removeSandbox" ? { kind: "hang", heedsSignal: true } : undefined;
    const done = agent.workers.deleteDead(signal);
    await agent.pass(25_000);
    await done;
    assert.deepEqual(board.runtime.inspect(podUid("b")).containers, []);
    board.onCall = () => undefined;
    await agent.pass(200_000);
  });
});
