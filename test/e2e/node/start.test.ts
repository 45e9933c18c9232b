/** `npm start` in a folder of its own: what Ctrl-C ends, also when its output has no reader any more. */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { mountPointsWithin, parseMountInfo } from "@picolet/agent/core/node/mount-info.ts";
import { HttpKubeClient } from "@picolet/hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "@picolet/hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { AgentClient } from "../../support/agent/agent-socket.ts";
import { componentPod } from "../../support/agent/node-fixtures.ts";
import { killAll, runningProcesses } from "../../support/unit/machine/processes.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

const NEVER = new AbortController().signal;
const DAEMON_SETS = { group: "apps", version: "v1", plural: "daemonsets", kind: "DaemonSet", namespaced: true };

/** A clone that is not built yet, and `npm start` in it. */
class StartedClone extends AgentClient implements Disposable {
  readonly folder = new TempFolder();
  readonly directory = this.folder.at("clone");
  readonly socketPath = join(this.directory, ".picolet", "picolet.sock");
  readonly process: ChildProcess;
  #log = "";

  constructor() {
    super();
    mkdirSync(this.directory);
    for (const name of readdirSync(".")) {
      if (name !== "dist" && name !== ".picolet") symlinkSync(resolve(name), join(this.directory, name));
    }
    this.process = spawn(process.execPath, ["scripts/start/start.ts"], {
      cwd: this.directory,
      stdio: ["ignore", "pipe", "pipe"],
    });
    for (const output of [this.process.stdout, this.process.stderr])
      output?.setEncoding("utf8").on("data", (text: string) => {
        this.#log += text;
      });
  }

  protected override latestLog(): string {
    return this.#log;
  }

  /** @throws with all that it has said when it ends before */
  async untilSaid(text: string): Promise<void> {
    const ended = once(this.process, "close");
    while (!this.#log.includes(text)) {
      const [code] = await Promise.race([once(this.process.stderr ?? assert.fail(), "data"), ended]);
      if (this.process.exitCode !== null) assert.fail(`it ended with ${code}:\n${this.#log}`);
    }
  }

  /** The processes with the clone in their arguments. */
  get processes(): readonly string[] {
    return runningProcesses()
      .map(({ words }) => words.join(" "))
      .filter((line) => line.includes(this.directory));
  }

  get mounts(): readonly string[] {
    return mountPointsWithin(parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8")), this.directory);
  }

  async create(object: object): Promise<void> {
    const access = await loadKubeconfigAccess({ kubeconfig: join(this.directory, ".picolet/hub/admin.kubeconfig") });
    await using transport = new KubeTransport({ access, clock: systemClock, random: { next: Math.random } });
    const client = new HttpKubeClient(transport);
    await client.create(DAEMON_SETS, { namespace: "default", name: "" }, object as KubeObject, {}, NEVER);
  }

  [Symbol.dispose](): void {
    // One that a failed test leaves: the agent first, or it would start what else is killed again.
    const left = runningProcesses().filter(({ words }) => words.join(" ").includes(this.directory));
    killAll([this.process.pid ?? 0, ...left.map(({ pid }) => pid)].filter((pid) => pid > 0));
    for (const point of this.mounts) execFileSync("umount", [point]);
    this.folder[Symbol.dispose]();
  }
}

test("Ctrl-C ends all pods, those of a DaemonSet and of manifests too, into a closed pipe as well", async () => {
  using clone = new StartedClone();
  await clone.untilSaid("Ctrl-C ends the pods, the agent and the hub");
  const { metadata, spec } = componentPod("everywhere") as { metadata: object; spec: object };
  const labels = { app: "everywhere" };
  await clone.create({
    ...{ apiVersion: "apps/v1", kind: "DaemonSet", metadata },
    spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec } },
  });
  writeFileSync(join(clone.directory, ".picolet/manifests/own.json"), JSON.stringify(componentPod("own")));
  await clone.waitForPods("a sample, a daemon's pod and a static pod", (pods) =>
    ["hello", "everywhere-", "own-"].every((start) =>
      [...pods].some(([name, pod]) => name.startsWith(start) && isReady(pod)),
    ),
  );
  assert.ok(clone.processes.some((line) => line.includes("wasm-runner")));
  clone.process.stdout?.destroy();
  clone.process.stderr?.destroy();
  const ended = once(clone.process, "exit");
  // The terminal's, and npm's, which passes it on.
  clone.process.kill("SIGINT");
  clone.process.kill("SIGINT");
  assert.deepEqual(await ended, [0, null]);
  assert.deepEqual(clone.mounts, []);
  assert.deepEqual(clone.processes, []);
});
