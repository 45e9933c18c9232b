import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { parseHubArguments, type ServeArguments } from "./arguments.ts";
import {
  EXAMPLE,
  HUB_FIELDS,
  MAX_CONFIGURATION_CHARACTERS,
  parseConfigurationFile,
  WRONG_CONFIGURATION,
} from "./configuration-file.ts";
import { lacksServerName } from "./serve.ts";

const serve = (text: string, ...args: string[]): ServeArguments => {
  const parsed = parseHubArguments(args, () => text);
  assert.equal(parsed.command, "serve");
  return parsed as ServeArguments;
};

function problemsOf(text: string, ...args: string[]): string[] {
  try {
    parseHubArguments(["--config", "hub.yaml", ...args], () => text);
  } catch (error) {
    assert.ok(isPicoletError(error, "invalid") && error.reason === WRONG_CONFIGURATION, String(error));
    return error.message.split("\n");
  }
  return [];
}

test("each field means what its flag means", () => {
  for (const { name, flag } of HUB_FIELDS) {
    const value = SAMPLES[flag.value ?? ""] ?? flag.choices?.[0] ?? "text";
    const given = flag.value === undefined ? true : flag.repeats ? [value] : value;
    const others = OTHERS[name] ?? {};
    const text = JSON.stringify({ ...others, [name]: given });
    const words = Object.entries({ ...others, [name]: given }).flatMap(([field, each]) => {
      const long = `--${HUB_FIELDS.find((one) => one.name === field)?.flag.name}`;
      return each === true ? [long] : [`${long}=${String(each)}`];
    });
    assert.deepEqual(serve(text), parseHubArguments(words), name);
    assert.notDeepEqual(serve(text), serve(JSON.stringify(others)), name);
  }
});

/** A value of each kind that is no flag's default. */
const SAMPLES: Readonly<Record<string, string>> = {
  "HOST:PORT": "127.0.0.1:7",
  "FIRST-LAST": "20000-20001",
  CIDR: "10.9.0.0/24",
  DURATION: "77s",
  SIZE: "77Mi",
  URL: "http://sink.example/x",
  CODE: "0123abcd",
  ID: "11111111-1111-4111-8111-111111111111",
  "text|json": "json",
  ADDRESS: "10.0.0.9",
};
/** Fields that another one needs. */
const OTHERS: Readonly<Record<string, object>> = {
  metricsOtlpTokenFile: { metricsOtlp: "http://sink.example/x" },
  dataDir: { embedded: true },
  acceptRestoredStore: { embedded: true },
  telemetryInfluxTokenFile: { telemetryInflux: "http://sink.example/x" },
  telemetryOtlpTokenFile: { telemetryOtlp: "http://sink.example/x" },
};

test("the example of the documentation is taken", () => {
  const { cluster, serverNames, storeMaxBytes, logFormat } = serve(EXAMPLE);
  assert.deepEqual(cluster, { kind: "embedded", dataDir: "/var/lib/picolet-hub" });
  assert.deepEqual(serverNames, ["hub.example.com", "203.0.113.7"]);
  assert.deepEqual([storeMaxBytes, logFormat], [2 * 2 ** 30, "json"]);
  assert.deepEqual(serve(""), serve("{}"));
  assert.deepEqual(serve("serverName: one\nstoreMaxBytes: 2097152").serverNames, ["one"]);
});

test("flags win over the file", () => {
  const file = "embedded: true\ndataDir: /state\nserverName: [a, b]\ndrainTime: 5s\nverbose: true";
  assert.deepEqual(serve(file, "--server-name", "c").serverNames, ["c"]);
  assert.equal(serve(file, "--drain-time", "7s").drainTime, 7000);
  assert.equal(serve(file, "--verbose=false").verbose, false);
  assert.deepEqual(serve(file, "--data-dir", "d").cluster, { kind: "embedded", dataDir: "d" });
  assert.deepEqual(serve(file, "--kubeconfig", "k").cluster, { kind: "kubernetes", kubeconfig: "k" });
  assert.deepEqual(serve("kubeconfig: k", "--embedded").cluster.kind, "embedded");
  const influx = "telemetryInfluxTokenFile: token";
  assert.equal(serve(influx, "--telemetry-influx", "http://h/").telemetry.influx?.tokenFile, "token");
});

test("other commands take the fields that they have flags for", () => {
  const file = "embedded: true\ndataDir: /state\nserverName: hub.example";
  const read = (): string => file;
  assert.deepEqual(parseHubArguments(["token", "list"], read), {
    command: "token list",
    cluster: { kind: "embedded", dataDir: "/state" },
  });
  const kubeconfig = parseHubArguments(["kubeconfig"], read);
  assert.equal(kubeconfig.command === "kubeconfig" && kubeconfig.server?.host, "hub.example");
  assert.deepEqual(
    parseHubArguments(["version"], () => assert.fail()),
    { command: "version" },
  );
});

test("the file beside the default path may be missing, one that is named may not", () => {
  const asked: [string, boolean][] = [];
  const read = (path: string, isNamed: boolean): undefined => void asked.push([path, isNamed]);
  parseHubArguments(["--embedded"], read);
  parseHubArguments(["--embedded", "--config", "c.yaml"], read);
  assert.deepEqual(asked, [
    ["/etc/picolet-hub/config.yaml", false],
    ["c.yaml", true],
  ]);
});

for (const [text, expected] of [
  [
    "embeded: true\nserverNames: [a]\ndrain-time: 5s\ncolour: red",
    [
      "hub.yaml:1: embeded: Unknown field, did you mean embedded?",
      "hub.yaml:2: serverNames: Unknown field, did you mean serverName?",
      "hub.yaml:3: [drain-time]: Unknown field, did you mean drainTime?",
      "hub.yaml:4: colour: Unknown field",
    ],
  ],
  [
    "embedded: please\ndrainTime: soon\nstoreMaxBytes: 64MB\nhubName: 7\nlogFormat: jsn\nserverName: [a, {}]\ndataDir: [a]",
    [
      'hub.yaml:1: embedded: Invalid value: "please": must be true or false',
      'hub.yaml:2: drainTime: Invalid value: "soon": must be a duration such as 10s, not "soon"',
      'hub.yaml:3: storeMaxBytes: Invalid value: "64MB": must be a size of 1Mi or more, such as 256Mi, not "64MB"; did you mean "64M" (10^6) or "64Mi" (2^20)?',
      "hub.yaml:4: hubName: Invalid value: 7: must be a string (put it in quotes)",
      'hub.yaml:5: logFormat: Invalid value: "jsn": must be one of text, json; did you mean "json"?',
      "hub.yaml:6: serverName[1]: Invalid value: {}: must be a string (put it in quotes)",
      'hub.yaml:7: dataDir: Invalid value: ["a"]: must be one value, not a list',
    ],
  ],
  [
    "verbose: true\nembedded: true\nkubeconfig: k",
    ["hub.yaml:2: embedded: embedded and kubeconfig exclude each other"],
  ],
  [
    "telemetryOtlpTokenFile: t",
    ["hub.yaml:1: telemetryOtlpTokenFile: telemetryOtlpTokenFile is of no use without telemetryOtlp"],
  ],
  [
    "kind: Hub\napiVersion: v1",
    [
      'hub.yaml:1: kind: Unsupported value: "Hub": supported values: "HubConfiguration"',
      'hub.yaml:2: apiVersion: Unsupported value: "v1": supported values: "hub.picolet.io/v1"',
    ],
  ],
  ["- a", ["hub.yaml: must be a mapping of fields, such as `embedded: true`"]],
  ["a: 1\na: 2", ["hub.yaml:2: Map keys must be unique"]],
  [
    `${" ".repeat(MAX_CONFIGURATION_CHARACTERS)}a`,
    [`hub.yaml: Too long: may not be more than ${MAX_CONFIGURATION_CHARACTERS} characters`],
  ],
] as const) {
  test(`refused: ${text.trim().slice(0, 60)}`, () => assert.deepEqual(problemsOf(text), expected));
}

test("a mistake of the command line is not blamed on the file", () => {
  const parse = (): unknown => parseHubArguments(["--telemetry-otlp-token-file", "t"], () => "embedded: true");
  assert.throws(parse, (error) => isPicoletError(error, "invalid") && error.reason !== WRONG_CONFIGURATION);
});

test("no text makes it throw anything but a refusal", () => {
  const field = fc.oneof(fc.constantFrom(...HUB_FIELDS.map(({ name }) => name)), fc.string());
  const document = fc.dictionary(field, fc.oneof(fc.jsonValue(), fc.string(), fc.boolean()));
  const text = fc.oneof(
    fc.string(),
    document.map((each) => JSON.stringify(each)),
  );
  fc.assert(
    fc.property(text, (each) => {
      try {
        parseConfigurationFile(each, "c");
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid") && error.reason === WRONG_CONFIGURATION, String(error));
      }
    }),
    { numRuns: 1000, seed: 3 },
  );
});

test("a hub that other machines reach needs a name that they know", () => {
  const lacks = (...args: string[]): boolean => lacksServerName(serve("", ...args));
  assert.equal(lacks(), true);
  assert.equal(lacks("--server-name", "localhost"), true);
  assert.equal(lacks("--server-name", "picolet-hub.picolet-system.svc"), true);
  assert.equal(lacks("--server-name", "localhost", "--server-name", "hub.example"), false);
  assert.equal(lacks("--tunnel-address", "127.0.0.1:10270"), false);
  assert.equal(lacks("--tunnel-address", "[::]:10270"), true);
});
