/** edgectl as the program that is shipped: one bundled file in a process of its own. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { build } from "esbuild";
import { ZSH_CANDIDATES, ZSH_SETTING } from "../support/agent/zsh-completion.ts";
import { fillDegraded, fillHealthy } from "../support/unit/agent/cli-scenario.ts";
import { EdgectlBench } from "../support/unit/agent/edgectl-bench.ts";

const directory = mkdtempSync(join(tmpdir(), "picolet-program-"));
after(() => rmSync(directory, { recursive: true }));
// Another user reads it.
chmodSync(directory, 0o755);
const program = join(directory, "edgectl.cjs");
const { metafile } = await build({
  entryPoints: ["agent/cli/edgectl.ts"],
  // A file of its own beside edgectl.
  external: ["yaml"],
  outfile: program,
  bundle: true,
  minify: true,
  platform: "node",
  target: "node24",
  format: "cjs",
  metafile: true,
});

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly error: string;
}

function finished(child: ChildProcess): Promise<Ended> {
  let out = "";
  let error = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => (out += text));
  child.stderr?.setEncoding("utf8").on("data", (text: string) => (error += text));
  return new Promise((resolve) => child.once("close", (code, signal) => resolve({ code, signal, out, error })));
}

const edgectl = (
  words: readonly string[],
  socketPath: string,
  options: { readonly uid?: number; readonly gid?: number } = {},
): ChildProcess =>
  spawn(process.execPath, [program, ...words], {
    env: { PATH: process.env.PATH, PICOLET_SOCKET: socketPath },
    ...options,
  });

/** A command line of a shell in which `edgectl` is the program. */
const shell = (line: string, socketPath: string): ChildProcess =>
  spawn("bash", ["--norc", "-c", `edgectl() { "${process.execPath}" "${program}" "$@"; }; ${line}`], {
    env: { PATH: process.env.PATH, PICOLET_SOCKET: socketPath },
  });

async function bench(t: TestContext): Promise<EdgectlBench & { readonly logPath: string }> {
  const made = await EdgectlBench.start(t);
  return Object.assign(made, fillHealthy(made.view, made.directory));
}

test("the bundle holds nothing but edgectl and what it shares with the agent", () => {
  const foreign = Object.keys(metafile.inputs).filter(
    (path) => !/^(agent\/cli|protocol|runtime-adapters\/contract\/archive|node_modules\/ws)\//.test(path),
  );
  assert.deepEqual(foreign, []);
});

test("its exit codes are those of status, and its output is that of the goldens", async (t) => {
  const agent = await bench(t);
  const well = await finished(edgectl(["status"], agent.socketPath));
  assert.deepEqual([well.code, well.error], [0, ""]);
  assert.match(well.out, /^edge-1 is healthy: 1 pod\n/);
  fillDegraded(agent.view, agent.directory);
  assert.equal((await finished(edgectl(["status", "-o", "json"], agent.socketPath))).code, 1);
  const absent = await finished(edgectl(["status", "--socket", join(directory, "none")], agent.socketPath));
  assert.deepEqual([absent.code, absent.out], [2, ""]);
  assert.match(absent.error, /^edgectl: there is no socket .*none\nIs the agent running\?/);
  assert.equal((await finished(edgectl(["statsu"], agent.socketPath))).code, 64);
});

test("an agent that hangs ends it with 2 after the timeout", async (t) => {
  const socketPath = join(directory, "hanging");
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  t.after(() => server.close());
  const { code, error } = await finished(edgectl(["status", "--timeout", "50ms"], socketPath));
  assert.deepEqual([code, error], [2, `edgectl: the agent at ${socketPath} does not answer within 0.05 s\n`]);
  server.close();
});

test("who may not open the socket is told how to", async (t) => {
  const agent = await bench(t);
  // Root may open anything: another user is needed then.
  const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
  chmodSync(agent.directory, 0o755);
  chmodSync(agent.socketPath, 0);
  const { code, error } = await finished(edgectl(["status"], agent.socketPath, nobody));
  assert.equal(code, 2);
  assert.match(error, /^edgectl: no permission to open .*\nRun edgectl as root \(sudo edgectl \.\.\.\) or as a member/);
});

test("a reader that has enough ends it quietly", async (t) => {
  const agent = await bench(t);
  appendFileSync(agent.logPath, "2026-11-20T12:00:00Z stdout F and more\n".repeat(50_000));
  const line = `edgectl logs web | head -n 1; echo "\${PIPESTATUS[@]}"`;
  assert.deepEqual(await finished(shell(line, agent.socketPath)), {
    code: 0,
    signal: null,
    out: "listening on :80\n0 0\n",
    error: "",
  });
  const whole = await finished(shell("edgectl logs web | wc -l", agent.socketPath));
  assert.equal(whole.out.trim(), "50003");
});

test("a pipe that somebody made non-blocking gets all of it", async (t) => {
  const agent = await bench(t);
  appendFileSync(agent.logPath, `2026-11-20T12:00:00Z stdout F ${"x".repeat(99)}\n`.repeat(20_000));
  const script = "use Fcntl; fcntl(STDOUT, F_SETFL, O_WRONLY | O_NONBLOCK) or die; exec @ARGV";
  const child = spawn("perl", ["-e", script, process.execPath, program, "logs", "web"], {
    env: { PATH: process.env.PATH, PICOLET_SOCKET: agent.socketPath },
  });
  child.stdout.pause();
  child.stdout.once("readable", () => child.stdout.resume());
  const { code, out } = await finished(child);
  assert.equal(code, 0);
  assert.equal(out.split("\n").length, 20_004);
});

test("Ctrl-C ends a followed log as it ends any program: 130 in a shell, and not a word", async (t) => {
  const agent = await bench(t);
  const child = edgectl(["logs", "web", "-f"], agent.socketPath);
  const end = finished(child);
  await new Promise((resolve) => child.stdout?.once("data", resolve));
  child.kill("SIGINT");
  assert.deepEqual({ ...(await end), out: "" }, { code: null, signal: "SIGINT", out: "", error: "" });
});

test("on a terminal it is as wide as that, and coloured only where colours are shown", async (t) => {
  const agent = await EdgectlBench.start(t);
  fillDegraded(agent.view, agent.directory);
  const onTerminal = async (environment: string, columns: number): Promise<string> => {
    const line = `stty cols ${columns}; ${environment} '${process.execPath}' '${program}' events; true`;
    const child = spawn("script", ["-qec", line, "/dev/null"], {
      env: { PATH: process.env.PATH, PICOLET_SOCKET: agent.socketPath, SHELL: "/bin/sh" },
    });
    const { out } = await finished(child);
    return out.replaceAll("\r", "");
  };
  const dumb = await onTerminal("TERM=dumb", 60);
  assert.match(dumb, /^LAST .*MESSAGE\n/);
  assert.match(dumb, /^[\x20-\x7e\n]*$/);
  assert.ok(Math.max(...dumb.split("\n").map((line) => line.length)) <= 60);
  assert.ok((await onTerminal("TERM=xterm", 200)).includes("\x1b[31mWarning\x1b[0m"));
  assert.equal(await onTerminal("TERM=xterm NO_COLOR=1", 60), dumb);
  assert.equal(await onTerminal("TERM=vt220", 60), dumb);
  // A serial console does not know its size.
  const unknown = await onTerminal("TERM=vt220", 0);
  assert.ok(Math.max(...unknown.split("\n").map((line) => line.length)) > 60);
});

test("bash completes through it", async (t) => {
  const agent = await bench(t);
  const line = (...words: readonly string[]): string =>
    `source <(edgectl completion bash); COMP_WORDS=(edgectl ${words.map((word) => `'${word}'`).join(" ")}); ` +
    `COMP_CWORD=${words.length}; _edgectl; echo "\${COMPREPLY[@]}"`;
  const complete = async (...words: readonly string[]): Promise<string> => {
    const { out, error } = await finished(shell(line(...words), agent.socketPath));
    assert.equal(error, "");
    return out.trim();
  };
  assert.equal(await complete("lo"), "logs");
  assert.equal(await complete("logs", "w"), "web-edge-1");
  assert.equal(await complete("get", "pods", "--output", "=", "y"), "yaml");
  assert.equal(await complete("nonsense", ""), "");
});

/** `edgectl` for shells that look for it on their path. */
function onPath(): string {
  const path = join(directory, "edgectl");
  writeFileSync(path, `#!/bin/sh\nexec "${process.execPath}" "${program}" "$@"\n`, { mode: 0o755 });
  return directory;
}

const missing = (path: string): string | false => (existsSync(path) ? false : `${path} is not installed`);

/** Lines, sorted, that a shell's program prints. */
async function printed(file: string, args: readonly string[], socketPath: string): Promise<readonly string[]> {
  const path = `${onPath()}:${process.env.PATH}`;
  const env = { PATH: path, PICOLET_SOCKET: socketPath, HOME: directory, TERM: "dumb" };
  const { out, error, code } = await finished(spawn(file, args, { env, cwd: directory }));
  assert.deepEqual([code, error], [0, ""]);
  return out
    .split("\n")
    .filter((line) => line !== "")
    .toSorted();
}

/** The words that each shell completes for a line. */
const SHELL_CASES: readonly (readonly [line: string, words: readonly string[]])[] = [
  ["edgectl lo", ["logs"]],
  ["edgectl image p", ["pin", "pull"]],
  ["edgectl logs w", ["web-edge-1"]],
  ["edgectl get pods --output=j", ["--output=json"]],
  ["edgectl logs web-edge-1 --tai", ["--tail"]],
  ["edgectl image import edgectl.c", ["edgectl.cjs"]],
];

test("zsh completes through it", { skip: missing("/usr/bin/zsh") }, async (t) => {
  const agent = await bench(t);
  const setting = join(directory, "setting.zsh");
  writeFileSync(setting, ZSH_SETTING);
  for (const [line, words] of SHELL_CASES) {
    const lines = await printed("/usr/bin/zsh", ["-f", "-c", ZSH_CANDIDATES, "zsh", setting, line], agent.socketPath);
    // A file is completed below what stands before it in the word.
    assert.deepEqual(
      lines,
      words.map((word) => `<${word}>`),
      line,
    );
  }
});

test("fish completes through it, and says what commands do", { skip: missing("/usr/bin/fish") }, async (t) => {
  const agent = await bench(t);
  const complete = (line: string): Promise<readonly string[]> =>
    printed(
      "/usr/bin/fish",
      ["--no-config", "-c", `edgectl completion fish | source; complete -C ${JSON.stringify(line)}`],
      agent.socketPath,
    );
  for (const [line, words] of SHELL_CASES)
    assert.deepEqual(
      (await complete(line)).map((each) => each.split("\t")[0]),
      words,
      line,
    );
  assert.deepEqual(await complete("edgectl lo"), ["logs\tprint the logs of a pod's containers"]);
});
