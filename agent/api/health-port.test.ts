import assert from "node:assert/strict";
import { request } from "node:http";
import { connect } from "node:net";
import { test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import { FakeAgentView } from "@picolet/test/support/unit/agent/fake-agent-view.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { KubeletAnswers, type KubeletAnswersComponents } from "../streams/kubelet-answers.ts";
import { NodeStreams } from "../streams/node-streams.ts";
import { type HealthCheck, HealthPort, type HealthPortComponents, healthAnswer } from "./health-port.ts";

const METRICS = "text/plain; version=0.0.4; charset=utf-8";
const well: HealthCheck = { name: "ping", problem: () => undefined };
const ill: HealthCheck = { name: "PLEG", problem: () => "cri: was last seen 3m ago" };

class Port implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly port: HealthPort;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(components: Pick<HealthPortComponents, "checks" | "streams">, port = 0) {
    const { clock, log } = this;
    this.port = new HealthPort({ ...components, clock, log }, { address: "127.0.0.1", port });
    this.#running = endOfRun(this.port.run(this.#stop.signal));
  }

  async listening(): Promise<number> {
    while (this.port.port === undefined) await this.clock.settle();
    return this.port.port;
  }

  async ask(path: string, method = "GET"): Promise<{ status: number; text: string; type: string }> {
    const port = await this.listening();
    return await new Promise((resolve, reject) => {
      const sent = request({ host: "127.0.0.1", port, path, method, agent: false }, (response) => {
        let text = "";
        response.on("data", (chunk: Buffer) => {
          text += chunk.toString();
        });
        response.on("end", () => {
          resolve({ status: response.statusCode ?? 0, text, type: String(response.headers["content-type"]) });
        });
      });
      sent.on("error", reject);
      sent.end();
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

test("what is well is ok, as the kubelet says it", async () => {
  await using port = new Port({ checks: [well] });
  assert.deepEqual(await port.ask("/healthz"), { status: 200, text: "ok", type: "text/plain; charset=utf-8" });
  assert.equal((await port.ask("/healthz?verbose")).text, "[+]ping ok\nhealthz check passed\n");
  assert.equal((await port.ask("/healthz", "HEAD")).text, "");
  assert.equal((await port.ask("/healthz", "POST")).status, 405);
  assert.equal((await port.ask("/pods")).status, 404);
});

test("what is ill is named, with its reason", async () => {
  await using port = new Port({ checks: [well, ill] });
  const { status, text } = await port.ask("/healthz");
  assert.equal(status, 500);
  assert.equal(text, "[+]ping ok\n[-]PLEG failed: cri: was last seen 3m ago\nhealthz check failed\n");
  assert.equal((await port.ask("/healthz/ping")).text, "ok");
  assert.equal((await port.ask("/healthz/PLEG")).status, 500);
  assert.equal((await port.ask("/healthz/other")).status, 404);
  assert.equal((await port.ask("/healthz?exclude=PLEG")).text, "ok");
});

/** The node's answers, of which a test names what it reads. */
function streams(answers: Partial<KubeletAnswersComponents>) {
  const kubelet = new KubeletAnswers({
    unhealthy: () => "",
    clock: new VirtualClock(),
    ...answers,
  } as KubeletAnswersComponents);
  const unused = {} as ConstructorParameters<typeof NodeStreams>[0];
  return new NodeStreams({ ...unused, kubelet, log: new RecordedLog() }).handlers;
}

test("the metrics of probes are served on their own path", async () => {
  await using port = new Port({
    checks: [well],
    streams: streams({ probeMetrics: () => ["# TYPE x counter\n", "x 1\n"] }),
  });
  const { status, type, text } = await port.ask("/metrics/probes");
  assert.deepEqual({ status, type, text }, { status: 200, type: METRICS, text: "# TYPE x counter\nx 1\n" });
  await using other = new Port({ checks: [well] });
  assert.equal((await other.ask("/metrics/probes")).status, 404);
});

test("the read-only port shows the pods", async () => {
  const view = new FakeAgentView();
  await using port = new Port({ checks: [well], streams: streams({ pods: () => view.pods() }) });
  const { type, text } = await port.ask("/pods");
  assert.equal(type, "application/json");
  const list = JSON.parse(text) as { kind: string; items: unknown[] };
  assert.deepEqual([list.kind, list.items.length], ["PodList", view.pods().length]);
  assert.equal((await port.ask("/healthz")).text, "ok");
});

test("the read-only port reads and does nothing else", async () => {
  const stats = {
    summary: async () => ({ node: { nodeName: "edge-1" } }),
    resourceMetrics: async () => ["y 1\n"],
  } as unknown as KubeletAnswersComponents["stats"];
  await using port = new Port({ checks: [well], streams: streams({ stats }) });
  assert.equal((await port.ask("/stats/summary")).text, '{"node":{"nodeName":"edge-1"}}\n');
  assert.equal((await port.ask("/metrics/resource")).text, "y 1\n");
  for (const path of ["/configz", "/logs/", "/containerLogs/a/b/c", "/exec/a/b/c", "/runningpods", "/v1/status"]) {
    assert.equal((await port.ask(path)).status, 404, path);
  }
  assert.equal((await port.ask("/run/a/b/c", "POST")).status, 405);
});

test("a port that another has is waited for, and said once", async () => {
  const first = new Port({ checks: [well] });
  const taken = await first.listening();
  await using second = new Port({ checks: [ill] }, taken);
  while (second.log.problems.length === 0) await second.clock.settle();
  while (second.clock.sleeping === 0) await second.clock.settle();
  await second.clock.advance(millis(5000));
  while (second.clock.sleeping === 0) await second.clock.settle();
  assert.deepEqual(second.log.problems, ["cannot listen; tries again"]);
  await first[Symbol.asyncDispose]();
  await second.clock.advance(millis(5000));
  assert.equal((await second.ask("/healthz")).status, 500);
});

test("garbage and too many connections harm no other client", async () => {
  await using port = new Port({ checks: [well] });
  const number = await port.listening();
  const sockets = Array.from({ length: 40 }, () => {
    const socket = connect(number, "127.0.0.1");
    socket.on("error", () => undefined);
    socket.write("\0\r\n\r\nGET");
    return socket;
  });
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once("close", resolve).resume())));
  assert.equal((await port.ask("/healthz")).text, "ok");
});

test("any path and query are answered", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.webPath()), fc.string(), (path, query) => {
      const { status } = healthAnswer([well, ill], path, new URLSearchParams(query));
      assert.ok([200, 404, 500].includes(status));
    }),
  );
});
