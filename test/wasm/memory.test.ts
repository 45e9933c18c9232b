/**
 * The memory of components' processes beyond Node itself, which is measured beside them: sizes that are the same from
 * run to run, with limits close above them. A change that exceeds one has to be worth it.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { test } from "node:test";
import { componentPrograms } from "@picolet/agent/main/node/component-programs.ts";
import {
  PULLER_FLAGS,
  RUNNER_FLAGS,
  SMALL_PROCESS_ENVIRONMENT,
} from "@picolet/runtime-wasm/adapter/processes/node-flags.ts";
import { memoryOf } from "../bench/measure/process-usage.ts";
import { artifact, gzippedLayer, imageOf } from "../support/unit/images/oci-content.ts";
import { padded } from "../support/unit/images/padded-component.ts";
import { settled } from "../support/unit/ports/settled.ts";
import { BareNodes, peakRssKiB } from "../support/wasm/bare-node.ts";
import { testComponent } from "../support/wasm/components.ts";
import { PullBench } from "../support/wasm/pull-bench.ts";
import { WasmPod, WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;
const PROGRAMS = resolve("dist/board/lib");
const MIB = 1024;
/** Reached: 0.63 MiB by one that waits for time alone. With its sockets, HTTP and services in one file it was 0.92. */
const MAX_RUNNER_MIB = 0.75;
/** Reached: 42,700. V8 keeps all of it. */
const MAX_RUNNER_BYTES = 44_000;
const PULLED_BYTES = 5 * 1024 * 1024;
/** Reached: 24.3 by an artifact, 28.9 by a layer. An optimized parser adds 22, buffers that are kept 8. */
const MAX_ARTIFACT_MIB = 26;
const MAX_LAYER_MIB = 31;

test("a pull takes little memory beyond Node, whatever its agent takes", async () => {
  using bare = new BareNodes();
  const floorKiB = peakRssKiB(await bare.start(PULLER_FLAGS, SMALL_PROCESS_ENVIRONMENT));
  await using bench = await PullBench.create();
  const hello = readFileSync(await testComponent("exit-42.wat"));
  const component = padded(hello, PULLED_BYTES);
  bench.registry.add(artifact(component), [component], "artifact");
  const image = imageOf([gzippedLayer({ "app.wasm": padded(hello, PULLED_BYTES) })]);
  bench.registry.add(image.manifest, image.blobs, "layer");
  // Part of the resident size with which a child of this process starts.
  const ballast = Buffer.alloc(256 * 1024 * 1024, 1);
  await bench.pull("app:artifact");
  await bench.pull("app:layer");
  assert.equal(ballast.at(-1), 1);
  const [artifactMiB = NaN, layerMiB = NaN] = bench.runtime.log.entries
    .filter(({ message }) => message === "pulled a component")
    .map(({ fields }) => (Number(fields.peakRssKiB) - floorKiB) / MIB);
  assert.ok(artifactMiB > 1 && artifactMiB <= MAX_ARTIFACT_MIB, `a pull takes ${artifactMiB} MiB beyond Node`);
  assert.ok(layerMiB > 1 && layerMiB <= MAX_LAYER_MIB, `a pull of a layer takes ${layerMiB} MiB beyond Node`);
});

test("a runner at rest takes little memory beyond Node", async () => {
  using bare = new BareNodes();
  const floor = memoryOf(await bare.start(RUNNER_FLAGS, SMALL_PROCESS_ENVIRONMENT)).anonMiB;
  await using runtime = await WasmRuntime.create({ programs: componentPrograms(PROGRAMS) });
  await using adapter = runtime.adapter();
  await adapter.images.import(resolve("dist/examples/hello.wasm"), "localhost/hello:1", NEVER);
  await using pod = await WasmPod.create(runtime, adapter, { image: "localhost/hello:1" });
  const container = await pod.start();
  await pod.lines(container, 1);
  const { pid } = runtime.runner(container.id) ?? {};
  assert.ok(pid);
  // It collects when it first waits, after that line.
  const excess = await settled(() => [memoryOf(pid).anonMiB - floor].filter((each) => each > MAX_RUNNER_MIB));
  assert.deepEqual(excess, []);
});

/** Node's modules that every runner loads. The parts that need others load them. */
const RUNNER_MODULES = ["node:fs", "node:path", "node:vm"];

test("a runner loads nothing but what every component needs", () => {
  const loaded = new Map<string, string>();
  const load = (path: string): void => {
    if (loaded.has(path)) return;
    const source = readFileSync(path, "latin1");
    loaded.set(path, source);
    // An `import()`, which the build has made a `require()` within a function, follows none of these.
    for (const [, name = ""] of source.matchAll(/(?:^|[;=])require\("(\.[^"]+)"\)/g))
      load(resolve(dirname(path), name));
  };
  load(resolve(PROGRAMS, "wasm-runner.cjs"));
  const source = [...loaded.values()].join("\n");
  const modules = new Set([...source.matchAll(/\brequire\("(node:[^"]+)"\)/g)].map(([, name]) => name));
  assert.deepEqual([...modules].sort(), RUNNER_MODULES);
  assert.ok(source.length <= MAX_RUNNER_BYTES, `${source.length} bytes are loaded`);
});
