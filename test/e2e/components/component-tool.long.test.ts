/** `edgectl wasm check` and `run` as they are shipped, with no agent anywhere. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { before, type TestContext, test } from "node:test";
import type { ComponentReport } from "@picolet/protocol/local-api/component-tool-messages.ts";
import { TlsAuthority } from "../../support/unit/identity/tls-authority.ts";
import { padded } from "../../support/unit/images/padded-component.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { testComponent, testCoreModule } from "../../support/wasm/components.ts";

let workload: string;
let wantsHttp: string;

before(async () => {
  workload = await testComponent("workload.c");
  wantsHttp = await testComponent("wants-http.wat");
});

class Ended {
  readonly #child: ChildProcess;
  out = "";
  error = "";

  constructor(child: ChildProcess) {
    this.#child = child;
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.out += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.error += text;
    });
  }

  async code(): Promise<number | null> {
    const [code] = (await once(this.#child, "close")) as [number | null];
    return code;
  }

  /** When it has written something to standard output. */
  async spoken(): Promise<void> {
    if (this.out === "" && this.#child.stdout !== null) await once(this.#child.stdout, "data");
  }

  interrupt(signal: NodeJS.Signals = "SIGINT"): void {
    this.#child.kill(signal);
  }

  /** As `head` does when it has enough. */
  readNoMore(): void {
    this.#child.stdout?.destroy();
  }
}

/** Temporary folders are the test's own, so that what is left there shows. */
const edgectl = (context: TestContext, ...words: readonly string[]): Ended & { readonly temporary: string } =>
  edgectlWith(context, undefined, ...words);

/** @param input undefined: none. @param user missing: this process's own */
function edgectlWith(
  context: TestContext,
  input: Buffer | undefined,
  ...words: readonly string[]
): Ended & { readonly temporary: string } {
  return edgectlAs(context, [], input, ...words);
}

const NOBODY = 65_534;
/** Runs a command as an unprivileged user, who may still read the tests' folder. */
const AS_NOBODY = [
  "setpriv",
  `--reuid=${NOBODY}`,
  `--regid=${NOBODY}`,
  "--clear-groups",
  "--inh-caps=+dac_read_search",
  "--ambient-caps=+dac_read_search",
  // Else access(2) does not count them.
  "--securebits=+no_setuid_fixup",
];

/** @param as the command to start it with; none: as it is */
function edgectlAs(
  context: TestContext,
  as: readonly string[],
  input: Buffer | undefined,
  ...words: readonly string[]
): Ended & { readonly temporary: string } {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  if (as.length > 0) chownSync(folder.path, NOBODY, -1);
  const [command = "", ...first] = [...as, "dist/board/bin/edgectl"];
  const child = spawn(command, [...first, "wasm", ...words], {
    env: { ...process.env, TMPDIR: folder.path },
    stdio: ["pipe", "pipe", "pipe"],
  });
  // It may have ended before it read everything.
  child.stdin.on("error", () => undefined).end(input);
  return Object.assign(new Ended(child), { temporary: folder.path });
}

test("a component runs once: its output, its arguments and its exit code are the command's, and nothing is left", async (context) => {
  const printed = edgectl(context, "run", workload, "print", "stdout", "one", "stderr", "two");
  assert.equal(await printed.code(), 0);
  assert.deepEqual([printed.out, printed.error], ["one\n", "two\n"]);
  assert.deepEqual(readdirSync(printed.temporary), []);
  const failed = edgectl(context, "run", workload, "exit", "3");
  assert.equal(await failed.code(), 1);
  const exact = edgectl(context, "run", await testComponent("exit-42.wat"));
  assert.equal(await exact.code(), 42);
  assert.deepEqual([exact.out, exact.error], ["", ""]);
});

test("environment, folders and limits are those that it is given", async (context) => {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  mkdirSync(folder.at("data"));
  writeFileSync(folder.at("data", "file"), "content\n");
  const variable = edgectl(context, "run", "-e", "A=b", "--env=C=d", workload, "env", "A", "C");
  assert.equal(await variable.code(), 0);
  assert.match(variable.out, /b[\s\S]*d/);
  const file = edgectl(context, "run", "--dir", `${folder.at("data")}:/data:ro`, workload, "cat", "/data/file");
  assert.equal(await file.code(), 0);
  assert.equal(file.out, "content\n");
  const hungry = edgectl(context, "run", "--memory", "48Mi", workload, "allocate");
  assert.equal(await hungry.code(), 137);
  assert.match(hungry.error, /^edgectl: OOMKilled.*\(exit code 137\)\n$/);
});

test("what of its limits is not kept without root is said, and nothing where none is asked for", async (context) => {
  const nobody = process.getuid?.() === 0 ? AS_NOBODY : [];
  const printing = [workload, "print", "stdout", "one"];
  const run = (...flags: readonly string[]) => edgectlAs(context, nobody, undefined, "run", ...flags, ...printing);
  const limited = run("--cpu", "500m", "--memory", "48Mi");
  assert.equal(await limited.code(), 0, limited.error);
  assert.equal(limited.out, "one\n");
  assert.match(
    limited.error,
    /^edgectl: Warning: no cgroup can be made for its limits \(.*\): cpu 500m is not kept; memory 48Mi .*\n$/,
  );
  const plain = run();
  assert.equal(await plain.code(), 0, plain.error);
  assert.deepEqual([plain.out, plain.error], ["one\n", ""]);
});

test("authorities that it is given are trusted besides", async (context) => {
  const authority = new TlsAuthority();
  const { privateKey: key, certificate: cert } = authority.issueServer();
  const server = createServer({ key, cert }, (_, response) => void response.end("fine"));
  server.on("tlsClientError", () => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => server.close());
  const here = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  writeFileSync(folder.at("ca.pem"), authority.ca);
  const client = await testComponent("http-client.c");
  const asking = (...flags: readonly string[]) => {
    const granted = ["--annotation", `network=https://${here}`, "--env", "FIRST_BYTE_MS=25000", ...flags];
    return edgectl(context, "run", ...granted, client, "GET", "https", here, "/", "-");
  };
  const trusting = asking("--ca-file", folder.at("ca.pem"));
  assert.equal(await trusting.code(), 0, trusting.error);
  assert.deepEqual([trusting.out, trusting.error], ["200 fine\n", ""]);
  const doubting = asking();
  assert.equal(await doubting.code(), 0);
  assert.equal(doubting.out, "TLS-certificate-error\n");
  const mistaken = asking("--ca-file", folder.at("none.pem"));
  assert.equal(await mistaken.code(), 1);
  assert.match(mistaken.error, /cannot use the authorities in .*none\.pem .*: there is no such file/);
});

test("a manifest's pod is what it runs as", async (context) => {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const pod = (container: object) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "app" },
    spec: { containers: [{ name: "main", image: "registry.example/app:1", ...container }] },
  });
  const manifest = folder.at("pod.json");
  writeFileSync(
    manifest,
    JSON.stringify(
      pod({
        args: ["print", "stdout", "$(NAME) and $(TWICE)"],
        env: [
          { name: "NAME", value: "x" },
          { name: "TWICE", value: "$(NAME)y" },
        ],
      }),
    ),
  );
  const run = edgectl(context, "run", workload, "--pod", manifest);
  assert.equal(await run.code(), 0, run.error);
  assert.equal(run.out, "x and xy\n");
  writeFileSync(
    manifest,
    JSON.stringify(pod({ env: [{ name: "A", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } }] })),
  );
  const given = edgectl(context, "run", workload, "--pod", manifest, "-e", "A=mine", "env", "A");
  assert.equal(await given.code(), 0, given.error);
  assert.equal(given.out, "mine\n");
  const refused = edgectl(context, "run", workload, "--pod", manifest);
  assert.equal(await refused.code(), 1);
  assert.match(refused.error, /^edgectl: container main: env A takes its values from elsewhere.*--env\n$/);
});

test("it ends with Ctrl-C, and when its time is up", async (context) => {
  const interrupted = edgectl(context, "run", workload, "count");
  await interrupted.spoken();
  interrupted.interrupt();
  assert.equal(await interrupted.code(), 130);
  assert.deepEqual(readdirSync(interrupted.temporary), []);
  const late = edgectl(context, "run", "--time-limit", "100ms", workload, "sleep");
  assert.equal(await late.code(), 124);
  assert.match(late.error, /^edgectl: ended after 0.1 s\n$/);
});

test("it ends with whoever reads it, with its terminal, and with an edgectl that was killed", async (context) => {
  const ends: readonly [(run: Ended) => void, number | null][] = [
    [(run) => run.readNoMore(), 141],
    [(run) => run.interrupt("SIGHUP"), 129],
    [(run) => run.interrupt("SIGKILL"), null],
  ];
  for (const [end, code] of ends) {
    const run = edgectl(context, "run", workload, "count");
    await run.spoken();
    end(run);
    // The tool holds the other end of standard error until it has cleared away.
    assert.equal(await run.code(), code);
    assert.equal(run.error, "");
    assert.deepEqual(readdirSync(run.temporary), []);
  }
});

test("the examples run as their documents say", async (context) => {
  const example = ["dist/examples/starts.wasm", "--pod", "examples/starts/pod.yaml"];
  const started = edgectl(context, "run", ...example);
  await started.spoken();
  started.interrupt();
  assert.equal(await started.code(), 130);
  assert.deepEqual([started.out, started.error], ["start 1\n", ""]);
});

test("a start that never ends is over with its time, and with Ctrl-C", async (context) => {
  const slow = await testComponent("slow-start.wat");
  const late = edgectl(context, "run", "--time-limit", "300ms", slow);
  assert.equal(await late.code(), 124);
  assert.equal(late.error, "edgectl: ended after 0.3 s\n");
  assert.deepEqual(readdirSync(late.temporary), []);
});

test("a component may come by standard input", async (context) => {
  const piped = (command: string, ...words: readonly string[]): Ended =>
    edgectlWith(context, readFileSync(workload), command, "-", ...words);
  const run = piped("run", "print", "stdout", "piped");
  assert.equal(await run.code(), 0, run.error);
  assert.equal(run.out, "piped\n");
  const check = piped("check");
  assert.equal(await check.code(), 0, check.error);
  assert.match(check.out, /^-: 70\.\d KiB, sha256:/);
  const large = piped("check", "--max-size", "1Ki");
  assert.equal(await large.code(), 1);
  assert.match(
    large.error,
    /standard input has more than the 1024 bytes of wasm\.maxComponentSize \(--max-size raises it\)\n$/,
  );
});

test("what a node would refuse for its size is refused here, unless the node is said to take it", async (context) => {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const path = folder.at("large.wasm");
  writeFileSync(path, padded(readFileSync(workload), 33 * 1024 * 1024));
  const refused = edgectl(context, "check", path);
  assert.equal(await refused.code(), 1);
  assert.match(refused.out, /would not run it:\n.* has \d+ bytes, more than the 33554432 of wasm\.maxComponentSize\n$/);
  assert.equal(await edgectl(context, "check", path, "--max-size", "64Mi").code(), 0);
  const run = edgectl(context, "run", path);
  assert.equal(await run.code(), 1);
  assert.match(run.error, /more than the 33554432 of wasm\.maxComponentSize \(--max-size raises it\)\n$/);
});

test("what a trap was is said, once", async (context) => {
  const trapped = edgectl(context, "run", workload, "trap");
  assert.equal(await trapped.code(), 1);
  assert.match(trapped.error, /^picolet: wasm trap: unreachable\n(?: {4}at .*wasm-function\[\d+\]:0x[0-9a-f]+\n)+$/);
});

test("a check knows what of the board a pod's annotations give", async (context) => {
  const board = await testComponent("board.c");
  const grants = ["--annotation", "wasm.picolet.io/interfaces=keyvalue, logging"];
  const partly = edgectl(context, "check", board, ...grants, "-o", "json");
  assert.equal(await partly.code(), 1);
  const { imports, problems } = JSON.parse(partly.out) as ComponentReport;
  const ofBoard = imports.filter(({ name }) => name.startsWith("picolet:"));
  assert.deepEqual(ofBoard.map(({ name, granted }) => [name.replace(/^.*\/|@.*$/g, ""), granted]).sort(), [
    ["config", false],
    ["keyvalue", true],
    ["logging", true],
    ["node-info", false],
  ]);
  assert.match(problems.join(), /name config, node-info in the pod's annotation/);
  const all = "wasm.picolet.io/interfaces=keyvalue, logging, config, node-info";
  assert.equal(await edgectl(context, "check", board, "--annotation", all).code(), 0);
});

test("a check names what a component wants, and why it would not run", async (context) => {
  const well = edgectl(context, "check", workload);
  assert.equal(await well.code(), 0, well.error);
  assert.match(
    well.out,
    /imports\n(?: {2}wasi:[^\n]+\n)+exports\n {2}wasi:cli\/run@0\.2[^\n]+\nThis node would run it\.\n$/,
  );
  const served = edgectl(context, "check", await testComponent("http-server.c"), "-a", "http=port=8080");
  assert.equal(await served.code(), 0, served.error);
  assert.doesNotMatch(served.out, /not granted/);
  const asking = edgectl(context, "check", await testComponent("http-client.c"));
  assert.equal(await asking.code(), 1);
  assert.match(asking.out, /; name whom it may ask in the pod's annotation wasm\.picolet\.io\/network\n$/);
  const ill = edgectl(context, "check", wantsHttp, "-o", "json");
  assert.equal(await ill.code(), 1);
  const report = JSON.parse(ill.out) as ComponentReport;
  assert.deepEqual([report.runs, report.sizeBytes], [false, readFileSync(wantsHttp).length]);
  assert.ok(report.imports.some(({ name, granted }) => name.startsWith("example:board/gpio@") && !granted));
  assert.match(report.problems.join("\n"), /example:board\/gpio@1\.0\.0/);
  const module = edgectl(context, "check", await testCoreModule("workload.c"));
  assert.equal(await module.code(), 1);
  assert.match(module.out, /This node would not run it:\n.*core module, not a component; make one with/);
});

test("wrong wishes are told by their names", async (context) => {
  for (const [words, told] of [
    [["check", "/nonexistent"], /cannot read \/nonexistent/],
    [["check", "/dev/zero"], /cannot read \/dev\/zero: it is no file/],
    [["run", "/dev/zero"], /\/dev\/zero/],
    [["run", workload, "--memory", "1Mi"], /takes at least 16Mi/],
    [["run", workload, "-e", "novalue"], /"novalue" has to be NAME=VALUE/],
    [["run", workload, "--dir", "here:there"], /has to be HOST:CONTAINER/],
    [["run", workload, "-a", "nonsense=1"], /wasm\.picolet\.io\/nonsense: there is no such annotation/],
    [["run", workload, "--pod", "/nonexistent.yaml"], /\/nonexistent\.yaml/],
  ] as const) {
    const run = edgectl(context, ...words);
    assert.equal(await run.code(), 1, words.join(" "));
    assert.match(run.error, told);
  }
  assert.equal(await edgectl(context, "run").code(), 64);
  assert.equal(await edgectl(context, "run", workload, "--time-limit", "soon").code(), 64);
  assert.equal(await edgectl(context, "check", workload, "--max-size", "lots").code(), 64);
  const lots = edgectl(context, "run", workload, "--memory", "64MB");
  assert.equal(await lots.code(), 64);
  assert.match(lots.error, /--memory must be a quantity such as 64Mi, not "64MB"; did you mean "64M" /);
});
