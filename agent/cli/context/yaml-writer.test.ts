import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { toYaml } from "./yaml-writer.ts";

test("objects look as kubectl prints them", () => {
  const pod = {
    apiVersion: "v1",
    metadata: { name: "web", labels: { "app.kubernetes.io/name": "web" }, annotations: {}, uid: undefined },
    spec: { containers: [{ name: "app", image: "nginx:1", args: ["-c", "a b"], ports: [] }], on: [[1, "2"], []] },
    status: { startTime: "2026-11-20T12:00:00Z", message: "two\nlines: é", ready: true, none: null },
  };
  assert.equal(
    toYaml(pod),
    `apiVersion: v1
metadata:
  name: web
  labels:
    app.kubernetes.io/name: web
  annotations: {}
spec:
  containers:
  - name: app
    image: nginx:1
    args:
    - "-c"
    - a b
    ports: []
  "on":
  - - 1
    - "2"
  - []
status:
  startTime: "2026-11-20T12:00:00Z"
  message: "two\\nlines: é"
  ready: true
  none: null
`,
  );
});

test("any value is read back the same, by readers of YAML 1.2 and 1.1", () => {
  const tricky = fc.constantFrom(
    ...[
      "",
      " ",
      "yes",
      "No",
      "null",
      "~",
      "1",
      "1e3",
      "e0",
      "E-1",
      "0x1",
      ".5",
      "-",
      "- a",
      "a: b",
      "a #b",
      "#",
      "&a",
      "*a",
      "!t",
      "|",
    ],
    ...[
      "%",
      "@",
      "`",
      "{}",
      "[]",
      "[",
      "'",
      '"',
      "a\nb",
      "\t",
      "12:30",
      "2026-11-20",
      "<<",
      "=",
      "\u2028",
      "\x7f",
      "\ufeff",
      "a:",
      ":a",
    ],
  );
  const text = fc.oneof(fc.string({ unit: "grapheme" }), fc.string(), tricky);
  const { value } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      text,
      fc.integer(),
      fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => (Object.is(number, -0) ? 0 : number)),
      fc.boolean(),
      fc.constant(null),
      fc.array(tie("value"), { maxLength: 4 }),
      fc.dictionary(text, tie("value"), { maxKeys: 4, noNullPrototype: true }),
    ),
  }));
  fc.assert(
    fc.property(value, (wanted) => {
      const written = toYaml(wanted);
      for (const version of ["1.2", "1.1"] as const) {
        assert.deepEqual(parse(written, { version, merge: false, uniqueKeys: true }), wanted, written);
      }
    }),
    { numRuns: 400 },
  );
});
