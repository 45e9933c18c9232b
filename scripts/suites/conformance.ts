/**
 * `npm run conformance`: what a kubelet does, test by test, against the node of any API server; without arguments
 * against a hub, an agent and a containerd started here. One JSON document on standard output, progress on standard
 * error; leaves with 1 when a test failed that is not known to.
 */
import { readFileSync } from "node:fs";
import { allTests } from "@picolet/test/conformance/all-tests.ts";
import { type Arguments, argumentsOf, OPTIONS } from "@picolet/test/conformance/arguments.ts";
import { KubeApi } from "@picolet/test/conformance/framework/kube-api.ts";
import { ClusterStage, chosen, type Report, runTests } from "@picolet/test/conformance/framework/runner.ts";
import type { Target } from "@picolet/test/conformance/framework/target.ts";
import { GuestCluster } from "@picolet/test/conformance/guest-cluster.ts";
import { LocalCluster, localClusterMissing } from "@picolet/test/conformance/local-cluster.ts";
import { guestMissing } from "@picolet/test/support/guest/guest.ts";
import { GUEST_ARCHITECTURES } from "@picolet/test/support/guest/guest-architecture.ts";
import { buildPrograms } from "../build/build.ts";
import { endWithUsageError, readOptions } from "../options.ts";
import { installTestSystem } from "../test/install-test-system.ts";

/** Shown when a test failed. */
const AGENT_LOG_LINES = 60;
const say = (line: string): void => void process.stderr.write(`${line}\n`);

async function main(given: Arguments): Promise<number> {
  const tests = chosen(allTests, given.focus, given.skip);
  if (given.list) {
    for (const { name } of tests) process.stdout.write(`${name}\n`);
    return 0;
  }
  const run = async (target: Target): Promise<Report> => {
    using api = await KubeApi.open(target.kubeconfig);
    const { slowness } = target;
    return await runTests(tests, new ClusterStage(api, target), { parallel: given.parallel, slowness, say });
  };
  const { cluster, images, pullSecretFile, containerLogs, kubeletRoot } = given;
  const pullSecret = pullSecretFile === undefined ? "" : readFileSync(pullSecretFile, "utf8");
  const report =
    cluster === undefined
      ? await runHere(run, given)
      : await run({ ...cluster, images, pullSecret, containerLogs, kubeletRoot, slowness: 1 });
  for (const { name, result, gap } of report.tests) {
    if (result === "failed") say(gap === undefined ? `FAILED ${name}` : `FAILED, as is known (${gap}) ${name}`);
  }
  say(`${report.passed} passed, ${report.failed} failed (${report.known} as is known), ${report.skipped} skipped`);
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  return report.failed > report.known ? 1 : 0;
}

async function runHere(run: (target: Target) => Promise<Report>, given: Arguments): Promise<Report> {
  const { board, runtime, componentsOnly } = given;
  installTestSystem({ arm64: board?.architecture === "arm64" });
  const missing =
    localClusterMissing() ?? (board === undefined ? undefined : guestMissing(GUEST_ARCHITECTURES[board.architecture]));
  if (missing !== undefined) throw new Error(`no node can be started here: ${missing}`);
  say("building");
  await buildPrograms();
  if (board?.architecture === "arm64") await buildPrograms("linux-arm64");
  say("starting the node");
  await using cluster =
    board === undefined
      ? await LocalCluster.start(componentsOnly ? "none" : runtime)
      : await GuestCluster.start({ ...board, componentsOnly });
  const report = await run(cluster.target);
  if (report.failed > report.known)
    say(`the end of the agent's log:\n${(await cluster.log()).split("\n").slice(-AGENT_LOG_LINES).join("\n")}`);
  return report;
}

function readArguments(): Arguments {
  const input = readOptions(OPTIONS);
  try {
    return argumentsOf(input);
  } catch (error) {
    return endWithUsageError(OPTIONS.name, error);
  }
}

process.exitCode = await main(readArguments());
