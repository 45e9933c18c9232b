/**
 * `npm start`: builds, starts an agent with a folder of its own (`.picolet`), gives it the sample pods and shows what
 * becomes of them. Ctrl-C ends all of it.
 *
 * --exit-when-ready  leaves with 0 once every sample pod is Ready; the last thing printed is `edgectl status -o json`
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { StatusAnswer, WatchLine } from "../protocol/local-api.ts";
import type { Pod } from "../protocol/pod.ts";
import { buildPrograms } from "./build.ts";
import { buildContainerExample } from "./build-container-example.ts";
import { buildExamples } from "./build-examples.ts";
import { probeContainerRuntime } from "./probe-container-runtime.ts";

const USAGE = "Usage: npm start [-- --exit-when-ready]";
/** Enough for a first image on a slow board; after it `--exit-when-ready` gives up and says what is missing. */
const READY_LIMIT_MS = 180_000;
/** How long Ctrl-C waits for the pods to end before it leaves them to the next start. */
const END_LIMIT_MS = 30_000;
/** A unix socket's path has 108 bytes (unix(7)). */
const MAX_SOCKET_PATH = 100;

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
    while (!(await statusOf(node))) await new Promise((wake) => setTimeout(wake, 50));
  })();
  const ended = once(agent, "exit").then(([code]) => {
    throw new Error(`the agent ended with ${code}`);
  });
  ended.catch(() => undefined);
  await Promise.race([answered, ended]);
  return agent;
}

function statusOf(node: Node): Promise<StatusAnswer | undefined> {
  return new Promise((answer) => {
    const request = get({ socketPath: node.socketPath, path: "/v1/status", agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => answer(JSON.parse(text) as StatusAnswer));
    });
    request.on("error", () => answer(undefined));
  });
}

/** Follows the pods until `condition` holds. @returns false when the time is over first */
async function follow(
  node: Node,
  limitMs: number,
  condition: (pods: ReadonlyMap<string, Pod>) => boolean,
): Promise<boolean> {
  const pods = new Map<string, Pod>();
  return await new Promise((answer, reject) => {
    const request = get({ socketPath: node.socketPath, path: "/v1/pods?watch=true", agent: false }, (response) => {
      let rest = "";
      const finish = (reached: boolean): void => {
        clearTimeout(timer);
        response.destroy();
        answer(reached);
      };
      const timer = setTimeout(() => finish(false), limitMs);
      if (condition(pods)) finish(true);
      response.setEncoding("utf8").on("data", (chunk: string) => {
        const lines = (rest + chunk).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines.filter((each) => each !== "")) {
          const change = JSON.parse(line) as WatchLine<Pod>;
          if (change.type === "ERROR") reject(new Error(change.error.message));
          else if (change.type === "DELETED") pods.delete(change.object.metadata.name);
          else pods.set(change.object.metadata.name, change.object);
        }
        if (condition(pods)) finish(true);
      });
      response.on("close", () => finish(false));
    });
    request.on("error", reject);
  });
}

const isReady = (pod: Pod): boolean =>
  pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;

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
  const gone = await follow(node, END_LIMIT_MS, (pods) => pods.size === 0).catch(() => false);
  if (!gone) say("some pods have not ended yet; the next npm start goes on with that");
  const exited = once(agent, "exit");
  agent.kill("SIGTERM");
  await exited;
}

const args = process.argv.slice(2);
const unknown = args.find((each) => each !== "--exit-when-ready");
if (unknown !== undefined) {
  say(`unknown argument ${unknown}\n${USAGE}`);
  process.exit(64);
}
say("building");
await buildPrograms();
await buildExamples();
const runtime = await probeContainerRuntime();
say(runtime.message);
const node = makeNode(runtime.endpoint);
const agent = await startAgent(node);
let interrupted = false;
const interrupt = new Promise<void>((wake) => {
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (interrupted) process.exit(130);
      interrupted = true;
      say("\nending the sample pods and the agent; press Ctrl-C again to leave at once");
      wake();
    });
  }
});
edgectl(node, "image", "import", resolve("dist/examples/hello.wasm"), "--name", "picolet.example/hello:1");
const samples = ["hello"];
if (runtime.endpoint !== "") {
  edgectl(node, "image", "import", resolve(buildContainerExample()));
  samples.push("web");
}
for (const sample of samples) copyFileSync(`examples/${sample}/pod.yaml`, join(node.manifests, `${sample}.yaml`));
const ready = follow(node, READY_LIMIT_MS, (pods) => pods.size === samples.length && [...pods.values()].every(isReady));
const reached = await Promise.race([ready, interrupt.then(() => false)]);
process.stdout.write(edgectl(node, "status"));
let failed = !reached && !interrupted;
if (failed) say(`not every sample pod was Ready after ${READY_LIMIT_MS / 1000} s`);
if (args.includes("--exit-when-ready")) {
  const report = edgectl(node, "status", "-o", "json");
  await end(node, agent);
  process.stdout.write(report);
} else {
  if (!interrupted) {
    const control = `dist/bin/edgectl --socket ${node.socketPath}`;
    say(
      `\nThe node runs on; Ctrl-C ends it. Look at it from another terminal:\n  ${control} status\n  ${control} logs hello -f`,
    );
    const agentEnded = once(agent, "exit").then(() => {
      failed = true;
      say("the agent ended by itself");
    });
    await Promise.race([interrupt, agentEnded]);
  }
  await end(node, agent);
}
process.exit(failed ? 1 : 0);
