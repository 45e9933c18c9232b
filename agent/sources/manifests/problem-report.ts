import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type EventRecorder, nodeReference, type ObjectReference } from "../../core/store/store-ports.ts";
import type { ManifestProblem } from "./manifest-reader.ts";

/** Of what runs all the same. */
export const WARNING_REASON = "UnknownFields";

/** CamelCase, for events. */
export type ProblemReason =
  | "InvalidManifest"
  | "TooManyManifests"
  | "ManifestsUnavailable"
  | "FailedToStorePods"
  | typeof WARNING_REASON;

/** What is wrong at one path, or URL. */
export interface PathProblem {
  readonly path: string;
  readonly reason: ProblemReason;
  /** At least one. */
  readonly problems: readonly ManifestProblem[];
  /** Pods that go on as they were because of it; the event is told of each of them. */
  readonly pods: readonly DesiredPod[];
}

/** `edgectl status` shows no more; the last one then says how many there are besides. */
const MAX_LISTED = 100;
/** Of one file, in its event, whose length is limited. */
const MAX_IN_EVENT = 5;
/** Of one file; `describe pod` of each of the others would say the same. */
const MAX_PODS_TOLD = 10;

/** Tells of problems once, when they come, and lists those that there are. */
export class ProblemReport {
  readonly #log: Log;
  readonly #events: EventRecorder;
  readonly #node: ObjectReference;
  readonly #source: SourceId;
  /** What was told of each path. */
  #told: ReadonlyMap<string, string> = new Map();
  readonly #problems = new WatchSource<readonly SourceProblem[]>([]);
  readonly #warnings = new WatchSource<readonly SourceProblem[]>([]);

  constructor(
    components: { readonly log: Log; readonly events: EventRecorder },
    init: { readonly nodeName: string; readonly source: SourceId },
  ) {
    this.#log = components.log;
    this.#events = components.events;
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
    const told = new Map(found.map((each) => [`${each.reason} ${each.path}`, messageOf(each)]));
    const isChanged = told.size !== this.#told.size || [...told].some(([key, text]) => this.#told.get(key) !== text);
    if (!isChanged) return false;
    for (const problem of found) {
      if (this.#told.get(`${problem.reason} ${problem.path}`) !== messageOf(problem)) this.#tell(problem);
    }
    for (const key of this.#told.keys()) {
      if (!told.has(key)) this.#log.info("a problem with manifests is mended", { problem: key });
    }
    this.#told = told;
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

  #tell(problem: PathProblem): void {
    const message = messageOf(problem);
    const { reason } = problem;
    const what = reason === WARNING_REASON ? "a manifest has fields without effect" : "a manifest cannot be used";
    this.#log.warn(what, { reason, problem: message });
    const pods = problem.pods.slice(0, MAX_PODS_TOLD).map(referenceOf);
    for (const regarding of pods.length > 0 ? pods : [this.#node]) {
      this.#events.record({ regarding, type: "Warning", reason, message });
    }
  }
}

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
