/**
 * Cases that a board with the image goes through, one after the other, on an emulated board beside a real hub and a
 * real registry. A case that fails costs the others nothing: the next one begins with the card of a board that has
 * joined.
 */
import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import { PODS, SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { StatusReport } from "@picolet/protocol/local-api/status.ts";
import { SoftwareTpm } from "../support/agent/swtpm.ts";
import { BoardFleet, conditionOf, NODE } from "../support/firmware/board-fleet.ts";
import { BOOT_LIMIT_MS, type BoardOptions, EmulatedBoard } from "../support/firmware/emulated-board.ts";
import { bootCut, givePods, type JudgedCut, judgeCuts, Recording } from "../support/firmware/power-cuts.ts";
import { testImage, type Variant } from "../support/firmware/test-image.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

/** Figures by their name in the document. */
export type Figures = Record<string, Record<string, number | boolean>>;

const WORKLOADS = { web: "container", greeter: "component" } as const;
/** A pod every few seconds of an update: more would be what the board is busy with. */
const HELD_PODS = 40;
/** Memory at rest: boards end what they do once after a boot, and the agent releases its caches. */
const REST_SECONDS = 60;
const SLOTS = "/usr/lib/picolet-image/boot-slots";
const MEMORY = "awk '/^MemTotal/{t=$2}/^MemAvailable/{a=$2}END{print int((t-a)/1024)}' /proc/meminfo";
/** How long a shutdown of the board may take the pods to end. */
const SHUTDOWN_SECONDS = 45;
const LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager";
const LOGIND_DELAY = `busctl get-property ${LOGIND} InhibitDelayMaxUSec`;
const PARTITION = "/run/picolet-disk/picolet";
/** A line of 9600 baud brings 960 characters a second, and edgectl starts on a slow processor. */
const SLOW_LINE = { baud: 9600, limitMs: 120_000 };
/** An update boots twice at most, and its bundle is read from this machine. */
const UPDATE_LIMIT_MS = 5 * BOOT_LIMIT_MS;
const UPDATES: readonly (readonly [Variant, string])[] = [
  ["newAgent", "0.1.1"],
  ["neverHealthy", "0.1.2"],
  ["neverBoots", "0.1.3"],
];

export class BoardWorld implements AsyncDisposable {
  readonly fleet: BoardFleet;
  readonly figures: Figures = {};
  readonly folder = new TempFolder();
  /** Folders of recorded lives of boards. */
  readonly recordings: string[] = [];
  readonly #image: string;
  #recording: Recording | undefined;
  #lives = 0;
  #board: EmulatedBoard | undefined;

  private constructor(fleet: BoardFleet, image: string) {
    this.fleet = fleet;
    this.#image = image;
  }

  static async start(): Promise<BoardWorld> {
    const { image } = await testImage({ bundle: true });
    return new BoardWorld(await BoardFleet.start(), image);
  }

  get #joinedCard(): string {
    return this.folder.at("joined.qcow2");
  }

  set(group: string, name: string, value: number | boolean): void {
    this.figures[group] = { ...this.figures[group], [name]: value };
  }

  /** Turns on a board with a new card and this `picolet.yaml`. */
  async newBoard(boardFile: string): Promise<EmulatedBoard> {
    const { sshPort } = this.fleet;
    const board = EmulatedBoard.create({ image: this.#image, sshPort, fatFiles: { "picolet.yaml": boardFile } });
    this.#board = board;
    await this.#record(board, false);
    return board;
  }

  /** A board beside that of the other cases; it is off. */
  besideBoard(options: Omit<BoardOptions, "image">): EmulatedBoard {
    return EmulatedBoard.create({ image: this.#image, ...options });
  }

  /** Everything that the board writes is recorded, for power cuts at any point of it. */
  async #record(board: EmulatedBoard, hasJoined: boolean): Promise<void> {
    this.#recording = await Recording.begin(this.folder.at(`life-${this.#lives}`), board, hasJoined);
    this.recordings.push(this.#recording.folder);
    this.#lives += 1;
  }

  /** Undefined: what the board writes is not recorded any more. */
  get recording(): Recording | undefined {
    return this.#recording;
  }

  finishRecording(): void {
    this.#recording?.finish();
    this.#recording = undefined;
  }

  /** Shuts the board down, and keeps its card for all cases that follow. */
  async keepCard(): Promise<void> {
    await this.#board?.powerOff();
    this.finishRecording();
    this.#board?.saveCard(this.#joinedCard);
    await this.#board?.[Symbol.asyncDispose]();
    this.#board = undefined;
  }

  get hasJoined(): boolean {
    return existsSync(this.#joinedCard);
  }

  /** A board that has joined and runs the pods: the one of the case before, where that was good. */
  async board(): Promise<EmulatedBoard> {
    if (this.#board !== undefined) return this.#board;
    const { sshPort } = this.fleet;
    const board = EmulatedBoard.create({ image: this.#image, sshPort, card: this.#joinedCard });
    this.#board = board;
    await this.#record(board, true);
    for (const name of Object.keys(WORKLOADS)) this.#recording?.hasPod(name);
    await board.shellReady();
    await this.podsRun(board);
    return board;
  }

  /** After a failure. What the hub asks of the board is not left for the next case. */
  async dropBoard(): Promise<void> {
    const board = this.#board;
    this.#board = undefined;
    this.finishRecording();
    await board?.[Symbol.asyncDispose]();
    await this.fleet.annotate({ "picolet.io/os-image": null }).catch(() => undefined);
  }

  /** The processes of both pods are there: a status may be that of before the start. */
  async podsRun(board: EmulatedBoard): Promise<void> {
    await board.until("pgrep -x sleep && pgrep -f wasm-runner.cjs");
    await board.until(`edgectl get pods | awk '/(web|greeter).* Running/ {n++} END {exit n != 2}'`);
  }

  /** The agent runs, and its tunnel is connected. */
  async connected(board: EmulatedBoard): Promise<void> {
    await board.until('systemctl is-active picolet && edgectl status -o json | grep -q \'"state": *"connected"\'');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#board?.[Symbol.asyncDispose]();
    await this.fleet[Symbol.asyncDispose]();
    this.folder[Symbol.dispose]();
  }
}

const OVER = ["good", "rolledBack", "failed"];

type Case = (world: BoardWorld) => Promise<void>;

/** In this order; the first two make the board of the others. */
export const BOARD_CASES = {
  join: joins,
  workloads: runsWorkloads,
  offline: restartsOffline,
  console: answersOnConsoles,
  wrongFile: refusesWrongFile,
  update: isUpdated,
  downgrade: refusesDowngrade,
  unhealthyUpdate: leavesUnhealthyUpdate,
  unbootableUpdate: leavesUnbootableUpdate,
  watchdog: isRestartedByWatchdog,
  fullData: survivesFullData,
  factoryReset: forgetsEverything,
  tpm: keepsKeysInTpm,
} as const satisfies Readonly<Record<string, Case>>;

export type BoardCaseName = keyof typeof BOARD_CASES;

async function joins(world: BoardWorld): Promise<void> {
  const { fleet } = world;
  await fleet.pushWorkloads();
  // Without shutdownGracePeriod: a pod that a drain has ended is replaced by its controller, and these have none.
  const boardFile = await fleet.boardFile({ config: { evictionPressureTransitionPeriod: "5s" } });
  const begun = performance.now();
  const board = await world.newBoard(boardFile);
  await fleet.untilNodeReady();
  world.recording?.joined();
  world.recording?.phase("report");
  world.set("image", "bootToReadySeconds", secondsSince(begun));
  await board.shellReady();
  await board.until(
    'test -z "$(systemctl list-jobs --no-legend | grep picolet-report)" && systemctl is-active picolet',
  );
  const report = await board.until(`${showFat("picolet-report.txt")} | grep -E '^Token +used, and wiped'`);
  assert.match(report, /picolet.yaml/);
  assert.doesNotMatch(await board.output(showFat("picolet.yaml")), /token: [a-z0-9]{6}\./);
  world.set("image", "memoryMiBAtRest", await memoryAtRest(board));
}

export async function memoryAtRest(board: EmulatedBoard): Promise<number> {
  await board.output(`sleep ${REST_SECONDS}; sync; echo 3 > /proc/sys/vm/drop_caches`);
  return Number((await board.output(MEMORY)).trim());
}

const secondsSince = (begun: number): number => Math.round((performance.now() - begun) / 1000);
/** A line of shell that prints a file of the partition `picolet`. */
export const showFat = (name: string): string =>
  `(mount -o ro ${PARTITION} /mnt && cat /mnt/${name}; code=$?; umount /mnt; exit $code)`;

async function runsWorkloads(world: BoardWorld): Promise<void> {
  const board = await world.board();
  for (const [name, kind] of Object.entries(WORKLOADS))
    await world.fleet.admin.create(PODS, world.fleet.workload(kind, name));
  for (const name of Object.keys(WORKLOADS)) {
    await world.fleet.untilPod(name);
    world.recording?.hasPod(name);
  }
  await world.podsRun(board);
  await world.keepCard();
}

async function answersOnConsoles(world: BoardWorld): Promise<void> {
  const board = await world.board();
  await board.output("stty -F /dev/ttyS0 9600");
  const { serial } = board;
  using _ = serial.limitTo(SLOW_LINE.baud);
  const from = serial.length;
  const begun = performance.now();
  serial.send("status\r");
  await serial.waitFor(/POD +READY[\s\S]*picolet> /, SLOW_LINE.limitMs, from);
  world.set("console", "statusSecondsAt9600Baud", secondsSince(begun));
  world.set("console", "statusCharacters", serial.length - from);
  const report = JSON.parse(await world.fleet.ssh("edgectl", "status", "-o", "json")) as StatusReport;
  assert.equal(report.node, NODE);
  await assert.rejects(world.fleet.ssh("cat", "/etc/passwd"), /only edgectl runs here/);
}

async function restartsOffline(world: BoardWorld): Promise<void> {
  await world.fleet.stopHub();
  try {
    await world.board();
  } finally {
    await world.fleet.startHub();
  }
  await world.connected(await world.board());
}

async function refusesWrongFile(world: BoardWorld): Promise<void> {
  const board = await world.board();
  const before = await board.output("sha256sum /etc/picolet/config.yaml");
  const wrong = "hub:\\n  server: 10.0.2.2:1\\n  tokn: x\\nnode:\\n  name: Not_A_Name\\n";
  await board.output(onFat(`cp picolet.yaml /data/picolet.yaml.kept && printf '${wrong}' > picolet.yaml`));
  const from = board.serial.length;
  await board.reboot();
  await board.serial.waitFor(/nothing of it was applied[\s\S]*tokn[\s\S]*Not_A_Name/, BOOT_LIMIT_MS, from);
  await world.podsRun(board);
  await world.connected(board);
  assert.equal(await board.output("sha256sum /etc/picolet/config.yaml"), before);
  const report = await board.output(showFat("picolet-report.txt"));
  assert.match(report, /NOT APPLIED[\s\S]*tokn[\s\S]*Not_A_Name/);
  await board.output(onFat("cp /data/picolet.yaml.kept picolet.yaml"));
}

/** A line of shell that is run in the partition `picolet`, mounted to be written. */
const onFat = (line: string): string =>
  `mount -o sync ${PARTITION} /mnt && (cd /mnt && ${line}); code=$?; umount /mnt; exit $code`;

/** @returns the reference */
async function publish(world: BoardWorld, variant: Variant): Promise<{ reference: string; bundle: string }> {
  const [, version = ""] = UPDATES.find(([each]) => each === variant) ?? [];
  const { bundle } = await testImage({ bundle: true, version, variant });
  return { reference: await world.fleet.publish(bundle), bundle };
}

async function ask(world: BoardWorld, reference: string, deadline: string): Promise<void> {
  const annotations = { "picolet.io/os-image": reference, "picolet.io/update-health-deadline": deadline };
  await world.fleet.annotate(annotations);
}

const slotOf = async (board: EmulatedBoard): Promise<string> => (await board.output(`${SLOTS} get-current`)).trim();
const versionOf = async (board: EmulatedBoard): Promise<string> =>
  (await board.output("sed -n s/^VERSION=//p /etc/picolet-release")).trim();

async function isUpdated(world: BoardWorld): Promise<void> {
  const board = await world.board();
  const { recording, fleet } = world;
  const { reference, bundle } = await publish(world, "newAgent");
  const slot = await slotOf(board);
  const enough = new AbortController();
  const pods = recording === undefined ? undefined : givePods(recording, fleet, HELD_PODS, enough.signal);
  pods?.catch(() => undefined);
  const [bytesBefore, begun] = [fleet.bytesFetched, performance.now()];
  recording?.phase("install");
  await ask(world, reference, "10m");
  await fleet.untilUpdate(reference, ["restarting", "trial", ...OVER], UPDATE_LIMIT_MS);
  recording?.phase("restart");
  await board.serial.waitFor(new RegExp(`picolet: slot ${slot === "A" ? "B" : "A"}, try`), UPDATE_LIMIT_MS);
  recording?.phase("trial");
  const { state, message } = await fleet.untilUpdate(reference, OVER, UPDATE_LIMIT_MS);
  assert.equal(state, "good", message);
  recording?.phase("good");
  world.set("update", "seconds", secondsSince(begun));
  const share = (fleet.bytesFetched - bytesBefore) / statSync(bundle).size;
  world.set("update", "bytesOfFull", Math.round(share * 1000) / 1000);
  assert.notEqual(await slotOf(board), slot);
  assert.equal(await versionOf(board), "0.1.1");
  await board.until(`test "$(${SLOTS} get-state $(${SLOTS} get-current))" = good`);
  await world.podsRun(board);
  enough.abort();
  await pods;
  await board.output("sync");
  world.finishRecording();
  await fleet.admin.clear(({ metadata }) => metadata.name.startsWith("held-"));
}

async function refusesDowngrade(world: BoardWorld): Promise<void> {
  const board = await world.board();
  const { bundle } = await testImage({ bundle: true, version: "0.0.9" });
  const slot = await slotOf(board);
  const reference = await world.fleet.publish(bundle);
  await ask(world, reference, "10m");
  const { message } = await world.fleet.untilUpdate(reference, ["failed"], UPDATE_LIMIT_MS);
  assert.match(message, /older|downgrade/);
  assert.equal(await slotOf(board), slot);
}

async function leavesUpdate(world: BoardWorld, variant: Variant, reason: RegExp): Promise<number> {
  const board = await world.board();
  const [slot, version] = [await slotOf(board), await versionOf(board)];
  const { reference } = await publish(world, variant);
  await ask(world, reference, "60s");
  await world.fleet.untilUpdate(reference, ["restarting", "trial", "rolledBack", "failed"], UPDATE_LIMIT_MS);
  const begun = performance.now();
  const { state, message } = await world.fleet.untilUpdate(
    reference,
    ["rolledBack", "failed", "good"],
    UPDATE_LIMIT_MS,
  );
  const seconds = secondsSince(begun);
  assert.equal(state, "rolledBack", message);
  assert.match(message, reason);
  assert.deepEqual([await slotOf(board), await versionOf(board)], [slot, version]);
  await world.podsRun(board);
  return seconds;
}

async function leavesUnhealthyUpdate(world: BoardWorld): Promise<void> {
  const seconds = await leavesUpdate(world, "neverHealthy", /did not come up|not healthy/);
  world.set("update", "rollbackSeconds", seconds);
}

async function leavesUnbootableUpdate(world: BoardWorld): Promise<void> {
  await leavesUpdate(world, "neverBoots", /did not boot/);
}

/** The kernel stops in a panic and does not restart by itself: the chipset's watchdog does. edgectl has its last words. */
async function isRestartedByWatchdog(world: BoardWorld): Promise<void> {
  const board = await world.board();
  const before = (await board.output("cat /proc/sys/kernel/random/boot_id")).trim();
  const from = board.serial.length;
  board.expectRestart();
  await board
    .run("sysctl -w kernel.panic=0 kernel.sysrq=1; sync; echo c > /proc/sysrq-trigger", 5000)
    .catch(() => undefined);
  await board.serial.waitFor(/picolet: slot [AB], try/, BOOT_LIMIT_MS, from);
  await board.shellReady();
  assert.notEqual((await board.output("cat /proc/sys/kernel/random/boot_id")).trim(), before);
  await world.podsRun(board);
  assert.match(await board.output("edgectl status || true"), /kernel\s+panicked\s+before\s+this\s+start/);
  assert.match(await board.output("edgectl why node || true"), /not\s+syncing:\s+sysrq\s+triggered\s+crash/);
}

async function survivesFullData(world: BoardWorld): Promise<void> {
  const board = await world.board();
  await board.run("dd if=/dev/zero of=/data/filler bs=1M; dd if=/dev/zero of=/data/filler2 bs=4k; sync", BOOT_LIMIT_MS);
  await board.reboot();
  await world.connected(board);
  await board.until("edgectl status | grep -q DiskPressure");
  await board.output("rm /data/filler /data/filler2; sync");
  await world.fleet.untilNodeReady();
  await board.until("! edgectl status | grep -q DiskPressure");
  // Full disks evict pods, as a kubelet does. Another one runs at once.
  for (const [name, kind] of Object.entries(WORKLOADS)) {
    await world.fleet.admin.clear(({ metadata }) => metadata.name === name);
    await world.fleet.admin.create(PODS, world.fleet.workload(kind, name));
    await world.fleet.untilPod(name);
  }
  await world.podsRun(board);
}

async function forgetsEverything(world: BoardWorld): Promise<void> {
  const board = await world.board();
  const config = { shutdownGracePeriod: `${SHUTDOWN_SECONDS}s` };
  const file = await world.fleet.boardFile({ config }, { replaceNodes: true });
  await board.output(
    `touch /data/marker; base64 -d > /run/new.yaml <<'END'\n${Buffer.from(file).toString("base64")}\nEND`,
  );
  const key = await board.output("sha256sum /var/lib/picolet/identity/identity.pem");
  await board.output(onFat("cp /run/new.yaml picolet.yaml"));
  await assert.rejects(world.fleet.ssh("edgectl", "factory-reset", "--yes"), /may only read/);
  board.expectRestart();
  assert.match(await board.output("edgectl factory-reset --yes"), /restarts/);
  await board.shellReady();
  await world.connected(board);
  assert.notEqual(await board.output("sha256sum /var/lib/picolet/identity/identity.pem"), key);
  await board.output("test ! -e /data/marker");
  assert.match(await board.output("cat /run/picolet-problems"), /factory reset/);
  await board.output(
    `mount -o ro ${PARTITION} /mnt; test ! -e /mnt/picolet-factory-reset; code=$?; umount /mnt; exit $code`,
  );
  const node = await world.fleet.untilNodeReady();
  assert.equal(conditionOf(node, "Ready"), "True");
  // logind waits for 5 seconds unless the agent has it wait for longer: /etc is read-only.
  await board.until(`${LOGIND_DELAY} | grep -qx 't ${SHUTDOWN_SECONDS}000000'`);
  // The hub still wants them here.
  await world.podsRun(board);
}

const TPM_NODE = "board-tpm";
const GUARDED = "guarded";

/**
 * A board with a TPM keeps the key of its Secrets in it without being asked. Its card in another board works, as that
 * node; what it held of Secrets is lost there, and comes from the hub again.
 */
async function keepsKeysInTpm(world: BoardWorld): Promise<void> {
  const { fleet, folder } = world;
  await world.dropBoard();
  await using own = await SoftwareTpm.start(folder.at("own-tpm"), { isOfBoard: true });
  await using other = await SoftwareTpm.start(folder.at("other-tpm"), { isOfBoard: true });
  const boardFile = await fleet.boardFile({ node: { name: TPM_NODE } });
  const card = folder.at("tpm.qcow2");
  {
    await using board = world.besideBoard({ tpm: own.controlSocket, fatFiles: { "picolet.yaml": boardFile } });
    await board.turnOn();
    await fleet.untilNodeReady(2 * BOOT_LIMIT_MS, TPM_NODE);
    await fleet.admin.create(SECRETS, { metadata: { name: GUARDED }, stringData: { word: "sesame" } });
    const env = [{ name: "WORD", valueFrom: { secretKeyRef: { name: GUARDED, key: "word" } } }];
    await fleet.admin.create(PODS, fleet.workload("component", GUARDED, { nodeName: TPM_NODE, env }));
    await fleet.untilPod(GUARDED);
    await board.shellReady();
    const keys = await secretsOf(board);
    assert.deepEqual([keys?.provider, keys?.keyGeneration, keys?.problem], ["tpm2", 1, ""]);
    assert.match(await board.output("edgectl doctor || true"), /stored Secrets.*key is in the TPM 2\.0/);
    await board.powerOff();
    board.saveCard(card);
  }
  await using thief = world.besideBoard({ tpm: other.controlSocket, card });
  await thief.turnOn();
  await thief.shellReady();
  await thief.until("systemctl is-active picolet && edgectl status");
  const keys = await secretsOf(thief);
  assert.deepEqual([keys?.provider, keys?.keyGeneration], ["tpm2", 1]);
  assert.match(keys?.problem ?? "", /the TPM was cleared, or is another one/);
  await thief.output("test -e /var/lib/picolet/store-keys.lost.json");
  await fleet.untilNodeReady(2 * BOOT_LIMIT_MS, TPM_NODE);
  await thief.until("edgectl get events | grep -q SecretKeyLost && pgrep -f wasm-runner.cjs");
  await thief.until("edgectl status -o json | grep -q '\"unreadable\": *0'");
}

async function secretsOf(board: EmulatedBoard): Promise<StatusReport["secretsAtRest"]> {
  return (JSON.parse(await board.output("edgectl status -o json")) as StatusReport).secretsAtRest;
}

export interface PowerCutOptions {
  readonly cuts: number;
  readonly seed: number;
  readonly boots: number;
  readonly onBad: (text: string) => void;
}

/** Judges disks that cuts at any point of the recorded lives leave, and boots some of them. */
export async function cutsPower(world: BoardWorld, options: PowerCutOptions): Promise<void> {
  world.finishRecording();
  await world.dropBoard();
  const counts = { tried: 0, booted: 0, bricked: 0, lost: 0 };
  const show = (): void => {
    for (const [name, value] of Object.entries(counts)) world.set("powerCuts", name, value);
  };
  const lives = world.recordings.length;
  for (const [index, folder] of world.recordings.entries()) {
    const report = (cut: JudgedCut, text: string): void => options.onBad(`${folder}: ${JSON.stringify(cut)} ${text}`);
    await judgeCuts(folder, {
      cuts: Math.ceil(options.cuts / lives),
      boots: Math.ceil(options.boots / lives),
      seed: options.seed + index * options.cuts,
      onJudged: (cut) => {
        const { brick, lost } = cut.verdict;
        counts.tried += 1;
        counts.bricked += brick === undefined ? 0 : 1;
        counts.lost += lost.length === 0 ? 0 : 1;
        if (brick !== undefined || lost.length > 0) report(cut, "");
        show();
      },
      boot: async (disk, cut, promised) => {
        counts.booted += 1;
        const killAfterMs = counts.booted % 4 === 1 ? cut.seed % MOST_KILL_MS : undefined;
        await bootCut(disk, promised, { killAfterMs }).catch((error: unknown) => {
          counts.bricked += 1;
          report(cut, `booted: ${error instanceof Error ? error.message : String(error)}`);
        });
        show();
      },
    });
  }
  assert.deepEqual([counts.bricked, counts.lost], [0, 0], "boards that are bricked, or have lost something");
}

/** A board that has booted after a cut loses its power again within this time. */
const MOST_KILL_MS = 30_000;
