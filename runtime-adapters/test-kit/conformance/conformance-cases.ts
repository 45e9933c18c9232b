/** The cases of the conformance suite, each on a runtime of its own with no pod of ours in it. */
import assert from "node:assert/strict";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { type Bench, type ConformanceCase, desiredPod } from "./conformance-bench.ts";
import type { ProgramLine } from "./conformance-fixture.ts";
import { STREAMS } from "./conformance-streams.ts";

/** How often the hint case provokes an event before it gives up; a subscription may take a moment to stand. */
const HINT_PROVOCATIONS = 10;
/** Far beyond what a case may take: a stop that waits for it has failed. */
const LONG_GRACE = seconds(600);
/** Longer than the 16 KiB after which runtimes cut a line. */
const LONG_LINE_LENGTH = 40_000;
const NO_SUCH_ID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const LIFECYCLE: readonly ConformanceCase[] = [
  {
    name: "a runtime that works says RuntimeReady",
    run: async ({ adapter, signal }) => {
      const status = await adapter.status(signal);
      assert.notEqual(status.runtime, "");
      assert.equal(status.conditions.find((each) => each.type === "RuntimeReady")?.status, true);
    },
  },
  {
    name: "a pod it knows nothing of is inspected as empty and not listed",
    run: async (bench) => {
      const pod = desiredPod(bench.fixture.programs.runForever);
      const nothing = { uid: pod.uid, sandboxes: [], containers: [], manifest: undefined };
      assert.deepEqual(await bench.inspect(pod), nothing);
      assert.equal(await bench.version(pod), undefined);
    },
  },
  {
    name: "sandbox, container, exit, removal: each is seen, and nothing is left",
    run: async (bench) => {
      const program = bench.fixture.programs.exitWith(0);
      const pod = desiredPod(program);
      const sandboxId = await bench.createSandbox(pod);
      const before = await bench.inspect(pod);
      assert.deepEqual(before.manifest, pod);
      assert.deepEqual(
        before.sandboxes.map(({ attempt, state }) => ({ attempt, state })),
        [{ attempt: 0, state: "ready" }],
      );
      const started = await bench.start(pod, program);
      assert.equal(started.sandboxId, sandboxId);
      assert.equal(started.image, program.image);
      assert.notEqual(started.imageId, "");
      const exited = await bench.exited(pod, started.id);
      assert.equal(exited.state.exitCode, 0);
      assert.equal(exited.state.reason, "Completed");
      assert.ok(exited.state.startedAtMs >= exited.createdAtMs, "it started after it was made");
      assert.ok(exited.state.finishedAtMs >= exited.state.startedAtMs, "it finished after it started");
      await bench.remove(pod, started.id);
      assert.deepEqual((await bench.inspect(pod)).containers, []);
      await bench.stopSandbox(pod, sandboxId);
      assert.equal((await bench.inspect(pod)).sandboxes[0]?.state, "notReady");
      await bench.removeSandbox(pod, sandboxId);
      assert.deepEqual((await bench.inspect(pod)).sandboxes, []);
      assert.equal(await bench.version(pod), undefined);
    },
  },
  {
    name: "every exit code comes back, with reason Error when it is not 0",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      await bench.createSandbox(pod);
      assert.ok(programs.exitCodes.length > 1 && programs.exitCodes.includes(0), "the fixture offers 0 and another");
      for (const [attempt, code] of programs.exitCodes.entries()) {
        const { id } = await bench.start(pod, programs.exitWith(code), { attempt });
        const { state } = await bench.exited(pod, id);
        assert.equal(state.exitCode, code);
        assert.equal(state.reason, code === 0 ? "Completed" : "Error");
      }
    },
  },
  {
    name: "attempt, back-off, hash and image come back, newest attempt first, also to a new agent",
    run: async (bench) => {
      const program = bench.fixture.programs.exitWith(0);
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      for (const attempt of [0, 1, 2]) {
        const run = { attempt, hash: `hash-${attempt}`, backoff: millis(10_000 * 2 ** attempt) };
        const { id } = await bench.start(pod, program, run);
        await bench.exited(pod, id);
      }
      const seen = async () =>
        (await bench.inspect(pod)).containers.map(({ attempt, hash, backoff, image }) => [
          attempt,
          hash,
          backoff,
          image,
        ]);
      const expected = [2, 1, 0].map((attempt) => [attempt, `hash-${attempt}`, 10_000 * 2 ** attempt, program.image]);
      assert.deepEqual(await seen(), expected);
      await bench.restartAgent();
      assert.deepEqual(await seen(), expected);
    },
  },
  {
    name: "two containers of one pod run side by side, and one's end is not the other's",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { containers: ["main", "other"] });
      await bench.createSandbox(pod);
      const main = await bench.start(pod, programs.runForever);
      const other = await bench.start(pod, programs.runForever, { name: "other" });
      await bench.running(pod, main.id);
      await bench.running(pod, other.id);
      await bench.stop(pod, other.id, seconds(10));
      await bench.exited(pod, other.id);
      assert.equal((await bench.container(pod, main.id)).state.kind, "running");
      assert.equal((await bench.inspect(pod)).sandboxes[0]?.state, "ready");
    },
  },
  {
    name: "several pods do not see one another",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pods = ["one", "two", "three"].map((name) => desiredPod(programs.runForever, { name }));
      const ids = new Map<PodUid, { sandbox: string; container: string }>();
      for (const pod of pods) {
        const sandbox = await bench.createSandbox(pod);
        ids.set(pod.uid, { sandbox, container: (await bench.start(pod, programs.runForever)).id });
      }
      const listed = (await bench.adapter.list(bench.signal)).map((each) => each.uid);
      assert.deepEqual(new Set(listed), new Set(pods.map((pod) => pod.uid)));
      assert.equal(listed.length, pods.length, "each is listed once");
      for (const pod of pods) {
        const seen = await bench.inspect(pod);
        assert.deepEqual(seen.manifest, pod);
        assert.deepEqual(
          { sandbox: seen.sandboxes.map((each) => each.id), container: seen.containers.map((each) => each.id) },
          { sandbox: [ids.get(pod.uid)?.sandbox], container: [ids.get(pod.uid)?.container] },
        );
      }
      const [first, second] = pods;
      assert.ok(first && second);
      await bench.removeSandbox(first, ids.get(first.uid)?.sandbox ?? "");
      assert.equal(await bench.version(first), undefined);
      await bench.running(second, ids.get(second.uid)?.container ?? "");
    },
  },
  {
    name: "a sandbox that replaces a dead one is the newest, and containers start in it",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      const dead = await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.stopSandbox(pod, dead);
      await bench.exited(pod, id);
      const alive = await bench.createSandbox(pod, 1);
      assert.notEqual(alive, dead);
      assert.deepEqual(
        (await bench.inspect(pod)).sandboxes.map((each) => [each.id, each.attempt, each.state]),
        [
          [alive, 1, "ready"],
          [dead, 0, "notReady"],
        ],
      );
      const next = await bench.start(pod, programs.runForever, { attempt: 1 });
      assert.equal(next.sandboxId, alive);
      await bench.removeSandbox(pod, dead);
      await bench.running(pod, next.id);
    },
  },
  {
    name: "environment variables reach the program",
    run: async (bench) => {
      const program = bench.fixture.programs.printEnvironment("GREETING");
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      const value = "good morning = $HOME 'quoted'";
      const { id, logPath } = await bench.start(pod, program, { env: [{ name: "GREETING", value }] });
      await bench.exited(pod, id);
      assert.deepEqual(await bench.logOf(logPath, 1), [{ stream: "stdout", text: value }]);
    },
  },
  {
    name: "a mounted folder's files are read by the program",
    needs: "mounts",
    run: async (bench) => {
      const { programs } = bench.fixture;
      assert.ok(programs.printFile && bench.fixture.hostFolder, "the fixture offers mounts");
      const hostPath = await bench.fixture.hostFolder("note", "from the host\n");
      const program = programs.printFile("/data/note");
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      const mount = { containerPath: "/data", hostPath, readOnly: true, propagation: "private" } as const;
      const { id, logPath } = await bench.start(pod, program, { mounts: [mount] });
      assert.equal((await bench.exited(pod, id)).state.exitCode, 0);
      assert.deepEqual(await bench.logOf(logPath, 1), [{ stream: "stdout", text: "from the host" }]);
    },
  },
];

const REFUSALS: readonly ConformanceCase[] = [
  {
    name: "every step taken twice is harmless",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      const sandboxId = await bench.createSandbox(pod);
      assert.equal(await bench.createSandbox(pod), sandboxId);
      assert.equal((await bench.inspect(pod)).sandboxes.length, 1);
      const first = await bench.running(pod, (await bench.start(pod, programs.runForever)).id);
      const again = await bench.running(pod, (await bench.start(pod, programs.runForever)).id);
      assert.equal(again.id, first.id);
      assert.equal(again.state.startedAtMs, first.state.startedAtMs);
      assert.equal((await bench.inspect(pod)).containers.length, 1);
      await bench.stop(pod, first.id, seconds(10));
      const { state } = await bench.exited(pod, first.id);
      await bench.stop(pod, first.id, seconds(10));
      assert.deepEqual((await bench.exited(pod, first.id)).state, state);
      await bench.remove(pod, first.id);
      await bench.remove(pod, first.id);
      await bench.stopSandbox(pod, sandboxId);
      await bench.stopSandbox(pod, sandboxId);
      await bench.removeSandbox(pod, sandboxId);
      await bench.removeSandbox(pod, sandboxId);
      assert.equal(await bench.version(pod), undefined);
    },
  },
  {
    name: "ending what is not there is harmless",
    run: async (bench) => {
      const pod = desiredPod(bench.fixture.programs.runForever);
      await bench.stop(pod, NO_SUCH_ID, seconds(1));
      await bench.remove(pod, NO_SUCH_ID);
      await bench.stopSandbox(pod, NO_SUCH_ID);
      await bench.removeSandbox(pod, NO_SUCH_ID);
    },
  },
  {
    name: "no container starts without a ready sandbox",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      await assert.rejects(bench.start(pod, programs.runForever), (error) => isPicoletError(error, "not_found"));
      await bench.stopSandbox(pod, await bench.createSandbox(pod));
      await assert.rejects(bench.start(pod, programs.runForever), (error) => isPicoletError(error, "not_found"));
      assert.deepEqual((await bench.inspect(pod)).containers, []);
    },
  },
  {
    name: "a running container is not removed",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.running(pod, id);
      await assert.rejects(bench.remove(pod, id), (error) => isPicoletError(error, "conflict"));
      assert.equal((await bench.container(pod, id)).state.kind, "running");
    },
  },
  {
    name: "an image that is not there fails that start alone",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { containers: ["main", "other"] });
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      const imageId = `sha256:${NO_SUCH_ID}`;
      await assert.rejects(bench.start(pod, programs.runForever, { name: "other", imageId }), (error) =>
        isPicoletError(error),
      );
      assert.deepEqual(
        (await bench.inspect(pod)).containers.filter((each) => each.state.kind !== "exited").map((each) => each.id),
        [id],
      );
      await bench.running(pod, id);
    },
  },
  {
    name: "images are found by the name a pod gives them, and an unknown one is undefined",
    run: async (bench) => {
      const { image } = bench.fixture.programs.runForever;
      const found = await bench.adapter.images.status(image, bench.signal);
      assert.ok(found);
      assert.ok(found.sizeBytes > 0);
      assert.ok((await bench.adapter.images.list(bench.signal)).some((each) => each.id === found.id));
      const byId = await bench.adapter.images.status(found.id, bench.signal);
      assert.equal(byId?.id, found.id, "the id is a name too");
      assert.equal(await bench.adapter.images.status("127.0.0.1:1/no/such:image", bench.signal), undefined);
    },
  },
  {
    name: "a pull that fails carries a reason",
    run: async (bench) => {
      await assert.rejects(
        bench.adapter.images.pull("127.0.0.1:1/no/such:image", {}, bench.signal),
        (error) => isPicoletError(error) && error.reason !== undefined,
      );
    },
  },
  {
    name: "an action whose signal has fired already is cancelled and does nothing",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      const aborted = AbortSignal.abort();
      const sandbox = { attempt: 0, hostname: "x", dns: undefined, ...(await bench.fixture.preparePod(pod)) };
      await assert.rejects(bench.adapter.apply(pod, { kind: "createSandbox", sandbox }, aborted), (error) =>
        isPicoletError(error, "cancelled"),
      );
      await assert.rejects(bench.adapter.inspect(pod.uid, aborted), (error) => isPicoletError(error, "cancelled"));
      await assert.rejects(bench.adapter.list(aborted), (error) => isPicoletError(error, "cancelled"));
      assert.deepEqual((await bench.inspect(pod)).sandboxes, []);
    },
  },
];

const ENDINGS: readonly ConformanceCase[] = [
  {
    name: "a stop is a SIGTERM first: exit code 143 well within the grace period",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.countForever);
      await bench.createSandbox(pod);
      const { id, logPath } = await bench.start(pod, programs.countForever);
      // A first process that has not set its handler yet is deaf to SIGTERM; one that prints has.
      await bench.logOf(logPath, 1);
      await bench.stop(pod, id, LONG_GRACE);
      const { state } = await bench.exited(pod, id);
      assert.equal(state.exitCode, 143);
      assert.equal(state.reason, "Error");
    },
  },
  {
    name: "a program deaf to SIGTERM is killed after the grace period: exit code 137",
    needs: "ignoreTerm",
    run: async (bench) => {
      const program = bench.fixture.programs.ignoreTerm;
      assert.ok(program, "the fixture offers ignoreTerm");
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      const { id, logPath } = await bench.start(pod, program);
      await bench.running(pod, id);
      await bench.logOf(logPath, 1);
      await bench.stop(pod, id, seconds(1));
      assert.equal((await bench.exited(pod, id)).state.exitCode, 137);
    },
  },
  {
    name: "a stop that waits is given up at once, and one without grace follows it",
    needs: "ignoreTerm",
    run: async (bench) => {
      const program = bench.fixture.programs.ignoreTerm;
      assert.ok(program, "the fixture offers ignoreTerm");
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      const { id, logPath } = await bench.start(pod, program);
      await bench.running(pod, id);
      await bench.logOf(logPath, 1);
      const patience = new AbortController();
      const stop = bench.stop(pod, id, LONG_GRACE, patience.signal);
      setImmediate(() => patience.abort());
      await assert.rejects(stop, (error) => isPicoletError(error, "cancelled"));
      assert.equal(
        (await bench.container(pod, id)).state.kind,
        "running",
        "the stop did not wait for the grace to end",
      );
      await bench.stop(pod, id, millis(0));
      assert.equal((await bench.exited(pod, id)).state.exitCode, 137);
    },
  },
  {
    name: "a stop with no grace kills at once",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.running(pod, id);
      await bench.stop(pod, id, millis(0));
      assert.equal((await bench.exited(pod, id)).state.exitCode, 137);
    },
  },
  {
    name: "stopping a sandbox kills what still runs in it",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { containers: ["main", "other"] });
      const sandboxId = await bench.createSandbox(pod);
      const main = await bench.start(pod, programs.runForever);
      const other = await bench.start(pod, programs.runForever, { name: "other" });
      await bench.stopSandbox(pod, sandboxId);
      await bench.exited(pod, main.id);
      await bench.exited(pod, other.id);
    },
  },
  {
    name: "removing a sandbox takes its running containers with it",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { containers: ["main", "other"] });
      const sandboxId = await bench.createSandbox(pod);
      await bench.start(pod, programs.runForever);
      await bench.start(pod, programs.runForever, { name: "other" });
      await bench.removeSandbox(pod, sandboxId);
      const seen = await bench.inspect(pod);
      assert.deepEqual([seen.sandboxes, seen.containers], [[], []]);
      assert.equal(await bench.version(pod), undefined);
    },
  },
  {
    name: "kill -9 of the workload: exited with 137, and the pod can go on",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.running(pod, id);
      await bench.fixture.killWorkload(id, "SIGKILL");
      const { state } = await bench.exited(pod, id);
      assert.equal(state.exitCode, 137);
      assert.equal(state.reason, "Error");
      const next = await bench.start(pod, programs.runForever, { attempt: 1 });
      await bench.running(pod, next.id);
    },
  },
];

const RESTARTS: readonly ConformanceCase[] = [
  {
    name: "kill -9 of the agent: containers run on with the same id and start time, and the manifest comes back",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { containers: ["main", "other"] });
      const sandboxId = await bench.createSandbox(pod);
      const main = await bench.running(pod, (await bench.start(pod, programs.countForever)).id);
      // One that prints has set its handler for the SIGTERM to come.
      await bench.logOf(main.logPath, 1);
      const other = await bench.running(pod, (await bench.start(pod, programs.runForever, { name: "other" })).id);
      const before = await bench.inspect(pod);
      await bench.restartAgent();
      assert.notEqual(await bench.version(pod), undefined);
      const after = await bench.inspect(pod);
      assert.deepEqual(after, before);
      assert.deepEqual(after.manifest, pod);
      assert.equal(after.sandboxes[0]?.id, sandboxId);
      assert.deepEqual((await bench.running(pod, main.id)).state, main.state);
      assert.deepEqual((await bench.running(pod, other.id)).state, other.state);
      await bench.stop(pod, main.id, seconds(30));
      assert.equal((await bench.exited(pod, main.id)).state.exitCode, 143, "the new agent rules over it");
    },
  },
  {
    name: "exits while no agent lived are seen with the right code",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { containers: ["killed", "ended", "running"] });
      await bench.createSandbox(pod);
      const start = async (name: string) =>
        (await bench.running(pod, (await bench.start(pod, programs.runForever, { name })).id)).id;
      const [killed, ended, running] = [await start("killed"), await start("ended"), await start("running")];
      await bench.restartAgent(async () => {
        await bench.fixture.killWorkload(killed, "SIGKILL");
        await bench.fixture.killWorkload(ended, "SIGTERM");
      });
      assert.equal((await bench.exited(pod, killed)).state.exitCode, 137);
      assert.equal((await bench.exited(pod, ended)).state.exitCode, 143);
      await bench.running(pod, running);
    },
  },
  {
    name: "a step taken before the agent died is harmless when a new one takes it again",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      const sandboxId = await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.restartAgent();
      assert.equal(await bench.createSandbox(pod), sandboxId);
      assert.equal((await bench.start(pod, programs.runForever)).id, id);
      assert.equal((await bench.inspect(pod)).containers.length, 1);
    },
  },
  {
    name: "the version in the list changes when something changed, and only then",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      const seen = new Set<string>();
      const changed = async (what: string): Promise<void> => {
        const version = await bench.version(pod);
        assert.ok(version !== undefined && !seen.has(version), `a new version after ${what}`);
        seen.add(version);
        await bench.inspect(pod);
        await bench.fixture.settle();
        assert.equal(await bench.version(pod), version, `the same version while nothing happens after ${what}`);
      };
      const sandboxId = await bench.createSandbox(pod);
      await changed("the sandbox");
      const { id } = await bench.start(pod, programs.runForever);
      await bench.running(pod, id);
      await changed("the start");
      await bench.fixture.killWorkload(id, "SIGKILL");
      await bench.exited(pod, id);
      await changed("the exit");
      const next = await bench.start(pod, programs.runForever, { attempt: 1 });
      await bench.running(pod, next.id);
      await changed("the second start");
      await bench.remove(pod, id);
      await changed("the removal");
      await bench.stopSandbox(pod, sandboxId);
      await bench.exited(pod, next.id);
      await changed("the sandbox's stop");
    },
  },
];

const HINTS: readonly ConformanceCase[] = [
  {
    name: "kill -9 of the workload gives a hint without a poll",
    needs: "hints",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { containers: ["main", "noise"] });
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.running(pod, id);
      await using hints = await HintReader.standing(bench, pod.uid, async (attempt) => {
        const noise = await bench.start(pod, programs.exitWith(0), { name: "noise", attempt });
        await bench.exited(pod, noise.id);
      });
      hints.forget();
      await bench.fixture.killWorkload(id, "SIGKILL");
      await bench.until("the hint", async () => (hints.seen(pod.uid) ? true : undefined));
      assert.equal((await bench.exited(pod, id)).state.exitCode, 137);
    },
  },
  {
    name: "hints end without an error when the signal fires",
    needs: "hints",
    run: async (bench) => {
      const hints = new HintReader(bench);
      await bench.fixture.settle();
      await hints[Symbol.asyncDispose]();
    },
  },
];

/** Reads `hints()` in the background; disposing aborts it and shows that it ended well. */
class HintReader implements AsyncDisposable {
  readonly #abort = new AbortController();
  readonly #seen = new Set<PodUid>();
  readonly #done: Promise<void>;

  constructor(bench: Bench) {
    const { adapter } = bench;
    assert.ok(adapter.hints, "the adapter gives hints");
    this.#done = this.#read(adapter.hints(this.#abort.signal));
  }

  /** One whose subscription has been seen to deliver: a hint for what `provoke` does arrived. */
  static async standing(bench: Bench, uid: PodUid, provoke: (attempt: number) => Promise<void>): Promise<HintReader> {
    const reader = new HintReader(bench);
    for (let attempt = 0; attempt < HINT_PROVOCATIONS && !reader.seen(uid); attempt += 1) {
      await provoke(attempt);
      await bench.fixture.settle();
    }
    assert.ok(reader.seen(uid), "hints come at all");
    // What is still on its way for `provoke` must not be taken for a later hint.
    for (let quiet = 0; quiet < 3; quiet += 1) {
      await bench.fixture.settle();
      if (reader.seen(uid)) quiet = 0;
      reader.forget();
    }
    return reader;
  }

  seen(uid: PodUid): boolean {
    return this.#seen.has(uid);
  }

  forget(): void {
    this.#seen.clear();
  }

  async #read(hints: AsyncIterable<PodUid>): Promise<void> {
    for await (const uid of hints) this.#seen.add(uid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.#done;
  }
}

const LOGS: readonly ConformanceCase[] = [
  {
    name: "logs are in the CRI format, each stream in order, long lines whole",
    run: async (bench) => {
      const long = "0123456789".repeat(LONG_LINE_LENGTH / 10);
      const lines: ProgramLine[] = [
        { stream: "stdout", text: "first" },
        { stream: "stderr", text: "second, with  spaces and ünïcode" },
        { stream: "stdout", text: "" },
        { stream: "stdout", text: long },
        { stream: "stderr", text: "last of stderr" },
        { stream: "stdout", text: "last of stdout" },
      ];
      const program = bench.fixture.programs.printLines(lines);
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      const { id, logPath } = await bench.start(pod, program);
      assert.ok(logPath.startsWith("/") && logPath.endsWith("/main/0.log"), `an absolute log path: ${logPath}`);
      await bench.exited(pod, id);
      const seen = await bench.logOf(logPath, lines.length);
      for (const stream of ["stdout", "stderr"]) {
        const of = (all: readonly ProgramLine[]) => all.filter((each) => each.stream === stream);
        assert.deepEqual(of(seen), of(lines));
      }
    },
  },
  {
    name: "every attempt has its own log, which stays when the container is removed",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever);
      await bench.createSandbox(pod);
      const paths: string[] = [];
      for (const attempt of [0, 1]) {
        const program = programs.printLines([{ stream: "stdout", text: `attempt ${attempt}` }]);
        const { id, logPath } = await bench.start(pod, program, { attempt });
        await bench.exited(pod, id);
        await bench.logOf(logPath, 1);
        await bench.remove(pod, id);
        paths.push(logPath);
      }
      for (const [attempt, path] of paths.entries()) {
        assert.deepEqual(await bench.log(path), [{ stream: "stdout", text: `attempt ${attempt}` }]);
      }
    },
  },
  {
    name: "a log renamed away goes on in a new file with no line lost",
    run: async (bench) => {
      const program = bench.fixture.programs.countForever;
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      const { id, logPath } = await bench.start(pod, program);
      await bench.logOf(logPath, 3);
      await bench.restartAgent();
      const rotated = `${logPath}.20260101-000000`;
      await bench.fixture.renameLog(logPath, rotated);
      await bench.adapter.reopenLog(pod.uid, id, bench.signal);
      const after = await bench.logOf(logPath, 3);
      await bench.stop(pod, id, seconds(30));
      const all = [...(await bench.log(rotated)), ...after].map((each) => each.text);
      assert.deepEqual(
        all,
        all.map((_, index) => `line ${index}`),
      );
    },
  },
  {
    name: "no log is reopened for a container that does not run",
    run: async (bench) => {
      const pod = desiredPod(bench.fixture.programs.runForever);
      await assert.rejects(bench.adapter.reopenLog(pod.uid, NO_SUCH_ID, bench.signal), (error) =>
        isPicoletError(error),
      );
    },
  },
];

const CGROUPS: readonly ConformanceCase[] = [
  {
    name: "requests and limits are in the container's cgroup",
    needs: "cgroups",
    run: async (bench, context) => {
      const { programs } = bench.fixture;
      const resources = { requests: { cpu: "250m", memory: "32Mi" }, limits: { cpu: "500m", memory: "64Mi" } };
      const pod = desiredPod(programs.runForever, { resources });
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.running(pod, id);
      const shares = await bench.fixture.readCgroup(id, "cpu.shares");
      if (shares === undefined) {
        context.skip("this machine lets us read or make no cgroups");
        return;
      }
      assert.equal(shares, 256);
      assert.equal(await bench.fixture.readCgroup(id, "cpu.cfs_quota_us"), 50_000);
      assert.equal(await bench.fixture.readCgroup(id, "memory.limit_in_bytes"), 64 * MEBIBYTE);
    },
  },
  {
    name: "CPU and memory of a running container change in its cgroup, up and down, and it runs on",
    needs: "cgroups",
    run: async (bench, context) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { resources: GIVEN });
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      const { state } = await bench.running(pod, id);
      const values = async () => [
        await bench.fixture.readCgroup(id, "cpu.shares"),
        await bench.fixture.readCgroup(id, "cpu.cfs_quota_us"),
        await bench.fixture.readCgroup(id, "memory.limit_in_bytes"),
      ];
      const [shares] = await values();
      if (shares === undefined) {
        context.skip("this machine lets us read or make no cgroups");
        return;
      }
      for (const [cpu, mebibytes] of [
        ["500m", 96],
        ["100m", 48],
      ] as const) {
        const resources = { requests: { cpu, memory: "32Mi" }, limits: { cpu, memory: `${mebibytes}Mi` } };
        await bench.update(pod, id, resources);
        const milli = Number.parseInt(cpu, 10);
        assert.deepEqual(await values(), [Math.floor((milli * 1024) / 1000), milli * 100, mebibytes * MEBIBYTE]);
      }
      assert.deepEqual((await bench.container(pod, id)).state, state);
    },
  },
  {
    name: "a container runs on its own CPUs without a quota, and is moved to others with all else as it was",
    needs: "cgroups",
    run: async (bench, context) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { resources: GIVEN });
      await bench.createSandbox(pod);
      const cpuset = { cpus: "0", mems: "0", exclusive: true };
      const { id } = await bench.start(pod, programs.runForever, { cpuset });
      const { state } = await bench.running(pod, id);
      const values = () =>
        Promise.all(
          (["cpuset.cpus", "cpuset.mems", "cpu.cfs_quota_us", "cpu.shares", "memory.limit_in_bytes"] as const).map(
            (value) => bench.fixture.readCgroup(id, value),
          ),
        );
      const [cpu, ...others] = await values();
      if (cpu === undefined) {
        context.skip("this machine lets us read or make no cgroups");
        return;
      }
      assert.deepEqual([cpu, ...others], [0, 0, -1, 256, 64 * MEBIBYTE]);
      await bench.update(pod, id, undefined, { cpus: "1", mems: "" });
      assert.deepEqual(await values(), [1, ...others]);
      await bench.update(pod, id, GIVEN, { ...cpuset, cpus: "1" });
      assert.deepEqual(await values(), [1, ...others]);
      assert.deepEqual((await bench.container(pod, id)).state, state);
    },
  },
];

const GIVEN = { requests: { cpu: "250m", memory: "32Mi" }, limits: { cpu: "250m", memory: "64Mi" } };

const UPDATES: readonly ConformanceCase[] = [
  {
    name: "what a container was started with comes back, and what it was changed to at the latest with its next run",
    run: async (bench) => {
      const { programs } = bench.fixture;
      const pod = desiredPod(programs.runForever, { resources: GIVEN });
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, programs.runForever);
      await bench.running(pod, id);
      assert.deepEqual((await bench.container(pod, id)).resources, GIVEN);
      const more = { requests: { cpu: "300m", memory: "48Mi" }, limits: { cpu: "300m", memory: "80Mi" } };
      await bench.update(pod, id, more);
      await bench.update(pod, id, more);
      await bench.restartAgent();
      const seen = await bench.container(pod, id);
      assert.equal(seen.state.kind, "running");
      assert.ok([GIVEN, more].some((each) => JSON.stringify(each) === JSON.stringify(seen.resources)));
      await bench.letting(bench.stop(pod, id, millis(0)));
      const next = desiredPod(programs.runForever, { resources: more });
      const successor = await bench.start(next, programs.runForever, { attempt: 1 });
      assert.deepEqual(successor.resources, more);
    },
  },
  {
    name: "a container that is not there, or has ended, cannot be updated",
    run: async (bench) => {
      const program = bench.fixture.programs.exitWith(0);
      const pod = desiredPod(program, { resources: GIVEN });
      await bench.createSandbox(pod);
      const { id } = await bench.start(pod, program);
      await bench.exited(pod, id);
      for (const each of [id, NO_SUCH_ID]) {
        await assert.rejects(bench.update(pod, each, GIVEN), (error) => isPicoletError(error, "not_found"));
      }
    },
  },
];

export const CASES: readonly ConformanceCase[] = [
  ...LIFECYCLE,
  ...REFUSALS,
  ...ENDINGS,
  ...RESTARTS,
  ...HINTS,
  ...LOGS,
  ...CGROUPS,
  ...UPDATES,
  ...STREAMS,
];
