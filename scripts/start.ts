/**
 * `npm start`: builds, starts an agent with a folder of its own (`.picolet`), gives it the sample pods and shows what
 * becomes of them. Ctrl-C ends all of it.
 *
 * --exit-when-ready  leaves with 0 once every sample pod is Ready; the last thing printed is `edgectl status -o json`
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { buildPrograms } from "./build.ts";
import { buildContainerExample } from "./build-container-example.ts";
import { buildExamples } from "./build-examples.ts";
import { followPods, isReady, type PodsByName, requestAgent, textOf } from "./follow-pods.ts";
import { probeContainerRuntime } from "./probe-container-runtime.ts";

const USAGE = "Usage: npm start [-- --exit-when-ready]";
/** Enough for a first image on a slow board; after it `--exit-when-ready` gives up and says what is missing. */
const READY_LIMIT_MS = 180_000;
/** How long Ctrl-C waits for the pods to end before it leaves them to the next start. */
const END_LIMIT_MS = 30_000;
/** A unix socket's path has 108 bytes (unix(7)). */
const MAX_SOCKET_PATH = 100;

/** sysexits.h */
const EX_USAGE = 64;

const say = (line: string): void => void process.stderr.write(`${line}\n`);

interface Node {
  readonly folder: string;
  readonly manifests: string;
  readonly socketPath: string;
  readonly configPath: string;
}

function makeNode(containerRuntimeEndpoint: string): Node {
  const folder = resolve(".picolet");
  const manifests = join(folder, "manifests");
  mkdirSync(manifests, { recursive: true });
  for (const file of readdirSync(manifests)) rmSync(join(manifests, file));
  const near = join(folder, "picolet.sock");
  const socketPath =
    near.length <= MAX_SOCKET_PATH ? near : join(mkdtempSync(join(tmpdir(), "picolet-")), "picolet.sock");
  const configPath = join(folder, "config.yaml");
  const config = [
    `staticPodPath: ${JSON.stringify(manifests)}`,
    `podLogsDir: ${JSON.stringify(join(folder, "logs"))}`,
    `containerRuntimeEndpoint: ${JSON.stringify(containerRuntimeEndpoint)}`,
    "cgroupRoot: /picolet-start",
  ];
  writeFileSync(configPath, `${config.join("\n")}\n`);
  return { folder, manifests, socketPath, configPath };
}

/** @throws when the agent ends before its socket answers; what it said stands above on the terminal */
async function startAgent(node: Node): Promise<ChildProcess> {
  const args = ["--config", node.configPath, "--root-dir", join(node.folder, "root"), "--socket", node.socketPath];
  // A process group of its own: Ctrl-C reaches this script alone, which then ends the pods before the agent.
  const agent = spawn("dist/bin/picolet", args, { stdio: ["ignore", "inherit", "inherit"], detached: true });
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
    return execFileSync("dist/bin/edgectl", ["--socket", node.socketPath, ...args], {
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

async function end(node: Node, agent: ChildProcess): Promise<void> {
  for (const file of readdirSync(node.manifests)) rmSync(join(node.manifests, file));
  if (agent.exitCode !== null) return;
  const { reached } = await followPods(node.socketPath, END_LIMIT_MS, (pods) => pods.size === 0);
  if (!reached) say("some pods have not ended yet; the next npm start goes on with that");
  const exited = once(agent, "exit");
  agent.kill("SIGTERM");
  await exited;
}

/** Gives the node its images and manifests. @returns how many pods there will be */
function deploySamples(node: Node, withContainer: boolean): number {
  edgectl(node, "image", "import", resolve("dist/examples/hello.wasm"), "--name", "picolet.example/hello:1");
  if (withContainer) edgectl(node, "image", "import", resolve(buildContainerExample()));
  const samples = withContainer ? ["hello", "web"] : ["hello"];
  for (const sample of samples) copyFileSync(`examples/${sample}/pod.yaml`, join(node.manifests, `${sample}.yaml`));
  return samples.length;
}

/** Resolves at the first Ctrl-C; the second leaves at once. */
function interruption(): Promise<"interrupted"> {
  return new Promise((resolve) => {
    let isSecond = false;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        if (isSecond) process.exit(130);
        isSecond = true;
        say("\nending the sample pods and the agent; press Ctrl-C again to leave at once");
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
  const node = makeNode(runtime.endpoint);
  const agent = await startAgent(node);
  const interrupted = interruption();
  const count = deploySamples(node, runtime.endpoint !== "");
  const allReady = (pods: PodsByName): boolean => pods.size === count && [...pods.values()].every(isReady);
  const outcome = await Promise.race([followPods(node.socketPath, READY_LIMIT_MS, allReady), interrupted]);
  const failed = outcome !== "interrupted" && !outcome.reached;
  process.stdout.write(edgectl(node, "status"));
  if (failed) say(`not every sample pod was Ready after ${READY_LIMIT_MS / 1000} s`);
  if (args.includes("--exit-when-ready")) {
    const report = edgectl(node, "status", "-o", "json");
    await end(node, agent);
    process.stdout.write(report);
    return failed ? 1 : 0;
  }
  const control = `dist/bin/edgectl --socket ${node.socketPath}`;
  say(`\nThe node runs on; Ctrl-C ends it. Look at it from another terminal:\n  ${control} logs hello -f`);
  const last = await Promise.race([interrupted, once(agent, "exit").then(() => "died" as const)]);
  if (last === "died") say("the agent has ended by itself");
  else await end(node, agent);
  return failed || last === "died" ? 1 : 0;
}

process.exit(await main(process.argv.slice(2)));
