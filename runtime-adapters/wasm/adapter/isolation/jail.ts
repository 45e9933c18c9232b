/**
 * Describes a runner's view of the node: a mount namespace of its own that holds the program, the container's mounts,
 * and nothing else. Pure: `jail-folder.ts` carries it out.
 *
 * Made by util-linux (unshare, mount, pivot_root, setpriv), for Node has neither mount(2) nor prctl(2).
 */
import type { Identity, RunnerLaunch } from "../../shared/messages/launch.ts";

const SHELL = "/bin/sh";
/** The file with the pid of a process with several containers, beside its fstab. */
export const HOST_FILE = "host";
/** Bounds the open files of such a process: as many for each container as one by itself may have. */
const DENSE_OPEN_FILES = 524_288;

/** Something of the node at a place in the jail, which `jail-folder.ts` makes a mount point. */
export interface Bind {
  /** Absolute, on the node. */
  readonly source: string;
  /** Absolute, in the jail. */
  readonly target: string;
  readonly readOnly: boolean;
  /** Its permitted use beside reading and writing. */
  readonly use: "program" | "device" | "data";
}

/** Where a container's own things are in every jail. */
const CONTAINER = {
  node: "/node",
  runner: "/runner",
  own: "/container",
  launch: "/container/launch.json",
  end: "/container/end",
  component: "/container/component",
  log: "/container/log",
  empty: "/container/empty",
  services: "/container/services",
  addon: "/container/koffi.node",
  inference: "/container/inference",
  volumes: "/volumes",
} as const;

export { CONTAINER as JAIL_PATHS };

/** Folders and files that every jail has, beside the libraries: mount points, all of them empty. */
export const JAIL_FOLDERS: readonly string[] = [
  ...["/dev", "/proc", "/old", "/runner", CONTAINER.own, CONTAINER.volumes],
];
export const JAIL_FILES: readonly string[] = [CONTAINER.node, "/setpriv", "/umount", "/dev/null", "/dev/urandom"];
/** Below `JAIL_PATHS.own`. */
export const OWN_FOLDERS: readonly string[] = [
  ...[CONTAINER.component, CONTAINER.log, CONTAINER.empty, CONTAINER.services, CONTAINER.inference],
  CONTAINER.volumes,
];
export const OWN_FILES: readonly string[] = [CONTAINER.launch, CONTAINER.end, CONTAINER.addon];

/**
 * Files that glibc reads to resolve names. As in a container, a file that the node replaces is seen by processes that
 * start after that.
 */
export const NAME_FILES: readonly string[] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"];

/**
 * Shows a process only itself: `subset` hides the files about the node, `hidepid` the processes of others. Both apply
 * to the one mount since Linux 5.8; before that they would change every /proc of the node, and `subset`, which comes
 * first, is refused.
 */
const PRIVATE_PROC = "subset=pid,hidepid=ptraceable";

/**
 * Files of the jail's own folder, not mounts: the loader of the filter (`seccomp-loader.ts`), and one whose write shows
 * that the jail is read-only.
 */
export const LOADER_FILE = "/load-filter";
export const READ_ONLY_FILE = "/read-only";

/** The features of all jails on this node. */
export interface JailKind {
  /** A /proc that shows the process itself alone. */
  readonly privateProc: boolean;
  /** A filter of system calls. */
  readonly seccomp: boolean;
}

const OPTIONS: Readonly<Record<Bind["use"], string>> = {
  program: "nosuid,nodev",
  device: "nosuid,noexec",
  data: "nosuid,nodev,noexec",
};

/**
 * The mounts of every jail for `mount --all --fstab`, one process for all of them.
 * @param use `spare`, `dense`: later mounts on its root must be visible within
 */
export function jailMounts(root: string, programs: readonly Bind[], privateProc: boolean, use: JailUse["use"]): string {
  const lines = [
    // pivot_root(2) needs a mount that is not shared; jails that get mounts later have one more namespace.
    fstabLine(root, root, "none", `bind,ro,nosuid,nodev${use === "jail" ? "" : ",shared"}`),
    fstabLine("proc", `${root}/proc`, "proc", `${privateProc ? `${PRIVATE_PROC},` : ""}nosuid,nodev,noexec`),
  ];
  return lines.join("") + bindMounts(root, programs);
}

export const bindMounts = (root: string, binds: readonly Bind[]): string =>
  binds
    .map(({ source, target, readOnly, use }) =>
      fstabLine(source, root + target, "none", `rbind,${readOnly ? "ro" : "rw"},${OPTIONS[use]}`),
    )
    .join("");

/**
 * The additional mounts of one container: put together beside the jail, then shown in it. A mount becomes read-only in
 * a second step, which is not propagated to a namespace that got the first one; a whole tree that is shown at once
 * keeps its flags.
 * @param stage a folder with mount points as the jail has them
 */
export function containerMounts(
  root: string,
  stage: string,
  binds: readonly Bind[],
  folders: readonly string[],
): string {
  const shown = folders.map((folder) => fstabLine(stage + folder, root + folder, "none", "rbind"));
  return bindMounts(stage, binds) + shown.join("");
}

/** All that is mounted below `stage`, at a place that another namespace sees. */
export const bindLine = (stage: string, place: string): string => fstabLine(stage, place, "none", "rbind");

const fstabLine = (source: string, target: string, type: string, options: string): string =>
  `${escaped(source)} ${escaped(target)} ${type} ${options} 0 0\n`;

/** As fstab(5) has it. */
const escaped = (path: string): string =>
  path.replace(/[\s\\#]/g, (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`);

/**
 * Absolute paths of util-linux on this node: a shell that is busybox uses its own programs for those names with any
 * PATH, and its mount(8) makes neither binds read-only nor mounts shared.
 */
export interface JailTools {
  readonly unshare: string;
  readonly mount: string;
  readonly pivotRoot: string;
}

/**
 * Arguments: fstab, root, then all that setpriv is given. `umount -l` leaves nothing of the node's tree in the
 * namespace.
 */
const enter = ({ pivotRoot }: JailTools): string => `
cd "$2"
${pivotRoot} . old
cd /
/umount -n -l /old
shift 2
exec /setpriv "$@"
`;

/** Tried and not asked for: busybox says of root that it may write anywhere. */
const mounted = ({ mount }: JailTools): string => `
${mount} -n -a -T "$1"
if { true >>"$2${READ_ONLY_FILE}"; } 2>/dev/null; then
  echo "${mount} has left writable what was to be read-only: it is not util-linux's" >&2
  exit 1
fi
`;

const jailScript = (tools: JailTools): string => `
set -e
${mounted(tools)}${enter(tools)}`;

/** The message of a spare's second shell when all is mounted. */
export const MOUNTED_WORD = "mounted\n";

/**
 * For a runner whose container is not known yet: a shell stays behind that sees the node, reads on descriptor 4 what to
 * mount, mounts it, and ends. The runner, a mount namespace further, has the mounts by then. Two shells, so that no
 * process must wait for the one that stays.
 */
const spareScript = (tools: JailTools): string => `
set -e
${mounted(tools)}
( (
  exec 5<&-
  read -r fstab <&4 && ${tools.mount} -n -a -T "$fstab" && echo mounted >&3
) & )
exec 4<&-
exec ${tools.unshare} --mount --propagation slave ${SHELL} -c 'set -e
${enter(tools)}' picolet-jail "$@"
`;

/**
 * For a process that gets one container after the other: this shell stays as long as it does, and with it the namespace
 * in which others mount what the process is to see (`nsenter`). The identity of the process is in a file beside the
 * fstab.
 */
const denseScript = (tools: JailTools): string => `
set -efu
${mounted(tools)}
ulimit -n ${DENSE_OPEN_FILES} 2>/dev/null || :
file=\${1%/*}/${HOST_FILE}
${tools.unshare} --mount --propagation slave ${SHELL} -c 'set -e
${enter(tools)}' picolet-jail "$@" &
child=$!
exec 3>&-
read -r stat <"/proc/$child/stat"
set -- \${stat##*) }
echo "$child \${20}" >"$file"
wait "$child"
`;

const SCRIPTS: Readonly<Record<JailUse["use"], (tools: JailTools) => string>> = {
  jail: jailScript,
  spare: spareScript,
  dense: denseScript,
};

export interface JailUse {
  readonly network: boolean;
  readonly identity: Identity | undefined;
  readonly seccomp: boolean;
  readonly use: "jail" | "spare" | "dense";
}

/** @returns the command line up to that of the runner, the same that it is followed by in both uses */
export function jailCommand(
  tools: JailTools,
  fstab: string,
  root: string,
  { network, identity, seccomp, use }: JailUse,
): string[] {
  return [
    ...[tools.unshare, "--mount", "--ipc", ...(network ? [] : ["--net"]), "--propagation", "slave"],
    ...[SHELL, "-c", SCRIPTS[use](tools), "picolet-jail", fstab, root],
    ...privileges(identity, seccomp),
  ];
}

/**
 * Drops all capabilities but the right to change the user, which is lost with the change. Root stays root, and gets its
 * groups here, for it keeps no capability at all.
 * @returns the arguments of setpriv(1), and the loader of the filter, up to the runner's own command line
 */
function privileges(identity: Identity | undefined, seccomp: boolean): string[] {
  const filter = seccomp ? [LOADER_FILE] : [];
  const none = ["--no-new-privs", "--bounding-set=-all"];
  // In two steps: what may be inherited has to be within the bounding set when it is set.
  if (identity?.uid !== 0) return ["--inh-caps=-all,+setuid,+setgid", "/setpriv", ...none, ...filter];
  const { gid, groups } = identity;
  const list = groups.length === 0 ? ["--clear-groups"] : ["--groups", groups.join(",")];
  return [...none, "--inh-caps=-all", "--regid", String(gid), ...list, ...filter];
}

/**
 * The same launch as it is seen in the jail, and what has to be bound for that.
 * @param place where in the jail the container has its own; "": it is alone
 */
export function toJailLaunch(
  launch: RunnerLaunch,
  place = "",
): { readonly launch: RunnerLaunch; readonly binds: readonly Bind[] } {
  const slash = launch.logPath.lastIndexOf("/");
  const data = { readOnly: true, use: "data" } as const;
  const volumes = launch.mounts.map((mount, index): [RunnerLaunch["mounts"][number], Bind] => {
    const target = `${place}${CONTAINER.volumes}/${index}`;
    const { hostPath: source, readOnly } = mount;
    return [
      { ...mount, hostPath: target },
      { source, target, readOnly, use: "data" },
    ];
  });
  const { board } = launch;
  const services = board?.token === undefined ? [] : [board.serviceDirectory];
  const addons = board?.addonPath === undefined ? [] : [board.addonPath];
  const inference = board?.inferencePath === undefined ? [] : [board.inferencePath];
  return {
    launch: {
      ...launch,
      board: board && {
        ...board,
        serviceDirectory: place + CONTAINER.services,
        addonPath: board.addonPath && CONTAINER.addon,
        inferencePath: board.inferencePath && CONTAINER.inference,
      },
      component: { ...launch.component, directory: place + CONTAINER.component },
      mounts: volumes.map(([mount]) => mount),
      emptyDirectory: place + CONTAINER.empty,
      logPath: place + CONTAINER.log + launch.logPath.slice(slash),
      endPath: place + CONTAINER.end,
      identity: launch.identity?.uid === 0 ? undefined : launch.identity,
    },
    binds: [
      { source: launch.component.directory, target: place + CONTAINER.component, ...data },
      { source: launch.logPath.slice(0, slash), target: place + CONTAINER.log, ...data, readOnly: false },
      { source: launch.endPath, target: place + CONTAINER.end, ...data, readOnly: false },
      ...services.map((source) => ({ source, target: place + CONTAINER.services, ...data })),
      ...addons.map((source): Bind => ({ source, target: CONTAINER.addon, readOnly: true, use: "program" })),
      ...inference.map((source): Bind => ({ source, target: CONTAINER.inference, ...data })),
      ...volumes.map(([, bind]) => bind),
    ],
  };
}
