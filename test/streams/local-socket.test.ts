/** Logs, exec, attach and port-forward on the agent's local socket, with a real containerd and no hub. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { CHANNEL } from "@picolet/protocol/tunnel/channel-frames.ts";
import { desiredPod } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { LocalSocket } from "../support/unit/streaming/local-socket.ts";
import { StreamingNode } from "../support/unit/streaming/streaming-node.ts";

const MIB = 1024 * 1024;
const ECHO_PORT = 7010;
const TIMEOUT = { timeout: 120_000 };
const V4 = "v4.channel.k8s.io";
const V5 = "v5.channel.k8s.io";
const PROGRAM = {
  image: BUSYBOX_IMAGE,
  command: [
    "/bin/sh",
    "-c",
    `nc -ll -p ${ECHO_PORT} -e /bin/cat & trap 'exit 143' TERM; i=0; while :; do echo "line $i"; i=$((i+1)); sleep 0.1; done`,
  ],
  args: [],
};
const POD = desiredPod(PROGRAM, { name: "web" });
const EXEC = "/exec/default/web/main";

let containerd: Containerd;
let node: StreamingNode;
let socket: LocalSocket;

const query = (command: readonly string[], more = ""): string =>
  `${EXEC}?${command.map((word) => `command=${encodeURIComponent(word)}`).join("&")}&output=1${more}`;
const sha = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

const nothingLeft = (): Promise<true> =>
  node.bench.until("every stream to be over", async () => (node.streams.sessions === 0 ? true : undefined));

const skip = containerdMissing() ?? false;

if (skip === false) {
  before(async () => {
    containerd = await Containerd.start();
    node = new StreamingNode(new CriFixture(containerd));
    await node.run(POD, PROGRAM);
    socket = await LocalSocket.start(node.streams.handlers);
  });
  after(async () => {
    await socket[Symbol.asyncDispose]();
    await node[Symbol.asyncDispose]();
    await containerd[Symbol.asyncDispose]();
  });
}

test("exec: outputs, exit code, input with its end", { skip, ...TIMEOUT }, async () => {
  using run = await socket.open(query(["/bin/sh", "-c", "echo out; echo err >&2; exit 7"], "&error=1"), V5, V4);
  assert.equal(run.protocol, V5);
  assert.equal(await run.end(), "7");
  assert.deepEqual([run.text(CHANNEL.stdout), run.text(CHANNEL.stderr)], ["out\n", "err\n"]);
  using cat = await socket.open(query(["/bin/cat"], "&input=1"), V5);
  const input = randomBytes(2 * MIB);
  for (let at = 0; at < input.length; at += 32 * 1024) cat.send(CHANNEL.stdin, input.subarray(at, at + 32 * 1024));
  cat.closeChannel(CHANNEL.stdin);
  assert.equal(await cat.end(), "Success");
  assert.equal(sha(Buffer.from(cat.text(CHANNEL.stdout), "latin1")), sha(input));
  await nothingLeft();
});

test("exec on a terminal: its size and its input", { skip, ...TIMEOUT }, async () => {
  using shell = await socket.open(query(["/bin/sh"], "&input=1&tty=1"), V5);
  shell.send(CHANNEL.resize, JSON.stringify({ Width: 123, Height: 45 }));
  await shell.until((each) => each.text(CHANNEL.stdout).includes("# "));
  shell.send(CHANNEL.stdin, "stty size; exit 5\n");
  assert.equal(await shell.end(), "5");
  assert.match(shell.text(CHANNEL.stdout), /45 123/);
  await nothingLeft();
});

test("exec with the older protocol, which the runtime speaks itself", { skip, ...TIMEOUT }, async () => {
  using run = await socket.open(query(["/bin/echo", "hello"]), V4);
  assert.equal(await run.end(), "Success");
  assert.equal(run.text(CHANNEL.stdout), "hello\n");
  await nothingLeft();
});

test("attach shows what is written from now on; a client that leaves ends it", { skip, ...TIMEOUT }, async () => {
  using attach = await socket.open("/attach/default/web/main?output=1", V5);
  await attach.until((each) => each.text(CHANNEL.stdout).includes("line "));
  attach.close();
  await nothingLeft();
});

test("port-forward: each connection its own, and one that is refused", { skip, ...TIMEOUT }, async () => {
  const texts = Array.from({ length: 3 }, () => randomBytes(64 * 1024).toString("hex"));
  const answers = texts.map(async (text) => {
    using forward = await socket.open(`/portForward/default/web?port=${ECHO_PORT}`, V4);
    const wanted = text.length + 2;
    for (let at = 0; at < text.length; at += 32 * 1024) forward.send(0, text.slice(at, at + 32 * 1024));
    await forward.until((each) => each.text(0).length >= wanted);
    // The first message is the port.
    return forward.text(0).slice(2);
  });
  assert.deepEqual(await Promise.all(answers), texts);
  using refused = await socket.open("/portForward/default/web?port=9", V4);
  await refused.until((each) => each.text(1).length > 2);
  assert.match(refused.text(1), /refused|exit status/);
  refused.close();
  await nothingLeft();
});

test("run, logs and the kubelet's pages", { skip, ...TIMEOUT }, async () => {
  assert.deepEqual(await socket.ask("/run/default/web/main?cmd=%2Fbin%2Fecho%20hello", "POST"), [200, "hello\n"]);
  const [failed, why] = await socket.ask("/run/default/web/main?cmd=%2Fbin%2Ffalse", "POST");
  assert.equal(failed, 500);
  assert.match(why, /exit code 1/);
  const [status, log] = await socket.ask("/containerLogs/default/web/main?tailLines=1");
  assert.equal(status, 200);
  assert.match(log, /^line \d+\n$/);
  const [, pods] = await socket.ask("/pods");
  assert.deepEqual(
    (JSON.parse(pods) as { items: { metadata: { name: string } }[] }).items.map(({ metadata }) => metadata.name),
    ["web"],
  );
  assert.deepEqual(await socket.ask("/healthz"), [200, "ok"]);
  assert.equal((await socket.ask("/v1/version"))[0], 200);
  await nothingLeft();
});

test("what cannot be had is refused with its reason", { skip, ...TIMEOUT }, async () => {
  const refusedWith = async (path: string, protocols: readonly string[], reason: RegExp): Promise<void> => {
    await assert.rejects(socket.open(path, ...protocols), reason);
  };
  await refusedWith("/exec/default/nope/main?command=a&output=1", [V5], /404 pods "nope" not found/);
  await refusedWith("/exec/default/web/nope?command=a&output=1", [V5], /404 container not found \("nope"\)/);
  await refusedWith(EXEC, [V5], /400 you must specify at least 1 of stdin, stdout, stderr/);
  await refusedWith("/pods", [V5], /400 there is nothing to upgrade here/);
  await refusedWith("/v1/status", [V5], /400 there is nothing to upgrade here/);
  assert.deepEqual(await socket.ask("/exec/default/web/main?command=a&output=1"), [
    400,
    "this needs a request that can be upgraded to SPDY/3.1 or a WebSocket\n",
  ]);
  assert.equal((await socket.ask("/nothing"))[0], 404);
  await nothingLeft();
});
