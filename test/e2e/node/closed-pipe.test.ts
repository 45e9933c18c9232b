/** The reader of the output of agent and hub goes away, as `head` and a closed terminal do. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { get } from "node:https";
import { test } from "node:test";
import { textOf } from "@picolet/scripts/start/follow-pods.ts";
import type { HubProcess } from "@picolet/scripts/start/hub-process.ts";
import { AgentNode } from "../../support/agent/agent-process.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

test("an agent whose log nobody reads any more goes on", async () => {
  await using node = new AgentNode();
  const child = node.spawn();
  await untilListening(node, child.stderr);
  child.stderr?.destroy();
  node.writeManifest("broken.yaml", "no: pod\n");
  const { problems } = await node.waitForStatus("the problem, which it logs", ({ problems }) => problems.length === 1);
  assert.match(problems[0]?.origin ?? "", /broken\.yaml$/);
  node.removeManifest("broken.yaml");
  await node.waitForStatus("its end, which it logs too", ({ problems }) => problems.length === 0);
  assert.equal(child.exitCode, null);
  assert.equal(await node.stop(), 0);
});

async function untilListening(node: AgentNode, log: NodeJS.ReadableStream | null): Promise<void> {
  while (!node.log.includes("local API listens"))
    await once(log ?? assert.fail(), "data", { signal: AbortSignal.timeout(60_000) });
}

test("a hub whose output nobody reads any more goes on", async () => {
  using folder = new TempFolder();
  const args = ["serve", "--embedded", "--data-dir", folder.at("hub"), "--advertise-address", "127.0.0.1"];
  const ports = ["--tunnel-address", "127.0.0.1:0", "--api-address", "127.0.0.1:0", "--verbose"];
  const hub = spawn("dist/hub/bin/picolet-hub", [...args, ...ports], { stdio: ["ignore", "pipe", "pipe"] });
  const ended = once(hub, "exit");
  hub.stderr.destroy();
  const [ready] = await Promise.race([once(hub.stdout.setEncoding("utf8"), "data"), ended]);
  hub.stdout.destroy();
  const { api } = JSON.parse(String(ready)) as HubProcess["ready"];
  const [answer] = (await once(get(`${api}/readyz`, { rejectUnauthorized: false }), "response")) as [IncomingMessage];
  assert.equal(await textOf(answer), "ok");
  hub.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null]);
});

for (const program of ["board/bin/picolet", "hub/bin/picolet-hub", "board/bin/edgectl"]) {
  test(`${program} --help | true`, async () => {
    const said = await new Promise<string>((resolve) => {
      // It is written after the reader has gone.
      const line = `{ sleep 0.2; dist/${program} --help; echo "code $?" >&2; } | true`;
      execFile("bash", ["-c", line], (_error, _out, errors) => resolve(errors));
    });
    assert.equal(said, "code 0\n");
  });
}
