/** `edgectl debug node` as its user sees it: the real agent, a real containerd, no network. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readlinkSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { allReady, containerPod, edgectl, identitiesOf, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { endProcess, untilPrinted } from "../../support/hub/test-fleet.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

const skip = containerdMissing() ?? false;
const NAMESPACES = ["pid", "net", "ipc"];

let containerd: Containerd;
let node: AgentNode;
/** The pods that nothing here may change: one of a manifest, one that was applied. */
let others: ReturnType<typeof identitiesOf>;

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  node = nodeWith(containerd);
  await node.start();
  node.writeManifest("kept.json", containerPod("kept"));
  debug(["apply", "-f", "-"], JSON.stringify(containerPod("applied")));
  others = identitiesOf(await node.waitForPods("both", allReady(2)));
});

after(async () => {
  if (skip !== false) return;
  await node[Symbol.asyncDispose]();
  await containerd[Symbol.asyncDispose]();
});

const words = (...args: readonly string[]): string[] => ["debug", "node", "--image", BUSYBOX_IMAGE, ...args];

function debug(args: readonly string[], input = ""): { code: number | null; out: string; errors: string } {
  const all = ["--socket", node.socketPath, ...args];
  const { status, stdout, stderr } = spawnSync("dist/board/bin/edgectl", all, { encoding: "utf8", input });
  return { code: status, out: stdout, errors: stderr };
}

const start = (...args: readonly string[]): ChildProcess =>
  spawn("dist/board/bin/edgectl", ["--socket", node.socketPath, ...words(...args)], {
    stdio: ["ignore", "pipe", "pipe"],
  });

/** Resolves when nothing of a debugging pod is left; the other pods must be as they were. */
async function untilOnlyOthers(): Promise<void> {
  const isAlone = (pods: PodsByName): boolean => pods.size === 2 && [...pods.values()].every(isReady);
  assert.deepEqual(identitiesOf(await node.waitForPods("no debugging pod", isAlone)), others);
}

describe("edgectl debug node", { skip, timeout: 300_000 }, () => {
  test("runs a command as the node would, with its outputs and exit code, and leaves nothing", async () => {
    using folder = new TempFolder();
    const links = NAMESPACES.map((each) => `readlink /proc/self/ns/${each}`).join("; ");
    const script = `${links}; grep CapEff /proc/self/status; echo made >/host${folder.at("made")}; echo no >&2; exit 5`;
    const { code, out, errors } = debug(words("--", "sh", "-c", script));
    const capabilities = /CapBnd:\s+(\S+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
    const namespaces = NAMESPACES.map((each) => `${readlinkSync(`/proc/self/ns/${each}`)}\n`).join("");
    assert.equal(out, `${namespaces}CapEff:\t${capabilities}\n`, errors);
    assert.equal(errors, "no\n");
    assert.equal(code, 5);
    assert.equal(readFileSync(folder.at("made"), "utf8"), "made\n");
    assert.doesNotMatch(edgectl(node, "get", "pods", "-A"), /node-debugger/);
    await untilOnlyOthers();
  });

  test("passes standard input on with -i, and to the image's own program without a command", async () => {
    const big = "0123456789abcde\n".repeat(16 * 1024);
    const child = spawn("dist/board/bin/edgectl", ["--socket", node.socketPath, ...words("-i", "--", "cat")]);
    child.stdin.write(big);
    // Its input ends only now: containerd 1.6 may lose what is in pipes when a container ends (docs/runtimes.md).
    const copied = await untilPrinted(child, (text) => text.length >= big.length);
    assert.ok(copied === big, `every byte comes back: ${copied.length} of ${big.length}`);
    child.stdin.end();
    for (const stream of [child.stdout, child.stderr]) stream.resume();
    await once(child, "close");
    assert.equal(child.exitCode, 0);
    assert.deepEqual(debug(words(), "echo from the shell; exit 7\n"), { code: 7, out: "from the shell\n", errors: "" });
  });

  test("is a shell on a terminal", async () => {
    const line = `dist/board/bin/edgectl --socket ${node.socketPath} ${words().join(" ")}`;
    const child = spawn("script", ["-qefc", line, "/dev/null"], { stdio: ["pipe", "pipe", "pipe"] });
    await untilPrinted(child, (text) => text.includes("at /host"));
    child.stdin.write("\n");
    await untilPrinted(child, (text) => text.includes("/ # "));
    child.stdin.write("tty; exit 3\n");
    await untilPrinted(child, (text) => /\/dev\/(pts\/\d+|console)/.test(text));
    if (child.exitCode === null) await once(child, "exit");
    assert.equal(child.exitCode, 3);
    await untilOnlyOthers();
  });

  for (const signal of ["SIGINT", "SIGKILL"] as const) {
    test(`leaves nothing when edgectl ends by ${signal}; a new set of applied pods leaves the session alone`, async () => {
      const child = start("--", "sh", "-c", "echo begun; trap '' TERM; while :; do sleep 3600; done");
      await untilPrinted(child, (text) => text.includes("begun"));
      debug(["apply", "-f", "-"], JSON.stringify(containerPod("applied")));
      assert.match(edgectl(node, "get", "pods"), /node-debugger-\S+ +1\/1 +Running/);
      const ended = once(child, "exit");
      child.kill(signal);
      await ended;
      await untilOnlyOthers();
    });
  }

  test("names an image that is not there, with what to do, and leaves nothing", async () => {
    const { code, out, errors } = debug(["debug", "node", "--image", "picolet.example/missing:1", "--", "true"]);
    assert.equal(code, 1);
    assert.equal(out, "");
    assert.match(errors, /^edgectl: ErrImagePull: .*missing:1/);
    assert.match(errors, /edgectl image import FILE --name picolet\.example\/missing:1\n$/);
    await untilOnlyOthers();
  });

  test("names a command that the image does not have", async () => {
    const { code, errors } = debug(words("--", "/no/such/program"));
    assert.equal(code, 1);
    assert.match(errors, /\/no\/such\/program/);
    await untilOnlyOthers();
  });

  test("is over when the agent is killed: the next one removes the pod, and nothing else", async () => {
    const child = start("--", "sh", "-c", "echo begun; sleep 3600");
    await untilPrinted(child, (text) => text.includes("begun"));
    await node.kill();
    if (child.exitCode === null) await once(child, "exit");
    assert.notEqual(child.exitCode, 0);
    await node.start();
    await untilOnlyOthers();
    await endProcess(child);
  });
});
