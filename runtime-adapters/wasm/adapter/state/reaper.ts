/**
 * The shell that starts a runner and waits for it, so that its exit code is kept whether an agent lives or not. It uses
 * nothing but what a POSIX shell has built in: a process more in a full cgroup could fail. Its memory is 0.2 MiB.
 *
 * `reaper` is created exclusively before anything else: an agent that finds a container without it claims the name
 * itself, and a shell that comes late ends at once.
 */

/**
 * Bounds the files of the runner: what a component may hold of each kind (`shared/resources/handles.ts`), a few times
 * over.
 */
export const MAX_OPEN_FILES = 4096;

/**
 * Arguments: state folder, exit file, oom_score_adj, number of cgroup.procs files, those, the runner's command line.
 */
export const REAPER_SCRIPT = `
set -ufC
dir=$1 exit_file=$2 score=$3 count=$4
shift 4
fail() { echo "$1" >&3; exit 125; }
start_of() { read -r stat <"/proc/$1/stat" && set -- \${stat##*) } && started=\${20}; }
start_of $$
echo "$$ $started" >"$dir/reaper" || exit 125
while [ "$count" -gt 0 ]; do
  echo $$ >|"$1" || fail "cannot join the cgroup of $1"
  shift
  count=$((count - 1))
done
echo "$score" 2>/dev/null >|/proc/self/oom_score_adj
ulimit -c 0
ulimit -n ${MAX_OPEN_FILES} 2>/dev/null
"$@" &
child=$!
exec 3>&-
start_of $child && echo "$child $started" >"$dir/runner"
wait $child
echo $? >"$exit_file"
`;

export const REAPER_SHELL = "/bin/sh";

export interface ReaperLaunch {
  /** The container's state folder. */
  readonly directory: string;
  /** Written once, when the runner has ended. */
  readonly exitPath: string;
  readonly oomScoreAdj: number;
  readonly procsFiles: readonly string[];
  readonly command: readonly string[];
}

/** For `REAPER_SHELL`. */
export const reaperArguments = (launch: ReaperLaunch): string[] => [
  "-c",
  REAPER_SCRIPT,
  "picolet-reaper",
  launch.directory,
  launch.exitPath,
  String(launch.oomScoreAdj),
  String(launch.procsFiles.length),
  ...launch.procsFiles,
  ...launch.command,
];

/** Undefined while it is not written whole. */
export function parseExitCode(text: string): number | undefined {
  return /^\d{1,3}\n$/.test(text) ? Number(text) : undefined;
}
