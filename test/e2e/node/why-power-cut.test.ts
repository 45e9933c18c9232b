/** `edgectl why POD` after a power cut: SIGKILL of the agent, and a next agent in another boot of the kernel. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { componentPod, edgectl, HELLO_COMPONENT, HELLO_IMAGE, nodeWith } from "../../support/agent/node-fixtures.ts";
import { settled } from "../../support/unit/ports/settled.ts";

const BOOT_ID = "/proc/sys/kernel/random/boot_id";
/** Shows the agent another boot_id, in a mount namespace that passes nothing on to the machine. */
const IN_ANOTHER_BOOT = `mount --bind "$0" ${BOOT_ID} && exec dist/board/bin/picolet "$@"`;

test("why tells of a power cut, and of the last thing before it", async () => {
  const program = (directory: string) =>
    ["unshare", "--mount", "--propagation", "slave", "sh", "-c", IN_ANOTHER_BOOT, join(directory, "boot_id")] as const;
  await using node = nodeWith(undefined, { program });
  const boot = (id: string): void => writeFileSync(join(node.directory, "boot_id"), `${id}\n`);
  boot("11111111-1111-4111-8111-111111111111");
  await node.start();
  edgectl(node, "image", "import", HELLO_COMPONENT, "--name", HELLO_IMAGE);
  node.writeManifest("web.json", componentPod("web"));
  await node.waitForPods("a pod", (pods) => [...pods.values()].some(isReady));
  const why = (): string => edgectl(node, "why", "web").replaceAll(/\s+/g, " ");
  // Records are on the disk two seconds after their decisions: the next agent has them only then.
  const read = (): string => readFileSync(join(node.directory, "root", "black-box"), "latin1");
  const missing = await settled(() => (/"kind":"started"/.test(read()) ? [] : ["started"]));
  assert.deepEqual(missing, []);
  assert.doesNotMatch(why(), /power was cut/);
  await node.kill();
  boot("22222222-2222-4222-8222-222222222222");
  await node.start();
  await node.waitForPods("the pod again", (pods) => [...pods.values()].some(isReady));
  assert.match(
    why(),
    /started after the power cut\. .*The power was cut at about \d\d:\d\d:\d\d, the last sign of life .*Container app was started\./,
  );
});
