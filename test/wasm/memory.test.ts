/**
 * What the processes of components take beyond Node itself, which is measured beside them: sizes that are the same from run to
 * run, with limits close above them. A change that exceeds one has to be worth it.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PULLER_FLAGS, SMALL_PROCESS_ENVIRONMENT } from "../../runtime-adapters/wasm/node-flags.ts";
import { BareNodes, peakRssKiB } from "../support/bare-node.ts";
import { testComponent } from "../support/components.ts";
import { artifact, gzippedLayer, imageOf } from "../support/oci-content.ts";
import { padded } from "../support/padded-component.ts";
import { PullBench } from "../support/pull-bench.ts";

const MIB = 1024;
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
