/** `edgectl debug node`: a privileged pod in the node's namespaces, which lasts as long as this command. */
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { WatchLine } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, usageError } from "../context/exit-codes.ts";
import { podPath, query } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";
import { runCommand } from "../streams/command-session.ts";

const CONTAINER = "debugger";
/** A shell ends at the signal of a lost terminal; what it left running is killed with the container. */
const GRACE_PERIOD_SECONDS = 1;
/** A slow board with much to do unmounts and removes a sandbox in 20 s. */
const REMOVAL_TIMEOUT = seconds(60);
/** Reasons of containers that are on their way; any other reason says why they cannot start. */
const PASSING = /^(?:ContainerCreating|PodInitializing|)$/;

interface Session {
  readonly image: string;
  /** Empty: the image's own. */
  readonly command: readonly string[];
  readonly hasInput: boolean;
  readonly isTerminal: boolean;
}

export async function runDebugNode(context: Context, input: Arguments): Promise<number> {
  const session = sessionOf(context, input);
  const states = context.client.lines<WatchLine<Pod>>("/v1/session-pods", podOf(session, context.now()));
  let path: string | undefined;
  try {
    const started = await untilState(context, states, (pod) => isStarted(pod) || whyStuck(pod) !== undefined);
    path = podPath(started.metadata);
    const stuck = whyStuck(started);
    if (stuck !== undefined) throw new PicoletError("failed", `${stuck}\n${adviceFor(stuck, session.image)}`);
    if (!isOver(started)) await talk(context, session, started);
    else await copyLogs(context, path, session.isTerminal);
    return exitCodeOf(context, isOver(started) ? started : await untilState(context, states, isOver));
  } finally {
    if (path !== undefined)
      await remove(context, states, path).catch(ignore("the agent removes the pod with the connection of `states`"));
    await states.return(undefined);
  }
}

/** Resolves when nothing of the pod is left: its states end then. */
async function remove({ client }: Context, states: AsyncGenerator<unknown>, path: string): Promise<void> {
  const period = query({ gracePeriodSeconds: GRACE_PERIOD_SECONDS });
  await client.send("DELETE", `${path}${period}`, undefined, REMOVAL_TIMEOUT);
  while ((await states.next()).done !== true);
}

function sessionOf({ keyboard, terminal }: Context, input: Arguments): Session {
  const image = input.text("image") ?? "";
  if (image === "")
    throw usageError("debug node needs --image IMAGE; edgectl image list shows the images of this board");
  const command = input.positionals;
  const isShell = command.length === 0;
  const hasInput = isShell || input.flag("stdin");
  const wantsTerminal = isShell ? keyboard.isTerminal : input.flag("tty");
  const isTerminal = wantsTerminal && (!hasInput || keyboard.isTerminal);
  if (isTerminal !== wantsTerminal) terminal.writeError("edgectl: standard input is no terminal: -t is left out\n");
  return { image, command, hasInput, isTerminal };
}

/** As `kubectl debug node/NAME --profile=sysadmin` makes it. The time names it: a board has one clock. */
function podOf({ image, command, hasInput, isTerminal }: Session, nowMs: number): unknown {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `node-debugger-${nowMs.toString(36)}`,
      labels: { "app.kubernetes.io/managed-by": "edgectl-debug" },
    },
    spec: {
      ...{ hostPID: true, hostNetwork: true, hostIPC: true },
      restartPolicy: "Never",
      terminationGracePeriodSeconds: GRACE_PERIOD_SECONDS,
      automountServiceAccountToken: false,
      tolerations: [{ operator: "Exists" }],
      containers: [
        {
          name: CONTAINER,
          image,
          imagePullPolicy: "IfNotPresent",
          ...(command.length === 0 ? {} : { command }),
          ...{ stdin: hasInput, stdinOnce: hasInput, tty: isTerminal },
          securityContext: { privileged: true },
          volumeMounts: [{ name: "host-root", mountPath: "/host" }],
        },
      ],
      volumes: [{ name: "host-root", hostPath: { path: "/" } }],
    },
  };
}

const stateOf = ({ status }: Pod) => status?.containerStatuses?.[0]?.state ?? {};
const isOver = (pod: Pod): boolean =>
  stateOf(pod).terminated !== undefined || pod.status?.phase === "Failed" || pod.status?.phase === "Succeeded";
const isStarted = (pod: Pod): boolean => stateOf(pod).running !== undefined || isOver(pod);

/** Reason and message of a container that cannot start. */
function whyStuck(pod: Pod): string | undefined {
  const { reason = "", message = "" } = stateOf(pod).waiting ?? {};
  return PASSING.test(reason) ? undefined : `${reason}: ${message}`;
}

/** @throws when the pod is removed before */
async function untilState(
  { terminal }: Context,
  states: AsyncGenerator<WatchLine<Pod>>,
  isMet: (pod: Pod) => boolean,
): Promise<Pod> {
  let shown = "";
  for (;;) {
    const { value: line, done } = await states.next();
    if (done === true || line.type === "ERROR" || line.type === "DELETED")
      throw new PicoletError("failed", "the debugging pod was removed by another client");
    const pod = line.object;
    if (isMet(pod)) return pod;
    const { message = "" } = stateOf(pod).waiting ?? {};
    if (message !== "" && message !== shown) terminal.writeError(`edgectl: ${printableLine(message)}\n`);
    shown = message;
  }
}

const adviceFor = (stuck: string, image: string): string =>
  /^\w*Image/.test(stuck)
    ? `Name an image that this board has (edgectl image list), or bring one to it with no network:
edgectl image import FILE --name ${image}`
    : "edgectl events shows what was tried.";

/** Until the container has ended, or the session is lost. */
async function talk(context: Context, session: Session, { metadata, spec }: Pod): Promise<void> {
  const { terminal, keyboard } = context;
  const { hasInput, isTerminal } = session;
  const target = { namespace: metadata.namespace, pod: metadata.name, container: spec.containers[0]?.name ?? "" };
  const attach = (output: Parameters<typeof runCommand>[2]): Promise<unknown> =>
    runCommand(
      context,
      { kind: "attach", target, command: [], input: hasInput ? context.input() : undefined, isTerminal },
      output,
    );
  if (isTerminal) {
    if (session.command.length === 0)
      terminal.writeError("The root of this node is at /host. Without a prompt, press Enter; exit ends the session.\n");
    using _raw = hasInput ? keyboard.raw() : undefined;
    await attach({ out: (bytes) => terminal.write(bytes), error: async (bytes) => terminal.writeError(bytes) });
    return;
  }
  // The log has all that it writes, also from before anything could be attached.
  const drop = async (): Promise<void> => undefined;
  if (hasInput) void attach({ out: drop, error: drop }).catch(ignore("the container's state says how it ended"));
  await copyLogs(context, podPath(metadata), false);
}

async function copyLogs({ client, terminal }: Context, path: string, isTerminal: boolean): Promise<void> {
  const copy = async (stream: string, write: (bytes: Buffer) => Promise<void>): Promise<void> => {
    const { chunks } = await client.stream(`${path}/log${query({ follow: true, stream })}`);
    for await (const bytes of chunks) await write(bytes);
  };
  const out = copy("Stdout", (bytes) => terminal.write(bytes));
  // A terminal has one output.
  const errors = isTerminal ? undefined : copy("Stderr", async (bytes) => terminal.writeError(bytes));
  await Promise.all([out, errors]);
}

function exitCodeOf({ terminal }: Context, pod: Pod): number {
  const { terminated } = stateOf(pod);
  if (terminated === undefined) {
    const { reason = "", message = "" } = pod.status ?? {};
    throw new PicoletError("failed", `the debugging pod did not run: ${reason}: ${message}`);
  }
  const { reason = "", message = "", exitCode } = terminated;
  if (reason === "StartError") {
    terminal.writeError(`edgectl: ${printableLine(message)}\n`);
    return EXIT_DEGRADED;
  }
  return exitCode;
}
