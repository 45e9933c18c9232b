/** Logs, exec, attach and port-forward on the agent's local socket, with a real containerd and no hub. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { resolve } from "node:path";
import { PassThrough, Readable } from "node:stream";
import { after, before, test } from "node:test";
import { runEdgectl } from "@picolet/agent/cli/run-edgectl.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { CHANNEL } from "@picolet/protocol/tunnel/channel-frames.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { desiredPod } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { CapturedTerminal, NO_KEYBOARD, type Outcome } from "../support/unit/agent/edgectl-bench.ts";
import { agentPod } from "../support/unit/agent/fake-agent-view.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { LocalSocket } from "../support/unit/streaming/local-socket.ts";
import { StreamingNode } from "../support/unit/streaming/streaming-node.ts";

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
    socket = await LocalSocket.start(node.streams.handlers, [agentPod(POD.pod)]);
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
  const input = randomBytes(2 * MEBIBYTE);
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

const edgectl = async (
  line: string | readonly string[],
  input: AsyncIterable<Buffer> = Readable.from([]),
): Promise<Outcome> => {
  const terminal = new CapturedTerminal({ columns: undefined });
  const code = await runEdgectl(typeof line === "string" ? words(line) : line, around(terminal, input));
  return { code, out: terminal.out, error: terminal.error };
};
const words = (line: string): string[] => line.split(" ");
const around = (terminal: CapturedTerminal, input: AsyncIterable<Buffer>) => ({
  ...{ terminal, clock: systemClock, environment: { PICOLET_SOCKET: socket.path }, workingDirectory: "/" },
  ...{ readBeside: () => "[]", input: () => input, keyboard: NO_KEYBOARD },
});

/** A command that goes on until it is killed. */
async function watching(line: string, isShown: RegExp): Promise<Disposable & { readonly out: string }> {
  const program = spawn(process.execPath, ["agent/cli/edgectl.ts", ...line.split(" ")], {
    env: { ...process.env, PICOLET_SOCKET: socket.path },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let out = "";
  await new Promise<void>((shown, fail) => {
    program.stdout.setEncoding("utf8").on("data", (piece: string) => {
      out += piece;
      if (isShown.test(out)) shown();
    });
    program.once("exit", () => fail(new Error(`edgectl ${line} has ended: ${out}`)));
  });
  return { out, [Symbol.dispose]: () => void program.kill("SIGKILL") };
}

test("edgectl exec: outputs apart, input with its end, and the command's exit code", { skip, ...TIMEOUT }, async () => {
  const failing = await edgectl([...words("exec web -- /bin/sh -c"), "echo out; echo err >&2; exit 7"]);
  assert.deepEqual(failing, { code: 7, out: "out\n", error: "err\n" });
  const text = Buffer.from(randomBytes(MEBIBYTE / 2).toString("hex"));
  const pieces = Array.from({ length: 16 }, (_, at) => text.subarray((at * MEBIBYTE) / 16, ((at + 1) * MEBIBYTE) / 16));
  const copied = await edgectl("exec -i web -c main -- /bin/cat", Readable.from(pieces));
  assert.deepEqual([copied.code, sha(Buffer.from(copied.out)), copied.error], [0, sha(text), ""]);
  const none = await edgectl([...words("exec -it web -- /bin/sh -c"), "test -t 1 || echo none"]);
  assert.deepEqual(none, { code: 0, out: "none\n", error: "edgectl: standard input is no terminal: -t is left out\n" });
  const missing = await edgectl("exec web -- /no/such/program");
  assert.notEqual(missing.code, 0);
  assert.match(`${missing.error}${missing.out}`, /no such file|exit code|not found/);
  assert.equal((await edgectl("exec nope -- true")).code, 1);
  assert.match((await edgectl("exec web -c nope -- true")).error, /pod web has no container nope, only main/);
  assert.match((await edgectl("exec web")).error, /exec needs a command: edgectl exec POD -- COMMAND/);
  await nothingLeft();
});

test("edgectl exec -it: the terminal's size and its changes; it is given back", { skip, ...TIMEOUT }, async () => {
  const terminal = new CapturedTerminal();
  const told: string[] = [];
  let resized = (): void => {};
  const keyboard = {
    ...{ isTerminal: true, size: { columns: 100, rows: 30 } },
    raw: () => ({ [Symbol.dispose]: () => void told.push("given back") }),
    onResize: (listener: () => void) => {
      resized = listener;
      return { [Symbol.dispose]: () => void told.push("not followed") };
    },
  };
  const keys = new PassThrough();
  const code = runEdgectl(words("exec -it web -- /bin/sh"), { ...around(terminal, keys), keyboard });
  await terminal.until(({ out }) => out.includes("# "));
  keys.write("stty size\n");
  await terminal.until(({ out }) => out.includes("30 100"));
  keyboard.size = { columns: 60, rows: 20 };
  resized();
  await nextSize(terminal, keys, "20 60");
  keys.write("exit 3\n");
  assert.equal(await code, 3);
  assert.deepEqual(told, ["not followed", "given back"]);
  await nothingLeft();
});

/** Asks again until the new size, which has a way of its own, has come. */
async function nextSize(terminal: CapturedTerminal, keys: PassThrough, size: string): Promise<void> {
  while (!terminal.out.includes(size)) {
    const { writes } = terminal;
    keys.write("stty size\n");
    await terminal.until((each) => each.writes > writes + 1 || each.out.includes(size));
  }
}

test("edgectl cp: files and folders both ways, links as kubectl does it", { skip, ...TIMEOUT }, async () => {
  using folder = new TempFolder();
  const at = (name: string): string => folder.at(name);
  const shell = async (script: string): Promise<string> => {
    const { code, out, error } = await edgectl([...words("exec web -- /bin/sh -c"), script]);
    assert.equal(code, 0, error);
    return out;
  };
  const copy = async (from: string, to: string): Promise<Outcome> => await edgectl(["cp", from, to]);
  const good = { code: 0, out: "", error: "" };
  const big = randomBytes(5 * MEBIBYTE + 17);
  mkdirSync(at("tree/deep"), { recursive: true });
  writeFileSync(at("tree/big"), big);
  writeFileSync(at(`tree/deep/${"n".repeat(200)}`), "long name");
  writeFileSync(at("tree/run.sh"), "#!/bin/sh\n", { mode: 0o755 });
  symlinkSync("big", at("tree/link"));
  await shell("mkdir -p /tmp/in");
  assert.deepEqual(await copy(at("tree"), "web:/tmp/in"), good);
  assert.equal(
    await shell("cd /tmp/in/tree && sha256sum < big && readlink link && test -x run.sh && cat deep/*"),
    `${sha(big)}  -\nbig\nlong name`,
  );
  assert.deepEqual(await copy(at("tree/run.sh"), "default/web:/tmp/in/renamed"), good);
  assert.equal(await shell("cat /tmp/in/renamed"), "#!/bin/sh\n");
  const back = await copy("web:/tmp/in/tree", at("back"));
  assert.deepEqual(back, { code: 0, out: "", error: 'edgectl: "tree/link" is left out: it is a link\n' });
  assert.equal(sha(readFileSync(at("back/big"))), sha(big));
  assert.deepEqual(readdirSync(at("back")).sort(), ["big", "deep", "run.sh"]);
  assert.deepEqual(await copy("web:/tmp/in/renamed", at("back")), good);
  assert.equal(readFileSync(at("back/renamed"), "utf8"), "#!/bin/sh\n");
  await nothingLeft();
});

test("edgectl cp: what goes wrong has its reason", { skip, ...TIMEOUT }, async () => {
  using folder = new TempFolder();
  const failure = async (from: string, to: string): Promise<string> => {
    const { code, error } = await edgectl(["cp", from, to]);
    assert.notEqual(code, 0);
    return error;
  };
  const shell = (script: string): Promise<Outcome> => edgectl([...words("exec web -- /bin/sh -c"), script]);
  const file = "/tmp/file";
  assert.equal((await shell(`mkdir -p /tmp && echo text >${file}`)).code, 0);
  assert.match(await failure("web:/no/such", folder.at("x")), /cannot copy \/no\/such of container main: .*\/no/);
  assert.match(await failure(folder.at("none"), "web:/tmp"), /cannot read \/.*none: ENOENT/);
  assert.match(await failure("a", "b"), /neither side is in a container/);
  assert.match(await failure("a:/b", "web:/c"), /both sides are in a container/);
  assert.match(await failure(`web:${file}`, "/dev/null/x"), /cannot make the folder \/dev\/null/);
  symlinkSync("/etc/none", folder.at("leads-out"));
  assert.match(await failure(`web:${file}`, folder.at("leads-out")), /it is a link, which is not followed/);
  const moved = await shell("mv /bin/tar /tmp/no-tar");
  assert.deepEqual([moved.code, moved.error], [0, ""]);
  for (const [from, to] of [
    [`web:${file}`, folder.at("x")],
    [resolve("package.json"), "web:/tmp"],
  ] as const)
    assert.match(await failure(from, to), /container main of pod web has no program tar, which copying needs/);
  assert.equal((await shell("mv /tmp/no-tar /bin/tar")).code, 0);
  await nothingLeft();
});

test("edgectl attach and port-forward, until they are interrupted", { skip, ...TIMEOUT }, async () => {
  using forwarding = await watching(`port-forward web :${ECHO_PORT}`, /127\.0\.0\.1:\d+ -> 7010\n/);
  const port = Number(/127\.0\.0\.1:(\d+) -> /.exec(forwarding.out)?.[1]);
  const texts = Array.from({ length: 3 }, () => randomBytes(64 * 1024));
  const echoed = texts.map(async (text) => {
    const client = connect(port, "127.0.0.1");
    const pieces: Buffer[] = [];
    client.write(text);
    await new Promise<void>((done, fail) => {
      client.on("error", fail).on("data", (piece: Buffer) => {
        pieces.push(piece);
        if (Buffer.concat(pieces).length >= text.length) done();
      });
    });
    client.resetAndDestroy();
    return sha(Buffer.concat(pieces));
  });
  assert.deepEqual(await Promise.all(echoed), texts.map(sha));
  await nothingLeft();
  {
    using _attached = await watching("attach web", /line \d+\n/);
  }
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
