/** `edgectl` for updates of the board. */
import { durationFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { type Command, output } from "../context/command.ts";

/** Bounds nothing but the message: without it the hold lasts until it is released. */
export const HOLD_TIME = durationFlag({ name: "for", help: "release it after this time; else with update release" });

const updateStatus: Command = {
  words: ["update", "status"],
  access: "view",
  summary: "show updates of this board, and what holds them",
  details: `Versions and slot that run; for each update its target, state and since when;
then the pods, files and users that keep the board from restarting for one.
Exit code 1 when the last update failed or was rolled back.`,
  flags: [output("json", "yaml")],
  examples: [
    ["edgectl update status", "for people"],
    ["edgectl update status -o json", "for scripts"],
  ],
  run: async (context, input) => (await import("./update-command.ts")).runUpdateStatus(context, input),
};

const updateHold: Command = {
  words: ["update", "hold"],
  access: "operate",
  summary: "keep updates from restarting this board",
  details: `Fetching and installing go on; the restart waits. It survives restarts of agent
and board.`,
  flags: [{ name: "reason", value: "TEXT", help: "shown where the update waits" }, HOLD_TIME],
  examples: [['edgectl update hold --reason "harvest" --for 2h', "not for the next two hours"]],
  run: async (context, input) => (await import("./update-command.ts")).runUpdateHold(context, input),
};

const updateRelease: Command = {
  words: ["update", "release"],
  access: "operate",
  summary: "end edgectl update hold",
  details: "",
  flags: [],
  examples: [["edgectl update release", "updates may restart the board again"]],
  run: async (context) => (await import("./update-command.ts")).runUpdateRelease(context),
};

const FILE_DETAILS = `FILE is a bundle (.raucb) for a board with an image of picolet's, or a Debian
package (.deb) with its signature beside it (FILE.sig) for others.`;
const DOWNGRADE = { name: "allow-downgrade", help: "take an older version than the one that runs" } as const;

const updateCheck: Command = {
  words: ["update", "check"],
  access: "operate",
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "find out whether a file could be installed",
  details: `${FILE_DETAILS}
Checks signature, board and version; changes nothing.`,
  flags: [DOWNGRADE],
  examples: [["mount /dev/sda1 /mnt && edgectl update check /mnt/new.raucb", "what a USB stick has"]],
  completes: ["files"],
  run: async (context, input) => (await import("./update-command.ts")).runUpdateFile(context, input, true),
};

const updateInstall: Command = {
  words: ["update", "install"],
  access: "admin",
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "update this board from a file, without a network",
  details: `${FILE_DETAILS}
Goes on by itself when it returns: edgectl update status shows how far it is.
Holds count, windows do not. It is health-checked and taken back like others.`,
  flags: [DOWNGRADE],
  examples: [["mount /dev/sda1 /mnt && edgectl update install /mnt/new.raucb", "from a USB stick"]],
  completes: ["files"],
  run: async (context, input) => (await import("./update-command.ts")).runUpdateFile(context, input, false),
};

export const UPDATE_COMMANDS: readonly Command[] = [
  updateStatus,
  updateHold,
  updateRelease,
  updateCheck,
  updateInstall,
];
