/**
 * kill -9 of the agent, and of the pull process, anywhere in a pull: the next one goes on, and nothing half-made is
 * ever used.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { artifact, digestOf, gzippedLayer, imageOf } from "../support/unit/images/oci-content.ts";
import { testProgram } from "../support/unit/machine/bundles.ts";
import { runningProcesses } from "../support/unit/machine/processes.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { testComponent } from "../support/wasm/components.ts";
import { PullBench } from "../support/wasm/pull-bench.ts";

const NEVER = new AbortController().signal;
const KILLS = 16;
/** What is sent at a time, and so often. */
const PIECE_BYTES = 4_096;
const PIECE_INTERVAL_MS = 10;

const component = readFileSync(await testComponent("workload.c"));
const ID = digestOf(component);

/** Sends blobs no faster than a poor link does. */
function slowly(bench: PullBench, blob: Uint8Array): void {
  bench.registry.intercept = ({ url = "", headers }, response) => {
    if (!url.endsWith(`/blobs/${digestOf(blob)}`)) return false;
    let at = Number(/\d+/.exec(headers.range ?? "0")?.[0]);
    const how = at === 0 ? {} : { "content-range": `bytes ${at}-${blob.length - 1}/${blob.length}` };
    response.writeHead(at === 0 ? 200 : 206, { ...how, "content-length": blob.length - at });
    const timer = setInterval(() => {
      response.write(blob.subarray(at, at + PIECE_BYTES));
      at += PIECE_BYTES;
      if (at >= blob.length) clearInterval(timer);
    }, PIECE_INTERVAL_MS);
    response.once("close", () => clearInterval(timer));
    return true;
  };
}

/** Checks that everything in use is whole: each name leads to a component whose content is its digest. */
async function checkTruth(bench: PullBench): Promise<void> {
  await using adapter = bench.runtime.adapter();
  for (const { id } of await adapter.images.list(NEVER)) assert.equal(id, ID);
  for (const name of bench.files("components")) {
    const content = readFileSync(bench.runtime.folder.at("root", "components", name));
    assert.equal(`${digestOf(content).slice(7)}.wasm`, name);
  }
  assert.deepEqual(bench.files("tmp"), []);
}

/** Pids of the pull processes that this process has started, itself or through an agent. */
const pullProcesses = (starter: number): number[] =>
  runningProcesses()
    .filter(({ parent, words }) => parent === starter && words.some((word) => word.includes("pull-main")))
    .map(({ pid }) => pid);

const program = await testProgram("test/support/wasm/pulling-agent.ts");
const contents = { artifact: artifact(component), image: imageOf([gzippedLayer({ "a.wasm": component })]) };

test(`${KILLS} agents are killed in the middle of a pull, and each next one goes on with it`, async (context) => {
  await using bench = await PullBench.create({ pullLimits: {} });
  const { manifest, blobs } = contents.image;
  bench.registry.add(contents.artifact, [component], "artifact");
  bench.registry.add(manifest, blobs, "image");
  const layer = blobs.at(-1) as Uint8Array;
  const random = seededRandom(20_261_122);
  const init = JSON.stringify(bench.runtime.adapterInit);
  let [finished, resumed] = [0, 0];
  for (let kill = 0; kill < KILLS; kill += 1) {
    const tag = kill % 2 === 0 ? "artifact" : "image";
    slowly(bench, tag === "artifact" ? component : layer);
    const asked = bench.registry.requests.length;
    const agent = spawn(process.execPath, [program, init, bench.name(`app:${tag}`)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(agent, "exit");
    const isAsked = bench.registry.untilBlobAsked(asked);
    await Promise.race([isAsked, ended]);
    // The blob takes some 100 ms; what follows it on disk some more.
    await Promise.race([wait(random.next() * 250), ended]);
    if (agent.exitCode === 0) finished += 1;
    agent.kill("SIGKILL");
    await ended;
    resumed += bench.registry.requests.slice(asked).filter((each) => each.includes("bytes=")).length;
    await checkTruth(bench);
    if (finished > 0 && bench.files("components").length > 0) {
      await using adapter = bench.runtime.adapter();
      await adapter.images.remove(ID, NEVER);
    }
  }
  context.diagnostic(`${finished} of ${KILLS} pulls came to their end, ${resumed} were gone on with`);
  assert.ok(resumed > 0, "some pull was cut off and taken up");
  bench.registry.intercept = () => false;
  for (const tag of ["artifact", "image"]) assert.equal((await bench.pull(`app:${tag}`)).id, ID);
  assert.deepEqual(bench.files("pulls"), []);
});

test("a pull process that is killed is a pull that failed, and the next one goes on", async () => {
  await using bench = await PullBench.create({ pullLimits: {} });
  bench.registry.add(contents.artifact, [component], "1");
  slowly(bench, component);
  const pull = bench.pull("app:1");
  pull.catch(() => undefined);
  await bench.registry.untilBlobAsked();
  const [pid] = pullProcesses(process.pid);
  assert.ok(pid !== undefined, "there is a pull process");
  process.kill(pid, "SIGKILL");
  await assert.rejects(pull, (error: Error) => /cannot pull/.test(error.message));
  await checkTruth(bench);
  bench.registry.intercept = () => false;
  assert.equal((await bench.pull("app:1")).id, ID);
});

test("a pull process ends with its agent, though it waits for a registry that never answers", async () => {
  await using bench = await PullBench.create({ pullLimits: {} });
  const closed = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  bench.registry.intercept = (_, response) => {
    response.once("close", () => closed.resolve());
    asked.resolve();
    return true;
  };
  const args = [program, JSON.stringify(bench.runtime.adapterInit), bench.name("app:1")];
  const agent: ChildProcess = spawn(process.execPath, args, { stdio: "ignore" });
  await asked.promise;
  const [pid = 0] = agent.pid === undefined ? [] : pullProcesses(agent.pid);
  const startedAt = performance.now();
  agent.kill("SIGKILL");
  await closed.promise;
  assert.ok(pid > 0 && performance.now() - startedAt < 30_000, "long before it would have given up by itself");
});
