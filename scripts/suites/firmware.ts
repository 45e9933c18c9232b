/**
 * `npm run firmware:test`: the image on an emulated board beside a real hub, its updates, and power cuts. Prints one
 * JSON document, which is written after each case; leaves with 1 when a case fails or a goal is missed.
 */
import { createHash } from "node:crypto";
import { createReadStream, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { boardOf, type Flavour } from "@picolet/firmware/image/boards.ts";
import { buildImage } from "@picolet/firmware/image/build-image.ts";
import { developmentKey } from "@picolet/firmware/image/signing-key.ts";
import { makePackages, sourceEpoch } from "@picolet/firmware/packages/build-packages.ts";
import { countFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import {
  BOARD_CASES,
  type BoardCaseName,
  BoardWorld,
  cutsPower,
  type Figures,
  memoryAtRest,
  type PowerCutOptions,
} from "@picolet/test/firmware/board-cases.ts";
import { boardMissing, EmulatedBoard } from "@picolet/test/support/firmware/emulated-board.ts";
import { testImage } from "@picolet/test/support/firmware/test-image.ts";
import { buildPrograms } from "../build/build.ts";
import { buildExamples } from "../build/build-examples.ts";
import { PLATFORMS } from "../build/platform-parts.ts";
import { endWithUsageError, readOptions } from "../options.ts";
import { writeDocument } from "./bench-document.ts";

/** An image is downloaded over slow lines, and boards have 512 MiB. */
const GOALS: Figures = {
  image: { compressedMB: 250, memoryMiBAtRest: 120, memoryMiBAtRestNoContainers: 70 },
  powerCuts: { bricked: 0, lost: 0 },
  deb: { agentMB: 60, hubMB: 60 },
};
const BOARD = boardOf("generic-amd64");
const OUTPUT = "dist/firmware-test.json";

interface Outcome {
  readonly ok: boolean;
  readonly seconds: number;
  readonly problem?: string;
}

const figures: Figures = {};
const outcomes: Record<string, Outcome> = {};

function set(group: string, name: string, value: number | boolean): void {
  figures[group] = { ...figures[group], [name]: value };
}

const write = (): string => {
  const { build = {}, ...groups } = figures;
  return writeDocument(OUTPUT, { ...groups, ...build, outcomes });
};

/** A failure is an outcome, and the next case goes on. */
async function attempt(name: string, action: () => Promise<void>): Promise<boolean> {
  const begun = performance.now();
  console.error(`${name} …`);
  let problem: string | undefined;
  try {
    await action();
  } catch (error) {
    problem = error instanceof Error ? `${describeError(error)}\n${error.stack ?? ""}` : String(error);
  }
  const seconds = Math.round((performance.now() - begun) / 1000);
  outcomes[name] = { ok: problem === undefined, seconds, ...(problem === undefined ? {} : { problem }) };
  console.error(`${name}: ${problem === undefined ? "good" : `FAILED: ${problem}`}, ${seconds} s`);
  write();
  return problem === undefined;
}

async function sha256(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

/** As a user downloads it. */
async function compressedImage(folder: string, flavour: Flavour): Promise<string> {
  const [distribution = ""] = await buildPrograms(BOARD.platform);
  const { image } = await buildImage(folder, {
    ...{ board: BOARD, flavour, version: VERSION, epoch: sourceEpoch(), distribution, compress: true, bundle: false },
    ...{ allowDrift: true, onWarning: (text: string) => console.error(`warning: ${text}`) },
    key: (tools) => developmentKey(tools, join(scratch, "key")),
  });
  return image;
}

const megabytes = (path: string): number => Math.round(statSync(path).size / 1e5) / 10;

async function buildsImages(): Promise<void> {
  const one = await compressedImage(join(scratch, "one"), "containers");
  set("image", "compressedMB", megabytes(one));
  const two = await compressedImage(join(scratch, "another-folder"), "containers");
  set("build", "reproducible", (await sha256(one)) === (await sha256(two)));
  set("image", "compressedMBNoContainers", megabytes(await compressedImage(join(scratch, "three"), "components")));
}

async function buildsPackages(): Promise<void> {
  const sizes: (readonly [agent: number, hub: number])[] = [];
  for (const platform of PLATFORMS) {
    await buildPrograms(platform);
    const [agent = 0, hub = 0] = makePackages(platform, join(scratch, "packages"), {
      ...{ epoch: sourceEpoch(), compression: "xz" },
    }).map(megabytes);
    sizes.push([agent, hub]);
  }
  set("deb", "agentMB", Math.max(...sizes.map(([agent]) => agent)));
  set("deb", "hubMB", Math.max(...sizes.map(([, hub]) => hub)));
}

async function restsWithoutContainers(): Promise<void> {
  const { image } = await testImage({ flavour: "components" });
  await using board = await EmulatedBoard.start({ image });
  await board.shellReady();
  await board.until("systemctl is-active picolet && edgectl status");
  set("image", "memoryMiBAtRestNoContainers", await memoryAtRest(board));
}

async function boardCases(wanted: readonly (BoardCaseName | typeof POWER_CUTS)[]): Promise<void> {
  await using world = await BoardWorld.start();
  const cutOptions: PowerCutOptions = {
    ...{ cuts: input.value(CUTS) ?? 0, boots: input.value(BOOTS) ?? 0, seed: input.value(SEED) ?? 0 },
    onBad: (text) => console.error(`power cut: ${text}`),
  };
  for (const name of new Set([...SETUP, ...wanted])) {
    const good = await attempt(name, async () => {
      world.recording?.phase(name);
      await (name === POWER_CUTS ? cutsPower(world, cutOptions) : BOARD_CASES[name](world));
    });
    for (const [group, values] of Object.entries(world.figures))
      for (const [each, value] of Object.entries(values)) set(group, each, value);
    write();
    if (good) continue;
    await world.dropBoard();
    if (!world.hasJoined) throw new Error(`the other cases need the board of ${name}`);
  }
}

const OTHERS = {
  images: buildsImages,
  packages: buildsPackages,
  noContainers: restsWithoutContainers,
} as const;
type OtherName = keyof typeof OTHERS;
const POWER_CUTS = "powerCuts";
const LAST_JUDGED: BoardCaseName = "update";
/** They make the board of the others. */
const SETUP: readonly BoardCaseName[] = ["join", "workloads"];
/** The lives of boards that come after it are not judged: they lose their data on purpose. */
const BOARD_NAMES = (Object.keys(BOARD_CASES) as BoardCaseName[]).flatMap((name) =>
  name === LAST_JUDGED ? ([name, POWER_CUTS] as const) : [name],
);
const NAMES: readonly string[] = [...BOARD_NAMES, ...Object.keys(OTHERS)];
const CUTS = countFlag({ name: "power-cuts", help: "disks that power cuts leave (default 300)", default: "300" });
const BOOTS = countFlag({ name: "boots", help: "how many of these disks are booted (default 8)", default: "8" });
const SEED = countFlag({ name: "seed", help: "of the first power cut (default 1)", default: "1" });

const input = readOptions({
  name: "firmware:test",
  summary: "tries the image on an emulated board; leaves with 1 when a case fails or a goal is missed",
  flags: [{ name: "only", value: "CASE", help: NAMES.join(", "), repeats: true }, CUTS, BOOTS, SEED],
});
const only = input.texts("only");
const unknown = only.find((each) => !NAMES.includes(each));
if (unknown !== undefined)
  endWithUsageError("firmware:test", usageError(`--only must be one of ${NAMES.join(", ")}, not "${unknown}"`));
const isWanted = (name: string): boolean =>
  only.length === 0 || only.includes(name) || (name === LAST_JUDGED && only.includes(POWER_CUTS));

const missing = boardMissing();
if (missing !== undefined) {
  console.error(missing);
  process.exit(1);
}
const scratch = mkdtempSync(join(tmpdir(), "picolet-firmware-"));
try {
  await buildPrograms(BOARD.platform);
  await buildExamples();
  const boards = BOARD_NAMES.filter(isWanted);
  if (boards.length > 0) await boardCases(boards).catch((error: unknown) => console.error(describeError(error)));
  for (const [name, action] of Object.entries(OTHERS) as [OtherName, () => Promise<void>][])
    if (isWanted(name)) await attempt(name, action);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
for (const name of NAMES.filter(isWanted)) outcomes[name] ??= { ok: false, seconds: 0, problem: "it did not begin" };
const missed = Object.entries(GOALS).flatMap(([group, goals]) =>
  Object.entries(goals)
    .filter(([name, most]) => Number(figures[group]?.[name] ?? 0) > Number(most))
    .map(([name, most]) => `${group}.${name}: ${figures[group]?.[name]}, at most ${most}`),
);
for (const each of missed) console.error(`MISSED ${each}`);
if (figures.build?.reproducible === false) console.error("MISSED reproducible: two builds differ");
process.stdout.write(write());
const isGood =
  Object.values(outcomes).every(({ ok }) => ok) && missed.length === 0 && figures.build?.reproducible !== false;
process.exitCode = isGood ? 0 : 1;
