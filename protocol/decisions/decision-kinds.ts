/**
 * The table of decisions that the black box records: one row a kind, with its fields, what it is about, and the
 * sentence that it reads as. To add a kind, add a row; `Decision` follows from the table.
 *
 * Fields are numbers, flags, closed choices and `PublicText`: no other text fits, so that no Secret gets in. Fields in
 * `figures` are inputs that differ each time; two decisions that differ in nothing else are counted as one. Units are
 * last in their names.
 *
 * The agent that records never loads this module, only its types.
 */
import type { PublicText } from "./public-text.ts";

/** The subjects of a question; a row without a topic belongs to the whole story alone. */
export type WhyTopic = "restarted" | "evicted" | "started" | "ended" | "notReady";

type FieldValue = number | boolean | PublicText | undefined;
/** `F` when all its fields may be recorded; any other field, such as a plain text, fits no value. */
type Recordable<F> = {
  readonly [K in keyof F]: K extends "figures"
    ? { readonly [N in keyof F[K]]: F[K][N] extends number | undefined ? F[K][N] : never }
    : F[K] extends FieldValue
      ? F[K]
      : never;
};

/** How figures and times read in a sentence. */
export interface Wording {
  readonly duration: (ms: number) => string;
  readonly bytes: (bytes: number) => string;
  /** A time of day, with the date where it is another day. @param wallMs since 1970 */
  readonly time: (wallMs: number) => string;
}

export interface DecisionRow<F> {
  readonly topics: readonly WhyTopic[];
  /** @returns one or two sentences with full stops */
  readonly sentence: (fields: F, say: Wording) => string;
}

const row = <F extends Recordable<F>>(
  topics: readonly WhyTopic[],
  sentence: DecisionRow<F>["sentence"],
): DecisionRow<F> => ({ topics, sentence });

interface OfContainer {
  readonly container: PublicText;
}
interface Failed {
  readonly reason: PublicText;
  readonly message: PublicText;
  readonly figures: { readonly tries: number; readonly retryInMs: number };
}
/** Bytes, inodes or processes. Missing figures were unknown. */
interface Shortage {
  readonly signal: PublicText;
  readonly isHard: boolean;
  readonly figures: {
    readonly available: number;
    readonly threshold: number;
    readonly used: number | undefined;
    readonly requested: number | undefined;
    readonly candidates: number;
  };
}
interface WithMessage {
  readonly message: PublicText;
}
interface Explained extends WithMessage {
  readonly reason: PublicText;
}
type NoFields = Readonly<Record<never, never>>;

const again = ({ figures }: Failed, say: Wording): string =>
  `It is tried again in ${say.duration(figures.retryInMs)} (attempt ${figures.tries + 1})`;
const because = (reason: string, text: string): string => {
  const message = withoutStop(text);
  if (message === "" || message === reason) return reason;
  return message.startsWith(reason) ? message : `${reason}: ${message}`;
};
const withoutStop = (text: string): string => text.replace(/\.+$/, "");
const grace = (ms: number | undefined, say: Wording): string =>
  ms === undefined ? "" : ms === 0 ? ", at once" : `, with ${say.duration(ms)} to end`;
const run = (attempt: number): string => (attempt === 0 ? "" : ` (restart ${attempt})`);

function shortage({ signal, isHard, figures }: Shortage, say: Wording): string {
  const { available, threshold, used, requested, candidates } = figures;
  const isBytes = signal.endsWith(".available") && !signal.startsWith("pid");
  const amount = (value: number): string => (isBytes ? say.bytes(value) : String(Math.trunc(value)));
  const own =
    used === undefined
      ? ""
      : `; it used ${amount(used)}${requested === undefined ? "" : ` of a request of ${amount(requested)}`}`;
  const rank = candidates > 1 ? `, first of ${candidates} by use above request, priority and use` : "";
  return `${signal} was ${amount(available)}, below the ${isHard ? "hard" : "soft"} threshold of ${amount(threshold)}${own}${rank}`;
}

const SOURCES: Readonly<Record<string, string>> = {
  file: "its manifest",
  http: "the manifest server",
  api: "the hub",
  push: "a push",
};
const sourceOf = (source: string): string => SOURCES[source] ?? source;

const START_CAUSES: Readonly<Record<string, string>> = {
  first: "",
  again: " again, as its restart policy says",
  newSandbox: " again, because the pod has a new sandbox",
  changed: " again, because its definition changed",
  unhealthy: " again after its failed probe",
  resized: " again with its new resources",
};

const STOP_CAUSES: Readonly<Record<string, string>> = {
  changed: "its definition changed",
  resized: "its new resources need a restart",
  unknownState: "the runtime no longer knows its state",
  hookFailed: "its postStart hook failed",
  liveness: "it failed its liveness probe",
  startup: "it failed its startup probe",
};

const AGENT_BEGINNINGS: Readonly<Record<string, string>> = {
  first: "for the first time: nothing was recorded before",
  stopped: "after an orderly stop",
  restarted: "again by itself, with its pods running on",
  failed: "after it had failed",
  killed: "after it was killed or had crashed; the board ran on",
  reboot: "after the board was restarted in order",
  powerCut: "after the power cut",
  kernelPanic: "after the kernel's panic",
};

/** All kinds. Never rename or remove a kind or a field: black boxes of earlier versions have them. */
export const DECISION_KINDS = {
  // A pod's way in.
  accepted: row<{ source: PublicText }>(
    ["started"],
    ({ source }) => `The node took the pod, which ${sourceOf(source)} wants here.`,
  ),
  takenOver: row<{ figures: { running: number } }>(
    ["started", "restarted"],
    ({ figures: { running } }) =>
      `The agent started and found the pod: it took over ${running === 1 ? "1 running container" : `${running} running containers`}, and restarted none.`,
  ),
  adopted: row<{ source: PublicText }>(
    ["started", "restarted"],
    ({ source }) =>
      `The pod came back from ${sourceOf(source)} under another UID with the same spec; it took over what ran.`,
  ),
  blocked: row<NoFields>(
    ["started"],
    () => "The pod was not started yet: an earlier pod of the same name was still ending.",
  ),
  refused: row<Explained>(
    ["started", "evicted"],
    ({ reason, message }) => `The node refused the pod: ${because(reason, message)}.`,
  ),
  runtimeChosen: row<{ runtime: PublicText; message: PublicText }>(
    ["started"],
    ({ runtime, message }) => `The pod runs as ${runtime}s: ${withoutStop(message)}.`,
  ),

  // Steps that failed: why it is not started yet.
  imageNotPulled: row<Failed & { container: PublicText; image: PublicText }>(
    ["started"],
    (fields, say) =>
      `Image ${fields.image} of container ${fields.container} is not here: ${because(fields.reason, fields.message)}. ${again(fields, say)}.`,
  ),
  stepFailed: row<Failed & { step: PublicText; container: PublicText | undefined }>(
    ["started"],
    (fields, say) =>
      `The step "${fields.step}"${fields.container === undefined ? "" : ` of container ${fields.container}`} failed: ` +
      `${because(fields.reason, fields.message)}. ${again(fields, say)}.`,
  ),
  faulted: row<WithMessage>(
    ["started"],
    ({ message }) => `The agent could not go on with the pod: ${withoutStop(message)}.`,
  ),

  // Containers.
  started: row<OfContainer & { cause: PublicText; figures: { run: number; backoffMs: number } }>(
    ["started", "restarted"],
    ({ container, cause, figures }) =>
      `Container ${container} was started${START_CAUSES[cause] ?? ""}${run(figures.run)}.`,
  ),
  exited: row<
    OfContainer & {
      reason: PublicText;
      exitCode: number;
      willRestart: boolean;
      figures: { run: number; lastedMs: number };
    }
  >(["restarted", "ended"], ({ container, reason, exitCode, willRestart, figures }, say) => {
    const how =
      reason === "OOMKilled"
        ? "was killed by the kernel: it, its pod or all pods together reached their limit of memory"
        : "ended";
    const after = `after ${say.duration(figures.lastedMs)}`;
    const what = reason === "OOMKilled" || reason === "Completed" ? "" : `, ${reason}`;
    return `Container ${container} ${how} ${after} (exit code ${exitCode}${what})${willRestart ? "" : "; it stays ended"}.`;
  }),
  heldBack: row<OfContainer & { figures: { run: number; waitMs: number } }>(
    ["started", "restarted"],
    ({ container, figures }, say) =>
      `Container ${container} keeps ending, so its restart ${figures.run} was held back for ${say.duration(figures.waitMs)} (CrashLoopBackOff).`,
  ),
  stopped: row<OfContainer & { cause: PublicText; willRestart: boolean; figures: { run: number; graceMs: number } }>(
    ["restarted"],
    ({ container, cause, willRestart, figures }, say) =>
      `Container ${container} was stopped because ${STOP_CAUSES[cause] ?? cause}${grace(figures.graceMs, say)}` +
      `${willRestart ? "; it starts again" : ""}.`,
  ),
  probeFailed: row<OfContainer & { probe: PublicText; figures: { failures: number; periodMs: number } }>(
    ["restarted", "notReady"],
    ({ container, probe, figures }, say) =>
      `The ${probe} probe of container ${container} failed ${figures.failures === 1 ? "once" : `${figures.failures} times in a row`}, ` +
      `one every ${say.duration(figures.periodMs)}: ${probe === "readiness" ? "it is not ready" : "it must restart"}.`,
  ),
  probePassed: row<OfContainer & { probe: PublicText }>(
    ["notReady"],
    ({ container, probe }) => `The ${probe} probe of container ${container} passed: it is ready.`,
  ),
  sandboxReplaced: row<{ figures: { sandbox: number } }>(
    ["restarted"],
    ({ figures }) => `The pod's sandbox had died or was lost; sandbox ${figures.sandbox + 1} takes its place.`,
  ),

  // Resources of a running pod.
  resizeHeld: row<Explained>(
    [],
    ({ reason, message }) => `The pod's new resources are not granted (${reason}): ${withoutStop(message)}.`,
  ),
  resizeGranted: row<NoFields>([], () => "The node granted the pod its new resources."),
  resized: row<NoFields>([], () => "The pod has its new resources."),

  // A pod's end.
  finished: row<{ phase: PublicText }>(["ended"], ({ phase }) =>
    phase === "Succeeded"
      ? "All containers ended well, and none is to run again: the pod has succeeded."
      : "The containers ended, and none is to run again: the pod has failed.",
  ),
  deadline: row<{ figures: { activeMs: number } }>(
    ["ended", "evicted"],
    ({ figures }, say) =>
      `The pod was ended: it may be active for ${say.duration(figures.activeMs)} (activeDeadlineSeconds).`,
  ),
  evicted: row<Shortage>(["evicted", "ended"], (fields, say) => `The node evicted the pod: ${shortage(fields, say)}.`),
  storageExceeded: row<WithMessage>(
    ["evicted", "ended"],
    ({ message }) => `The node evicted the pod: ${withoutStop(message)}.`,
  ),
  preempted: row<{ by: PublicText }>(
    ["evicted", "ended"],
    ({ by }) => `The node ended the pod to make room for the critical pod ${by}.`,
  ),
  shutDown: row<{ figures: { graceMs: number } }>(
    ["evicted", "ended"],
    ({ figures }, say) => `The node shut down and ended the pod${grace(figures.graceMs, say)}.`,
  ),
  endedByNode: row<Explained>(
    ["evicted", "ended"],
    ({ reason, message }) => `The node ended the pod: ${because(reason, message)}.`,
  ),
  switched: row<Shortage>(
    ["evicted", "restarted"],
    (fields, say) => `The node switched the pod from containers to components: ${shortage(fields, say)}.`,
  ),
  revived: row<NoFields>(["started"], () => "What had ended the pod is over: it runs again."),
  removed: row<{ source: PublicText; figures: { graceMs: number } }>(
    ["ended", "evicted"],
    ({ source, figures }, say) =>
      `${sourceOf(source).replace(/^./, (first) => first.toUpperCase())} no longer wants the pod here: it was ended${grace(figures.graceMs, say)}.`,
  ),
  gone: row<NoFields>(["ended"], () => "Nothing of the pod is left on this node."),

  // The node.
  agentStarted: row<{ version: PublicText; after: PublicText }>(
    ["notReady"],
    ({ version, after }) => `The agent ${version} started ${AGENT_BEGINNINGS[after] ?? after}.`,
  ),
  agentStopped: row<{ cause: PublicText }>(["notReady"], ({ cause }) =>
    cause === "restart"
      ? "The agent began a restart of itself; pods run on."
      : cause === "failed"
        ? "The agent ended because a part of it had failed; pods run on."
        : "The agent was asked to stop; pods run on.",
  ),
  powerCut: row<{ figures: { lastSignWallMs: number; downMs: number | undefined } }>(
    ["notReady", "restarted", "ended"],
    ({ figures: { lastSignWallMs, downMs } }, say) =>
      `The power was cut at about ${say.time(lastSignWallMs)}, the last sign of life (or the system stopped without notice)` +
      `${downMs === undefined ? "" : `; the board was back after ${say.duration(downMs)}`}.`,
  ),
  kernelPanic: row<WithMessage & { path: PublicText; figures: { lastSignWallMs: number; downMs: number | undefined } }>(
    ["notReady", "restarted", "ended"],
    ({ message, path, figures: { lastSignWallMs, downMs } }, say) =>
      `The kernel panicked after ${say.time(lastSignWallMs)}, the last sign of life: ${withoutStop(message)}` +
      `${downMs === undefined ? "" : `; the board was back after ${say.duration(downMs)}`}. Its last words are in ${path}.`,
  ),
  nodeNotReady: row<WithMessage>(
    ["notReady", "started"],
    ({ message }) => `The node became NotReady: ${withoutStop(message)}.`,
  ),
  nodeReady: row<NoFields>(["notReady"], () => "The node became Ready."),
  conditionBegan: row<{ condition: PublicText; reason: PublicText; message: PublicText }>(
    ["notReady"],
    ({ condition, reason, message }) => `The condition ${condition} became True: ${because(reason, message)}.`,
  ),
  conditionEnded: row<{ condition: PublicText }>(
    ["notReady"],
    ({ condition }) => `The condition ${condition} became False.`,
  ),
  shutdownBegan: row<{ cause: PublicText }>(
    ["notReady"],
    ({ cause }) => `A shutdown of the node began (${cause}): its pods were ended in order of priority.`,
  ),
  shutdownCancelled: row<NoFields>(["notReady"], () => "The shutdown was cancelled: the node takes pods again."),
  shutdownDone: row<NoFields>(["notReady"], () => "All pods had ended for the shutdown, or their time was over."),
  clockCorrected: row<{ figures: { byMs: number } }>(
    [],
    ({ figures: { byMs } }, say) =>
      `The clock was set ${byMs < 0 ? "back" : "forward"} by ${say.duration(Math.abs(byMs))}.`,
  ),
  manifestBroken: row<{ origin: PublicText; message: PublicText; figures: { line: number | undefined } }>(
    ["notReady", "started"],
    ({ origin, message, figures: { line } }) =>
      `The manifest ${origin}${line === undefined ? "" : `, line ${line},`} cannot be used: ${withoutStop(message)}. Its pods run on as they were.`,
  ),
  manifestMended: row<{ origin: PublicText }>([], ({ origin }) => `The manifest ${origin} is right again.`),
  hubLost: row<WithMessage>(
    ["notReady"],
    ({ message }) => `The hub cannot be reached, or refuses the node: ${withoutStop(message)}.`,
  ),
  hubReached: row<NoFields>(["notReady"], () => "The hub was reached."),
  updated: row<{ outcome: PublicText; message: PublicText }>(
    ["notReady"],
    ({ outcome, message }) => `${because(outcome, message)}.`,
  ),
  systemOom: row<{ process: PublicText }>(
    ["notReady"],
    ({ process }) => `The kernel was out of memory and killed ${process}, which belongs to no pod.`,
  ),
} as const satisfies Readonly<Record<string, DecisionRow<never>>>;

type Kinds = typeof DECISION_KINDS;
export type DecisionKind = keyof Kinds;
type FieldsOf<K extends DecisionKind> = Kinds[K] extends DecisionRow<infer F> ? F : never;

/** One decision with its fields, told apart by `kind`. */
export type Decision = { [K in DecisionKind]: { readonly kind: K } & Readonly<FieldsOf<K>> }[DecisionKind];
