/** Unmodified kubectl of both ages against the hub as kubelet endpoint, the agent's streams and a real containerd. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { desiredPod } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import { KUBECTL_VERSIONS, type KubectlVersion } from "@picolet/scripts/test/install-kubectl.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { Kubectl } from "../support/hub/kubectl.ts";
import { KubeletPassage } from "../support/hub/kubelet-passage.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";
import { ApiFront } from "../support/unit/embedded/api-front.ts";
import { NODE, StreamingNode } from "../support/unit/streaming/streaming-node.ts";

const ECHO_PORT = 7010;
const TIMEOUT = { timeout: 120_000 };
const missing = containerdMissing();

/** Counts, and answers each connection. */
const PROGRAM = {
  image: BUSYBOX_IMAGE,
  command: [
    "/bin/sh",
    "-c",
    `ln -s /bin/busybox /bin/tar; nc -ll -p ${ECHO_PORT} -e /bin/cat & trap 'exit 143' TERM; i=0; while :; do echo "line $i"; i=$((i+1)); sleep 0.1; done`,
  ],
  args: [],
};
const POD = desiredPod(PROGRAM, { name: "web" });
/** Its container has not started. */
const LATER = desiredPod(PROGRAM, { name: "later" });
const WAITING: PodStatus = {
  phase: "Pending",
  containerStatuses: [
    {
      ...{ name: "main", image: BUSYBOX_IMAGE, imageID: "", ready: false, restartCount: 0, lastState: {} },
      state: { waiting: { reason: "ImagePullBackOff" } },
    },
  ],
};

let containerd: Containerd;
let node: StreamingNode;
let front: ApiFront;
/** As `front`, with a kube-apiserver's way to the kubelet. */
let passage: ApiFront;

const sha = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
const kubectl = (version: KubectlVersion, ...args: readonly string[]): Kubectl =>
  new Kubectl(version, front.flags, args);

/** Sends `text` through a forwarded port and waits until it has come back. */
async function echoed(port: number, text: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  let answer = "";
  socket.on("data", (data: Buffer) => {
    answer += data.toString("latin1");
    if (answer.length >= text.length) socket.end();
  });
  socket.write(text);
  await once(socket, "close");
  return answer;
}

/** The agent's sessions and the tunnel's streams are over a moment after kubectl has its answer. */
async function nothingLeft(): Promise<void> {
  await node.bench.until("every stream to be over", async () =>
    node.streams.sessions === 0 && node.fleet.underWay === 0 ? true : undefined,
  );
}

if (missing !== undefined) {
  test("kubectl through the hub", { skip: missing }, () => undefined);
} else {
  before(async () => {
    containerd = await Containerd.start();
    node = new StreamingNode(new CriFixture(containerd));
    await node.connect();
    await node.run(POD, PROGRAM);
    front = await ApiFront.start(node.dialer, node.target());
    const { certificate: cert, privateKey: key } = node.client;
    passage = await ApiFront.start(new KubeletPassage({ cert, key, ca: node.authority.ca }), node.target());
    await node.look(LATER, WAITING);
    for (const each of [front, passage]) {
      await each.show(POD, NODE);
      await each.show(LATER, NODE);
    }
  });
  after(async () => {
    await front[Symbol.asyncDispose]();
    await passage[Symbol.asyncDispose]();
    await node[Symbol.asyncDispose]();
    await containerd[Symbol.asyncDispose]();
  });
  for (const version of KUBECTL_VERSIONS) {
    const skip = kubectlMissing(version);
    const title = (what: string): string => `kubectl ${version} ${what}`;

    test(title("exec: outputs, exit code, input"), { skip, ...TIMEOUT }, async () => {
      using run = kubectl(version, "exec", "web", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7");
      assert.equal(await run.exit(), 7);
      assert.equal(run.stdout.toString(), "out\n");
      assert.match(run.stderr, /^err\n/);
      using cat = kubectl(version, "exec", "-i", "web", "--", "/bin/cat");
      const input = randomBytes(3 * MEBIBYTE);
      assert.equal(await cat.end(input), 0);
      assert.equal(sha(cat.stdout), sha(input));
      await nothingLeft();
    });

    test(title("exec: of a container that there is not"), { skip, ...TIMEOUT }, async () => {
      using run = kubectl(version, "exec", "web", "-c", "nope", "--", "/bin/true");
      assert.equal(await run.exit(), 1);
      assert.match(run.stderr, /Error from server \(BadRequest\): container nope is not valid for pod web/);
      await nothingLeft();
    });

    test(title("exec -it on a terminal: its size, its input, its end"), { skip, ...TIMEOUT }, async () => {
      using run = new Kubectl(version, front.flags, ["exec", "-it", "web", "--", "/bin/sh"], true);
      await run.says("# ");
      run.type("echo $((6*7)); tty\n");
      await run.says("42");
      await run.says("/dev/pts/");
      run.type("exit 5\n");
      assert.equal(await run.exit(), 5);
      await nothingLeft();
    });

    test(title("cp: megabytes both ways"), { skip, ...TIMEOUT }, async (context) => {
      const folder = mkdtempSync(join(tmpdir(), "picolet-cp-"));
      context.after(() => rmSync(folder, { recursive: true }));
      const content = randomBytes(8 * MEBIBYTE);
      writeFileSync(join(folder, "up"), content);
      using up = kubectl(version, "cp", join(folder, "up"), `default/web:/copy-${version}`);
      assert.equal(await up.exit(), 0, up.stderr);
      using down = kubectl(version, "cp", `default/web:/copy-${version}`, join(folder, "down"));
      assert.equal(await down.exit(), 0, down.stderr);
      assert.equal(sha(readFileSync(join(folder, "down"))), sha(content));
      await nothingLeft();
    });

    test(title("port-forward: several connections at once, one refused"), { skip, ...TIMEOUT }, async () => {
      using forward = kubectl(version, "port-forward", "web", `:${ECHO_PORT}`, ":9");
      await forward.says("-> 9");
      const ports = [...forward.stdout.toString().matchAll(/127\.0\.0\.1:(\d+) -> (\d+)/g)];
      const portTo = (remote: number): number => Number(ports.find((each) => Number(each[2]) === remote)?.[1]);
      const texts = Array.from({ length: 6 }, () => randomBytes(64 * 1024).toString("hex"));
      const answers = await Promise.all(texts.map((text) => echoed(portTo(ECHO_PORT), text)));
      assert.deepEqual(answers.map(sha_), texts.map(sha_));
      // A byte that kubectl has not read when it closes would reset the connection.
      assert.equal(await echoed(portTo(9), ""), "");
      await forward.says("error forwarding port 9");
      forward.kill("SIGINT");
      await forward.exit();
      await nothingLeft();
    });

    test(title("attach shows what is written from now on"), { skip, ...TIMEOUT }, async () => {
      using attach = kubectl(version, "attach", "web");
      await attach.says("line ");
      attach.kill("SIGINT");
      await attach.exit();
      await nothingLeft();
    });

    test(title("logs, and logs -f until it is left"), { skip, ...TIMEOUT }, async () => {
      using tail = kubectl(version, "logs", "web", "--tail=1", "--timestamps");
      assert.equal(await tail.exit(), 0);
      assert.match(tail.stdout.toString(), /^\d{4}-\d\d-\d\dT[\d:.]+Z line \d+\n$/);
      using follow = kubectl(version, "logs", "-f", "web", "--tail=0");
      await follow.says("line ");
      follow.kill("SIGINT");
      await follow.exit();
      using wrong = kubectl(version, "logs", "web", "-p");
      assert.equal(await wrong.exit(), 1);
      assert.match(wrong.stderr, /previous terminated container "main" in pod "web" not found/);
      await nothingLeft();
    });

    for (const way of ["the embedded API server", "a kube-apiserver"]) {
      test(title(`shows through ${way} why a container cannot be reached`), { skip, ...TIMEOUT }, async () => {
        const { flags } = way.includes("embedded") ? front : passage;
        const waits = 'container "main" in pod "later" is waiting to start: ImagePullBackOff';
        for (const [args, message] of [
          [["exec", "later", "--", "/bin/true"], waits],
          [["exec", "-i", "later", "--", "/bin/true"], waits],
          [["attach", "later"], waits],
          [["cp", "/etc/hostname", "default/later:/copy"], waits],
          [["cp", "default/later:/copy", "/dev/null"], waits],
          [["logs", "later"], waits],
          [["logs", "web", "--previous"], 'previous terminated container "main" in pod "web" not found'],
          [["logs", "later", "-p"], 'previous terminated container "main" in pod "later" not found'],
        ] as const) {
          using run = new Kubectl(version, flags, args);
          assert.equal(await run.exit(), 1);
          const lines = run.stderr.trim().split("\n");
          assert.equal(lines.at(-1), `Error from server (BadRequest): ${message}`, args.join(" "));
        }
        await nothingLeft();
      });
    }

    test(title("is told of a node that is away"), { skip, ...TIMEOUT }, async () => {
      node.fleet.disconnect(NODE);
      try {
        using run = kubectl(version, "exec", "web", "--", "/bin/true");
        assert.equal(await run.exit(), 1);
        assert.match(run.stderr, /the agent of node edge-1 is away since \d{4}-/);
        using logs = kubectl(version, "logs", "web");
        assert.equal(await logs.exit(), 1);
        assert.match(logs.stderr, /the agent of node edge-1 is away since \d{4}-/);
      } finally {
        await node.connect();
      }
    });
  }
}

const sha_ = (text: string): string => sha(Buffer.from(text, "latin1"));
