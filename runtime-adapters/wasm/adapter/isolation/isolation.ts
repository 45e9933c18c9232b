/**
 * How far this node lets a runner be kept apart from it. Found out once, with the first component; what cannot be had
 * is said in the log and in the runtime's status, and components run on without it.
 */
import { existsSync, rmSync, statSync, writeFileSync } from "node:fs";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { type Identity, mountStamp, type RunnerLaunch, SPARE_ARGUMENT } from "../../shared/messages/launch.ts";
import { DENSE_FLAGS, RUNNER_FLAGS } from "../processes/node-flags.ts";
import { JAIL_PATHS, type JailKind, type JailTools, jailCommand } from "./jail.ts";
import { JailFolder } from "./jail-folder.ts";
import { seccompLoader } from "./seccomp-loader.ts";

export interface IsolationInit {
  /** Mount points; `<state>/jail`. */
  readonly directory: string;
  readonly nodePath: string;
  readonly runnerPath: string;
  /** The program that runs several containers. */
  readonly densePath: string;
  /** The agent's user. */
  readonly ownUid: number;
}

type Level =
  | {
      readonly kind: "jail";
      readonly folder: JailFolder;
      readonly how: JailKind;
      readonly tools: JailTools;
      /** The kernel's objection to the best jail; undefined: this is it. */
      readonly refusedBest: string | undefined;
    }
  | { readonly kind: "none"; readonly problem: string };

/** The command and launch of a runner. */
export interface IsolatedRunner {
  readonly command: readonly string[];
  /** As the runner sees it. */
  readonly launch: RunnerLaunch;
}

export interface RunnerPlace {
  /** The container's state folder. */
  readonly folder: string;
  /** True when it may reach the node's network. */
  readonly network: boolean;
}

const FILTER_IS_KNOWN = seccompLoader(process.arch) !== undefined;
const SBIN = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const PROGRAMS = ["unshare", "mount", "pivot_root", "umount", "setpriv"] as const;
const ROOT_UID = 0;
/** The best first. Some kernels are built without seccomp; one older than 5.8 has no /proc for one mount alone. */
const JAIL_KINDS: readonly JailKind[] = (FILTER_IS_KNOWN ? [true, false] : [false]).flatMap((seccomp) =>
  [true, false].map((privateProc) => ({ privateProc, seccomp })),
);

export class Isolation {
  readonly #log: Log;
  readonly #init: IsolationInit;
  #level: Promise<Level> | undefined;
  #problem: string | undefined;
  #summary: string | undefined;

  constructor(log: Log, init: IsolationInit) {
    this.#log = log;
    this.#init = init;
    if (init.ownUid !== ROOT_UID) this.#problem = "picolet does not run as root";
  }

  /**
   * How runners are less isolated than they could be, and why; undefined when they are not, or when it is not known
   * yet.
   */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** The isolation of every component on this node; undefined: no jail was needed yet. */
  get summary(): string | undefined {
    return this.#summary;
  }

  /** For a runner that is started for its container. */
  async runner(launch: RunnerLaunch, { folder: own, network }: RunnerPlace): Promise<IsolatedRunner> {
    this.#level ??= this.#find();
    const level = await this.#level;
    const { nodePath, runnerPath } = this.#init;
    if (level.kind === "none") {
      return { command: [nodePath, ...RUNNER_FLAGS, runnerPath, `${own}/launch.json`], launch };
    }
    const { folder, how, tools } = level;
    const { launch: inside, mounts } = folder.prepare(own, launch);
    const fstab = `${own}/mounts`;
    writeFileSync(fstab, folder.mounts(how, network, "jail") + mounts, { mode: 0o600 });
    const { identity } = launch;
    const jail = jailCommand(tools, fstab, folder.root, { ...how, network, identity, use: "jail" });
    // The last argument is not read by the program: it shows in the node's list of processes which container this is.
    return { command: [...jail, ...folder.command(RUNNER_FLAGS, runnerPath), own], launch: inside };
  }

  /**
   * @returns whether a spare can become this one: root is root from the start, and has fewer rights than a spare needs
   */
  async canBeSpare(identity: Identity | undefined): Promise<boolean> {
    return (await this.#level)?.kind === "jail" && identity !== undefined && identity.uid !== ROOT_UID;
  }

  /**
   * Why this one, once it is no longer root, could not open what lies in the agent's own folders; undefined: it can.
   */
  async unjailed(identity: Identity | undefined): Promise<string | undefined> {
    this.#level ??= this.#find();
    const level = await this.#level;
    return level.kind === "jail" || identity === undefined || identity.uid === ROOT_UID ? undefined : level.problem;
  }

  /** @returns the command line of a runner whose container is not known yet; undefined where there are no jails */
  async spare(network: boolean): Promise<readonly string[] | undefined> {
    const level = await this.#level;
    if (level?.kind !== "jail") return undefined;
    const { folder, how, tools } = level;
    const fstab = `${folder.root}.spare-mounts`;
    writeFileSync(fstab, folder.mounts(how, network, "spare"), { mode: 0o600 });
    const jail = jailCommand(tools, fstab, folder.root, { ...how, network, identity: undefined, use: "spare" });
    return [...jail, ...folder.command(RUNNER_FLAGS, this.#init.runnerPath), SPARE_ARGUMENT];
  }

  /** For a spare that gets this container. @returns the launch as the runner sees it, and the fstab of what it lacks */
  async furnish(launch: RunnerLaunch, own: string): Promise<{ readonly launch: RunnerLaunch; readonly fstab: string }> {
    const level = await this.#level;
    if (level?.kind !== "jail") throw new PicoletError("internal", "there are no spare runners without jails");
    const { launch: inside, mounts } = level.folder.prepare(own, launch);
    const fstab = `${own}/mounts`;
    writeFileSync(fstab, mounts, { mode: 0o600 });
    return { launch: withStamps(inside, launch), fstab };
  }

  /**
   * A process for several containers. @param folder its own, with `own` for what it makes and `places` for its
   * containers
   * @returns its command line, and where it sees `own`
   */
  async dense(
    folder: string,
    { network, identity }: { readonly network: boolean; readonly identity: Identity | undefined },
  ): Promise<{ readonly command: readonly string[]; readonly own: string }> {
    this.#level ??= this.#find();
    const level = await this.#level;
    const { nodePath, densePath } = this.#init;
    const own = `${folder}/own`;
    if (level.kind === "none") return { command: [nodePath, ...DENSE_FLAGS, densePath, `${own}/host.json`], own };
    const { folder: jail, how, tools } = level;
    const fstab = `${folder}/mounts`;
    const mounts = jail.mounts(how, network, "dense") + jail.denseMounts(densePath, own, `${folder}/places`);
    writeFileSync(fstab, mounts, { mode: 0o600 });
    const command = jailCommand(tools, fstab, jail.root, { ...how, network, identity, use: "dense" });
    const inside = jail.command(DENSE_FLAGS, densePath, `${JAIL_PATHS.own}/host.json`);
    return { command: [...command, ...inside, folder], own: JAIL_PATHS.own };
  }

  /**
   * For a container of such a process. @returns the launch as it sees it, and the fstab of what it lacks for that, if
   * anything
   */
  async furnishDense(
    launch: RunnerLaunch,
    own: string,
    place: string,
  ): Promise<{ readonly launch: RunnerLaunch; readonly fstab: string | undefined }> {
    this.#level ??= this.#find();
    const level = await this.#level;
    if (level?.kind !== "jail") return { launch, fstab: undefined };
    const { launch: inside, mounts } = level.folder.prepareDense(own, place, launch);
    const fstab = `${own}/mounts`;
    writeFileSync(fstab, mounts, { mode: 0o600 });
    return { launch: withStamps(inside, launch), fstab };
  }

  async #find(): Promise<Level> {
    const level = await this.#check().catch(
      (error: unknown): Level => ({ kind: "none", problem: describeError(error) }),
    );
    const problem = level.kind === "none" ? level.problem : weaknessOf(level);
    this.#summary = summaryOf(level);
    if (problem !== undefined) {
      this.#problem = problem;
      this.#log.warn("components run with less isolation than they should", { problem });
    }
    return level;
  }

  async #check(): Promise<Level> {
    const { directory, nodePath, runnerPath, densePath, ownUid } = this.#init;
    if (ownUid !== ROOT_UID) return { kind: "none", problem: "picolet does not run as root" };
    const paths = PROGRAMS.map((name) => SBIN.map((each) => `${each}/${name}`).find(existsSync));
    const missing = PROGRAMS.filter((_, index) => paths[index] === undefined);
    if (missing.length > 0)
      return { kind: "none", problem: `util-linux is not whole: ${missing.join(", ")} not found` };
    const [unshare = "", mount = "", pivotRoot = "", umountPath = "", setprivPath = ""] = paths;
    const tools = { unshare, mount, pivotRoot };
    const folder = new JailFolder(directory, { nodePath, runnerPath, densePath, setprivPath, umountPath });
    const { probeJail } = await import("./probe-jail.ts");
    const fstab = `${directory}.mounts`;
    const given = { network: false, identity: undefined, use: "jail" } as const;
    let problem: string | undefined;
    let refusedBest: string | undefined;
    for (const how of JAIL_KINDS) {
      writeFileSync(fstab, folder.mounts(how, given.network, given.use), { mode: 0o600 });
      const [program = "", ...args] = jailCommand(tools, fstab, folder.root, { ...how, ...given });
      problem = await probeJail(program, [...args, "/setpriv", "--dump"]);
      rmSync(fstab, { force: true });
      if (problem === undefined) {
        this.#log.info("components are isolated from the node", { ...how });
        return { kind: "jail", folder, how, tools, refusedBest };
      }
      refusedBest ??= problem;
    }
    return { kind: "none", problem: `a jail cannot be made: ${problem}` };
  }
}

function summaryOf(level: Level): string {
  if (level.kind === "none") return "none but that of WebAssembly";
  const { seccomp, privateProc } = level.how;
  return ["jail", ...(seccomp ? ["seccomp"] : []), ...(privateProc ? ["private /proc"] : [])].join(", ");
}

/** Describes what a jail lacks; undefined: nothing. */
function weaknessOf({ how, refusedBest }: Extract<Level, { kind: "jail" }>): string | undefined {
  const lacks = [
    how.seccomp ? "" : "no seccomp filter",
    how.privateProc ? "" : "/proc shows the node's other processes",
  ].filter((each) => each !== "");
  if (lacks.length === 0) return undefined;
  const why = FILTER_IS_KNOWN ? (refusedBest ?? "") : `system calls of ${process.arch} are not known`;
  return [lacks.join(", "), why].filter((each) => each !== "").join(": ");
}

/** A spare may not see what the node has mounted since it was made: by these it finds out. */
const withStamps = (inside: RunnerLaunch, { mounts }: RunnerLaunch): RunnerLaunch => ({
  ...inside,
  mounts: inside.mounts.map((mount, index) => ({
    ...mount,
    stamp: mountStamp(statSync(mounts[index]?.hostPath ?? "", { bigint: true })),
  })),
});
