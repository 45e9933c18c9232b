/** kubectl against a pod of components: what it can do works, what it cannot says why. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { desiredPod } from "../../runtime-adapters/contract/conformance-bench.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { KUBECTL_VERSIONS } from "../../scripts/install-kubectl.ts";
import { ApiFront } from "../support/api-front.ts";
import { kubectlMissing } from "../support/fleet.ts";
import { Kubectl } from "../support/kubectl.ts";
import { NODE, StreamingNode } from "../support/streaming-node.ts";
import { wasmFixture } from "../support/wasm-fixture.ts";

const TIMEOUT = { timeout: 120_000 };

let node: StreamingNode;
let front: ApiFront;
let pod: DesiredPod;

before(async () => {
  node = new StreamingNode(await wasmFixture());
  await node.connect();
  const program = node.fixture.programs.countForever;
  pod = desiredPod(program, { name: "component" });
  await node.run(pod, program);
  front = await ApiFront.start(node.dialer, node.target());
  await front.show(pod, NODE);
});

after(async () => {
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
    assert.match(forward.stderr, /it has no network address of its own/);
    await idle();
  });
}

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
