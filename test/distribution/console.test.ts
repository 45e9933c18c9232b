/**
 * Console and SSH of an image: OpenSSH's own server with the image's configuration and shell, in a mount namespace
 * where /etc/ssh, /run and the accounts are a board's, and a real agent.
 */
import assert from "node:assert/strict";
import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { AgentNode } from "../support/agent/agent-process.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const TREE = resolve("firmware/image/tree");
/** As the image's sysusers.d has it. */
const PICOLET_ID = 970;
const LIMIT_MS = 120_000;

const isPossible = process.geteuid?.() === 0 && existsSync("/usr/sbin/sshd");

interface Ended {
  readonly code: number;
  readonly out: string;
  readonly errors: string;
}

describe("console and SSH of an image", { skip: isPossible ? false : "needs root and openssh-server" }, () => {
  const folder = new TempFolder();
  let port = 0;
  const shell = folder.at("picolet-shell");
  const node = new AgentNode();
  let server: ChildProcess | undefined;
  let serverLog = "";

  before(async () => {
    chmodSync(folder.path, 0o755);
    port = await fixedPort();
    // As /run/picolet is on a board.
    chmodSync(node.directory, 0o711);
    chownSync(`${node.directory}/run`, 0, PICOLET_ID);
    chmodSync(`${node.directory}/run`, 0o2750);
    await node.start();
    const edgectl = folder.at("edgectl");
    writeFileSync(
      edgectl,
      `#!/bin/sh\nexec '${resolve("dist/board/bin/edgectl")}' --socket '${node.socketPath}' "$@"\n`,
    );
    const text = readFileSync(`${TREE}/usr/lib/picolet-image/picolet-shell`, "utf8");
    writeFileSync(shell, text.replace("edgectl=/usr/bin/edgectl", `edgectl=${edgectl}`));
    for (const program of [edgectl, shell]) chmodSync(program, 0o755);
    for (const key of ["owner", "stranger", "host"])
      execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", folder.at(key)]);
    writeFileSync(
      folder.at("sshd_config"),
      `Include ${TREE}/etc/ssh/sshd_config.d/10-picolet.conf\nPort ${port}\nListenAddress 127.0.0.1\nSubsystem sftp /usr/lib/openssh/sftp-server\n`,
    );
    server = await startServer();
  });
  after(async () => {
    if (server?.exitCode === null) {
      const ended = once(server, "exit");
      server.kill("SIGKILL");
      await ended;
    }
    await node[Symbol.asyncDispose]();
    folder[Symbol.dispose]();
  });

  async function startServer(): Promise<ChildProcess> {
    const account = `picolet:x:${PICOLET_ID}:${PICOLET_ID}::/:${shell}`;
    const script = [
      "set -e",
      "mount -t tmpfs -o mode=755 board /run",
      "mount -t tmpfs -o mode=755 board /etc/ssh",
      // The machine's own record of logins is none of a board.
      "mount -t tmpfs board /var/log",
      "mkdir -p /run/sshd /run/picolet-board /etc/ssh/host-keys",
      `cp ${folder.at("owner.pub")} /run/picolet-board/authorized_keys`,
      `install -m 600 ${folder.at("host")} /etc/ssh/host-keys/ssh_host_ed25519_key`,
      `for each in passwd group shadow; do cp -p /etc/$each /run/$each; done`,
      `sed -i '/^picolet:/d' /run/passwd /run/group /run/shadow`,
      `echo '${account}' >>/run/passwd`,
      `echo 'picolet:x:${PICOLET_ID}:' >>/run/group`,
      // As systemd-sysusers makes it.
      `echo 'picolet:!*:19000::::::' >>/run/shadow`,
      `for each in passwd group shadow; do mount --bind /run/$each /etc/$each; done`,
      `exec /usr/sbin/sshd -D -e -f ${folder.at("sshd_config")}`,
    ].join("\n");
    const child = spawn("unshare", ["--mount", "--propagation", "private", "sh", "-c", script], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    await new Promise<void>((listening, reject) => {
      child.stderr.setEncoding("utf8").on("data", (text: string) => {
        serverLog += text;
        if (serverLog.includes("Server listening on 127.0.0.1")) listening();
      });
      child.on("exit", (code) => reject(new Error(`sshd ended with ${code}:\n${serverLog}`)));
    });
    return child;
  }

  const options = (key = "owner"): readonly string[] => [
    ...["-F", "none", "-i", folder.at(key), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"],
    ...["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"],
  ];

  function run(program: string, args: readonly string[], input = ""): Promise<Ended> {
    return new Promise((resolve) => {
      const child = execFile(program, args, { timeout: LIMIT_MS }, (error, out, errors) => {
        resolve({ code: typeof error?.code === "number" ? error.code : error === null ? 0 : -1, out, errors });
      });
      child.stdin?.end(input);
    });
  }

  const ssh = (words: readonly string[], more: readonly string[] = [], input = ""): Promise<Ended> =>
    run("ssh", [...options(), "-p", String(port), ...more, "picolet@127.0.0.1", ...words], input);

  test("edgectl runs as the owner of a key asks, with its own exit code", async () => {
    const { code, out, errors } = await ssh(["edgectl status -o json"]);
    assert.notEqual(out, "", `${errors}${serverLog}`);
    assert.equal(JSON.parse(out).node, "node");
    assert.ok([0, 1].includes(code), `${code}: ${errors}`);
    const unknown = await ssh(["edgectl", "statsu"]);
    assert.equal(unknown.code, 64);
    assert.match(unknown.errors, /did you mean "?status/);
  });

  for (const line of ["edgectl status; id", "edgectl $(id)", "edgectl status | id", "id", "sh", "edgectl status\nid"])
    test(`nothing else runs: ${JSON.stringify(line)}`, async () => {
      const { code, out, errors } = await ssh([line]);
      assert.equal(code, 126, errors);
      assert.equal(out, "");
      assert.match(errors, /^picolet: /);
    });

  test("neither scp nor sftp copies a file", async () => {
    const target = `picolet@127.0.0.1:/tmp/${Date.now()}`;
    for (const args of [[], ["-O"]]) {
      const { code } = await run("scp", [...args, ...options(), "-P", String(port), folder.at("owner.pub"), target]);
      assert.notEqual(code, 0);
    }
    const { code } = await run("sftp", [...options(), "-P", String(port), "picolet@127.0.0.1"], "ls\n");
    assert.notEqual(code, 0);
  });

  test("no port is forwarded, there or back", async () => {
    const there = await ssh([], ["-W", `127.0.0.1:${port}`]);
    assert.notEqual(there.code, 0);
    assert.doesNotMatch(there.out, /SSH-2/);
    const back = await ssh(["edgectl version"], ["-R", "0:127.0.0.1:22", "-o", "ExitOnForwardFailure=yes"]);
    assert.equal(back.code, 255);
  });

  test("no password, no other key, no root, and no environment of the client's", async () => {
    const refused = async (words: readonly string[]): Promise<void> => {
      const { code, errors } = await run("ssh", [...words, "-p", String(port), "127.0.0.1", "edgectl version"]);
      assert.equal(code, 255);
      assert.match(errors, /Permission denied \(publickey\)/);
    };
    await refused([...options(), "-l", "picolet", "-o", "PubkeyAuthentication=no"]);
    await refused([...options("stranger"), "-l", "picolet"]);
    await refused([...options(), "-l", "root"]);
    const { code, out } = await ssh(["edgectl version"], ["-o", `SetEnv=PICOLET_NODE=/usr/bin/id LC_ALL=x`]);
    assert.equal(code, 0);
    assert.doesNotMatch(out, /uid=/);
  });

  test("a terminal shows the status first, takes commands, outlives Ctrl-C, and has no escape codes at a vt100", async () => {
    const words = [...options(), "-p", String(port), "-tt", "-o", "SetEnv=TERM=vt100", "picolet@127.0.0.1"];
    const child = spawn("ssh", words, { stdio: ["pipe", "pipe", "inherit"], timeout: LIMIT_MS });
    let out = "";
    // What is typed when the output since the last input shows the pattern. A Ctrl-C is answered with its echo, and
    // with another prompt only where it came after the shell had begun to read.
    const steps: [pattern: RegExp, input: string][] = [
      [/picolet> /, "\x03"],
      [/\^C/, "version\n"],
      [/version\r\n[\s\S]*picolet> /, "id; id\n"],
      [/id; id\r\n[\s\S]*picolet> /, "history\n"],
      [/history\r\n[\s\S]*picolet> /, "exit\n"],
    ];
    let unanswered = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      out += text;
      unanswered += text;
      const [pattern, input] = steps[0] ?? [];
      if (pattern?.test(unanswered) !== true) return;
      steps.shift();
      unanswered = "";
      child.stdin.write(input ?? "");
    });
    const [code] = await once(child, "close");
    assert.equal(code, 0, out);
    assert.match(out, /help lists the commands, exit leaves\./);
    assert.match(out, /^node is healthy/m);
    assert.match(out, /picolet> /);
    assert.match(out, /this is no shell: ";" does nothing here/);
    assert.match(out, / {3}1 {2}version\r\n {3}2 {2}id; id\r\n/);
    assert.equal(out.includes("\x1b"), false);
    assert.doesNotMatch(out, /uid=/);
    // At 9600 baud a second has 960 characters.
    assert.ok(out.length < 4000, String(out.length));
  });
});
