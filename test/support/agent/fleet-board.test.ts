/** A killed test, or `npm run conformance`, leaves neither its hub nor its agent. */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { kubectlMissing } from "../hub/test-fleet.ts";
import { MountFolder } from "../unit/machine/mount-folder.ts";
import { runningProcesses } from "../unit/machine/processes.ts";
import { removeCgroups, untilCgroupEmpty } from "../unit/machine/test-cgroups.ts";
import { settled } from "../unit/ports/settled.ts";
import { FleetBoard } from "./fleet-board.ts";

const VICTIM = "victim";

if (process.argv[2] === VICTIM) {
  const { node } = await FleetBoard.start(undefined);
  process.send?.(node.cgroupRoot);
} else {
  test("hub and agent end with the test that is killed", { skip: kubectlMissing("1.32") }, async () => {
    using folder = new MountFolder();
    const programs = (): readonly string[] =>
      ["picolet.cjs", "picolet-hub.mjs"].filter((program) =>
        runningProcesses().some(
          ({ words }) =>
            words.some((word) => word.endsWith(program)) && words.some((word) => word.startsWith(folder.path)),
        ),
      );
    const env = { ...process.env, TMPDIR: folder.path };
    const victim = fork(fileURLToPath(import.meta.url), [VICTIM], { execArgv: [], env });
    const [cgroupRoot] = (await once(victim, "message")) as [string];
    assert.equal(programs().length, 2);
    victim.kill("SIGKILL");
    assert.deepEqual(await settled(programs), []);
    await untilCgroupEmpty(cgroupRoot);
    await removeCgroups(cgroupRoot);
  });
}
