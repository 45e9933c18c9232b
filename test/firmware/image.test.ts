/**
 * The image as it is flashed, on an emulated board: it boots, runs a pod, survives lost power, and leaves a bad slot.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { BOOT_LIMIT_MS, boardMissing, EmulatedBoard } from "../support/firmware/emulated-board.ts";
import { testImage } from "../support/firmware/test-image.ts";

const skip = boardMissing() ?? false;
/** A pod of what the image has: the image of sandboxes. */
const POD = JSON.stringify({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "waiter" },
  spec: {
    hostNetwork: true,
    containers: [{ name: "main", image: "localhost/picolet-pause:1", imagePullPolicy: "Never" }],
  },
});
const AGENT_ACTIVE = "systemctl is-active picolet";
const SLOT_GOOD =
  'test "$(/usr/lib/picolet-image/boot-slots get-state $(/usr/lib/picolet-image/boot-slots get-current))" = good';
/** After a boot the agent shows what was until it has looked: the sandbox and the container must be there. */
const POD_RUNS =
  "test $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx pause) = 2 && edgectl get pods | grep -E 'waiter.* Running'";

/** Boots take minutes on a busy machine: `npm run test:image` runs it. */
if (process.env.PICOLET_FIRMWARE === "1") describe("the image of a board", imageTests);

function imageTests(): void {
  let board: EmulatedBoard;

  before(async () => {
    if (skip !== false) return;
    const { image } = await testImage();
    board = await EmulatedBoard.start({ image });
  });
  after(async () => {
    if (skip === false) await board?.[Symbol.asyncDispose]();
  });

  test("a new card boots to a console with edgectl, and the agent is active", { skip }, async () => {
    await board.serial.waitFor(/picolet> /, BOOT_LIMIT_MS);
    await board.shellReady();
    await board.until(AGENT_ACTIVE);
    await board.until(SLOT_GOOD);
    const from = board.serial.length;
    board.serial.send("status\r");
    await board.serial.waitFor(/healthy|degraded|Node/i, 120_000, from);
  });

  test("the data partition has grown to the card, and the root cannot be written", { skip }, async () => {
    const kib = Number((await board.output("df --output=size /data | tail -n 1")).trim());
    assert.ok(kib > 2_000_000, `${kib} KiB of a card of 4 GiB`);
    assert.notEqual((await board.run("touch /usr/file")).exitCode, 0);
    assert.match(await board.output("dmsetup table root || cat /sys/block/dm-0/dm/name"), /verity|root/);
  });

  test("a static pod runs", { skip }, async () => {
    await board.output(`cat > /etc/picolet/manifests/waiter.json <<'END'\n${POD}\nEND\nsync`);
    await board.until(POD_RUNS);
  });

  test("after lost power a corrupt slot is left for the other one, and the pod runs again", { skip }, async () => {
    await board.output("/usr/lib/picolet-image/fill-slot", BOOT_LIMIT_MS);
    await board.cutPower();
    // The first blocks of the system's files, behind the file system's own.
    board.writeDisk(board.partitionStart("root-a") + 2 ** 20, Buffer.alloc(8 * 2 ** 20, 0xa5));
    await board.turnOn();
    await board.serial.waitFor(/slot A, try 3 of 3[\s\S]*slot B, try 1 of 3/, BOOT_LIMIT_MS);
    await board.shellReady();
    assert.match(await board.output("cat /proc/cmdline"), /rauc\.slot=B/);
    await board.until(POD_RUNS);
  });
}
