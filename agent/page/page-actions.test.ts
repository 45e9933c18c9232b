import assert from "node:assert/strict";
import { test } from "node:test";
import type { PodAction } from "@picolet/protocol/page/pod-actions.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { agentPod, FakeAgentView } from "@picolet/test/support/unit/agent/fake-agent-view.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { ACTION_RATE, PageActions } from "./page-actions.ts";

class Bench {
  readonly clock = new VirtualClock();
  readonly view = new FakeAgentView();
  readonly done: unknown[] = [];
  readonly actions = new PageActions({
    view: this.view,
    workers: {
      end: async (uid, { message }) => void this.done.push([uid, message]),
      leave: async (uid, { comesBack, user }) => void this.done.push([uid, comesBack, user]),
    },
    pushed: { remove: async (uid) => void this.done.push(["remove", uid]) },
    clock: this.clock,
    log: new RecordedLog(),
  });

  async change(verb: PodAction["verb"], name: string, user = "admin"): Promise<readonly [number, string]> {
    const { signal } = new AbortController();
    const { status, body } = await this.actions.change({ verb, namespace: "default", name }, user, signal);
    const answer = JSON.parse([...(body as Iterable<string>)].join("")) as {
      kind: string;
      message: string;
      code: number;
    };
    assert.deepEqual([answer.kind, answer.code], ["Status", status]);
    return [status, answer.message];
  }
}

test("a pod is restarted and deleted as by edgectl, with the user's name", async () => {
  const bench = new Bench();
  const of = (name: string, source: "file" | "push" | "api", status?: PodStatus) =>
    agentPod(podOf({}, { name }), { source, ...(status && { status }) });
  const over = of("done", "api", { phase: "Failed", reason: "Evicted" });
  bench.view.setPods(of("static", "file"), of("sent", "push"), of("ordered", "api"), over);
  assert.deepEqual(await bench.change("restart", "static"), [200, "pod/default/static is restarting"]);
  assert.deepEqual(bench.done.splice(0), [["static-uid", true, "admin"]]);
  const ending = 'pod "default/ordered" is ending on this board; its hub decides what follows';
  assert.deepEqual(await bench.change("delete", "ordered", "u".repeat(2000)), [200, ending]);
  const message = `The pod was deleted on its board by ${"u".repeat(340)} with its page`;
  assert.deepEqual(bench.done.splice(0), [["ordered-uid", message]]);
  assert.deepEqual(await bench.change("delete", "sent"), [200, 'pod "default/sent" is being deleted']);
  assert.deepEqual(bench.done[0], ["remove", "sent-uid"]);
  bench.done.splice(0);
  const [status, refusal] = await bench.change("delete", "static");
  assert.equal(status, 409);
  assert.match(refusal, /would come back at once: remove it from/);
  assert.equal((await bench.change("restart", "done"))[0], 409);
  assert.equal((await bench.change("restart", "none"))[0], 404);
  assert.deepEqual(bench.done, []);
});

test("changes are limited, and go on after a while", async () => {
  const bench = new Bench();
  bench.view.setPods(agentPod(podOf({}, { name: "web" }), { source: "api" }));
  for (let count = 0; count < ACTION_RATE.burst; count += 1)
    assert.equal((await bench.change("restart", "web"))[0], 200);
  const [status, message] = await bench.change("restart", "web", "another");
  assert.equal(status, 429);
  assert.match(message, /try again in \d+ ms/);
  assert.equal(bench.done.length, ACTION_RATE.burst);
  await bench.clock.advance(seconds(5));
  assert.equal((await bench.change("restart", "web"))[0], 200);
});
