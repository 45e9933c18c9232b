/** The levels of access that an image's console and SSH have to edgectl's commands. */
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

/**
 * Each level includes those before it. `view` reads what is no secret, `operate` changes what runs within what the
 * board was given, and `admin` does what root can: run programs of its choice, read and write the files of pods.
 */
export const ACCESS_LEVELS = ["view", "operate", "admin"] as const;
export type Access = (typeof ACCESS_LEVELS)[number];
/** The access of a command; of some it depends on the command line. */
export type NeededAccess = Access | ((input: Arguments) => Access);

/** The restricted shell sets it to LEVEL:FIELD, where FIELD of `picolet.yaml` has the level. */
const VARIABLE = "PICOLET_ACCESS";

/** True in a login that has edgectl alone. */
export const isRestricted = (environment: Readonly<Record<string, string | undefined>>): boolean =>
  environment[VARIABLE] !== undefined;

const isAccess = (text: string): text is Access => (ACCESS_LEVELS as readonly string[]).includes(text);

/** The access that a command line needs. */
const accessOf = (needed: NeededAccess, input: Arguments): Access =>
  typeof needed === "string" ? needed : needed(input);

/**
 * Lets every command line pass where nothing restricts edgectl. A level that is not known counts as `view`.
 * @throws an error that says how to allow the command
 */
export function checkAccess(
  command: { readonly words: readonly string[]; readonly access: NeededAccess },
  input: Arguments,
  environment: Readonly<Record<string, string | undefined>>,
): void {
  const restriction = environment[VARIABLE];
  if (restriction === undefined) return;
  const [text = "", field = "console"] = restriction.split(":");
  const level = isAccess(text) ? text : "view";
  const needed = accessOf(command.access, input);
  if (ACCESS_LEVELS.indexOf(needed) <= ACCESS_LEVELS.indexOf(level)) return;
  throw new PicoletError(
    "failed",
    `this login may ${PERMITTED[level]}, and "edgectl ${command.words.join(" ")}" needs the access "${needed}".
To allow it, write ${field}: {access: ${needed}} into picolet.yaml and restart the board.`,
  );
}

const PERMITTED: Readonly<Record<Access, string>> = {
  view: "only read",
  operate: "only read, and change what runs",
  admin: "do all",
};
