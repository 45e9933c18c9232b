/**
 * `npm start`: builds, starts a hub with its embedded API server and an agent that joins it with a token, both with a
 * folder of their own (`.picolet`), gives the cluster the sample pods and shows what becomes of them. Ctrl-C ends all of
 * it.
 *
 * --exit-when-ready  leaves with 0 once every sample pod is Ready; the last thing printed is `edgectl status -o json`
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { HttpKubeClient } from "@picolet/hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "@picolet/hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import { type KubeClient, type KubeObject, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parse } from "yaml";
import { buildPrograms } from "../build/build.ts";
import { buildContainerExample } from "../build/build-container-example.ts";
import { buildExamples } from "../build/build-examples.ts";
import { followPods, isReady, type PodsByName, requestAgent, textOf } from "./follow-pods.ts";
import { HubProcess, runHubCommand } from "./hub-process.ts";
import { probeContainerRuntime } from "./probe-container-runtime.ts";

const USAGE = "Usage: npm start [-- --exit-when-ready]";
/** Enough for a first image on a slow board; after it `--exit-when-ready` gives up and says what is missing. */
const READY_LIMIT_MS = 180_000;
/** How long Ctrl-C waits for the pods to end before it leaves them to the next start. */
const END_LIMIT_MS = 30_000;
/** A unix socket's path has 108 bytes (unix(7)). */
const MAX_SOCKET_PATH = 100;
const NAMESPACE = "default";
const EDGECTL = "dist/board/bin/edgectl";
const NEVER = new AbortController().signal;

/** sysexits.h */
const EX_USAGE = 64;

const say = (line: string): void => void process.stderr.write(`${line}\n`);

interface Node {
  readonly folder: string;
  readonly socketPath: string;
  readonly configPath: string;
}

async function makeNode(hub: HubProcess, hubDir: string, containerRuntimeEndpoint: string): Promise<Node> {
  const folder = resolve(".picolet");
  const manifests = join(folder, "manifests");
  mkdirSync(manifests, { recursive: true });
  const near = join(folder, "picolet.sock");
  const socketPath =
    near.length <= MAX_SOCKET_PATH ? near : join(mkdtempSync(join(tmpdir(), "picolet-")), "picolet.sock");
  const configPath = join(folder, "config.yaml");
  const config = {
    staticPodPath: manifests,
    podLogsDir: join(folder, "logs"),
    containerRuntimeEndpoint,
    cgroupRoot: "/picolet-start",
    // Beside a real node's.
    healthzPort: 0,
    hub: {
      server: hub.ready.tunnel,
      token: await runHubCommand(hubDir, "token", "create"),
      caHash: [hub.ready.caHash],
    },
  };
  writeFileSync(configPath, `${JSON.stringify(config, undefined, 2)}\n`, { mode: 0o600 });
  return { folder, socketPath, configPath };
}

async function startHub(dataDir: string): Promise<HubProcess> {
  // What it says goes to a file: on the terminal it would stand between the lines of the agent.
  const lines: string[] = [];
  const log = join(dataDir, "..", "hub.log");
  return await HubProcess.start({
    dataDir,
    onLog: (line) => {
      lines.push(line);
      writeFileSync(log, `${line}\n`, { flag: lines.length === 1 ? "w" : "a" });
    },
  });
}

/** @throws when the agent ends before its socket answers; what it said stands above on the terminal */
async function startAgent(node: Node): Promise<ChildProcess> {
  const args = ["--config", node.configPath, "--root-dir", join(node.folder, "root"), "--socket", node.socketPath];
  // A process group of its own: Ctrl-C reaches this script alone, which then ends the pods before the agent.
  const agent = spawn("dist/board/bin/picolet", args, { stdio: ["ignore", "inherit", "inherit"], detached: true });
  const answered = (async () => {
    while (!(await answers(node))) await new Promise((wake) => setTimeout(wake, 50));
  })();
  const ended = once(agent, "exit").then(([code]) => {
    throw new Error(`the agent ended with ${code}`);
  });
  ended.catch(() => undefined);
  await Promise.race([answered, ended]);
  return agent;
}

async function answers({ socketPath }: Node): Promise<boolean> {
  try {
    await textOf(await requestAgent(socketPath, "/v1/version"));
    return true;
  } catch {
    return false;
  }
}

function edgectl(node: Node, ...args: string[]): string {
  try {
    return execFileSync(EDGECTL, ["--socket", node.socketPath, ...args], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "inherit"],
    });
  } catch (error) {
    // Exit code 1 means degraded: what it printed is what we want to show.
    const output = (error as { stdout?: string }).stdout ?? "";
    if (output === "") throw error;
    return output;
  }
}

async function clientOf(hub: HubProcess): Promise<KubeClient & AsyncDisposable> {
  const access = await loadKubeconfigAccess({ kubeconfig: hub.ready.kubeconfig });
  const transport = new KubeTransport({ access, clock: systemClock, random: { next: Math.random } });
  const client = new HttpKubeClient(transport);
  return Object.assign(client, { [Symbol.asyncDispose]: () => transport[Symbol.asyncDispose]() });
}

/** Gives the node its images and the cluster the pods. @returns their names */
async function deploySamples(node: Node, client: KubeClient, withContainer: boolean): Promise<string[]> {
  edgectl(node, "image", "import", resolve("dist/examples/hello.wasm"), "--name", "picolet.example/hello:1");
  if (withContainer) edgectl(node, "image", "import", resolve(buildContainerExample()));
  const samples = withContainer ? ["hello", "web"] : ["hello"];
  for (const name of samples)
    await apply(client, parse(readFileSync(`examples/${name}/pod.yaml`, "utf8")) as KubeObject);
  return samples;
}

/** One that a start before this one left goes on; one that was being ended then makes way. */
async function apply(client: KubeClient, pod: KubeObject): Promise<void> {
  const ref = { namespace: NAMESPACE, name: pod.metadata.name };
  const create = async (): Promise<unknown> => await client.create(PODS, { ...ref, name: "" }, pod, {}, NEVER);
  try {
    await create();
  } catch (error) {
    if (!isPicoletError(error, "already_exists")) throw error;
    const { metadata } = await client.get(PODS, ref, NEVER);
    if (metadata.deletionTimestamp === undefined) return;
    await client.delete(PODS, ref, { gracePeriodSeconds: 0 }, NEVER);
    await create();
  }
}

async function end(
  node: Node,
  agent: ChildProcess,
  hub: HubProcess,
  client: KubeClient,
  samples: readonly string[],
): Promise<void> {
  for (const name of samples) await remove(client, name);
  const isOver = (pods: PodsByName): boolean => !samples.some((name) => pods.has(name));
  if (agent.exitCode === null) {
    const { reached } = await followPods(node.socketPath, END_LIMIT_MS, isOver);
    if (!reached) say("some pods have not ended yet; the next npm start goes on with that");
    const exited = once(agent, "exit");
    agent.kill("SIGTERM");
    await exited;
  }
  await hub.end("SIGTERM");
}

async function remove(client: KubeClient, name: string): Promise<void> {
  try {
    await client.delete(PODS, { namespace: NAMESPACE, name }, {}, NEVER);
  } catch (error) {
    if (!isPicoletError(error, "not_found")) throw error;
  }
}

/** Resolves at the first Ctrl-C; the second leaves at once. */
function interruption(): Promise<"interrupted"> {
  return new Promise((resolve) => {
    let isSecond = false;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        if (isSecond) process.exit(130);
        isSecond = true;
        say("\nending the sample pods, the agent and the hub; press Ctrl-C again to leave at once");
        resolve("interrupted");
      });
    }
  });
}

/** @returns the exit code */
async function main(args: readonly string[]): Promise<number> {
  const unknown = args.find((each) => each !== "--exit-when-ready");
  if (unknown !== undefined) {
    say(`unknown argument ${unknown}\n${USAGE}`);
    return EX_USAGE;
  }
  say("building");
  await buildPrograms();
  await buildExamples();
  const runtime = await probeContainerRuntime();
  say(runtime.message);
  const hubDir = resolve(".picolet/hub");
  mkdirSync(hubDir, { recursive: true });
  const hub = await startHub(hubDir);
  say(`the hub serves: boards at ${hub.ready.tunnel}, kubectl at ${hub.ready.api}; its log is .picolet/hub.log`);
  const node = await makeNode(hub, hubDir, runtime.endpoint);
  const agent = await startAgent(node);
  await using client = await clientOf(hub);
  const interrupted = interruption();
  const samples = await deploySamples(node, client, runtime.endpoint !== "");
  const allReady = (pods: PodsByName): boolean => samples.every((name) => isReady(pods.get(name)));
  const outcome = await Promise.race([followPods(node.socketPath, READY_LIMIT_MS, allReady), interrupted]);
  const failed = outcome !== "interrupted" && !outcome.reached;
  process.stdout.write(edgectl(node, "status"));
  if (failed) say(`not every sample pod was Ready after ${READY_LIMIT_MS / 1000} s`);
  if (outcome !== "interrupted" && !failed) {
    process.stdout.write(`\nkubectl --kubeconfig ${hub.ready.kubeconfig} get nodes,pods -A\n`);
  }
  if (args.includes("--exit-when-ready")) {
    const report = edgectl(node, "status", "-o", "json");
    await end(node, agent, hub, client, samples);
    process.stdout.write(report);
    return failed || outcome === "interrupted" ? 1 : 0;
  }
  if (outcome !== "interrupted") {
    say(`\nedgectl: ${EDGECTL} --socket ${node.socketPath} status    (Ctrl-C ends the pods, the agent and the hub)`);
    const ended = once(agent, "exit").then(() => "ended" as const);
    if ((await Promise.race([interrupted, ended])) === "ended") say("the agent has ended by itself");
  }
  await end(node, agent, hub, client, samples);
  return failed ? 1 : 0;
}

process.exit(await main(process.argv.slice(2)));
