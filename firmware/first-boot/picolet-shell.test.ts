/** The shell of console and SSH, with a program in place of edgectl that writes down its words. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, describe, test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";

const SHELL = readFileSync("firmware/image/tree/usr/lib/picolet-image/picolet-shell", "utf8");
/** More find nothing new in the few rules; the runs are programs. */
const RUNS = 150;
const USAGE = 64;
const REFUSED = 126;

type Run = { readonly words: readonly string[] } | { readonly status: number };

describe("picolet-shell", () => {
  const folder = new TempFolder();
  const shell = folder.at("picolet-shell");
  const words = folder.at("words");
  const canary = folder.at("canary");
  const home = folder.at("home");

  mkdirSync(home);
  writeFileSync(`${home}/file`, "");
  // The number of words, then each, ended by a zero byte.
  writeFileSync(folder.at("edgectl"), `#!/bin/sh\nprintf '%s\\0' "$#" "$@" >>'${words}'\n`);
  writeFileSync(shell, SHELL.replace("edgectl=/usr/bin/edgectl", `edgectl=${folder.at("edgectl")}`));
  for (const program of [shell, folder.at("edgectl")]) chmodSync(program, 0o755);
  after(() => folder[Symbol.dispose]());

  function start(args: readonly string[], input: string | Buffer = "", environment: NodeJS.ProcessEnv = {}) {
    rmSync(words, { force: true });
    const env = { PATH: "/usr/bin:/bin", HOME: home, ...environment };
    const result = spawnSync(shell, args, { input, env, cwd: home, encoding: "utf8", timeout: 30_000 });
    assert.equal(existsSync(canary), false, "something else ran");
    const written = existsSync(words) ? readFileSync(words, "utf8").split("\0").slice(0, -1) : [];
    const calls: string[][] = [];
    while (written.length > 0) calls.push(written.splice(0, Number(written.shift())));
    return { ...result, calls };
  }

  function run(line: string): Run {
    const { status, calls } = start(["-c", line]);
    return calls[0] === undefined ? { status: status ?? -1 } : { words: calls[0] };
  }

  for (const [line, expected] of [
    ["edgectl status", ["status"]],
    ["/usr/bin/edgectl", undefined],
    ["edgectl status -o json", ["status", "-o", "json"]],
    ["  edgectl\tlogs   web  ", ["logs", "web"]],
    [`edgectl logs 'a b' "c d" e\\ f`, ["logs", "a b", "c d", "e f"]],
    [`edgectl a'b'"c"d ''`, ["abcd", ""]],
    [`edgectl "a\\"b\\\\c\\d" '\\'`, ['a"b\\c\\d', "\\"]],
    ["edgectl logs * ? ~ [a-z]* {a,b} #x =y", ["logs", "*", "?", "~", "[a-z]*", "{a,b}", "#x", "=y"]],
    [`edgectl '$(id)' ';' "|"`, ["$(id)", ";", "|"]],
    ["edgectl --name=a!b", ["--name=a!b"]],
    ["edgectl äöü '日本'", ["äöü", "日本"]],
    ["edgectl edgectl", ["edgectl"]],
    ["edgectl -- -x", ["--", "-x"]],
  ] as const)
    test(`runs ${line}`, () => {
      if (expected !== undefined) assert.deepEqual(run(line), { words: expected });
      // Only that program, by its name or whole path.
      else assert.deepEqual(run(line), { status: REFUSED });
    });

  for (const [line, status, message] of [
    ["edgectl status; id", REFUSED, /this is no shell: ";" does nothing here/],
    ["edgectl status && id", REFUSED, /no shell/],
    ["edgectl status | sh", REFUSED, /no shell/],
    ["edgectl status > CANARY", REFUSED, /no shell/],
    ["edgectl status\nid", REFUSED, /no shell/],
    ["edgectl $(touch CANARY)", REFUSED, /\$ is not expanded here/],
    ["edgectl `touch CANARY`", REFUSED, /` is not expanded here/],
    [`edgectl "$(touch CANARY)"`, REFUSED, /\$ is not expanded here/],
    ["edgectl $HOME", REFUSED, /not expanded/],
    ["touch CANARY", REFUSED, /only edgectl runs here/],
    ["scp -t /tmp", REFUSED, /only edgectl runs here/],
    ["/usr/lib/openssh/sftp-server", REFUSED, /only edgectl runs here/],
    ["../../bin/touch CANARY", REFUSED, /only edgectl runs here/],
    ["PATH=/tmp edgectl", REFUSED, /only edgectl runs here/],
    ["'edgectl status'", REFUSED, /only edgectl runs here/],
    ["edgectl 'open", USAGE, /a quote is not closed/],
    ["edgectl open\\", USAGE, /cannot be continued/],
    [`edgectl ${"x".repeat(1024)}`, USAGE, /at most 1024 characters/],
  ] as const)
    test(`refuses ${line.slice(0, 40)}`, () => {
      const { status: left, stderr, calls } = start(["-c", line.replace("CANARY", canary)]);
      assert.equal(left, status, stderr);
      assert.match(stderr, message);
      assert.deepEqual(calls, []);
    });

  test("an environment that a session brings changes nothing", () => {
    writeFileSync(folder.at("profile"), `touch '${canary}'\n`);
    const { calls } = start(["-c", "edgectl status"], "", {
      ...{ ENV: folder.at("profile"), BASH_ENV: folder.at("profile"), PATH: "/nowhere", IFS: "e", PS4: "$(id)" },
      ...{ "BASH_FUNC_printf%%": `() { touch '${canary}'; }`, LC_ALL: "de_DE.UTF-8" },
    });
    assert.deepEqual(calls, [["status"]]);
  });

  test("any line does what the rules say, and never anything else", () => {
    const piece = fc.oneof(
      fc.constantFrom(
        "edgectl",
        "status",
        " ",
        "'",
        '"',
        "\\",
        "$",
        "`",
        ";",
        "|",
        "&",
        "(",
        ")",
        "<",
        ">",
        "\n",
        "\t",
      ),
      fc.constantFrom("*", "~", "#", "!", "=", "-", "--", "ä", "\r", "\x1b[A", "$(x)", "$(id)", "%s", "\\0", "{", "}"),
      fc.string({ maxLength: 6 }).map((text) => text.replaceAll("\0", "")),
    );
    const line = fc.array(piece, { maxLength: 14 }).map((pieces) => `edgectl ${pieces.join("")}`);
    fc.assert(
      fc.property(line, (text) => {
        assert.deepEqual(run(text), reference(text));
      }),
      { numRuns: RUNS },
    );
  });

  test("a hostile line of the greatest length is judged at once", () => {
    const started = process.hrtime.bigint();
    assert.deepEqual(run(`edgectl ${"é".repeat(500)}`), { words: ["é".repeat(500)] });
    assert.ok(process.hrtime.bigint() - started < 10_000_000_000n);
  });

  test("a terminal gets the status, then edgectl's commands with or without its name, history, help, and an end", () => {
    const lines = [
      "status -o wide",
      "edgectl logs web",
      "",
      "   ",
      "!1",
      "!!",
      "!7",
      "history",
      "id; id",
      "quit",
      "never",
    ];
    const { calls, stdout, stderr, status } = start([], `${lines.join("\n")}\n`);
    assert.equal(status, 0);
    assert.deepEqual(calls, [
      ["status"],
      ["status", "-o", "wide"],
      ["logs", "web"],
      ["status", "-o", "wide"],
      ["status", "-o", "wide"],
    ]);
    assert.match(stdout, /help lists the commands/);
    assert.match(stdout, / {3}1 {2}status -o wide\n {3}2 {2}edgectl logs web\n {3}3 {2}status -o wide\n/);
    assert.match(stderr, /there is no such line/);
    assert.match(stderr, /this is no shell/);
    assert.deepEqual(start(["--console"], "help\n").calls, [["status"], ["help"]]);
  });

  test("the history has an end, and keeps lines as they are", () => {
    const lines = Array.from({ length: 80 }, (_, index) => `a '$(touch ${canary})' ${index}`);
    const { stdout } = start([], `${lines.join("\n")}\nhistory\n`);
    const shown = stdout.slice(stdout.indexOf("   1  "));
    assert.match(shown, /^ {3}1 {2}a '\$\(touch .*\)' 30\n/);
    assert.match(shown, / {2}50 {2}a '.*' 79\n/);
  });
});

/** The shell's rules once more. */
function reference(line: string): Run {
  if (Buffer.byteLength(line) > 1024) return { status: USAGE };
  const words: string[] = [];
  let word: string | undefined;
  let quote = "";
  const characters = [...line];
  for (let index = 0; index < characters.length; index += 1) {
    const char = characters[index] ?? "";
    if (quote === "'") {
      if (char === "'") quote = "";
      else word += char;
    } else if (char === "$" || char === "`") return { status: REFUSED };
    else if (quote === '"') {
      const next = characters[index + 1] ?? "";
      if (char === '"') quote = "";
      else if (char === "\\" && (next === '"' || next === "\\")) {
        word += next;
        index += 1;
      } else word += char;
    } else if (char === "'" || char === '"') {
      quote = char;
      word ??= "";
    } else if (char === "\\") {
      index += 1;
      if (characters[index] === undefined) return { status: USAGE };
      word = (word ?? "") + characters[index];
    } else if (char === " " || char === "\t") {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (";|&<>()\n".includes(char)) return { status: REFUSED };
    else word = (word ?? "") + char;
  }
  if (quote !== "") return { status: USAGE };
  if (word !== undefined) words.push(word);
  if (words[0] !== "edgectl") return words.length === 0 ? { status: 0 } : { status: REFUSED };
  return { words: words.slice(1) };
}
