/** `edgectl wasm run` of components that ask for what a board gives, with no agent anywhere. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { untilPrinted } from "../../support/hub/test-fleet.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { testComponent } from "../../support/wasm/components.ts";

/** Runs it until it has printed what is expected, and then with Ctrl-C. Its temporary folder is empty afterwards. */
async function printed(component: string, expected: RegExp, ...words: readonly string[]): Promise<void> {
  using folder = new TempFolder();
  const child = spawn("dist/board/bin/edgectl", ["wasm", "run", component, ...words], {
    env: { ...process.env, TMPDIR: folder.path },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const closed = new Promise<number | null>((resolve) => child.once("close", resolve));
  await untilPrinted(child, (text) => expected.test(text));
  child.kill("SIGINT");
  assert.equal(await closed, 130);
  assert.deepEqual(readdirSync(folder.path), []);
}

for (const mode of ["isolated", "dense"]) {
  test(`values are kept for as long as a run lasts, within their quota, and the node is told (${mode})`, async () => {
    const grants = ["interfaces=keyvalue,config,logging,node-info", "keyvalue=b=4Ki", `mode=${mode}`];
    await printed(
      await testComponent("board.c"),
      /open\nnothing\nset k\nv\nerror quota-exceeded\n\S+ labels 0 pressure \d+ clock 1 hub standalone\n$/,
      ...grants.flatMap((each) => ["-a", each]),
      ...["open", "b", "get", "k", "set", "k", "v", "get", "k", "fill", "k", "5000", "node", "hold"],
    );
  });
}

test("telemetry is taken", async () => {
  const words = ["-a", "interfaces=telemetry", "0", "4", "2", "0"];
  await printed(await testComponent("telemetry.c"), /wrote 2\nwrote 4\ntold\n$/, ...words);
});
