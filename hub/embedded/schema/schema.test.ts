import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { MODELS } from "@picolet/test/support/unit/embedded/api-server.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { embeddedResources } from "../embedded-resources.ts";
import { modelRoots } from "../server/model-roots.ts";
import { decodeInto } from "./decode.ts";
import { FileModelSource, gatherModels, reachableModels } from "./models.ts";
import { ProtobufReader, readEnvelope } from "./protobuf.ts";
import { PROTOBUF_FIELDS } from "./protobuf-fields.ts";
import { scanJson } from "./scan-json.ts";

const ROOTS = modelRoots(embeddedResources({ serviceAccountTokens: false }));

test("models are read from the generated code, required fields and comments too", () => {
  const { fields, description } = MODELS.get("V1EnvVar");
  assert.match(description, /^EnvVar represents an environment variable/);
  assert.deepEqual(
    [...fields.values()].map(({ name, isRequired }) => [name, isRequired]),
    [
      ["name", true],
      ["value", false],
      ["valueFrom", false],
    ],
  );
  assert.deepEqual(MODELS.get("V1Secret").fields.get("data")?.type, { kind: "map", values: { kind: "bytes" } });
  assert.deepEqual(MODELS.get("V1ResourceRequirements").fields.get("limits")?.type, {
    kind: "map",
    values: { kind: "quantity" },
  });
  assert.throws(
    () => MODELS.get("V1Nothing"),
    (error) => isPicoletError(error, "not_found"),
  );
  assert.throws(
    () => MODELS.get("../V1Pod"),
    (error) => isPicoletError(error, "not_found"),
  );
});

test("models gathered into a file are the same", () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("models.json"), gatherModels(MODELS, ROOTS));
  const gathered = new FileModelSource(folder.at("models.json"));
  for (const model of reachableModels(MODELS, ROOTS)) assert.deepEqual(gathered.get(model.name), model);
  assert.throws(
    () => gathered.get("V1Nothing"),
    (error) => isPicoletError(error, "not_found"),
  );
});

test("every model of a resource and all it refers to have protobuf numbers for fields that the model has", () => {
  // They are types of their own in Kubernetes' encoding; the server reads their wire form by the kind of the field.
  const built = new Set(["V1MicroTime", "V1CustomResourceDefinition"]);
  const taken = ROOTS.filter((root) => !built.has(root));
  for (const { name, fields } of reachableModels(MODELS, taken)) {
    if (built.has(name)) continue;
    assert.ok(PROTOBUF_FIELDS[name] !== undefined, name);
    const known = new Set<string>();
    const collect = (line: string): void => {
      for (const token of line.split(" ")) {
        const [, , inlined, field = ""] = /^(\d+:)?(\^)?(\w+)!?$/.exec(token) ?? [];
        if (inlined === undefined) known.add(field);
        else collect(PROTOBUF_FIELDS[field] ?? "");
      }
    };
    collect(PROTOBUF_FIELDS[name] ?? "");
    for (const field of fields.keys()) {
      if (field !== "apiVersion" && field !== "kind") assert.ok(known.has(field), `${name}.${field}`);
    }
  }
});

test("a body is held against its type", () => {
  const decode = (object: object): { unknown: readonly string[]; mismatch: string | undefined; object: object } => {
    const copy = structuredClone(object) as Record<string, unknown>;
    return { ...decodeInto(MODELS, "V1Pod", copy), object: copy };
  };
  const container = (fields: object): object => ({ spec: { containers: [{ name: "a", ...fields }] } });
  assert.deepEqual(
    decode(container({ resources: { limits: { cpu: 1, memory: "1Gi" } } })).object,
    container({ resources: { limits: { cpu: "1", memory: "1Gi" } } }),
  );
  assert.deepEqual(
    decode(container({ ports: [{ containerPort: 80, nope: 1 }], livenessProbe: { httpGet: { port: "web" } } })).unknown,
    ['unknown field "spec.containers[0].ports[0].nope"'],
  );
  const mismatches: readonly (readonly [object, RegExp])[] = [
    [
      container({ image: 1 }),
      /cannot unmarshal number into Go struct field spec\.containers\[0\]\.image of type string/,
    ],
    [container({ tty: "yes" }), /string into Go struct field spec\.containers\[0\]\.tty of type bool/],
    [container({ ports: [{ containerPort: 1.5 }] }), /of type int32/],
    [
      container({ env: { name: "x" } }),
      /object into Go struct field spec\.containers\[0\]\.env of type \[\]v1\.EnvVar/,
    ],
    [{ metadata: { creationTimestamp: "yesterday" } }, /parsing time/],
    [{ metadata: { labels: { a: true } } }, /of type string/],
  ];
  for (const [object, expected] of mismatches) assert.match(decode(object).mismatch ?? "", expected);
  assert.equal(decode({ metadata: null, spec: { containers: [null], nodeSelector: null } }).mismatch, undefined);
});

test("null in a list or a map is the zero value of its type, as Go decodes it", () => {
  const decode = (model: string, object: object): object => {
    const copy = structuredClone(object) as Record<string, unknown>;
    assert.deepEqual(decodeInto(MODELS, model, copy), { unknown: [], mismatch: undefined });
    return copy;
  };
  assert.deepEqual(
    decode("V1Pod", { spec: { containers: [null, { name: "a", command: [null] }], overhead: { cpu: null } } }),
    {
      spec: { containers: [{}, { name: "a", command: [""] }], overhead: { cpu: "0" } },
    },
  );
  assert.deepEqual(
    decode("V1Secret", { data: { a: null }, metadata: { finalizers: [null], ownerReferences: [null] } }),
    {
      data: { a: "" },
      metadata: { finalizers: [""], ownerReferences: [{}] },
    },
  );
  assert.deepEqual(decode("V1TokenReview", { status: { user: { extra: { a: null } } } }), {
    status: { user: { extra: { a: [] } } },
  });
});

test("what JSON.parse does not tell is found", () => {
  assert.deepEqual(scanJson('{"a":{"b":[{"c":1,"c":2},{"c":3}],"\\u0062":4}}').duplicates, [
    'duplicate field "a.b[0].c"',
    'duplicate field "a.b"',
  ]);
  assert.equal(scanJson("[".repeat(257)).isTooDeep, true);
  assert.equal(scanJson("[".repeat(256)).isTooDeep, false);
  assert.equal(scanJson('{"x":[{"\\u005f_proto__":1}]}').isPoisoned, true);
  assert.equal(scanJson('{"x":"__proto__"}').isPoisoned, false);
  assert.deepEqual(scanJson('{"a":"\\\\","b":"\\"a\\"","c":{}}').duplicates, []);
  fc.assert(
    fc.property(fc.json({ maxDepth: 6 }), (text) => {
      const { duplicates, isTooDeep } = scanJson(text);
      assert.deepEqual([duplicates, isTooDeep], [[], false]);
    }),
  );
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom("{", "}", "[", "]", '"', ",", ":", "\\", "a") }),
      (text) => void scanJson(text),
    ),
  );
});

const varint = (value: number): number[] => (value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(value >>> 7)]);
const field = (number: number, content: string | readonly number[]): number[] => {
  const bytes = typeof content === "string" ? [...Buffer.from(content)] : [...content];
  return [...varint(number * 8 + 2), ...varint(bytes.length), ...bytes];
};
const number = (at: number, value: number): number[] => [...varint(at * 8), ...varint(value)];

test("protobuf becomes the JSON of the same object", () => {
  const reader = new ProtobufReader(MODELS);
  const read = (model: string, ...parts: readonly number[][]): object => reader.read(model, Buffer.from(parts.flat()));
  const metadata = field(1, [
    ...field(1, "name"),
    ...field(2, ""),
    ...field(8, [...number(1, 1_700_000_000), ...number(2, 0)]),
    ...number(10, 0),
    ...field(11, [...field(1, "k"), ...field(2, "v")]),
    ...field(11, [...field(1, "empty"), ...field(2, "")]),
    ...field(14, "example.com/x"),
    ...field(99, "of the future"),
  ]);
  assert.deepEqual(read("V1Secret", metadata, field(2, [...field(1, "key"), ...field(2, [1, 2])])), {
    metadata: {
      name: "name",
      creationTimestamp: "2023-11-14T22:13:20Z",
      deletionGracePeriodSeconds: 0,
      labels: { k: "v", empty: "" },
      finalizers: ["example.com/x"],
    },
    data: { key: "AQI=" },
  });
  // A volume holds its source in a message of its own, a probe its handler; quantities, ports and flags are messages
  // too.
  const volume = field(1, [...field(1, "v"), ...field(2, field(2, [...field(1, ""), ...field(2, field(1, "5Mi"))]))]);
  const probe = field(10, [
    ...field(
      1,
      field(2, [...field(1, "/healthz"), ...field(2, [...number(1, 1), ...number(2, 0), ...field(3, "web")])]),
    ),
    ...number(2, 3),
  ]);
  const container = field(2, [
    ...field(1, "c"),
    ...probe,
    ...field(8, field(1, [...field(1, "cpu"), ...field(2, field(1, "100m"))])),
  ]);
  assert.deepEqual(read("V1Pod", field(2, [...volume, ...container, ...number(11, 0), ...number(30, 0)])), {
    spec: {
      volumes: [{ name: "v", emptyDir: { sizeLimit: "5Mi" } }],
      containers: [
        {
          name: "c",
          livenessProbe: { httpGet: { path: "/healthz", port: "web" }, initialDelaySeconds: 3 },
          resources: { limits: { cpu: "100m" } },
        },
      ],
      enableServiceLinks: false,
    },
  });
  const extra = field(6, [...field(1, "scopes"), ...field(2, [...field(1, "a"), ...field(1, "b")])]);
  assert.deepEqual(read("V1CertificateSigningRequestSpec", field(1, [255]), extra), {
    request: "/w==",
    extra: { scopes: ["a", "b"] },
  });
  assert.deepEqual(read("V1LeaseSpec", number(2, 40), field(4, [...number(1, 1), ...number(2, 5000)])), {
    leaseDurationSeconds: 40,
    renewTime: "1970-01-01T00:00:01.000005Z",
  });
});

test("an envelope says what is in it", () => {
  const envelope = Buffer.from([
    ...Buffer.from("k8s\0"),
    ...field(1, [...field(1, "v1"), ...field(2, "Pod")]),
    ...field(2, [7, 7]),
  ]);
  assert.deepEqual(readEnvelope(envelope), { apiVersion: "v1", kind: "Pod", raw: Buffer.from([7, 7]) });
  assert.throws(
    () => readEnvelope(Buffer.from("nonsense")),
    (error) => isPicoletError(error, "invalid"),
  );
});

test("any bytes that are no message are refused", () => {
  const reader = new ProtobufReader(MODELS);
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    // Tags of the fields that a pod has, so that the fuzz comes further in.
    fc
      .array(fc.tuple(fc.integer({ min: 1, max: 40 }), fc.uint8Array({ maxLength: 40 })))
      .map((all) => Uint8Array.from(all.flatMap(([at, content]) => field(at, [...content])))),
  );
  fc.assert(
    fc.property(
      fc.constantFrom("V1Pod", "V1PodSpec", "V1Container", "V1ObjectMeta", "V1Secret", "V1DeleteOptions"),
      bytes,
      (model, content) => {
        try {
          JSON.stringify(reader.read(model, Buffer.from(content)));
        } catch (error) {
          assert.ok(isPicoletError(error, "invalid"), String(error));
        }
        try {
          readEnvelope(Buffer.concat([Buffer.from("k8s\0"), content]));
        } catch (error) {
          assert.ok(isPicoletError(error, "invalid"), String(error));
        }
      },
    ),
    { numRuns: 2000 },
  );
});
