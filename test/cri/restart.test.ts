/** The runtime dies and comes back: calls fail quickly meanwhile, and everything goes on by itself afterwards. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { millis, type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CriAdapter } from "@picolet/runtime-cri/cri-adapter.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { BUSYBOX_PROGRAMS, CriFixture } from "../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { criAdapter } from "../support/unit/cri/cri-adapters.ts";

const skip = containerdMissing() ?? false;
const { signal } = new AbortController();
/** Generous for a loaded machine; a dead socket refuses within a millisecond. */
const QUICKLY_MS = 2_000;
const ATTEMPTS_FOR_A_HINT = 40;

const unavailable = (error: unknown) => isPicoletError(error, "unavailable") && error.retryable;

function podNamed(name: string): DesiredPod {
  const containers = [{ name: "main", image: BUSYBOX_IMAGE }];
  const parsed = parsePod({ apiVersion: "v1", kind: "Pod", metadata: { name }, spec: { containers } });
  assert.ok(parsed.ok);
  return { uid: podUid(name), source: "file", origin: "", pod: parsed.pod };
}

function everyCall(adapter: CriAdapter, pod: DesiredPod): readonly Promise<unknown>[] {
  const stop = { kind: "stopContainer", containerId: "x", gracePeriod: millis(0) } as const;
  return [
    adapter.status(signal),
    adapter.list(signal),
    adapter.inspect(pod.uid, signal),
    adapter.apply(pod, stop, signal),
    adapter.apply(pod, { kind: "removeSandbox", sandboxId: "x" }, signal),
    adapter.reopenLog(pod.uid, "x", signal),
    adapter.images.list(signal),
    adapter.images.status(BUSYBOX_IMAGE, signal),
  ];
}

async function failQuickly(calls: () => readonly Promise<unknown>[]): Promise<void> {
  const startedAt = performance.now();
  await Promise.all(calls().map((call) => assert.rejects(call, unavailable)));
  assert.ok(performance.now() - startedAt < QUICKLY_MS);
}

test("with no socket there every call fails as unavailable, at once", async () => {
  await using adapter = criAdapter("unix:///nonexistent/picolet.sock");
  for (let round = 0; round < 3; round += 1) await failQuickly(() => everyCall(adapter, podNamed("none")));
});

test("an endpoint that is no unix socket is refused when the adapter is made", () => {
  for (const endpoint of ["tcp://127.0.0.1:1234", "containerd.sock", ""]) {
    assert.throws(() => criAdapter(endpoint), { code: "invalid" });
  }
});

describe("a containerd that dies and comes back", { skip }, () => {
  let containerd: Containerd;
  let fixture: CriFixture;

  before(async () => {
    containerd = await Containerd.start();
    fixture = new CriFixture(containerd);
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
  });

  /** @returns the id of the container started. */
  async function start(pod: DesiredPod, attempt: number): Promise<string> {
    const { command, args } = BUSYBOX_PROGRAMS.runForever;
    const image = { requested: BUSYBOX_IMAGE, id: BUSYBOX_IMAGE };
    const own = { name: "main", attempt, hash: "h", backoff: millis(0), logPath: `main/${attempt}.log` };
    const container = { ...own, image, command, args, env: [], workingDir: "", mounts: [] };
    await fixture.adapter.apply(pod, { kind: "startContainer", container }, signal);
    return (await fixture.adapter.inspect(pod.uid, signal)).containers[0]?.id ?? "";
  }

  test("calls, containers and hints go on", async () => {
    const { adapter } = fixture;
    const pod = podNamed("survivor");
    const folders = await fixture.preparePod(pod);
    const sandbox = { attempt: 0, hostname: "survivor", dns: undefined, ...folders };
    await adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
    let attempt = 0;
    let id = await start(pod, attempt);
    const seen = new Set<PodUid>();
    const abort = new AbortController();
    const reading = (async () => {
      for await (const uid of adapter.hints(abort.signal)) seen.add(uid);
    })();
    const killUntilHinted = async (): Promise<void> => {
      seen.clear();
      for (let tries = 0; tries < ATTEMPTS_FOR_A_HINT && !seen.has(pod.uid); tries += 1) {
        process.kill(containerd.pidOf(id), "SIGKILL");
        for (let turn = 0; turn < 20 && !seen.has(pod.uid); turn += 1) await fixture.settle();
        attempt += 1;
        while ((await adapter.inspect(pod.uid, signal)).containers[0]?.state.kind === "running") await fixture.settle();
        id = await start(pod, attempt);
      }
      assert.ok(seen.has(pod.uid), "a hint came");
    };
    await killUntilHinted();
    assert.equal(await adapter.tryHints(signal), true, "a hint that is asked for comes");

    const before = await adapter.inspect(pod.uid, signal);
    await containerd.killDaemon();
    for (let round = 0; round < 3; round += 1) await failQuickly(() => everyCall(adapter, pod));
    assert.equal(process.kill(containerd.pidOf(id), 0), true, "the container runs on");

    await containerd.startDaemon();
    // The daemon says that it is up some moments before its CRI plugin has recovered what runs.
    let after = before;
    for (;;) {
      after = await adapter.inspect(pod.uid, signal).catch(() => ({ ...before, containers: [] }));
      if (after.containers.length > 0) break;
      await fixture.settle();
    }
    assert.deepEqual(after, before);
    await killUntilHinted();
    assert.equal(await adapter.tryHints(signal), true, "and does so through the new connection");

    abort.abort();
    await reading;
  });

  test("a call that is under way when it dies fails, and the same step taken again succeeds", async () => {
    const pod = podNamed("midway");
    const folders = await fixture.preparePod(pod);
    const sandbox = { attempt: 0, hostname: "midway", dns: undefined, ...folders };
    const create = () => fixture.adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
    const under = create();
    const lost = assert.rejects(under, unavailable);
    await fixture.settle();
    await containerd.killDaemon();
    await lost;
    await containerd.startDaemon();
    // A half-made sandbox of the dead agent keeps the name until it is removed: a new attempt never meets it.
    for (let attempt = 0; ; attempt += 1) {
      const next = { ...sandbox, attempt };
      const done = await fixture.adapter.apply(pod, { kind: "createSandbox", sandbox: next }, signal).then(
        () => true,
        (error) => assert.ok(isPicoletError(error), String(error)),
      );
      if (done === true) break;
      assert.ok(attempt < 20);
      await fixture.settle();
    }
    const { sandboxes } = await fixture.adapter.inspect(pod.uid, signal);
    assert.equal(sandboxes.filter((each) => each.state === "ready").length, 1);
  });
});
