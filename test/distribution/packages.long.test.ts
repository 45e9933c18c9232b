/** The Debian packages: installed, upgraded, removed and purged by dpkg in a Debian system. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { UpdateAnswer, UpdateTask } from "@picolet/agent/updates/update-task.ts";
import { type DebianPackage, pack } from "@picolet/firmware/packages/debian-package.ts";
import { boardPackage, hubPackage, LIBRARIES } from "@picolet/firmware/packages/packages.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { ownPlatform } from "@picolet/scripts/build/platform-parts.ts";
import { DebianRoot, debianRootMissing } from "../support/debian/debian-root.ts";
import { runningProcesses } from "../support/unit/machine/processes.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip = (process.arch === "x64" ? debianRootMissing() : "the packages are tried on amd64") ?? false;
const LINTIAN = "/usr/bin/lintian";
const EPOCH = 1_795_439_450;
const NEXT_VERSION = "99.0.0";

describe("Debian packages", { skip }, () => {
  const folder = new TempFolder();
  const built = {
    board: boardPackage(distributionFolder("board"), ownPlatform(), EPOCH),
    hub: hubPackage(distributionFolder("hub"), ownPlatform(), EPOCH),
  };
  const packed = (debian: DebianPackage, name = "packages"): string =>
    pack(debian, folder.at(name), { epoch: EPOCH, compression: "none" });
  let board: string;
  let hub: string;

  before(() => {
    board = packed(built.board);
    hub = packed(built.hub);
  });

  after(() => folder[Symbol.dispose]());

  test("the same input makes the same bytes", () => {
    assert.deepEqual(readFileSync(packed(built.hub, "again")), readFileSync(hub));
  });

  // It unpacks both packages several times, half a minute of a processor: a part of `npm run chaos`.
  if (process.env.PICOLET_LINTIAN === "1")
    test("lintian finds no error", () => {
      const ofTheTest = "uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball";
      const options = ["--no-cfg", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0"];
      const args = [...options, "--suppress-tags", ofTheTest, board, hub];
      const { status, stdout } = spawnSync(LINTIAN, args, { encoding: "utf8" });
      assert.equal(status, 0, stdout);
      // An override that nothing needs would hide the next error.
      assert.doesNotMatch(stdout, /unused-override|mismatched-override/);
    });

  test("they depend on the libraries that the newest symbols of their native parts need", () => {
    const newest = (symbol: string): string => {
      const files = ["node", "node_modules/better-sqlite3/prebuilds/linux-x64.node"];
      const versions = files.flatMap((file) => {
        const text = readFileSync(join(distributionFolder("board"), "lib", file)).toString("latin1");
        return [...text.matchAll(new RegExp(`${symbol}_(\\d+(?:\\.\\d+)+)\\0`, "g"))].map(
          ([, version = ""]) => version,
        );
      });
      return versions.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1) ?? "";
    };
    assert.equal(newest("GLIBC"), LIBRARIES.glibc);
    // GCC 11's libstdc++.
    assert.equal(`GLIBCXX_${newest("GLIBCXX")}`, LIBRARIES.glibcxx);
    const depends = execFileSync("dpkg-deb", ["-f", board, "Depends"], { encoding: "utf8" });
    assert.match(
      depends,
      new RegExp(`libc6 \\(>= ${LIBRARIES.glibc}\\), libstdc\\+\\+6 \\(>= ${LIBRARIES.libstdcxx}\\)`),
    );
  });

  test("in Debian 13 they are installed, run, and leave nothing", () => {
    using root = new DebianRoot("trixie");
    assert.match(root.output("cat /etc/os-release"), /^VERSION_ID="13"$/m);
    const before = root.files();
    root.output(`dpkg --install ${root.bring(board)} ${root.bring(hub)}`);
    assert.match(root.output("picolet --version; picolet-hub --version"), versionLines(2));
    root.output("picolet --config /usr/share/doc/picolet/examples/config.yaml --check-config");
    root.output("dpkg --purge picolet picolet-hub");
    assert.deepEqual(difference(root.files(), before), []);
  });

  test("busybox's init runs the agent by the example, starts it again, and shuts the node down", async () => {
    using root = new DebianRoot();
    root.output(`dpkg --install ${root.bring(board)}`);
    copyFileSync("/bin/busybox", join(root.path, "bin/busybox"));
    const example = readFileSync(join(root.path, "usr/share/doc/picolet/examples/inittab"), "utf8");
    writeFileSync(join(root.path, "etc/inittab"), `::sysinit:/bin/busybox syslogd -O /var/log/messages\n${example}`);
    const config = { containerRuntimeEndpoint: "", cgroupRoot: "/picolet-inittab-test", healthzPort: 0 };
    writeFileSync(join(root.path, "etc/picolet/config.yaml"), JSON.stringify(config));
    const script = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/busybox init';
    const namespaces = ["--mount", "--pid", "--fork", "--kill-child"];
    const machine = spawn("unshare", [...namespaces, "sh", "-c", script, root.path], {
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
      stdio: "ignore",
    });
    const ended = once(machine, "exit");
    try {
      const started = (times: number): string =>
        root.output(`tail -n +1 -F /var/log/messages 2>&1 | grep -m ${times} "local API listens" | tail -n 1`);
      assert.match(started(1), / picolet: /);
      const init = childOf(machine.pid ?? 0);
      const agent = runningProcesses().find(
        ({ pid, words }) => words.some((word) => word.endsWith("picolet.cjs")) && isBelow(pid, init),
      );
      process.kill(agent?.pid ?? 0, "SIGKILL");
      started(2);
      // Poweroff, which in a namespace of processes ends its first one alone.
      process.kill(init, "SIGUSR2");
      await ended;
      assert.match(
        root.output("cat /var/log/messages"),
        /starting pid \d+, tty '': '\/usr\/bin\/edgectl node shutdown'/,
      );
    } finally {
      machine.kill("SIGKILL");
      await ended;
    }
  });

  test("installed, they run; upgraded, they keep the administrator's files; purged, nothing of them is left", () => {
    using root = new DebianRoot();
    const before = root.files();
    root.output(`dpkg --install ${root.bring(board)} ${root.bring(hub)}`);
    assert.match(root.output("picolet --version; picolet-hub --version"), versionLines(2));
    assert.match(root.output("edgectl help"), /^edgectl - /);
    assert.match(root.output("getent group picolet; getent passwd picolet-hub"), /^picolet:x:\d+:\npicolet-hub:x:\d+:/);
    for (const path of [
      "/usr/lib/systemd/system/picolet.service",
      "/usr/lib/systemd/system/picolet-hub.service",
      "/usr/share/man/man8/picolet.8.gz",
      "/usr/share/man/man1/edgectl.1.gz",
      "/usr/share/bash-completion/completions/edgectl",
      "/usr/share/zsh/vendor-completions/_edgectl",
      "/usr/share/fish/vendor_completions.d/edgectl.fish",
      "/usr/share/doc/picolet/copyright",
    ])
      assert.ok(existsSync(join(root.path, path)), path);
    // Enabled for the next boot; the hub waits for its administrator.
    assert.deepEqual(root.output("ls /etc/systemd/system/multi-user.target.wants").match(/picolet\S*/g), [
      "picolet-boot-check.service",
      "picolet.service",
    ]);
    root.output("picolet --config /usr/share/doc/picolet/examples/config.yaml --check-config");

    writeFileSync(join(root.path, "etc/default/picolet-hub"), 'PICOLET_HUB_ARGS="--embedded"\n');
    writeFileSync(join(root.path, "etc/picolet/config.yaml"), "nodeName: kept\n");
    mkdirSync(join(root.path, "var/lib/picolet/pods"), { recursive: true });
    const next = { board: { ...built.board, version: NEXT_VERSION }, hub: { ...built.hub, version: NEXT_VERSION } };
    root.output(`dpkg --install ${root.bring(packed(next.board))} ${root.bring(packed(next.hub))}`);
    assert.equal(versionIn(root), NEXT_VERSION);
    assert.equal(root.output("cat /etc/default/picolet-hub"), 'PICOLET_HUB_ARGS="--embedded"\n');
    // And back again.
    root.output(`dpkg --install /tmp/picolet_${VERSION}_amd64.deb`);
    assert.equal(versionIn(root), VERSION);

    root.output("dpkg --remove picolet picolet-hub");
    assert.equal(root.output("cat /etc/picolet/config.yaml"), "nodeName: kept\n");
    assert.ok(existsSync(join(root.path, "var/lib/picolet/pods")));
    assert.notEqual(root.run("picolet --version").exitCode, 0);
    root.output("dpkg --purge picolet picolet-hub");
    assert.deepEqual(difference(root.files(), before), []);
  });
});

const childOf = (parent: number): number => runningProcesses().find((each) => each.parent === parent)?.pid ?? 0;

function isBelow(pid: number, ancestor: number): boolean {
  const { parent } = runningProcesses().find((each) => each.pid === pid) ?? { parent: 0 };
  return parent === ancestor || (parent > 1 && isBelow(parent, ancestor));
}

/** The agent alone is updated: the update program and the boot check of the package itself, with dpkg. */
describe("an update of the agent's package", { skip }, () => {
  test("signed, it is installed and, when its agent does not come up, taken back to what ran", () => {
    using folder = new TempFolder();
    using root = new DebianRoot();
    const package_ = boardPackage(distributionFolder("board"), ownPlatform(), EPOCH);
    const packed = (version: string): string =>
      pack({ ...package_, version }, folder.at("packages"), { epoch: EPOCH, compression: "none" });
    root.output(`dpkg --install ${root.bring(packed(VERSION))}`);
    // systemd does not run in this root.
    const systemctl = '#!/bin/sh\n[ "$1" != is-failed ]\n';
    writeFileSync(join(root.path, "usr/bin/systemctl"), systemctl, { mode: 0o755 });
    const state = join(root.path, "var/lib/picolet/updates");
    mkdirSync(state, { recursive: true });
    const next = root.bring(packed(NEXT_VERSION));
    const prepare = (version = VERSION): UpdateAnswer => {
      const task: UpdateTask = {
        ...{ want: "agent", directory: "/var/lib/picolet/updates", install: true, bytesPerSecond: 0 },
        ...{ allowDowngrade: false, version, keysDirectory: "/etc/picolet/update-keys", architecture: "amd64" },
        source: { kind: "file", path: next },
      };
      writeFileSync(join(root.path, "tmp/task"), `${JSON.stringify(task)}\n`);
      const lib = "/usr/lib/picolet/lib";
      // A pipe that stays open: the end of its input would tell the program that its agent has gone.
      const input = "rm -f /tmp/in; mkfifo /tmp/in; exec 3<>/tmp/in; cat /tmp/task >&3";
      const lines = root.output(`${input}; ${lib}/node ${lib}/picolet-update.cjs <&3`);
      return JSON.parse(lines.trim().split("\n").at(-1) ?? "") as UpdateAnswer;
    };
    const refused = (problem: RegExp, version?: string): void => {
      const answer = prepare(version);
      assert.ok(answer.kind === "failed" && problem.test(answer.message), JSON.stringify(answer));
    };
    refused(
      /^this board trusts no key for packages: put the publisher's public key .* into \/etc\/picolet\/update-keys/,
    );
    const key = generateKeyPairSync("ed25519");
    const pem = key.publicKey.export({ type: "spki", format: "pem" });
    writeFileSync(join(root.path, "etc/picolet/update-keys/test.pem"), pem);
    const signature = join(root.path, `${next}.sig`);
    writeFileSync(signature, Buffer.alloc(64).toString("base64"));
    refused(/^none of the 1 keys in \/etc\/picolet\/update-keys has signed it$/);
    writeFileSync(signature, sign(null, readFileSync(join(root.path, next)), key.privateKey).toString("base64"));
    refused(/^99.0.0 is older than 100.0, which runs/, "100.0");
    assert.deepEqual({ ...prepare(), bytes: 0, totalBytes: 0 }, PREPARED);

    const check = (healthy: string): string => {
      const trial = `id=t\nkind=agent\ndeadline=0\nversion=${NEXT_VERSION}\n`;
      writeFileSync(join(state, "trial"), trial);
      writeFileSync(join(state, "healthy"), healthy);
      root.output("rm -f /var/lib/picolet/updates/result; sh /usr/lib/picolet/updates/boot-check");
      return readFileSync(join(state, "result"), "utf8");
    };
    const installed = (): string[] => root.files().filter((path) => !path.startsWith("/var/lib/picolet/updates/"));
    const files = installed();
    assert.match(check(""), /^outcome=rolledBack\nreason=the agent did not come up within 0 s$/m);
    assert.equal(versionIn(root), VERSION);
    // The package made again has exactly the files that were installed.
    assert.equal(root.output("dpkg --verify picolet"), "");
    assert.deepEqual(installed(), files);
    assert.match(root.output("picolet --version"), versionLines(1));

    root.output("rm -f /var/lib/picolet/updates/reverting /var/lib/picolet/updates/starts");
    assert.match(check("id=t\n"), /^outcome=good$/m);
    assert.equal(versionIn(root), NEXT_VERSION);
    assert.ok(existsSync(join(state, "current.deb")), "the next update goes back to it");
  });
});

const PREPARED: UpdateAnswer = { kind: "prepared", version: NEXT_VERSION, slot: "", bytes: 0, totalBytes: 0 };

/** As dpkg knows it. */
const versionIn = (root: DebianRoot): string =>
  /^Version: (.*)$/m.exec(root.output("dpkg --status picolet"))?.[1] ?? "";

const versionLines = (count: number): RegExp => new RegExp(`^(?:\\S+ ${VERSION.replaceAll(".", "\\.")}\\n){${count}}$`);

const difference = (files: readonly string[], before: readonly string[]): string[] => {
  const known = new Set(before);
  return files.filter((path) => !known.has(path));
};
