/** Pods of the API server, from their object to their last report: store, source, workers, one fake runtime. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { podObject } from "@picolet/agent/core/pods/pod-object.ts";
import { ApiSource } from "@picolet/agent/sources/api-source.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import { IMAGE, SmallAgent, SmallBoard } from "../support/unit/agent/small-agent.ts";
import { LOADED_PARSER } from "../support/unit/pods/pod-parser.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { TemporaryFolder } from "../support/unit/store/store-samples.ts";
import { type PodObject, RemoteHub } from "../support/unit/tunnel/remote-hub.ts";

const NOBODY: ReadonlySet<string> = new Set();

function podNamed(name: string, uid: string, command: readonly string[] = ["run"], spec: object = {}): PodObject {
  const containers = [{ name: "app", image: IMAGE, command }];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", uid },
    spec: { containers, terminationGracePeriodSeconds: 30, ...spec },
  };
}

/** A board with a hub; agents come and go on it. */
class Bench implements AsyncDisposable {
  readonly folder = new TemporaryFolder();
  readonly board = new SmallBoard();
  readonly hub = new RemoteHub();
  agent: SmallAgent;
  source: ApiSource;
  #store: Store;

  constructor() {
    [this.#store, this.agent, this.source] = this.#start();
  }

  /** Brings the hub's set to the agent, and runs what follows from it at once. */
  async sync(): Promise<void> {
    this.hub.bringTo(this.source);
    await this.board.clock.settle();
  }

  /** kill -9 and a new start, with the store as it was committed, or with none. */
  async restart(store: "kept" | "lost" = "kept"): Promise<void> {
    await this.agent[Symbol.asyncDispose]();
    await this.#store[Symbol.asyncDispose]();
    if (store === "lost") this.folder[Symbol.dispose]();
    [this.#store, this.agent, this.source] = this.#start();
  }

  pass(ms: number): Promise<void> {
    return this.agent.pass(ms);
  }

  /** `name uid phase ready`, in the order of the outbox. */
  get told(): string[] {
    return this.#store.statuses.pending(99).map(({ value: { name, uid, status, gone } }) => {
      const { phase, conditions = [] } = status as unknown as PodStatus;
      const ready = conditions.find((each) => each.type === "Ready")?.status;
      return `${name} ${uid} ${phase} ${ready}${gone ? " gone" : ""}`;
    });
  }

  ack(): void {
    this.#store.statuses.ack(this.#store.statuses.latest.current, NOBODY);
  }

  get store(): Store {
    return this.#store;
  }

  get ids(): string[] {
    const { runtime } = this.board;
    return runtime
      .list()
      .flatMap(({ uid }) => runtime.inspect(uid).containers.map(({ id, state }) => `${uid} ${id} ${state.kind}`));
  }

  #start(): [Store, SmallAgent, ApiSource] {
    const { clock } = this.board;
    const log = new RecordedLog();
    const store = new Store({ clock, log }, { path: this.folder.file("root/picolet.db") });
    const agent = new SmallAgent(this.board, { store });
    const { desired, statuses, objects, events } = store;
    const source = new ApiSource(
      { clock, log, parser: LOADED_PARSER, objects, store: desired, statuses, events },
      { nodeName: "n" },
    );
    return [store, agent, source];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.agent[Symbol.asyncDispose]();
    await this.#store[Symbol.asyncDispose]();
    this.board[Symbol.dispose]();
    this.folder[Symbol.dispose]();
  }
}

describe("a deleted pod", () => {
  test("runs and says so until its containers have ended, and is gone when nothing is left", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["slow-end", "3000"]));
    await bench.sync();
    assert.deepEqual(bench.told, ["web u1 Running True"]);
    bench.ack();
    bench.hub.deletePod("web", 30);
    await bench.sync();
    assert.equal(
      bench.agent.status(bench.agent.statuses.pods.get(podUid("u1"))?.view.desired as never)?.phase,
      "Running",
    );
    await bench.pass(2000);
    assert.ok(bench.told.every((each) => each.startsWith("web u1 Running")));
    let cleanups = 0;
    bench.agent.environment.before = async (what) => {
      if (what === "cleanup" && ++cleanups === 1)
        throw new PicoletError("failed", "cannot unmount", { retryable: true });
    };
    await bench.pass(1000);
    assert.equal(cleanups, 1);
    assert.deepEqual(bench.ids, []);
    assert.deepEqual(bench.told, ["web u1 Failed False"], "its folders are still there");
    await bench.pass(5000);
    assert.deepEqual(bench.told, ["web u1 Failed False gone"]);
    assert.equal(bench.agent.environment.prepared.size, 0);
    bench.ack();
    bench.hub.removePod("web");
    await bench.sync();
    assert.deepEqual([bench.told, bench.store.statuses.gone.size, bench.agent.workers.size], [[], 0, 0]);
  });

  test("that gets less time ends sooner", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["deaf"]));
    await bench.sync();
    bench.hub.deletePod("web", 30);
    await bench.sync();
    await bench.pass(5000);
    assert.match(bench.ids.join(), /running/);
    bench.hub.deletePod("web", 4);
    await bench.sync();
    await bench.pass(3900);
    assert.match(bench.ids.join(), /running/);
    await bench.pass(200);
    assert.deepEqual(bench.ids, []);
    await bench.pass(100);
    assert.deepEqual(bench.told, ["web u1 Failed False gone"]);
  });

  test("whose object goes by force ends within two seconds, and nobody is told", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["deaf"]));
    await bench.sync();
    bench.hub.deletePod("web", 30);
    await bench.sync();
    bench.hub.removePod("web");
    await bench.sync();
    await bench.pass(2100);
    assert.deepEqual([bench.ids, bench.told], [[], []]);
  });

  test("is ended to the end by whichever agent is there", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["deaf"]));
    await bench.sync();
    await bench.restart();
    bench.hub.deletePod("web", 6);
    await bench.sync();
    await bench.pass(3000);
    await bench.restart();
    await bench.pass(7000);
    assert.deepEqual(bench.ids, []);
    assert.deepEqual(bench.told, ["web u1 Failed False gone"]);
    await bench.restart();
    await bench.sync();
    await bench.pass(1000);
    assert.deepEqual(bench.told, ["web u1 Failed False gone"]);
  });

  test("is not told to be gone by a board that lost its store before what runs of it has been found and ended", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["slow-end", "3000"]));
    await bench.sync();
    bench.hub.put(podNamed("web", "u2", ["slow-end", "3000"]));
    await bench.sync();
    bench.hub.deletePod("web", 30);
    await bench.restart("lost");
    bench.board.runtime.faults.latency = ({ uid }) => millis(uid === "u1" ? 1000 : 0);
    await bench.sync();
    await bench.pass(900);
    assert.deepEqual([bench.told.filter((each) => each.endsWith("gone")), bench.ids.length], [[], 1]);
    await bench.pass(20_000);
    assert.deepEqual([bench.told, bench.ids], [["web u2 Failed False gone"], []]);
  });

  test("that never started is gone at once", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["run"], { containers: [{ name: "app", image: "nowhere/none:1" }] }));
    await bench.sync();
    bench.hub.deletePod("web", 30);
    await bench.sync();
    await bench.pass(1000);
    assert.match(bench.told.join(), /^web u1 \w+ False gone$/);
  });

  test("has its successor wait until it is gone", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["slow-end", "3000"]));
    await bench.sync();
    bench.hub.deletePod("web", 30);
    await bench.sync();
    bench.hub.put(podNamed("web", "u2", ["slow-end", "3000"]));
    await bench.sync();
    await bench.pass(1500);
    assert.deepEqual(
      bench.ids.map((each) => each.split(" ")[0]),
      ["u1"],
    );
    await bench.pass(4000);
    assert.match(bench.ids.join(), /^u2 \S+ running$/);
  });
});

describe("a pod that comes back under another UID", () => {
  test("has what runs, and everything that is told of it has the new UID", async () => {
    await using bench = new Bench();
    bench.hub.put(podNamed("web", "u1", ["run-for", "5000", "1"]));
    await bench.sync();
    const before = bench.ids;
    bench.ack();
    bench.board.takeCalls();
    bench.hub.restart();
    bench.hub.put(podNamed("web", "u2", ["run-for", "5000", "1"]));
    await bench.sync();
    assert.deepEqual(bench.ids, before);
    assert.deepEqual(bench.board.takeCalls(), ["inspect u1"], "it is looked at, and left alone");
    assert.deepEqual(bench.told, ["web u2 Running True"]);
    const [entry] = bench.agent.statuses.pods.values();
    assert.ok(entry !== undefined);
    const { view } = entry;
    const shown = {
      status: entry.status,
      terminatingSinceMs: undefined,
      runtime: "",
      containers: [],
      logDirectory: "",
    };
    assert.equal(podObject({ desired: view.desired, ...shown }).metadata.uid, "u2");
    await bench.pass(6000);
    const uids = new Set(bench.agent.events.all.slice(-3).map(({ regarding }) => regarding.uid));
    assert.deepEqual([...uids], ["u2"]);
    await bench.pass(6000);
    const waiting = bench.agent.statuses.pods.get(podUid("u1"))?.status.containerStatuses?.[0]?.state.waiting;
    assert.match(waiting?.message ?? "", /pod=web_default\(u2\)/);
    await bench.restart();
    bench.hub.deletePod("web", 5);
    await bench.sync();
    await bench.pass(1000);
    assert.match(bench.told.join(), /^web u2 Failed False gone$/);
  });

  test("has its volumes brought up to date under the new UID", async () => {
    await using bench = new Bench();
    const volumes = [{ name: "keys", secret: { secretName: "keys" } }];
    bench.hub.put(podNamed("web", "u1", ["run"], { volumes }));
    await bench.sync();
    const prepared: (string | undefined)[] = [];
    bench.agent.environment.before = async (what, { pod }) => {
      if (what === "prepare") prepared.push(pod.metadata.uid);
    };
    bench.hub.put(podNamed("web", "u2", ["run"], { volumes }));
    await bench.sync();
    await bench.pass(1000);
    assert.deepEqual(prepared, ["u2"]);
    assert.match(bench.ids.join(), /^u1 \S+ running$/);
  });

  test("has it too after the store was lost, whether the hub or the runtime speaks first", async () => {
    for (const slow of [0, 500]) {
      await using bench = new Bench();
      bench.hub.put(podNamed("web", "u1"));
      await bench.sync();
      bench.hub.put(podNamed("web", "u2"));
      await bench.sync();
      const before = bench.ids;
      bench.board.runtime.faults.latency = ({ kind }) => millis(kind === "list" ? slow : 0);
      await bench.restart("lost");
      await bench.sync();
      await bench.pass(2000);
      assert.deepEqual(bench.ids, before, `a list takes ${slow} ms`);
      assert.deepEqual([...bench.store.desired.desired.current.pods.keys()], ["u1"]);
      assert.deepEqual(bench.told.at(-1), "web u2 Running True");
      assert.equal(bench.agent.workers.size, 1);
    }
  });
});

test("a pod that is given tolerations keeps what was made for it; one that is given annotations may need it anew", async () => {
  await using bench = new Bench();
  const volumes = [{ name: "keys", secret: { secretName: "keys" } }];
  bench.hub.put(podNamed("web", "u1", ["run"], { volumes }));
  await bench.sync();
  await bench.pass(1000);
  let prepared = 0;
  bench.agent.environment.before = async (what) => {
    if (what === "prepare") prepared += 1;
  };
  const tolerations = [{ key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "NoExecute" }];
  bench.hub.put(podNamed("web", "u1", ["run"], { volumes, tolerations }));
  await bench.sync();
  await bench.pass(60_000);
  assert.equal(prepared, 0);
  const annotated = podNamed("web", "u1", ["run"], { volumes, tolerations });
  bench.hub.put({ ...annotated, metadata: { ...annotated.metadata, annotations: { told: "so" } } });
  await bench.sync();
  await bench.pass(60_000);
  assert.equal(prepared, 1);
});

test("a pod that has ended is not run again by a board that lost everything but its store", async () => {
  await using bench = new Bench();
  bench.hub.put(podNamed("job", "u1", ["exit", "0"], { restartPolicy: "Never" }));
  await bench.sync();
  await bench.pass(1000);
  assert.deepEqual(bench.told, ["job u1 Succeeded False"]);
  const told = bench.store.statuses.latest.current;
  for (const { uid } of bench.board.runtime.list()) {
    for (const { id } of bench.board.runtime.inspect(uid).sandboxes) bench.board.runtime.removeSandbox(id);
  }
  await bench.restart();
  await bench.pass(5000);
  assert.deepEqual([bench.ids, bench.told], [[], ["job u1 Succeeded False"]]);
  assert.equal(bench.store.statuses.latest.current, told, "nothing else was said in between");
});
