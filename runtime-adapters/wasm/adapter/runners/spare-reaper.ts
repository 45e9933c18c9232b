/**
 * A reaper (`reaper.ts`) whose runner is there before its container: Node is up and waits for an assignment. All
 * arguments of a reaper come line by line on its standard input, and then apply to the runner too, which runs already.
 * Should the agent end before that, both end.
 *
 * The first process that changes its cgroup after a while waits for a grace period of the kernel's (RCU), some 10 ms,
 * and those after it do not. So an empty line wakes up a reaper that may soon get a container, and it joins the cgroup
 * that it is in already.
 */
import { MAX_OPEN_FILES, type ReaperLaunch } from "../state/reaper.ts";

/** Says that reaper and runner are in the container's cgroup, and who they are is written down. */
export const JOINED_WORD = "joined\n";

/**
 * Arguments: number of cgroup.procs files, those, the runner's command line. Descriptors 4 and 5 are the runner's
 * alone.
 */
export const SPARE_REAPER_SCRIPT = `
set -ufC
child=
fail() { echo "$1" >&3; end; }
end() { [ -z "$child" ] || kill -9 $child 2>/dev/null; exit 125; }
start_of() { read -r stat <"/proc/$1/stat" && set -- \${stat##*) } && started=\${20}; }
count=$1
shift
own=
while [ "$count" -gt 0 ]; do
  own=$1
  echo $$ >|"$1" || fail "cannot join the cgroup of $1"
  shift
  count=$((count - 1))
done
ulimit -c 0
ulimit -n ${MAX_OPEN_FILES} 2>/dev/null
"$@" &
child=$!
exec 4<&- 5<&-
dir=
while [ -z "$dir" ]; do
  read -r dir || end
  [ -n "$dir" ] || [ -z "$own" ] || echo $$ >|"$own"
done
read -r exit_file && read -r score && read -r count || end
start_of $$
echo "$$ $started" >"$dir/reaper" || end
while [ "$count" -gt 0 ]; do
  read -r file || end
  echo $$ >|"$file" && echo $child >|"$file" || fail "cannot join the cgroup of $file"
  count=$((count - 1))
done
echo "$score" 2>/dev/null >|/proc/self/oom_score_adj
echo "$score" 2>/dev/null >|/proc/$child/oom_score_adj
start_of $child && echo "$child $started" >"$dir/runner"
echo joined >&3
exec 3>&- </dev/null
wait $child
echo $? >"$exit_file"
`;

/** The line that wakes up a spare's reaper before an assignment. */
export const WAKE_UP_MESSAGE = "\n";

/** The lines that assign a container to a spare's reaper. */
export const assignment = ({ directory, exitPath, oomScoreAdj, procsFiles }: Omit<ReaperLaunch, "command">): string =>
  [directory, exitPath, oomScoreAdj, procsFiles.length, ...procsFiles].map((line) => `${line}\n`).join("");
