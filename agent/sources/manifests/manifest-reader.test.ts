import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type ManifestPod, readManifest } from "./manifest-reader.ts";

const POD = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: app
    image: example/app:1
`;

function podsOf(text: string): readonly ManifestPod[] {
  const manifest = readManifest(text);
  assert.ok(manifest.ok, JSON.stringify(manifest));
  return manifest.pods;
}

/** `line:column message`, of all. */
function problemsOf(text: string): string[] {
  const manifest = readManifest(text);
  assert.ok(!manifest.ok, "it was read");
  return manifest.problems.map(
    ({ position, message }) => `${position === undefined ? "-" : `${position.line}:${position.column}`} ${message}`,
  );
}

const namesOf = (text: string): string[] => podsOf(text).map(({ pod }) => pod.metadata.name);
const named = (name: string): string => POD.replace("name: web", `name: ${name}`);

test("a pod in YAML, in several documents, in JSON, in lists", () => {
  assert.deepEqual(namesOf(POD), ["web"]);
  assert.deepEqual(namesOf(`# first\n---\n${named("a")}---\n# nothing here\n---\n${named("b")}...\n`), ["a", "b"]);
  const json = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "web" },
    spec: { containers: [{ name: "c", image: "i" }] },
  };
  assert.deepEqual(namesOf(JSON.stringify(json)), ["web"]);
  assert.deepEqual(namesOf(JSON.stringify({ apiVersion: "v1", kind: "List", items: [json, json] })), ["web", "web"]);
  const { apiVersion: _, kind: __, ...bare } = json;
  assert.deepEqual(namesOf(JSON.stringify({ apiVersion: "v1", kind: "PodList", items: [bare] })), ["web"]);
  assert.deepEqual(namesOf("apiVersion: v1\nkind: PodList\nitems: []\n"), [], "said in so many words");
  assert.deepEqual(namesOf("{apiVersion: v1, kind: List}"), []);
  assert.deepEqual(namesOf(`\uFEFF${POD}`), ["web"]);
});

test("a flow mapping of YAML is no broken JSON", () => {
  const text = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}";
  assert.deepEqual(namesOf(text), ["web"]);
});

test("the parts of YAML 1.1 that Kubernetes' parser knows", () => {
  const text = `${POD}    volumeMounts:
    - {name: v, mountPath: /v, readOnly: yes}
    env:
    - {name: DATE, value: 2020-01-02}
    - {name: TIME, value: 12:30}
  nodeSelector: {on: "x", 1: "y"}
  hostNetwork: off
  volumes:
  - name: v
    emptyDir: &empty {}
  - name: w
    configMap: {name: m, defaultMode: 0644}
`;
  const [only] = podsOf(text);
  const { spec } = only?.pod ?? assert.fail();
  assert.equal(spec.volumes?.[1]?.configMap?.defaultMode, 0o644);
  assert.equal(spec.hostNetwork, false);
  assert.deepEqual(spec.nodeSelector, { on: "x", 1: "y" });
  assert.equal(spec.containers[0]?.volumeMounts?.[0]?.readOnly, true);
  assert.deepEqual(
    spec.containers[0]?.env?.map(({ value }) => value),
    ["2020-01-02", "12:30"],
  );
});

test("anchors, aliases and merge keys", () => {
  const text = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - &base {name: a, image: example/app:1, env: [{name: X, value: "1"}]}
  - {<<: *base, name: b}
`;
  const [only] = podsOf(text);
  assert.deepEqual(
    only?.pod.spec.containers.map(({ name, image, env }) => [name, image, env?.length]),
    [
      ["a", "example/app:1", 1],
      ["b", "example/app:1", 1],
    ],
  );
});

test("what is wrong is named with its place", () => {
  const cases: readonly (readonly [text: string, problem: RegExp])[] = [
    ["a: [1, 2", /^1:\d+ Flow sequence in block collection must/],
    [
      POD.replace("image: example/app:1", "image: [a]"),
      /^8:5 spec\.containers\[0\]\.image: Invalid value: a list: must be a string/,
    ],
    [
      POD.replace("image: example/app:1", "image: yes"),
      /^8:5 spec\.containers\[0\]\.image: Invalid value: true: must be a string \(put it in quotes\)/,
    ],
    [POD.replace("    image: example/app:1\n", ""), /^7:5 spec\.containers\[0\]\.image: Required value/],
    [
      POD.replace("  name: web\n", "  annotations: {example.com/x: 1}\n  name: web\n"),
      /^4:17 metadata\.annotations\[example\.com\/x\]: Invalid value: 1/,
    ],
    [
      `${POD}---\n${POD.replace("Pod", "Deployment")}`,
      /^11:1 kind: Unsupported value: "Deployment": picolet runs Pods/,
    ],
    [POD.replace("metadata", "kind: Pod\nmetadata"), /^3:1 Duplicate key: "kind"/],
    ["? [a]\n: b\n", /^1:3 .*keys must be.*strings/],
    ["just text", /^1:1 must be a Pod/],
    ["- a\n- b\n", /^1:1 must be a Pod/],
    ["\t- tab", /^1:\d+ /],
    ["apiVersion: v1\nkind: List\nitems: {}\n", /^3:1 items: Invalid value: must be a list/],
    [
      `apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n`,
      /^5:3 items\[0\]\.kind: Unsupported value/,
    ],
    [
      '{"apiVersion": "v1",\n "kind": "Pod",\n "metadata": {"name": 5},\n "spec": {}}',
      /^3:15 metadata\.name: Invalid value: 5/,
    ],
    ['{"apiVersion": "v1",\n "kind": "Pod" "spec": {}}', /^2:\d+ /],
    ["a: *nobody", /^1:4 Not found: no anchor &nobody comes before/],
    ["!!js/function 'x'", /./],
    [POD.replace("web", "w".repeat(300)), /^4:3 metadata\.name: /],
  ];
  for (const [text, problem] of cases) assert.match(problemsOf(text).join("\n"), problem, text);
});

test("nothing in it is a problem that says how to remove pods", () => {
  for (const text of ["", "\n\n", "# only a comment\n", "---\n---\n", "null", "~", "\uFEFF"]) {
    assert.deepEqual(problemsOf(text), ["- holds no pod; to remove the pods of a file, delete the file"]);
  }
  assert.match(problemsOf("\0".repeat(4096)).join(), /./, "what a power cut leaves");
});

test("all problems of a file at once, but no more than anybody reads", () => {
  const text = `${POD.replace("image: example/app:1", "image: 1")}---\n${POD.replace("name: app", "name: 2")}`;
  assert.equal(problemsOf(text).length, 2);
  const many = Array.from({ length: 100 }, () => POD.replace("image: example/app:1", "image: 1")).join("---\n");
  assert.equal(problemsOf(many).length, 20);
});

test("what is made to exhaust the parser is refused in good time", { timeout: 60_000 }, () => {
  const laughs = Array.from(
    { length: 9 },
    (_, n) => `a${n}: &a${n} [${Array(9).fill(n === 0 ? "lol" : `*a${n - 1}`)}]`,
  );
  const keys = (count: number): string => Array.from({ length: count }, (_, n) => `k${n}: v\n`).join("");
  const cases: Readonly<Record<string, string>> = {
    laughs: laughs.join("\n"),
    mergedLaughs: Array.from(
      { length: 50 },
      (_, n) => `a${n}: &a${n} {<<: [${Array(2).fill(n === 0 ? "{}" : `*a${n - 1}`)}], k${n}: 1}`,
    ).join("\n"),
    cycle: "a: &a\n  b: *a\n",
    deepFlow: "[".repeat(500_000),
    deepFlowShort: "[".repeat(16_000),
    deepClosed: "[".repeat(8000) + "]".repeat(8000),
    deepBlock: "- ".repeat(10_000),
    deepKeys: "? ".repeat(10_000),
    deepJson: `{"a":${"[".repeat(400_000)}${"]".repeat(400_000)}}`,
    manyKeys: keys(100_000),
    manyKeysAllowed: keys(3500),
    manyAliases: `a: &a 1\nb: [${Array(5000).fill("*a")}]`,
    chained: Array.from({ length: 2000 }, (_, n) => `a${n}: &a${n} [${n === 0 ? 1 : `*a${n - 1}`}]`).join("\n"),
    manyDocuments: "---\na\n".repeat(100_000),
    manyTags: `[${"!!str a,".repeat(100_000)}]`,
    quotes: '"'.repeat(500_000),
    colons: ": ".repeat(500_000),
    tabs: "\t".repeat(1_000_000),
    spaces: `a:${" ".repeat(1_000_000)}b`,
    indents: Array.from({ length: 1400 }, (_, n) => `${" ".repeat(n)}a:`).join("\n"),
    escapes: `"${"\\\n".repeat(400_000)}"`,
    largeJson: JSON.stringify(Array.from({ length: 200_000 }, (_, n) => n)).replace(/^.*$/, (list) => `{"a":${list}}`),
  };
  const messages: Readonly<Record<string, RegExp>> = {
    laughs: /^Too long: its aliases stand for more/,
    manyAliases: /^Too many: a document may have at most 100 aliases/,
    manyKeys: /^Too long: a document may have at most 16384 words and signs/,
    manyTags: /^Too long: a document may have/,
    deepClosed: /^Too deep/,
    deepJson: /Too deep/,
  };
  for (const [name, text] of Object.entries(cases)) {
    const before = process.cpuUsage();
    const manifest = readManifest(text);
    const took = process.cpuUsage(before).user / 1000;
    assert.ok(!manifest.ok, name);
    assert.ok(
      manifest.problems.every(({ message }) => message.length < 2000 && !message.includes("call stack")),
      name,
    );
    if (name in messages) assert.match(manifest.problems[0]?.message ?? "", messages[name] ?? /^$/, name);
    assert.ok(took < 10_000, `${name} took ${took} ms of the processor`);
  }
});

test("a large literal is no problem", () => {
  const text = `${POD}    args:\n    - |\n${"      line of a script\n".repeat(30_000)}`;
  assert.equal(podsOf(text).length, 1);
});

test("any text is read or refused, never anything else", () => {
  const line = fc.oneof(
    fc.string({ maxLength: 12 }),
    fc.string({ unit: "binary", maxLength: 8 }),
    fc.constantFrom(..."-,?,:,[,],{,},&a,*a,!t,|,>,',\",%,@,`,#,---,...,<<,\t,\n,  ,a: b,- a,? a,: b,null".split(",")),
    fc.constantFrom(...POD.split("\n").map((each) => `${each}\n`)),
  );
  const text = fc.array(line, { maxLength: 40 }).map((parts) => parts.join(""));
  fc.assert(
    fc.property(text, (each) => {
      const manifest = readManifest(each);
      assert.ok(manifest.ok || manifest.problems.length > 0);
    }),
    { numRuns: 3000 },
  );
});

test("a pod of which a few characters were changed is read or refused, never anything else", () => {
  const change = fc.record({ at: fc.nat(POD.length), remove: fc.nat(5), insert: fc.string({ maxLength: 3 }) });
  fc.assert(
    fc.property(fc.array(change, { minLength: 1, maxLength: 3 }), (changes) => {
      let text = POD;
      for (const { at, remove, insert } of changes) text = text.slice(0, at) + insert + text.slice(at + remove);
      const manifest = readManifest(text);
      assert.ok(manifest.ok || manifest.problems.length > 0);
    }),
    { numRuns: 3000 },
  );
});
