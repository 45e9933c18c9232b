/**
 * Errors between a board and its hub: each ends in a clear message on the side that can mend it, and disturbs no other
 * board. Real hub, real agents.
 */
import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { createServer } from "node:https";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { FilePemStore } from "@picolet/hub/identity/pem-store.ts";
import { runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import {
  componentPod,
  edgectl,
  HELLO_COMPONENT,
  HELLO_IMAGE,
  nodeWith,
  shownStatus,
} from "../../support/agent/node-fixtures.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";

const skip = kubectlMissing("1.32");

/** A failing disposal does not prevent the others. */
const owned = new AsyncDisposableStack();
let fleet: Fleet;
/** Connected throughout, with one pod. */
let board: AgentNode;

before(async () => {
  if (skip !== false) return;
  fleet = owned.use(await Fleet.start(["--drain-time", "1s"]));
  board = owned.use(await boardNamed("board"));
  await board.start();
  edgectl(board, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  await untilConnected(board);
  const pod = componentPod("hello") as { readonly spec: object };
  await fleet.apply({ ...pod, spec: { ...pod.spec, nodeName: "board" } });
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/hello", "--timeout=60s"]);
});

after(async () => {
  await fleet?.tryKubectl(["delete", "pods", "--all", "--timeout=30s"]);
  await owned.disposeAsync();
});

async function boardNamed(nodeName: string, changes: Readonly<Record<string, unknown>> = {}): Promise<AgentNode> {
  const hub = { ...(await fleet.joinConfig()), reconnectBackoff: { initial: "100ms", max: "1s" }, ...changes };
  return nodeWith(undefined, { config: { nodeName, hub } });
}

const untilConnected = async (node: AgentNode): Promise<unknown> =>
  await node.waitForStatus("a connection to the hub", ({ tunnel }) => tunnel.state === "connected");

/** Waits until the board's user sees the problem, in full. */
async function untilSaid(node: AgentNode, problem: RegExp): Promise<void> {
  const status = await node.waitForStatus(`the problem ${problem}`, ({ tunnel }) => problem.test(tunnel.problem ?? ""));
  assert.notEqual(status.tunnel.state, "connected");
  const { code, text } = shownStatus(node);
  const state = /Tunnel (refused|disconnected|connecting)/.exec(text)?.[1];
  // A hub that is only away is no fault.
  assert.equal(code, state === "refused" ? 1 : 0, text);
  assert.ok(state, text);
  assert.match(text, problem);
}

/** Most of the time goes by in waiting. */
describe("boards that are not let in", { skip, concurrency: 3 }, () => {
  const EXPIRED = Buffer.from("2020-01-01T00:00:00Z").toString("base64");

  for (const [name, changes, problem] of [
    [
      "a token that nobody made",
      async () => ({ token: "aaaaaa.aaaaaaaaaaaaaaaa" }),
      /the token is not accepted: .*`picolet-hub token create`/,
    ],
    [
      "a token that has run out",
      async () => {
        const token = await runHubCommand(fleet.dataDir, "token", "create");
        const secret = `secret/bootstrap-token-${token.slice(0, token.indexOf("."))}`;
        const patch = JSON.stringify({ data: { expiration: EXPIRED } });
        await fleet.kubectl(["-n", "kube-system", "patch", secret, "--type=merge", "-p", patch]);
        return { token };
      },
      /the token is not accepted: .*`picolet-hub token create`/,
    ],
    [
      "the hash of another CA",
      async () => ({ caHash: [`sha256:${"0".repeat(64)}`] }),
      /this is not the hub: its CA is sha256:[0-9a-f]{64}, and the configuration/,
    ],
  ] as const) {
    test(`a board with ${name} is told so, and nobody else suffers`, async () => {
      await using node = await boardNamed("stranger", await changes());
      await node.start();
      await untilSaid(node, problem);
      await node.waitForEvent(
        "an event that says so",
        (event) => event.type === "Warning" && problem.test(event.message),
      );
      const nodes = await fleet.kubectl(["get", "nodes", "-o", "name"]);
      assert.equal(nodes, "node/board\n");
      assert.equal((await board.status()).tunnel.state, "connected");
    });
  }
});

test("a second board of the same name is not let in, and is told what can be done", { skip }, async () => {
  await using other = await boardNamed("board");
  await other.start();
  await untilSaid(other, /node board has joined before with another key: .*`picolet-hub node reset board`/);
  assert.equal((await board.status()).tunnel.state, "connected");
  assert.match(fleet.log.join("\n"), /refused a board .*node board has joined before with another key/);
});

test("a board and its copy, with the same key, hear of each other; the board is back when its copy is gone", {
  skip,
}, async () => {
  await using copy = await boardNamed("board");
  const identity = join("root", "identity");
  cpSync(join(board.directory, identity), join(copy.directory, identity), { recursive: true });
  await copy.start();
  await untilConnected(copy);
  await untilSaid(board, /superseded: another session of node board has begun, from 127\.0\.0\.1/);
  await copy.stop();
  await untilConnected(board);
  // The board's own event, which comes when it is connected again.
  await fleet.seen(["get", "events", "--watch"], (text) => /another session of node board has begun/.test(text));
  assert.match(fleet.log.join("\n"), /a session took over from an older one node=board/);
});

test("a hub that speaks another version says so, and the board waits for one that speaks its own", {
  skip,
}, async () => {
  await fleet.endHub("SIGKILL");
  const stored = await new FilePemStore({ path: join(fleet.dataDir, "hub-ca.json") }).load();
  const { "tls.crt": cert, "tls.key": key, "ca.crt": ca } = stored?.files ?? {};
  const newer = createServer({ cert: `${cert}${ca}`, key }, (_, response) => response.writeHead(404).end());
  newer.on("upgrade", (_, socket) => {
    const said = "this hub speaks picolet.tunnel.v2";
    const head = "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Protocol: picolet.tunnel.v2\r\nConnection: close\r\n";
    socket.end(`${head}Content-Type: text/plain\r\nContent-Length: ${said.length}\r\n\r\n${said}`);
  });
  await new Promise<void>((resolve) => newer.listen(fleet.tunnelPort, "127.0.0.1", resolve));
  try {
    await untilSaid(board, /cannot open a tunnel to hub .*: the hub answered 426: this hub speaks picolet\.tunnel\.v2/);
  } finally {
    newer.closeAllConnections();
    await new Promise((resolve) => newer.close(resolve));
  }
  await fleet.startHub();
  await untilConnected(board);
});

test("an exec into what is not there says what is missing", { skip }, async () => {
  const gone = await fleet.tryKubectl(["exec", "nobody", "--", "true"]);
  assert.match(gone.stderr, /pods "nobody" not found/);
  const wrong = await fleet.tryKubectl(["logs", "hello", "-c", "nobody"]);
  assert.match(wrong.stderr, /container nobody is not valid for pod hello/);
  const absent = componentPod("absent", { image: "picolet.example/nobody:1" }) as { readonly spec: object };
  await fleet.apply({ ...absent, spec: { ...absent.spec, nodeName: "board" } });
  await board.waitForPods("a pod that cannot start", (pods) => pods.has("absent"));
  const waiting = await fleet.tryKubectl(["exec", "absent", "--", "true"]);
  assert.notEqual(waiting.code, 0);
  assert.match(waiting.stderr, /container not found \("app"\)|is not running|waiting to start/);
  await board.kill();
  const away = await fleet.tryKubectl(["exec", "hello", "--", "true"]);
  assert.notEqual(away.code, 0);
  assert.match(away.stderr, /the agent of node board is away since/);
  await board.start();
  await untilConnected(board);
});
