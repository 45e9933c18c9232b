/** An agent that is killed right after it has had a pod killed: the next one knows why. */
import assert from "node:assert/strict";
import { cpSync, mkdirSync } from "node:fs";
import { test } from "node:test";
import { Store } from "@picolet/agent/store/store.ts";
import { filePod, SmallAgent, SmallBoard } from "../support/unit/agent/small-agent.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const { signal } = new AbortController();
const MESSAGE = "The node was low on resource: memory. ";
const EVICTED = {
  reason: "Evicted",
  message: MESSAGE,
  gracePeriod: undefined,
  disruption: { reason: "TerminationByKubelet", message: MESSAGE },
};

for (const restartPolicy of ["Always", "Never"] as const)
  test(`a pod that was ended stays ended, though its runtime did not answer any more and its agent was killed at once: ${restartPolicy}`, async () => {
    using folder = new TempFolder();
    using board = new SmallBoard();
    const log = new RecordedLog();
    const open = (name: string): Store =>
      new Store({ clock: board.clock, log }, { path: folder.at(`${name}/agent.db`) });
    for (const name of ["first", "second"]) mkdirSync(folder.at(name));
    const pod = { ...filePod("web", ["run"], { restartPolicy }), source: "api" as const };
    await using store = open("first");
    await using agent = new SmallAgent(board, { store });
    await agent.order(pod);
    await agent.pass(20_000);
    store.flush();
    board.onCall = ({ kind }) => (kind === "inspect" ? { kind: "hang", heedsSignal: true } : undefined);
    agent.workers.end(pod.uid, EVICTED, signal).catch(() => undefined);
    agent.kill(pod);
    // A copy of the disk as the next agent would find it.
    cpSync(folder.at("first"), folder.at("second"), { recursive: true });
    board.onCall = () => undefined;
    await agent[Symbol.asyncDispose]();
    await using laterStore = open("second");
    await using later = new SmallAgent(board, { store: laterStore });
    await later.pass(60_000);
    assert.deepEqual(later.containers(pod), ["app/0 exited"]);
    const status = later.status(pod);
    assert.deepEqual([status?.phase, status?.reason, status?.message], ["Failed", "Evicted", MESSAGE]);
    const disruption = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
    assert.deepEqual([disruption?.status, disruption?.reason], ["True", "TerminationByKubelet"]);
  });
