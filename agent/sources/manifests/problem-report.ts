import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { publicName, publicProblem } from "@picolet/protocol/decisions/public-text.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type DecisionRecorder, NO_DECISIONS } from "../../core/store/decisions.ts";
import { type EventRecorder, nodeReference, type ObjectReference } from "../../core/store/store-ports.ts";
import type { ManifestProblem } from "./manifest-reader.ts";

/** The reason of problems that keep no pod from running. */
export const WARNING_REASON = "UnknownFields";

/** CamelCase, for events. */
export type ProblemReason =
  | "InvalidManifest"
  | "TooManyManifests"
  | "ManifestsUnavailable"
  | "FailedToStorePods"
  | typeof WARNING_REASON;

/** The problems at one path, or URL. */
export interface PathProblem {
  readonly path: string;
  readonly reason: ProblemReason;
  /** At least one. */
  readonly problems: readonly ManifestProblem[];
  /** Pods that run unchanged because of it; each of them gets the event. */
  readonly pods: readonly DesiredPod[];
}

/** Bounds the list of `edgectl status`; its last entry has the number of further ones. */
const MAX_LISTED = 100;
/** Bounds the problems of one file in its event, whose length is limited. */
const MAX_IN_EVENT = 5;
/** Bounds the events of one file; those of further pods would have the same text. */
const MAX_PODS_IN_EVENTS = 10;

/** Reports each problem once, when it appears, and lists the current ones. */
export class ProblemReport {
  readonly #log: Log;
  readonly #events: EventRecorder;
  readonly #decisions: DecisionRecorder;
  readonly #node: ObjectReference;
  readonly #source: SourceId;
  /** The reported message of each path. */
  #reported: ReadonlyMap<string, string> = new Map();
  readonly #problems = new WatchSource<readonly SourceProblem[]>([]);
  readonly #warnings = new WatchSource<readonly SourceProblem[]>([]);

  constructor(
    components: {
      readonly log: Log;
      readonly events: EventRecorder;
      /** Missing: no decision is recorded. */
      readonly decisions?: DecisionRecorder | undefined;
    },
    init: { readonly nodeName: string; readonly source: SourceId },
  ) {
    this.#log = components.log;
    this.#events = components.events;
    this.#decisions = components.decisions ?? NO_DECISIONS;
    this.#source = init.source;
    this.#node = nodeReference(init.nodeName);
  }

  get problems(): Watch<readonly SourceProblem[]> {
    return this.#problems;
  }

  get warnings(): Watch<readonly SourceProblem[]> {
    return this.#warnings;
  }

  /** All that is wrong now. @returns whether that is something else than before. */
  update(found: readonly PathProblem[]): boolean {
    const messages = new Map(found.map((each) => [`${each.reason} ${each.path}`, messageOf(each)]));
    const isChanged =
      messages.size !== this.#reported.size || [...messages].some(([key, text]) => this.#reported.get(key) !== text);
    if (!isChanged) return false;
    for (const problem of found) {
      if (this.#reported.get(`${problem.reason} ${problem.path}`) !== messageOf(problem)) this.#record(problem);
    }
    for (const key of this.#reported.keys()) {
      if (messages.has(key)) continue;
      this.#log.info("a problem with manifests is mended", { problem: key });
      const [reason = "", ...path] = key.split(" ");
      if (reason !== WARNING_REASON)
        this.#decisions.record({ kind: "manifestMended", origin: publicName(path.join(" ")) });
    }
    this.#reported = messages;
    const isWarning = ({ reason }: PathProblem): boolean => reason === WARNING_REASON;
    this.#problems.set(
      listed(
        found.filter((each) => !isWarning(each)),
        this.#source,
      ),
    );
    this.#warnings.set(listed(found.filter(isWarning), this.#source));
    return true;
  }

  #record(problem: PathProblem): void {
    const message = messageOf(problem);
    const { reason } = problem;
    const what = reason === WARNING_REASON ? "a manifest has fields without effect" : "a manifest cannot be used";
    this.#log.warn(what, { reason, problem: message });
    if (reason !== WARNING_REASON) this.#decide(problem);
    const pods = problem.pods.slice(0, MAX_PODS_IN_EVENTS).map(referenceOf);
    for (const regarding of pods.length > 0 ? pods : [this.#node]) {
      this.#events.record({ regarding, type: "Warning", reason, message });
    }
  }

  /** Once for the file, and for each of its pods that go on. What a manifest says may be secret, and is left out. */
  #decide({ path, problems, pods }: PathProblem): void {
    const { message, position } = problems[0] ?? NOTHING;
    const why = { origin: publicName(path), message: publicProblem(message), figures: { line: position?.line } };
    for (const pod of [undefined, ...pods.slice(0, MAX_PODS_IN_EVENTS)]) {
      this.#decisions.record({ kind: "manifestBroken", ...why }, pod);
    }
  }
}

const NOTHING: ManifestProblem = { message: "", position: undefined };

const referenceOf = ({ uid, pod }: DesiredPod): ObjectReference => ({
  kind: "Pod",
  namespace: pod.metadata.namespace,
  name: pod.metadata.name,
  uid,
  fieldPath: "",
});

function messageOf({ path, reason, problems, pods }: PathProblem): string {
  const shown = problems.slice(0, MAX_IN_EVENT).map(({ position, message }) => {
    const place = position === undefined ? "" : `${position.line}:${position.column}: `;
    return `${place}${message}`;
  });
  const more = problems.length > shown.length ? [`and ${problems.length - shown.length} more`] : [];
  const after = pods.length > 0 && reason !== WARNING_REASON ? " (its pods go on as they were)" : "";
  return `${path}:${problems[0]?.position === undefined ? " " : ""}${[...shown, ...more].join("; ")}${after}`;
}

function listed(found: readonly PathProblem[], source: SourceId): readonly SourceProblem[] {
  const all = found.flatMap(({ path, problems }) =>
    problems.map(({ position, message }): SourceProblem => {
      return { source, origin: path, line: position?.line ?? null, message };
    }),
  );
  const [last] = all.slice(MAX_LISTED);
  if (last === undefined) return all;
  const message = `and ${all.length - MAX_LISTED} more problems`;
  return [...all.slice(0, MAX_LISTED), { source, origin: last.origin, line: null, message }];
}
