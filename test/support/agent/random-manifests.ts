/** Manifests drawn from the schema itself, so that a field that is new is drawn as soon as it is there. */

import { podSchema } from "@picolet/protocol/pod/pod.ts";
import fc from "fast-check";
import { seededRandom } from "../unit/ports/seeded-random.ts";
import { POD_KINDS, type PodSurroundings, podOfKind } from "./pods-of-every-kind.ts";

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** What is used here of a schema; zod gives the same for all of its kinds. */
interface Schema {
  readonly _zod: {
    readonly def: {
      readonly type: string;
      readonly shape?: Readonly<Record<string, Schema>>;
      readonly element?: Schema;
      readonly innerType?: Schema;
    };
  };
}

/** Fields of one object, and elements of one list, that one edit touches. */
const MAX_TOUCHED = 2;
/** One in so many values is of another type than its field. */
const WRONG_TYPE = 60;
const MAX_EDITS = 4;

/** Texts for any field: names that exist, paths that lead out, references, values that resemble something else. */
const TEXTS = ["", "a", "app", "other", "data", "config", "key", "../x", "/x", "a/../../b", "$(A)", "$(", "1", "10Mi"];
const ODD_TEXTS = ["-1", "1e400", "x".repeat(300), "é\n\0", "__proto__", "constructor", ".", "..", "A B", "0x1F", "~"];
const NUMBERS = [0, 1, 2, 3, 60, 80, 1000, 65_535];
const ODD_NUMBERS = [-1, 70_000, 2_147_483_647, 2_147_483_648, 9_007_199_254_740_991, 0.5];

/** Frequent texts for fields of these names. */
const TEXTS_OF: Readonly<Record<string, readonly string[]>> = {
  restartPolicy: ["Always", "OnFailure", "Never"],
  imagePullPolicy: ["Always", "IfNotPresent", "Never"],
  terminationMessagePolicy: ["File", "FallbackToLogsOnError"],
  dnsPolicy: ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
  operator: ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal"],
  effect: ["NoSchedule", "NoExecute", "PreferNoSchedule"],
  medium: ["", "Memory", "HugePages", "HugePages-2Mi"],
  protocol: ["TCP", "UDP", "SCTP"],
  scheme: ["HTTP", "HTTPS"],
  type: ["", "Directory", "File", "Socket", "RuntimeDefault", "Unconfined", "Localhost"],
  mountPropagation: ["None", "HostToContainer", "Bidirectional"],
  procMount: ["Default", "Unmasked"],
  fsGroupChangePolicy: ["Always", "OnRootMismatch"],
  supplementalGroupsPolicy: ["Merge", "Strict"],
  stopSignal: ["SIGTERM", "SIGUSR1", "SIGNOTHING"],
  fieldPath: ["metadata.name", "metadata.labels", "metadata.annotations['a']", "status.podIP", "spec.nodeName"],
  resource: ["limits.cpu", "limits.memory", "requests.memory", "limits.ephemeral-storage"],
  resourceName: ["cpu", "memory"],
  mountPath: ["/mnt", "/mnt/deep", "/etc/hosts", "/dev/termination-log", "relative", "/a:b"],
  path: ["file", "deep/file", "../file", "/absolute"],
  subPath: ["sub", "sub/deep", "../sub", "/sub"],
  subPathExpr: ["$(A)", "sub/$(A)", "$(NOBODY)"],
  recursiveReadOnly: ["Disabled", "IfPossible", "Enabled"],
  runtimeClassName: ["wasm", "nobody"],
  ip: ["192.0.2.1", "2001:db8::1", "999.1.1.1"],
};

const textOf = (field: string): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...(TEXTS_OF[field] ?? TEXTS)) },
    { weight: 2, arbitrary: fc.constantFrom(...TEXTS) },
    { weight: 1, arbitrary: fc.constantFrom(...ODD_TEXTS) },
  );
const NUMBER = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...NUMBERS) },
  { weight: 1, arbitrary: fc.constantFrom(...ODD_NUMBERS) },
);
const ANYTHING: fc.Arbitrary<Json> = fc.constantFrom<Json>(null, true, 1, "x", [], {}, ["x"], { a: null });

/** Part of a value of the schema: a field or two of each object on the way. */
function part(schema: Schema, field: string): fc.Arbitrary<Json> {
  const right = rightPart(schema, field);
  return fc.oneof({ weight: WRONG_TYPE, arbitrary: right }, { weight: 1, arbitrary: ANYTHING });
}

function rightPart({ _zod: { def } }: Schema, field: string): fc.Arbitrary<Json> {
  switch (def.type) {
    case "object": {
      const { shape = {} } = def;
      const names = Object.keys(shape);
      if (names.length === 0) return fc.constant({});
      const pair = fc
        .constantFrom(...names)
        .chain((name) => part(shape[name] as Schema, name).map((value) => [name, value] as const));
      return fc.array(pair, { minLength: 1, maxLength: MAX_TOUCHED }).map((pairs) => Object.fromEntries(pairs));
    }
    case "array":
      return fc.array(part(def.element as Schema, field), { maxLength: MAX_TOUCHED });
    case "record":
      return fc.dictionary(fc.constantFrom("cpu", "memory", "a", "A", "x.io/y", "../x"), textOf(field), {
        maxKeys: MAX_TOUCHED,
      });
    case "string":
      return textOf(field);
    case "number":
      return NUMBER;
    case "boolean":
      return fc.boolean();
    case "union":
      return fc.oneof(NUMBER, textOf(field));
    case "unknown":
      return ANYTHING;
    default:
      // The field may be missing or have a zero value.
      return rightPart(def.innerType as Schema, field);
  }
}

const isMapping = (value: Json | undefined): value is { readonly [name: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** `edit` over `base`: mappings field by field, lists element by element. */
function merged(base: Json | undefined, edit: Json): Json {
  if (Array.isArray(base) && Array.isArray(edit)) {
    const length = Math.max(base.length, edit.length);
    return Array.from({ length }, (_, index) => (index < edit.length ? merged(base[index], edit[index]) : base[index]));
  }
  if (!isMapping(base) || !isMapping(edit)) return edit;
  const fields = Object.entries(edit).map(([name, value]) => [name, merged(base[name], value)]);
  return { ...base, ...Object.fromEntries(fields) } as Json;
}

/** A valid pod with some of its fields drawn again, mostly of its spec. */
export function randomManifests(around: PodSurroundings): fc.Arbitrary<Json> {
  const base = fc
    .constantFrom(...POD_KINDS)
    .map((kind) => podOfKind(kind, "web", around, seededRandom(1)) as unknown as Json);
  const whole = podSchema as unknown as Schema;
  const { spec, metadata } = whole._zod.def.shape ?? {};
  const of = (field: string, schema: Schema | undefined): fc.Arbitrary<Json> =>
    schema === undefined ? fc.constant({}) : part(schema, field).map((value) => ({ [field]: value }));
  const edit = fc.oneof(
    { weight: 20, arbitrary: of("spec", spec) },
    { weight: 4, arbitrary: of("metadata", metadata) },
    { weight: 1, arbitrary: part(whole, "") },
  );
  const edits = fc.array(edit, { maxLength: MAX_EDITS });
  return fc.tuple(base, edits).map(([pod, all]) => all.reduce((before: Json, each) => merged(before, each), pod));
}
