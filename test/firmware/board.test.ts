/**
 * The short form of `npm run firmware:test`: a new card with the components' image joins a real hub, loses its power
 * while an update is installed, and comes back. All that it wrote was recorded: power cuts at other moments are judged
 * too.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { BoardFleet, NODE } from "../support/firmware/board-fleet.ts";
import { BOOT_LIMIT_MS, boardMissing, EmulatedBoard } from "../support/firmware/emulated-board.ts";
import { givePods, type JudgedCut, judgeCuts, Recording } from "../support/firmware/power-cuts.ts";
import { testImage } from "../support/firmware/test-image.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const PROGRAMS = ["/usr/bin/skopeo", "/usr/bin/docker-registry", "/usr/bin/ssh-keygen"];
const missing = PROGRAMS.filter((path) => !existsSync(path));
const skip = boardMissing() ?? (missing.length > 0 ? `not installed: ${missing.join(", ")}` : false);
const PODS = 3;
/** Each takes some tenths of a second. */
const CUTS = 36;
/** As much as the pods of a full board are in JSON. */
const MANY_LINES = 40_000;
const SEED = 20_261_123;

/** Boots take minutes on a busy machine: `npm run test:image` runs it. */
if (process.env.PICOLET_FIRMWARE === "1")
  test("a board joins, loses its power while an update is written, and comes back", { skip }, joinsAndComesBack);

async function joinsAndComesBack(context: TestContext): Promise<void> {
  using folder = new TempFolder();
  const { image, bundle } = await testImage({ flavour: "components", bundle: true });
  await using fleet = await BoardFleet.start();
  // A small card: the data partition is judged as a whole.
  const boardFile = await fleet.boardFile();
  await using board = EmulatedBoard.create({ image, cardMiB: 2048, fatFiles: { "picolet.yaml": boardFile } });
  const recording = await Recording.begin(folder.at("recorded"), board, false);

  await context.test("a new card boots, and joins the hub that its picolet.yaml names", async () => {
    await board.serial.waitFor(/picolet: slot A, try/, BOOT_LIMIT_MS);
    recording.phase("first boot");
    await board.shellReady();
    recording.phase("join");
    await fleet.untilNodeReady();
    recording.joined();
  });

  await context.test("the serial line shows the board's status", async () => {
    const from = board.serial.length;
    board.serial.send("status\r");
    await board.serial.waitFor(new RegExp(`${NODE} is (healthy|degraded)`), BOOT_LIMIT_MS, from);
  });

  await context.test("its shell loses nothing of a long output", async () => {
    const lines = (await board.output(`seq ${MANY_LINES}`)).trim().split("\n");
    assert.deepEqual([lines.length, lines.at(-1)], [MANY_LINES, String(MANY_LINES)]);
  });

  await context.test("its power is lost while it writes an update that its hub asks for", async () => {
    await givePods(recording, fleet, PODS, new AbortController().signal);
    // An older release runs, so that the bundle is of a newer one.
    const older = "sed s/^VERSION=.*/VERSION=0.0.1/ /etc/picolet-release > /run/older && mount --bind /run/older";
    await board.output(`${older} /etc/picolet-release && systemctl restart picolet`);
    const reference = await fleet.publish(bundle);
    await fleet.annotate({ "picolet.io/os-image": reference });
    await fleet.untilUpdate(reference, ["installing"], 2 * BOOT_LIMIT_MS);
    recording.phase("install");
    // The file system's head is written early; the system's files go on for seconds.
    await board.until('test "$(head -c 1048576 /run/picolet-disk/root-b | tr -d "\\000" | head -c 1 | wc -c)" = 1');
    await board.cutPower();
    recording.finish();
    // It would be installed again.
    await fleet.annotate({ "picolet.io/os-image": null });
  });

  await context.test("then the old slot runs, with its data and its pods", async () => {
    await board.turnOn();
    await board.shellReady();
    assert.match(await board.output("cat /proc/cmdline"), /rauc\.slot=A/);
    await board.until('systemctl is-active picolet && edgectl status -o json | grep -q \'"state": *"connected"\'');
    await board.until(`test $(edgectl get pods | grep -c held-) = ${PODS}`);
    await board.cutPower();
  });

  await context.test(`after ${CUTS} power cuts at other moments it boots, and has lost nothing`, async () => {
    const judged: string[] = [];
    const onJudged = ({ phase, verdict }: JudgedCut): void => void judged.push(`${phase}: ${verdict.slot}`);
    const bad = await judgeCuts(recording.folder, { cuts: CUTS, seed: SEED, boots: 0, onJudged });
    assert.deepEqual(bad, []);
    assert.deepEqual(
      [...new Set(judged)].sort(),
      ["boot", "first boot", "install", "join"].map((each) => `${each}: A`),
    );
  });
}
