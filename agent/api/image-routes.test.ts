/** Routes of images on the local API; their effect is tested on a real runtime. */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { type TestContext, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { ImageInfo } from "@picolet/runtime-contract/runtime-adapter.ts";
import { agentPod, FakeAgentView, NOW_MS } from "@picolet/test/support/unit/agent/fake-agent-view.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { ActivePull, HandPull, NodeImages } from "../core/pods/image-pulls.ts";
import { LocalApi } from "./local-api.ts";

const IMAGE: ImageInfo = { id: "sha256:1", tags: ["a.example/app:1"], digests: [], sizeBytes: 5, pinned: false };

class FakeImages implements NodeImages {
  pulls: ActivePull[] = [];
  readonly prefetches = [];
  readonly pinned = ["a.example/app:1"];
  readonly asked: unknown[] = [];
  readonly pulled = Promise.withResolvers<{ runtime: string; image: ImageInfo }>();
  isGivenUp = false;

  async refresh(): Promise<void> {
    this.pulls = this.pulls.map((pull) => ({ ...pull, progress: { bytes: 4, totalBytes: 8, isTransferring: true } }));
  }
  pull(request: HandPull, signal: AbortSignal): Promise<{ runtime: string; image: ImageInfo }> {
    this.asked.push(request);
    const sinceMs = NOW_MS;
    this.pulls = [{ image: request.image, runtime: "cri", state: "pulling", sinceMs, progress: undefined, pods: [] }];
    return new Promise((resolve, reject) => {
      this.pulled.promise.then(resolve, reject);
      signal.addEventListener("abort", () => {
        this.isGivenUp = true;
        reject(new PicoletError("cancelled", "pull"));
      });
    });
  }
  async remove(image: string, options: unknown) {
    this.asked.push([image, options]);
    return [{ runtime: "cri", image: IMAGE }];
  }
  async setPinned(image: string, isPinned: boolean): Promise<void> {
    this.asked.push([image, isPinned]);
  }
  isPinned = ({ tags }: ImageInfo): boolean => tags.some((tag) => this.pinned.includes(tag));
  imported(): void {
    // Nothing is kept.
  }
}

class Bench {
  readonly folder = new TempFolder();
  readonly clock = new VirtualClock(NOW_MS);
  readonly view = new FakeAgentView();
  readonly images = new FakeImages();
  readonly stop = new AbortController();

  static async start(t: TestContext, withImages = true): Promise<Bench> {
    const bench = new Bench();
    const { clock, view, images } = bench;
    const components = { clock, log: new RecordedLog(), view, logs: view.logs, ...(withImages ? { images } : {}) };
    const api = new LocalApi(components, { socketPath: bench.folder.at("socket") });
    await api.listen();
    const running = api.run(bench.stop.signal);
    t.after(async () => {
      bench.stop.abort();
      await running;
      bench.folder[Symbol.dispose]();
    });
    return bench;
  }

  /** @param onPiece called with each piece of the answer */
  ask(path: string, body?: unknown, onPiece: (text: string) => void = () => undefined): Promise<[number, string]> {
    return new Promise((resolve, reject) => {
      const method = body === undefined ? "GET" : "POST";
      const sent = httpRequest({ socketPath: this.folder.at("socket"), path, method, agent: false }, (message) => {
        let text = "";
        message.setEncoding("utf8").on("data", (piece: string) => {
          text += piece;
          onPiece(text);
        });
        message.on("end", () => resolve([message.statusCode ?? 0, text]));
        message.on("error", reject);
      });
      sent.on("error", reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

const linesOf = (text: string): unknown[] =>
  text
    .trimEnd()
    .split("\n")
    .map((line): unknown => JSON.parse(line));

test("a pull reports its progress when it changes, and ends with the image", async (t) => {
  const bench = await Bench.start(t);
  const begun = Promise.withResolvers<void>();
  const half = Promise.withResolvers<void>();
  const asking = bench.ask("/v1/images/pull", { image: "a.example/app:1", secrets: ["s"] }, (text) => {
    begun.resolve();
    if (text.includes('"bytes":4')) half.resolve();
  });
  await begun.promise;
  await bench.clock.advance(seconds(1));
  await half.promise;
  await bench.clock.advance(seconds(5));
  bench.images.pulled.resolve({ runtime: "cri", image: IMAGE });
  const [status, text] = await asking;
  const report = {
    image: "a.example/app:1",
    runtime: "cri",
    state: "pulling",
    since: "2026-11-20T12:00:00Z",
    pods: [],
  };
  assert.equal(status, 200);
  assert.deepEqual(linesOf(text), [
    { type: "PROGRESS", object: { ...report, bytes: null, totalBytes: null } },
    { type: "PROGRESS", object: { ...report, bytes: 4, totalBytes: 8 } },
    { type: "PULLED", object: { runtime: "cri", ...IMAGE, pinned: true } },
  ]);
  const wanted = { image: "a.example/app:1", runtime: undefined, namespace: "default", secrets: ["s"] };
  assert.deepEqual(bench.images.asked, [wanted]);
});

test("a pull that fails reports it in its last line, and one whose client has gone is cancelled", async (t) => {
  const bench = await Bench.start(t);
  const failing = Promise.withResolvers<void>();
  const asking = bench.ask("/v1/images/pull", { image: "a.example/app:1" }, () => failing.resolve());
  await failing.promise;
  bench.images.pulled.reject(new PicoletError("not_found", "no such image"));
  assert.deepEqual(linesOf((await asking)[1]).at(-1), {
    type: "ERROR",
    error: { code: "not_found", message: "no such image" },
  });
  const other = await Bench.start(t);
  const begun = Promise.withResolvers<void>();
  const leaving = other.ask("/v1/images/pull", { image: "a.example/app:1" }, () => begun.resolve());
  await begun.promise;
  other.stop.abort();
  await leaving.catch(() => undefined);
  await other.clock.advance(millis(1));
  assert.equal(other.images.isGivenUp, true);
});

test("a pod that waits for an image says so in the status, with how far it is", async (t) => {
  const bench = await Bench.start(t);
  const waiting = {
    name: "app",
    image: "a:1",
    imageID: "",
    ready: false,
    restartCount: 0,
    state: { waiting: { reason: "ContainerCreating" } },
    lastState: {},
  };
  bench.view.setPods(agentPod(podOf(), { uid: "u1", status: { phase: "Pending", containerStatuses: [waiting] } }));
  const message = async (change: Partial<ActivePull>): Promise<unknown> => {
    const pods = [{ namespace: "default", name: "web", uid: "u1" }];
    const plain = { image: "a:1", runtime: "cri", sinceMs: NOW_MS, progress: undefined, pods } as const;
    bench.images.pulls = [{ ...plain, state: "pulling", ...change }];
    const { pods: reports } = JSON.parse((await bench.ask("/v1/status"))[1]) as { pods: { message: string }[] };
    return reports[0]?.message;
  };
  const progress = { bytes: 12 * 1_048_576, totalBytes: 40 * 1_048_576, isTransferring: true };
  assert.equal(await message({ progress }), "Pulling: image a:1 since 2026-11-20T12:00:00Z, 12.0 of 40.0 MiB");
  assert.equal(await message({}), "Pulling: image a:1 since 2026-11-20T12:00:00Z");
  assert.equal(await message({ state: "waiting" }), "Pulling: image a:1 waits for its turn since 2026-11-20T12:00:00Z");
  assert.equal(await message({ pods: [] }), "Pending");
});

for (const [path, body, problem] of [
  ["pull", {}, "field image is missing"],
  ["pull", { image: 5 }, "field image is a text"],
  ["pull", { image: "a", secrets: "s" }, "field secrets is a list of names"],
  ["pull", { image: "a", secrets: Array.from({ length: 33 }, () => "s") }, "field secrets is a list of names"],
  ["pull", { image: "a", secret: "s" }, "there is no field secret here"],
  ["remove", { image: "a", force: "yes" }, "field force is true or false"],
  ["remove", { image: "a", runtime: "" }, "field runtime is a text"],
  ["pin", { image: "a" }, "field pinned is true or false"],
] as const) {
  test(`POST images/${path} refuses ${JSON.stringify(body).slice(0, 40)}`, async (t) => {
    const bench = await Bench.start(t);
    const [status, text] = await bench.ask(`/v1/images/${path}`, body);
    assert.deepEqual([status, JSON.parse(text)], [400, { error: { code: "invalid", message: problem } }]);
    assert.deepEqual(bench.images.asked, []);
  });
}

test("without a part that pulls, nothing is pulled, and what is here is shown all the same", async (t) => {
  const bench = await Bench.start(t, false);
  for (const verb of ["pull", "remove", "pin"])
    assert.equal((await bench.ask(`/v1/images/${verb}`, { image: "a" }))[0], 501);
  assert.equal((await bench.ask("/v1/images"))[0], 200);
});
