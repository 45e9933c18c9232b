/** Completion of picolet and picolet-hub, by the shells themselves. */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { PICOLET } from "@picolet/agent/main/node/agent-program.ts";
import { HUB } from "@picolet/hub/main/program.ts";
import { completionScripts } from "@picolet/scripts/docs/completion-scripts.ts";
import { ZSH_CANDIDATES, ZSH_SETTING } from "../support/agent/zsh-completion.ts";

const directory = mkdtempSync(join(tmpdir(), "picolet-completion-"));
after(() => rmSync(directory, { recursive: true }));
writeFileSync(join(directory, "settings.yaml"), "");
for (const program of [PICOLET, HUB])
  for (const [shell, [, script]] of completionScripts(program))
    writeFileSync(join(directory, `${program.name}.${shell}`), script);

const environment = { PATH: process.env.PATH, HOME: directory, TERM: "dumb", INPUTRC: "/dev/null" };
const missing = (path: string): string | false => (existsSync(path) ? false : `${path} is not installed`);

function printed(file: string, args: readonly string[]): readonly string[] {
  const { stdout, stderr, status } = spawnSync(file, args, { cwd: directory, env: environment, encoding: "utf8" });
  assert.deepEqual([status, stderr], [0, ""], args.join(" "));
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .toSorted();
}

/** A line, and all words that may stand in the place of its last one. */
const CASES: readonly (readonly [line: string, words: readonly string[]])[] = [
  ["picolet-hub tok", ["token"]],
  ["picolet-hub token ", ["create", "delete", "list"]],
  ["picolet-hub token create --t", ["--ttl"]],
  ["picolet-hub --embedded ser", ["serve"]],
  ["picolet-hub --tunnel-a", ["--tunnel-address"]],
  ["picolet-hub --data-dir state tok", ["token"]],
  ["picolet-hub serve --log-format ", ["json", "text"]],
  ["picolet-hub token create --ttl ", []],
  ["picolet-hub backup set", ["settings.yaml"]],
  ["picolet-hub help ba", ["backup"]],
  ["picolet --check", ["--check-config"]],
  ["picolet --config set", ["settings.yaml"]],
];

for (const [line, words] of CASES) {
  const name = line.split(" ")[0] ?? "";
  const script = join(directory, `${name}.`);

  test(`bash completes "${line}"`, () => {
    // A file is left to readline: no candidate, and the option that says so.
    const typed = line.split(" ").map((word) => `'${word}'`);
    const call =
      `compopt() { echo "$2"; }; source ${script}bash; COMP_WORDS=(${typed.join(" ")}); ` +
      `COMP_CWORD=${typed.length - 1}; _${name.replaceAll("-", "_")}; printf '%s\\n' "\${COMPREPLY[@]}"`;
    assert.deepEqual(printed("bash", ["--norc", "-c", call]), words[0] === "settings.yaml" ? ["default"] : words);
  });

  test(`zsh completes "${line}"`, { skip: missing("/usr/bin/zsh") }, () => {
    const setting = join(directory, `${name}.setting`);
    writeFileSync(setting, ZSH_SETTING.replace('eval "$(edgectl completion zsh)"', `source ${script}zsh`));
    assert.deepEqual(
      printed("/usr/bin/zsh", ["-f", "-c", ZSH_CANDIDATES, "zsh", setting, line]),
      words.map((word) => `<${word}>`),
    );
  });

  test(`fish completes "${line}"`, { skip: missing("/usr/bin/fish") }, () => {
    const command = `source ${script}fish; complete -C ${JSON.stringify(line)}`;
    assert.deepEqual(
      printed("/usr/bin/fish", ["--no-config", "-c", command]).map((each) => each.split("\t")[0]),
      words,
    );
  });
}

test("zsh and fish say what a command and a flag do", { skip: missing("/usr/bin/fish") }, () => {
  const command = (line: string): readonly string[] => [
    "--no-config",
    "-c",
    `source ${directory}/picolet-hub.fish; complete -C ${JSON.stringify(line)}`,
  ];
  assert.deepEqual(printed("/usr/bin/fish", command("picolet-hub back")), [
    "backup\tcopy the embedded API server's store, running or not",
  ]);
  assert.deepEqual(printed("/usr/bin/fish", command("picolet-hub token create --tt")), [
    "--ttl\thow long the token is valid (default 1h)",
  ]);
});

/** Types lines at the prompt of a bash on a terminal, each when the one before has ended. @returns all that it shows */
async function typed(lines: readonly string[]): Promise<string> {
  const bash = spawn("script", ["-qec", "PS1='READY>' exec bash --norc -i", "/dev/null"], {
    cwd: directory,
    env: { ...environment, SHELL: "/bin/bash" },
  });
  let shown = "";
  let prompts = 0;
  const left = [...lines];
  bash.stdout.setEncoding("utf8").on("data", (text: string) => {
    shown += text;
    const count = shown.split("READY>").length - 1;
    if (count === prompts) return;
    prompts = count;
    const next = left.shift();
    if (next === undefined) bash.stdin.end("exit\n");
    else bash.stdin.write(`${next}\n`);
  });
  await once(bash, "close");
  return shown;
}

test("bash completes what is typed at its prompt with the Tab key", { timeout: 60_000 }, async () => {
  const shown = await typed([
    "source picolet-hub.bash; source picolet.bash",
    "picolet-hub() { printf '<%s>' \"$@\"; echo; }; picolet() { printf '<%s>' \"$@\"; echo; }",
    "picolet-hub tok\tcr\t--tt\t5m",
    "picolet-hub --log-f\tj\tback\tset\t",
    // --config-dir begins like it.
    "picolet --config set\t",
  ]);
  for (const line of [
    "<token><create><--ttl><5m>",
    "<--log-format><json><backup><settings.yaml>",
    "<--config><settings.yaml>",
  ])
    assert.ok(shown.includes(line), shown);
});
