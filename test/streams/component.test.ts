/** kubectl against a pod of components: what it can do works, what it cannot says why. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { CHANNEL } from "@picolet/protocol/tunnel/channel-frames.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desiredPod } from "@picolet/runtime-test-kit/conformance/conformance-bench.ts";
import { KUBECTL_VERSIONS } from "@picolet/scripts/test/install-kubectl.ts";
import { Kubectl } from "../support/hub/kubectl.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";
import { ApiFront } from "../support/unit/embedded/api-front.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { LocalSocket } from "../support/unit/streaming/local-socket.ts";
import { NODE, StreamingNode } from "../support/unit/streaming/streaming-node.ts";
import { testComponent } from "../support/wasm/components.ts";
import { wasmFixture } from "../support/wasm/wasm-fixture.ts";

const TIMEOUT = { timeout: 120_000 };
const NEVER = new AbortController().signal;
const SERVED = "localhost/http-server:1";

let node: StreamingNode;
let front: ApiFront;
let pod: DesiredPod;
let port: number;
let socket: LocalSocket;

before(async () => {
  node = new StreamingNode(await wasmFixture());
  await node.connect();
  const program = node.fixture.programs.countForever;
  pod = desiredPod(program, { name: "component" });
  await node.run(pod, program);
  front = await ApiFront.start(node.dialer, node.target());
  await front.show(pod, NODE);
  port = await fixedPort();
  await node.adapter.images.import(await testComponent("http-server.c"), SERVED, NEVER);
  const served = servedPod();
  await node.run(served, { image: SERVED, command: [], args: [] });
  await front.show(served, NODE);
  socket = await LocalSocket.start(node.streams.handlers);
});

function servedPod(): DesiredPod {
  const desired = desiredPod({ image: SERVED, command: [], args: [] }, { name: "served" });
  const { spec, ...rest } = desired.pod;
  const containers = spec.containers.map((each) => ({ ...each, ports: [{ containerPort: port }] }));
  const parsed = parsePod({ ...rest, spec: { ...spec, containers } });
  assert.ok(parsed.ok);
  return { ...desired, pod: parsed.pod };
}

after(async () => {
  await socket[Symbol.asyncDispose]();
  await front[Symbol.asyncDispose]();
  await node[Symbol.asyncDispose]();
});

const idle = (): Promise<true> =>
  node.bench.until("every stream to be over", async () =>
    node.streams.sessions === 0 && node.fleet.underWay === 0 ? true : undefined,
  );

for (const version of KUBECTL_VERSIONS) {
  const skip = kubectlMissing(version);

  test(`kubectl ${version} attaches to a component's output and follows its log`, { skip, ...TIMEOUT }, async () => {
    using attach = new Kubectl(version, front.flags, ["attach", "component"]);
    await attach.says("line ");
    attach.kill("SIGINT");
    await attach.exit();
    using logs = new Kubectl(version, front.flags, ["logs", "-f", "component", "--tail=1"]);
    await logs.says("line ");
    logs.kill("SIGINT");
    await logs.exit();
    await idle();
  });

  test(`kubectl ${version} is told what a component cannot do`, { skip, ...TIMEOUT }, async () => {
    using exec = new Kubectl(version, front.flags, ["exec", "component", "--", "/bin/sh"]);
    assert.equal(await exec.exit(), 1);
    assert.match(exec.stderr, /cannot exec into a WebAssembly component: it has no shell/);
    using forward = new Kubectl(version, front.flags, ["port-forward", "component", ":80"]);
    assert.equal(await forward.exit(), 1);
    assert.match(forward.stderr, /cannot forward ports: none of the pod's WebAssembly components is served/);
    await idle();
  });
}

for (const version of KUBECTL_VERSIONS)
  for (const webSockets of [false, true]) {
    const skip = kubectlMissing(version);
    const title = `kubectl ${version} forwards a port to a component that is served${webSockets ? ", by a WebSocket if it can" : ""}`;

    test(title, { skip, ...TIMEOUT }, async () => {
      const other = port === 9 ? 10 : 9;
      const words = ["port-forward", "served", `:${port}`, `:${other}`];
      const env = { KUBECTL_PORT_FORWARD_WEBSOCKETS: String(webSockets) };
      using forward = new Kubectl(version, front.flags, words, false, env);
      await forward.says(`-> ${other}`);
      const [here, nowhere] = [port, other].map((each) =>
        Number(new RegExp(`127\\.0\\.0\\.1:(\\d+) -> ${each}\\b`).exec(forward.stdout.toString())?.[1]),
      );
      const ask = async (path: string, init: RequestInit = {}): Promise<string> =>
        (await fetch(`http://127.0.0.1:${here}${path}`, { signal: AbortSignal.timeout(30_000), ...init })).text();
      const bodies = Array.from({ length: 4 }, (_, index) => String(index).repeat(300_000));
      const answers = await Promise.all(bodies.map((body) => ask("/echo", { method: "POST", body })));
      assert.ok(answers.every((answer, index) => answer === bodies[index]));
      assert.equal(await ask("/hello"), "hello world");
      await assert.rejects(fetch(`http://127.0.0.1:${nowhere}/`, { signal: AbortSignal.timeout(30_000) }));
      await forward.says(`is not served on port ${other}: it is served on ${port}`);
      forward.kill("SIGINT");
      await forward.exit();
      await idle();
    });
  }

test("the local socket attaches to a component and forwards its port", TIMEOUT, async () => {
  using attach = await socket.open("/attach/default/component/main?output=1", "v5.channel.k8s.io");
  await attach.until((each) => each.text(CHANNEL.stdout).includes("line "));
  attach.close();
  await assert.rejects(socket.open("/exec/default/component/main?command=a&output=1", "v5.channel.k8s.io"), /no shell/);
  using forward = await socket.open(`/portForward/default/served?port=${port}`, "v4.channel.k8s.io");
  forward.send(0, "GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
  await forward.until((each) => each.text(0).includes("hello world"));
  using nowhere = await socket.open("/portForward/default/served?port=9", "v4.channel.k8s.io");
  await nowhere.until((each) => each.text(1).includes("is not served on port 9"));
  nowhere.close();
  await assert.rejects(socket.open("/portForward/default/served", "v4.channel.k8s.io"), /400 query parameter `port`/);
  forward.close();
  await idle();
});

test("a component's attach ends with its container, with success", TIMEOUT, async () => {
  const [version = "1.32"] = KUBECTL_VERSIONS.slice(-1);
  if (kubectlMissing(version) !== false) return;
  using attach = new Kubectl(version, front.flags, ["attach", "component"]);
  await attach.says("line ");
  const [container] = (await node.bench.inspect(pod)).containers;
  await node.fixture.killWorkload(container?.id ?? "", "SIGKILL");
  await node.bench.exited(pod, container?.id ?? "");
  await node.look(pod);
  assert.equal(await attach.exit(), 0, attach.stderr);
  await idle();
});
