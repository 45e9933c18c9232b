import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { AskingPod, PodQuestions } from "@picolet/hub-core/fleet.ts";
import { ignoreCancelled } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { LocalFleet } from "@picolet/test/support/unit/streaming/local-fleet.ts";
import { WhyAnswerer } from "./why-answerer.ts";

const NEVER = new AbortController().signal;

interface Written {
  readonly pod: string;
  readonly atMs: number;
  readonly text: string;
  readonly tests: readonly unknown[];
}

class Bench {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly fleet = new LocalFleet();
  readonly written: Written[] = [];
  /** Paths that boards were asked for. */
  readonly asked: string[] = [];
  readonly ready = new Map<string, string>();
  failure: unknown;
  #onPod: Parameters<PodQuestions["follow"]>[0] = () => undefined;
  #onNode: (node: string) => void = () => undefined;
  readonly #life = new AbortController();
  readonly #running: Promise<void>;

  constructor(t: TestContext) {
    const answerer = new WhyAnswerer({
      questions: {
        follow: (onChange) => {
          this.#onPod = onChange;
          return { [Symbol.dispose]: () => undefined };
        },
      },
      fleet: this.fleet,
      nodes: {
        view: (node) => ({
          conditions: `Ready=${this.ready.get(node) ?? "True"}`,
          version: "",
          updateReport: undefined,
        }),
        follow: (onChange) => {
          this.#onNode = onChange;
          return { [Symbol.dispose]: () => undefined };
        },
      },
      client: {
        patch: async (_type, { namespace, name }, kind, patch) => {
          assert.equal(kind, "json");
          if (this.failure !== undefined) throw this.failure;
          const [uid, question, { value }] = patch as [unknown, unknown, { value: string }];
          this.written.push({
            ...{ pod: `${namespace}/${name}`, atMs: this.clock.monotonic(), text: value },
            tests: [uid, question],
          });
          this.stop(namespace, name);
          return { apiVersion: "v1", kind: "Pod", metadata: { name } };
        },
      },
      clock: this.clock,
      log: this.log,
    });
    this.#running = answerer.run(this.#life.signal).catch(ignoreCancelled);
    t.after(async () => {
      this.#life.abort();
      await this.#running;
      await answerer[Symbol.asyncDispose]();
      assert.equal(this.clock.sleeping, 0);
    });
  }

  ask(node: string, namespace: string, name: string): void {
    const pod: AskingPod = { node, namespace, name, uid: `uid-${name}` };
    this.#onPod(`${namespace}/${name}`, pod);
  }

  stop(namespace: string, name: string): void {
    this.#onPod(`${namespace}/${name}`, undefined);
  }

  setReady(node: string, status: string): void {
    this.ready.set(node, status);
    this.#onNode(node);
  }

  connect(node: string, answer: (stream: IncomingStream) => Promise<void> = telling(200, "x: Running\n")): void {
    const kubelet = (stream: IncomingStream): void => {
      this.asked.push(`${node} ${(stream.params as { path: string }).path}`);
      void answer(stream).catch(() => undefined);
    };
    this.fleet.connect(node, { kubelet });
  }
}

const telling = (status: number, body: string) => async (stream: IncomingStream) => {
  const accepted = stream.accept({ status, contentType: "text/plain" });
  await accepted.write(Buffer.from(body), NEVER);
  accepted.end();
};

test("a question is answered once, and only the question of that pod is replaced", async (t) => {
  const bench = new Bench(t);
  bench.connect("board-1");
  bench.ask("board-1", "shop", "web");
  await bench.clock.advance(seconds(100));
  assert.deepEqual(bench.asked, ["board-1 /why/shop/web?output=text"]);
  const [{ tests, text } = { tests: [], text: "" }, ...more] = bench.written;
  assert.deepEqual(more, []);
  assert.match(text, /^2026-01-01 00:00:00 UTC {2}x: Running$/);
  const path = "/metadata/annotations/picolet.io~1why";
  assert.deepEqual(tests, [
    { op: "test", path: "/metadata/uid", value: "uid-web" },
    { op: "test", path, value: "?" },
  ]);
});

test("a tenant that asks without end has one answer in 10 s of a node, one in a second of all, and others their turn", async (t) => {
  const bench = new Bench(t);
  for (const node of ["b1", "b2"]) bench.connect(node);
  for (let index = 0; index < 50; index += 1) bench.ask("b1", "noisy", `on-one-${index}`);
  bench.ask("b1", "calm", "one");
  bench.ask("b2", "noisy", "elsewhere");
  await bench.clock.advance(seconds(25));
  const times = (pattern: RegExp): number[] =>
    bench.written.filter(({ pod }) => pattern.test(pod)).map(({ atMs }) => Math.floor(atMs / 1000));
  assert.deepEqual(times(/on-one|calm/), [0, 10, 20]);
  assert.deepEqual(times(/calm/), [10]);
  assert.deepEqual(times(/elsewhere/), [1]);
});

test("a board that is away is said to be so when its Node is Unknown; one that another replica has is left to it", async (t) => {
  const bench = new Bench(t);
  bench.ask("b1", "shop", "web");
  bench.ask("b2", "shop", "web-2");
  await bench.clock.advance(seconds(60));
  assert.equal(bench.written.length, 0);
  bench.setReady("b1", "Unknown");
  await bench.clock.advance(seconds(1));
  assert.deepEqual(
    bench.written.map(({ pod }) => pod),
    ["shop/web"],
  );
  assert.match(bench.written[0]?.text ?? "", /b1 is away/);
  bench.connect("b2");
  await bench.clock.advance(seconds(1));
  assert.match(bench.written[1]?.text ?? "", /x: Running/);
});

test("a board that is silent, refuses or floods is reported in the annotation, and holds nobody up", async (t) => {
  const bench = new Bench(t);
  bench.connect("silent", async (stream) => void stream.accept({ status: 200, contentType: "text/plain" }));
  bench.connect("old", telling(404, "404 page not found\n"));
  bench.connect("flood", async (stream) => {
    const accepted = stream.accept({ status: 200, contentType: "text/plain" });
    for (;;) await accepted.write(Buffer.alloc(8192, "x"), NEVER);
  });
  bench.connect("good");
  for (const node of ["silent", "old", "flood", "good"]) bench.ask(node, `of-${node}`, "web");
  await bench.clock.advance(seconds(1));
  const of = (node: string): string => bench.written.find(({ pod }) => pod === `of-${node}/web`)?.text ?? "";
  assert.match(of("old"), /old gave no answer: .*status 404: 404 page not found/);
  assert.match(of("flood"), /flood gave no answer: .*too large/);
  assert.match(of("good"), /x: Running/);
  assert.equal(of("silent"), "");
  await bench.clock.advance(seconds(10));
  assert.match(of("silent"), /silent gave no answer: .*within 10 s/);
  assert.equal(bench.fleet.underWay, 0);
});

test("a failed write is tried again after a minute, one that is refused because the pod has changed is not", async (t) => {
  const bench = new Bench(t);
  bench.connect("b1");
  bench.failure = new PicoletError("unavailable", "no API server");
  bench.ask("b1", "shop", "web");
  await bench.clock.advance(seconds(59));
  assert.equal(bench.asked.length, 1);
  assert.deepEqual(bench.log.problems, ["cannot answer why a pod is as it is"]);
  bench.failure = undefined;
  await bench.clock.advance(seconds(2));
  assert.equal(bench.written.length, 1);
  bench.failure = new PicoletError("invalid", "the test of the patch failed");
  bench.ask("b1", "shop", "web");
  await bench.clock.advance(seconds(120));
  assert.equal(bench.asked.length, 3);
});
