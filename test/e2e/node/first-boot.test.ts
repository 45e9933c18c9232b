/**
 * From `picolet.yaml` to a node of a fleet: the program as the image has it, on a folder that stands for the board's
 * disk, the real agent with the configuration that it wrote, and a real hub.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { BOARD_FILE_TEMPLATE, exampleOf } from "@picolet/firmware/first-boot/board-file-template.ts";
import { buildFirstBoot } from "@picolet/firmware/image/build-image.ts";
import { HubProcess, runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import { AgentNode } from "../../support/agent/agent-process.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

const EX_CONFIG = 78;

describe("the first boot", () => {
  const folder = new TempFolder();
  const program = folder.at("first-boot.cjs");
  let hub: HubProcess;
  let boards = 0;

  before(async () => {
    await buildFirstBoot(program);
    hub = await HubProcess.start({ dataDir: folder.at("hub") });
  });
  after(async () => {
    await hub?.end("SIGTERM");
    folder[Symbol.dispose]();
  });

  /** A board's disk. */
  function disk(file: string | Buffer) {
    boards += 1;
    const root = folder.at(`board-${boards}`);
    const write = (path: string, content: string | Buffer): void => {
      mkdirSync(join(root, path, ".."), { recursive: true });
      writeFileSync(join(root, path), content);
    };
    write("boot/picolet/picolet.yaml", file);
    const serial = `10000000dead000${boards}`;
    write("sys/firmware/devicetree/base/serial-number", `${serial}\0`);
    write("etc/picolet-release", "VERSION=1.2.3\nBOARD=generic-amd64\nFLAVOUR=components\n");
    return {
      root,
      serial,
      write,
      has: (path: string) => existsSync(join(root, path)),
      read: (path: string) => readFileSync(join(root, path), "utf8"),
      /** @param bin where edgectl is looked for */
      run: (args: readonly string[] = [], bin = "/nowhere") =>
        spawnSync(process.execPath, [program, "--root", root, ...args], {
          encoding: "utf8",
          env: { PATH: bin },
          timeout: 60_000,
        }),
    };
  }

  const checkConfig = (root: string) =>
    spawnSync("dist/board/bin/picolet", ["--config", `${root}/etc/picolet/config.yaml`, "--check-config"], {
      encoding: "utf8",
    });

  test("the agent takes what becomes of the full example", () => {
    const board = disk(exampleOf(readFileSync(BOARD_FILE_TEMPLATE, "utf8")));
    const { status, stdout, stderr } = board.run();
    assert.equal(status, 0, stderr);
    assert.match(stdout, /picolet\.yaml: applied\. Node edge-dead0001, hub https:\/\/hub\.example\.com:10270/);
    const checked = checkConfig(board.root);
    assert.equal(checked.status, 0, checked.stderr);
    const report = board.read("boot/picolet/picolet-report.txt");
    assert.match(report, /System +1\.2\.3, generic-amd64, components\r\n/);
    assert.doesNotMatch(report, /password|passphrase|abcdef/);
    assert.equal(board.run(["--check", join(board.root, "boot/picolet/picolet.yaml")]).status, 0);
  });

  test("a wrong file is named with all its problems, and the board has what the image gives it", () => {
    const board = disk("hub:\r\n\tserver: a\r\n");
    const { status, stdout } = board.run();
    assert.equal(status, EX_CONFIG);
    assert.match(stdout, /picolet\.yaml is wrong.*\n {2}line 2: Tabs are not allowed.*never with the Tab key/);
    assert.match(board.read("boot/picolet/picolet-report.txt"), /NOT APPLIED.*\r\n[\s\S]*line 2: Tabs/);
    assert.equal(checkConfig(board.root).status, 0);
    assert.equal(board.run(["--check", join(board.root, "boot/picolet/picolet.yaml")]).status, EX_CONFIG);
    assert.equal(board.run(["--chek"]).status, 64);
  });

  test("files of the card are brought by the programs of the board, and what fails is in the report", () => {
    const board = disk("preload:\n  images: [preload/web.tar, none.tar]\n");
    board.write("boot/picolet/preload/web.tar", "an archive");
    board.write("bin/ctr", `#!/bin/sh\nprintf "%s\\n" "$*" >>'${board.root}/ctr.log'\n`);
    chmodSync(join(board.root, "bin/ctr"), 0o755);
    assert.equal(board.run().status, 0);
    const path = `${join(board.root, "bin")}:/usr/bin:/bin`;
    for (const each of [1, 2]) assert.equal(board.run(["--preload"], path).status, 1, String(each));
    assert.equal(board.read("ctr.log"), "-n k8s.io images import /boot/picolet/preload/web.tar\n");
    board.run(["--report"], path);
    assert.match(board.read("boot/picolet/picolet-report.txt"), /preload of none\.tar failed: there is no such file/);
  });

  test("one file for a batch: boards join by their serial numbers, as many as the token is for", async () => {
    const dataDir = folder.at("hub");
    const token = await runHubCommand(dataDir, "token", "create", "--uses", "1", "--ttl", "1h");
    const text = `hub:\n  server: ${hub.ready.tunnel}\n  token: ${token}\n  caHash: ${hub.ready.caHash}\nnode: {nameRule: "batch-{serial:4}"}\nconfig: {containerRuntimeEndpoint: ""}\n`;
    const [first, second] = [disk(text), disk(text)];
    for (const board of [first, second]) assert.equal(board.run().status, 0);
    await using agent = await started(first);
    const status = await agent.waitForStatus("a board that has joined", ({ tunnel }) => tunnel.state === "connected");
    assert.equal(status.node, `batch-${first.serial.slice(-4)}`);
    await using refused = await started(second);
    await refused.waitForStatus("a board that is refused", ({ tunnel }) =>
      /boards have joined with it, and it is for no more/.test(tunnel.problem ?? ""),
    );
    assert.match(await runHubCommand(dataDir, "token", "list"), /1\/1/);
    // The board's own place of the identity.
    first.write("var/lib/picolet/identity/identity.pem", readFileSync(`${agent.directory}/root/identity/identity.pem`));
    first.write(
      "bin/edgectl",
      `#!/bin/sh\nexec '${process.cwd()}/dist/board/bin/edgectl' --socket '${agent.socketPath}' "$@"\n`,
    );
    chmodSync(join(first.root, "bin/edgectl"), 0o755);
    const { status: code, stderr } = first.run(["--report"], `${join(first.root, "bin")}:/usr/bin:/bin`);
    assert.equal(code, 0, stderr);
    assert.equal(first.read("boot/picolet/picolet.yaml"), text.replace(token, '""'));
    assert.match(first.read("boot/picolet/picolet-report.txt"), /has joined\r\n[\s\S]*wiped from picolet\.yaml/);
    assert.equal(first.has("etc/picolet/join-token"), false);
  });

  /** An agent with the configuration of a board's disk, whose paths lie below it. */
  async function started(board: ReturnType<typeof disk>): Promise<AgentNode> {
    const agent = new AgentNode();
    const below = readFileSync(`${board.root}/etc/picolet/config.yaml`, "utf8").replace(
      "/etc/picolet/",
      `${board.root}/etc/picolet/`,
    );
    const { staticPodPath, podLogsDir, cgroupRoot } = JSON.parse(readFileSync(agent.configPath, "utf8"));
    writeFileSync(
      agent.configPath,
      `${below}${[`staticPodPath: ${staticPodPath}`, `podLogsDir: ${podLogsDir}`, `cgroupRoot: ${cgroupRoot}`].join("\n")}\n`,
    );
    await agent.start();
    return agent;
  }
});
