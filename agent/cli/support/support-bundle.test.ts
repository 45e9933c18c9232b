/** Support bundles: what is in them, their size, and that planted secrets are not in them. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { fillDegraded } from "@picolet/test/support/unit/agent/cli-scenario.ts";
import { CapturedTerminal, EdgectlBench, type Outcome } from "@picolet/test/support/unit/agent/edgectl-bench.ts";
import { agentPod, observedContainer } from "@picolet/test/support/unit/agent/fake-agent-view.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import { redactObject, redactText } from "./redaction.ts";
import { TAR_END, tarFile, tarHeader } from "./tar-writer.ts";

/** The files of a tar archive: name, content. */
function filesOf(archive: Buffer): Map<string, string> {
  const files = new Map<string, string>();
  for (let at = 0; archive[at] !== 0; ) {
    const text = (from: number, length: number): string =>
      archive.toString("utf8", at + from, at + from + length).replace(/\0.*$/s, "");
    const size = Number.parseInt(text(124, 12), 8);
    const name = [text(345, 155), text(0, 100)].filter((part) => part !== "").join("/");
    files.set(name.replace(/^picolet-support\//, ""), archive.toString("utf8", at + 512, at + 512 + size));
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return files;
}

interface Written extends Outcome {
  readonly path: string;
  readonly files: Map<string, string>;
}

async function write(bench: EdgectlBench, ...flags: readonly string[]): Promise<Written> {
  const path = join(bench.directory, `bundle-${flags.length}.tar.gz`);
  const outcome = await bench.run(["support-bundle", path, "--config", join(bench.directory, "none.yaml"), ...flags]);
  return { ...outcome, path, files: filesOf(gunzipSync(readFileSync(path))) };
}

const SECRETS = {
  env: "Tr0ub4dor-env",
  header: "hdr-5ecret-value",
  argument: "arg-hunter2",
  annotation: "applied-hunter3",
  log: "log-hunter4",
  event: "event-hunter5",
  url: "url-hunter6",
  jwt: "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl",
  key: "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj",
  join: "abcdef.0123456789abcdef",
  bearer: "bearer-hunter7",
  docker: "ZG9ja2VyOmh1bnRlcjg=",
};

function plant(bench: EdgectlBench): void {
  const spec = {
    containers: [
      {
        name: "app",
        image: "example/app:1",
        command: ["serve", `--password=${SECRETS.argument}`, `--proxy=http://user:${SECRETS.url}@proxy:3128`],
        env: [{ name: "ANY", value: SECRETS.env }],
        livenessProbe: { httpGet: { port: 80, httpHeaders: [{ name: "X-Any", value: SECRETS.header }] } },
      },
    ],
  };
  const annotations = {
    "kubectl.kubernetes.io/last-applied-configuration": JSON.stringify({ env: SECRETS.annotation }),
    "example.com/auth": `{"auths":{"registry":{"token":"${SECRETS.docker}"}}}`,
  };
  const logDirectory = join(bench.directory, "logs");
  const path = join(logDirectory, "app", "0.log");
  mkdirSync(dirname(path), { recursive: true });
  const lines = [
    `password: ${SECRETS.log}`,
    `got ${SECRETS.jwt}`,
    "-----BEGIN PRIVATE KEY-----",
    SECRETS.key,
    "-----END PRIVATE KEY-----",
    `Authorization: Bearer ${SECRETS.bearer}`,
    `joined with ${SECRETS.join}`,
    "the pump has started",
  ];
  writeFileSync(path, lines.map((line) => `2026-11-20T11:59:00Z stdout F ${line}\n`).join(""));
  const containerStatus = {
    ...{ name: "app", ready: false, restartCount: 0, image: "example/app:1", imageID: "" },
    ...{ containerID: "containerd://1", state: { running: { startedAt: "2026-11-20T11:58:00Z" } }, lastState: {} },
  };
  bench.view.setPods(
    agentPod(podOf(spec, { name: "web", annotations }), {
      status: { phase: "Running", containerStatuses: [containerStatus] },
      containers: [observedContainer("app", 0, path)],
      logDirectory,
    }),
  );
  const regarding = { kind: "Pod" as const, namespace: "default", name: "web", uid: "web-uid", fieldPath: "" };
  const message = `cannot dial with API_KEY="${SECRETS.event}"`;
  bench.view.events.add({ regarding, type: "Warning", reason: "Failed", message }, 5);
}

test("has the node's state, its events and the logs of what is not well; for its owner alone", async (t) => {
  const bench = await EdgectlBench.start(t);
  fillDegraded(bench.view, bench.directory);
  const { code, error, path, files } = await write(bench);
  // This agent has no updates.
  assert.equal(code, 1);
  assert.match(error, /not in the bundle: updates.json: this agent updates nothing\n/);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.equal(JSON.parse(files.get("status.json") ?? "").node, "edge-1");
  assert.match(files.get("events.json") ?? "", /BackOff/);
  assert.match(files.get("system/proc/meminfo") ?? "", /^MemTotal:/);
  assert.ok(JSON.parse(files.get("doctor.json") ?? "").length > 5);
  const { files: listed, problems } = JSON.parse(files.get("contents.json") ?? "");
  assert.deepEqual([...listed.map(({ name }: { name: string }) => name), "contents.json"], [...files.keys()]);
  assert.ok(problems.some(({ part }: { part: string }) => part === "updates.json"));
  const again = await bench.run(["support-bundle", path]);
  assert.deepEqual([again.code, again.error], [1, `edgectl: ${path} exists already: name another file\n`]);
});

test("no planted secret is in it, and the words around it are", async (t) => {
  const bench = await EdgectlBench.start(t);
  plant(bench);
  const { files } = await write(bench);
  const all = [...files.values()].join("\n");
  for (const [place, secret] of Object.entries(SECRETS)) assert.ok(!all.includes(secret), `${place}: ${secret}`);
  const log = files.get("logs/default_web/app.log") ?? "";
  assert.match(log, /the pump has started/);
  assert.match(log, /password: \*\*\*/);
  assert.match(files.get("pods.json") ?? "", /"name": "ANY",\s*"value": "\*\*\*"/);
  assert.match(files.get("pods.json") ?? "", /http:\/\/\*\*\*@proxy:3128/);
});

test("is never larger than it may be, and says what is missing", async (t) => {
  const bench = await EdgectlBench.start(t);
  plant(bench);
  const logs = join(bench.directory, "logs", "app", "0.log");
  // Text that cannot be compressed.
  const noise = Array.from(
    { length: 9000 },
    (_, at) => `${(Math.sin(at) * 1e16).toString(36)}${(Math.cos(at) * 1e16).toString(36)}`,
  );
  writeFileSync(logs, noise.map((line) => `2026-11-20T11:59:00Z stdout F ${line}\n`).join(""));
  const { path, files } = await write(bench, "--size", "256Ki", "--pod-logs", "all");
  assert.ok(statSync(path).size <= 256 * 1024, `${statSync(path).size}`);
  assert.ok(files.has("contents.json"));
  const wrong = await bench.run(["support-bundle", "x.tar.gz", "--size", "1Ki"]);
  assert.equal(wrong.code, 64);
  assert.match(wrong.error, /--size must be a size of 256Ki or more, such as 64Mi, not "1Ki"/);
});

test("is written without an agent too, to standard output", async (t) => {
  const bench = await EdgectlBench.start(t);
  await bench.stopAgent();
  const terminal = new CapturedTerminal({ columns: undefined });
  const { code, error } = await bench.run(["support-bundle", "-"], terminal);
  assert.equal(code, 1);
  assert.match(error, /not in the bundle: status.json: there is no socket/);
  const files = filesOf(gunzipSync(terminal.bytes));
  assert.ok(files.has("system/proc/meminfo"));
  assert.ok(!files.has("status.json"));
});

test("texts: what looks like a secret goes, what does not stays", () => {
  const cases: readonly (readonly [string, string])[] = [
    ["password=hunter2 next", "password=*** next"],
    ['{"token":"abc","b":1}', '{"token":***,"b":1}'],
    ["DB_PASSWORD='a b' x", "DB_PASSWORD=*** x"],
    ["https://user:pw@host/path", "https://***@host/path"],
    ["https://host/a@b", "https://host/a@b"],
    ["Authorization: Bearer abcdefgh", "Authorization: ***"],
    ["secretName: tls", "secretName: tls"],
    ["tokens are counted", "tokens are counted"],
    [`${"-----BEGIN EC PRIVATE KEY-----"}\nAAAA\n-----END EC PRIVATE KEY-----\nafter`, "*** (a private key)\nafter"],
    ["-----BEGIN PRIVATE KEY-----\nAAAA", "*** (a private key)"],
  ];
  for (const [text, expected] of cases) {
    const redacted = redactText(text);
    if (text.startsWith("Authorization")) assert.ok(!redacted.includes("abcdefgh"), redacted);
    else assert.equal(redacted, expected);
  }
});

test("any object stays an object of the same shape, and no literal of an environment is left", () => {
  const value = fc.string({ minLength: 12 }).filter((text) => !text.includes("*"));
  fc.assert(
    fc.property(fc.jsonValue(), value, (anything, secret) => {
      const redacted = redactObject({ anything, env: [{ name: "A", value: secret }], data: { key: secret } });
      assert.deepEqual((redacted as { env: unknown }).env, [{ name: "A", value: "***" }]);
      assert.deepEqual((redacted as { data: unknown }).data, { key: "***" });
      JSON.stringify(redacted);
    }),
  );
});

test("texts of any kind are redacted in linear time", () => {
  const hostile = [
    "token".repeat(20_000),
    "a://".repeat(20_000),
    "-----BEGIN PRIVATE KEY-----".repeat(4000),
    `${'password="'.repeat(10_000)}`,
    "eyJaaaaaaaa.".repeat(10_000),
    "secret_".repeat(15_000),
  ];
  for (const text of hostile) {
    const begun = process.cpuUsage().user;
    redactText(text);
    const used = process.cpuUsage().user - begun;
    assert.ok(used < 5_000_000, `${text.slice(0, 20)}: ${used} us`);
  }
});

test("long names are split; those that ustar has no room for have a header of pax", async () => {
  const content = Buffer.from("a");
  const split = `${"folder".repeat(10)}/${"x".repeat(90)}`;
  assert.deepEqual([...filesOf(Buffer.concat([tarFile(split, content, 0), TAR_END])).keys()], [split]);
  const long = "ä".repeat(300);
  const member = { type: "symlink", sizeBytes: 0, mode: 0o777, modifiedAtMs: 0, target: long } as const;
  const archive = Buffer.concat([tarFile(long, content, 0), tarHeader({ ...member, name: "link" }), TAR_END]);
  // The machine's own tar reads it.
  const { stdout } = spawnSync("tar", ["-tvf", "-"], { input: archive, encoding: "utf8", env: { LC_ALL: "C.UTF-8" } });
  assert.match(stdout, new RegExp(`^-rw-------.* 1 .* ${long}\\nlrwxrwxrwx.* link -> ${long}\\n$`));
});
