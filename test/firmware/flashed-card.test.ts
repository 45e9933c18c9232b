/**
 * The shortest form of `npm run firmware:test`: the components' image of this commit, as it is flashed, boots on an
 * emulated board, joins a real hub, and runs what the hub asks for.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { BoardFleet, NODE } from "../support/firmware/board-fleet.ts";
import { BOOT_LIMIT_MS, boardMissing, EmulatedBoard } from "../support/firmware/emulated-board.ts";
import { testImage } from "../support/firmware/test-image.ts";
import { showFat } from "./board-cases.ts";

const missing = ["/usr/bin/skopeo", "/usr/bin/docker-registry", "/usr/bin/ssh-keygen"].filter(
  (path) => !existsSync(path),
);
const skip = boardMissing() ?? (missing.length > 0 ? `not installed: ${missing.join(", ")}` : false);

describe("a new card with the components' image", { skip }, () => {
  let fleet: BoardFleet;
  let board: EmulatedBoard;

  before(async () => {
    const { image } = await testImage({ flavour: "components" });
    fleet = await BoardFleet.start();
    await fleet.pushWorkloads();
    board = await EmulatedBoard.start({ image, fatFiles: { "picolet.yaml": await fleet.boardFile() } });
  });
  after(async () => {
    // One that cannot be disposed of does not keep the other.
    await using all = new AsyncDisposableStack();
    for (const each of [fleet, board]) if (each !== undefined) all.use(each);
  });

  test("boots from slot A, and joins the hub that its picolet.yaml names", async () => {
    await board.serial.waitFor(/picolet: slot A, try/, BOOT_LIMIT_MS);
    await fleet.untilNodeReady();
  });

  test("runs a component of the hub's registry", async () => {
    await fleet.admin.create(PODS, fleet.workload("component", "hello"));
    await fleet.untilPod("hello");
  });

  test("shows the board's status on the serial line", async () => {
    const from = board.serial.length;
    board.serial.send("status\r");
    await board.serial.waitFor(new RegExp(`${NODE} is (healthy|degraded)`), BOOT_LIMIT_MS, from);
  });

  test("has wiped the token from picolet.yaml, and says so in its report", async () => {
    await board.shellReady();
    await board.until(`${showFat("picolet-report.txt")} | grep -E '^Token +used, and wiped'`);
    assert.doesNotMatch(await board.output(showFat("picolet.yaml")), /token: [a-z0-9]{6}\./);
  });
});
