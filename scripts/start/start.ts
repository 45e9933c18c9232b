/**
 * `npm start`: builds, starts a hub with its embedded API server and an agent that joins it with a token, both with a
 * folder of their own (`.picolet`), gives the cluster the sample pods and shows what becomes of them. Ctrl-C ends all
 * of it.
 */

import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { on, once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, watch, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { mountPointsWithin, parseMountInfo } from "@picolet/agent/core/node/mount-info.ts";
import { HttpKubeClient } from "@picolet/hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "@picolet/hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import { type KubeClient, type KubeObject, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, ignore, isPicoletError } from "@picolet/protocol/errors.ts";
import { NEVER } from "@picolet/protocol/ports.ts";
import { parse } from "yaml";
import { buildPrograms } from "../build/build.ts";
import { buildContainerExample } from "../build/build-container-example.ts";
import { buildExamples } from "../build/build-examples.ts";
import { readOptions } from "../options.ts";
import { followPods, isReady, type PodsByName, requestAgent, textOf } from "./follow-pods.ts";
import { HubProcess, runHubCommand } from "./hub-process.ts";
import { probeContainerRuntime } from "./probe-container-runtime.ts";

/** Enough for a first image on a slow board; after it `--exit-when-ready` gives up and says what is missing. */
const READY_LIMIT_MS = 180_000;
/** How long Ctrl-C waits for the pods to end before it leaves them to the next start. */
const END_LIMIT_MS = 30_000;
/** A unix socket's path has 108 bytes (unix(7)). */
const MAX_SOCKET_PATH = 100;
const NAMESPACE = "default";
const EDGECTL = "dist/board/bin/edgectl";

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
    enableServer: false,
    // For the end: `edgectl node shutdown`.
    shutdownGracePeriod: "25s",
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
  // The hub's log goes to a file: on the terminal it would mix with the agent's.
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

/** @throws when the agent ends before its socket answers; its output is on the terminal */
async function startAgent(node: Node): Promise<ChildProcess> {
  const args = ["--config", node.configPath, "--root-dir", join(node.folder, "root"), "--socket", node.socketPath];
  // A process group of its own: Ctrl-C reaches this script alone, which ends the pods before the agent.
  const agent = spawn("dist/board/bin/picolet", args, {
    stdio: ["ignore", "inherit", "inherit"],
    detached: true,
    // This node does not follow the machine's own shutdown.
    env: { ...process.env, DBUS_SYSTEM_BUS_ADDRESS: "disabled:" },
  });
  const life = new AbortController();
  const answered = waitInFolder(dirname(node.socketPath), () => answers(node), life.signal);
  const ended = once(agent, "exit", { signal: life.signal }).then(([code]) => {
    throw new Error(`the agent ended with ${code}`);
  });
  try {
    await Promise.race([answered, ended]);
  } finally {
    life.abort();
    await Promise.allSettled([answered, ended]);
  }
  return agent;
}

/** Checks `condition` now and after each change in `folder`, until it holds. @throws when `signal` aborts */
async function waitInFolder(
  folder: string,
  condition: () => boolean | Promise<boolean>,
  signal: AbortSignal,
): Promise<void> {
  const changes = on(watch(folder, { signal }), "change", { signal });
  if (await condition()) return void (await changes.return?.());
  for await (const _ of changes) if (await condition()) return;
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

/** Gives the node its images and the cluster the pods. */
async function deploySamples(node: Node, client: KubeClient, samples: readonly string[]): Promise<void> {
  edgectl(node, "image", "import", resolve("dist/examples/hello.wasm"), "--name", "picolet.example/hello:1");
  if (samples.includes("web")) edgectl(node, "image", "import", resolve(buildContainerExample()));
  for (const name of samples)
    await apply(client, parse(readFileSync(`examples/${name}/pod.yaml`, "utf8")) as KubeObject);
}

/** One that a start before this one left goes on; one that has ended, or was being ended then, makes way. */
async function apply(client: KubeClient, pod: KubeObject): Promise<void> {
  const ref = { namespace: NAMESPACE, name: pod.metadata.name };
  const create = async (): Promise<unknown> => await client.create(PODS, { ...ref, name: "" }, pod, {}, NEVER);
  try {
    await create();
  } catch (error) {
    if (!isPicoletError(error, "already_exists")) throw error;
    const { metadata, status } = await client.get(PODS, ref, NEVER);
    const { phase } = (status ?? {}) as { readonly phase?: unknown };
    if (metadata.deletionTimestamp === undefined && phase !== "Failed") return;
    await client.delete(PODS, ref, { gracePeriodSeconds: 0 }, NEVER);
    await create();
  }
}

/** Everything that must be ended; filled as it is started. */
interface Started {
  hub?: HubProcess;
  node?: Node;
  agent?: ChildProcess;
  client?: KubeClient & AsyncDisposable;
  samples: readonly string[];
}

async function end({ hub, node, agent, client, samples }: Started): Promise<void> {
  if (client !== undefined) for (const name of samples) await remove(client, name).catch(sayError);
  if (node !== undefined && agent !== undefined && isRunning(agent)) {
    const isOver = (pods: PodsByName): boolean => !samples.some((name) => pods.has(name));
    const followed = await followPods(node.socketPath, END_LIMIT_MS, isOver).catch(sayError);
    if (followed?.reached === false) say("some pods have not ended yet; the next npm start goes on with that");
    // All others, of DaemonSets too, whose controller makes new ones of those that are deleted: they run again after
    // the next start.
    await run("dist/board/bin/edgectl", ["--socket", node.socketPath, "node", "shutdown"], {
      timeout: END_LIMIT_MS,
    }).catch(sayError);
    await untilUnmounted(node.folder);
    const exited = once(agent, "exit");
    agent.kill("SIGTERM");
    await exited;
  }
  await client?.[Symbol.asyncDispose]();
  await hub?.end("SIGTERM");
}

/**
 * The agent unmounts an ended pod's volumes a moment after its end, and then removes the pod's folder. While a volume is
 * mounted, `.picolet` cannot be removed.
 */
async function untilUnmounted(folder: string): Promise<void> {
  const pods = join(folder, "root/pods");
  const isUnmounted = (): boolean =>
    mountPointsWithin(parseMountInfo(readFileSync(MOUNTS, "utf8")), folder).length === 0;
  if (isUnmounted() || !existsSync(pods)) return;
  await waitInFolder(pods, isUnmounted, AbortSignal.timeout(END_LIMIT_MS)).catch(
    ignore("a volume that is still mounted stays; the next start removes it"),
  );
}

const MOUNTS = "/proc/self/mountinfo";
const run = promisify(execFile);
const isRunning = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode === null && signalCode === null;
const sayError = (error: unknown): void => say(describeError(error));

async function remove(client: KubeClient, name: string): Promise<void> {
  try {
    await client.delete(PODS, { namespace: NAMESPACE, name }, {}, NEVER);
  } catch (error) {
    if (!isPicoletError(error, "not_found")) throw error;
  }
}

/** npm passes a Ctrl-C on to a process that has it from the terminal already. */
const SAME_INTERRUPTION_MS = 1000;

/** Aborts at the first Ctrl-C; the second leaves at once. */
function interruption(): AbortSignal {
  const stop = new AbortController();
  let firstAt = 0;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (stop.signal.aborted) {
        if (performance.now() - firstAt > SAME_INTERRUPTION_MS) process.exit(130);
        return;
      }
      firstAt = performance.now();
      say("\nending the pods, the agent and the hub; press Ctrl-C again to leave at once");
      stop.abort(new Error("interrupted"));
    });
  }
  return stop.signal;
}

/** @throws when `stop` aborts, between two of its steps */
async function bringUp(started: Started, endpoint: string, stop: AbortSignal): Promise<void> {
  const hubDir = resolve(".picolet/hub");
  mkdirSync(hubDir, { recursive: true });
  const hub = await startHub(hubDir);
  started.hub = hub;
  say(`the hub serves: boards at ${hub.ready.tunnel}, kubectl at ${hub.ready.api}; its log is .picolet/hub.log`);
  stop.throwIfAborted();
  const node = await makeNode(hub, hubDir, endpoint);
  started.node = node;
  stop.throwIfAborted();
  started.agent = await startAgent(node);
  const client = await clientOf(hub);
  started.client = client;
  stop.throwIfAborted();
  started.samples = endpoint === "" ? ["hello"] : ["hello", "web"];
  await deploySamples(node, client, started.samples);
}

/** Until all samples are Ready, or it takes too long. @throws when `stop` aborts */
async function untilReady({ node, samples }: Started, stop: AbortSignal): Promise<boolean> {
  if (node === undefined) return false;
  const allReady = (pods: PodsByName): boolean => samples.every((name) => isReady(pods.get(name)));
  const followed = await Promise.race([followPods(node.socketPath, READY_LIMIT_MS, allReady), abortedError(stop)]);
  if (!followed.reached) say(`not every sample pod was Ready after ${READY_LIMIT_MS / 1000} s`);
  return followed.reached;
}

const abortedError = async (signal: AbortSignal): Promise<never> => {
  if (!signal.aborted) await once(signal, "abort");
  throw signal.reason;
};

/** Shows what became of the samples. @returns the same for scripts */
function showNode({ node, hub }: Started, isWell: boolean): string {
  if (node === undefined || hub === undefined) return "";
  process.stdout.write(edgectl(node, "status"));
  if (isWell) process.stdout.write(`\nkubectl --kubeconfig ${hub.ready.kubeconfig} get nodes,pods -A\n`);
  return edgectl(node, "status", "-o", "json");
}

/** Until the agent ends by itself. @throws when `stop` aborts */
async function stay({ agent, node }: Started, stop: AbortSignal): Promise<void> {
  if (agent === undefined || node === undefined) return;
  say(
    `\nedgectl: dist/board/bin/edgectl --socket ${node.socketPath} status    (Ctrl-C ends the pods, the agent and the hub)`,
  );
  await Promise.race([isRunning(agent) ? once(agent, "exit") : undefined, abortedError(stop)]);
  say("the agent ended unexpectedly");
}

const EXIT_WHEN_READY = {
  name: "exit-when-ready",
  help: "leave with 0 once every sample pod is Ready; the last thing printed is edgectl status -o json",
};
const OPTIONS = {
  name: "start",
  summary: "build, and run a hub, an agent that joins it, and sample pods; Ctrl-C ends all of it",
  flags: [EXIT_WHEN_READY],
};

/** @returns the exit code */
async function main(): Promise<number> {
  const leaves = readOptions(OPTIONS).flag(EXIT_WHEN_READY.name);
  for (const output of [process.stdout, process.stderr])
    output.on(
      "error",
      ignore("the reader of the output may go away; everything that was started must be ended all the same"),
    );
  say("building");
  await buildPrograms(undefined, "kept");
  await buildExamples();
  const runtime = await probeContainerRuntime();
  say(runtime.message);
  const started: Started = { samples: [] };
  const stop = interruption();
  let isWell = !leaves;
  let report = "";
  try {
    await bringUp(started, runtime.endpoint, stop);
    isWell = await untilReady(started, stop);
    report = showNode(started, isWell);
    if (!leaves) await stay(started, stop);
  } catch (error) {
    if (!stop.aborted) throw error;
    if (leaves) isWell = false;
  } finally {
    await end(started);
  }
  if (leaves) process.stdout.write(report);
  return isWell ? 0 : 1;
}

process.exit(await main());
