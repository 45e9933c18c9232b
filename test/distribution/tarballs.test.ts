/** The archives with install.sh, in a Debian system without systemd: installed, upgraded, removed, and refused. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { makeTarball, type TarballName } from "@picolet/firmware/tarballs/tarballs.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { DebianRoot, debianRootMissing } from "../support/debian/debian-root.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip = (process.arch === "x64" ? debianRootMissing() : "the archives are tried on amd64") ?? false;
const EPOCH = 1_795_439_450;
const NEXT_VERSION = "99.0.0";
/** Ends when the agent that was started last answers; `tail` ends with its reader. */
const UNTIL_ANSWER = 'tail -n +1 -F /var/log/picolet.log 2>&1 | grep -q "local API listens"';
const PATH = "PATH=/usr/local/bin:$PATH";

describe("archives with install.sh", { skip }, () => {
  const folder = new TempFolder();
  const made = (name: TarballName, version: string, to = "tarballs"): string => {
    const distribution = distributionFolder(name === "picolet" ? "board" : "hub");
    return makeTarball({ name, platform: "linux-x64", distribution, epoch: EPOCH, version, level: 0 }, folder.at(to));
  };
  let board: string;

  before(() => {
    board = made("picolet", VERSION);
  });
  after(() => folder[Symbol.dispose]());

  /** @returns the folder of the archive in the root */
  function unpack(root: DebianRoot, tarball: string): string {
    const path = root.bring(tarball);
    root.output(`tar -xzf ${path} -C /tmp --no-same-owner && rm ${path}`);
    return path.replace(/\.tar\.gz$/, "");
  }

  test("the same input makes the same bytes", () => {
    assert.ok(readFileSync(made("picolet", VERSION, "again")).equals(readFileSync(board)));
  });

  test("installed, the agent runs; upgraded, another one runs; purged, nothing of it is left", () => {
    using root = new DebianRoot();
    const before = root.files();
    const folders = [unpack(root, board), unpack(root, made("picolet", NEXT_VERSION))];
    mkdirSync(join(root.path, "etc/picolet"));
    const config = {
      containerRuntimeEndpoint: "",
      nodeName: "board",
      cgroupRoot: "/picolet-tarball-test",
      healthzPort: 0,
    };
    writeFileSync(join(root.path, "etc/picolet/config.yaml"), JSON.stringify(config));
    try {
      assert.match(root.output(`${folders[0]}/install.sh`), /installed picolet 0\.1\.0 in .*\(init system: sysvinit\)/);
      const first = root.output(`${UNTIL_ANSWER}; cat /run/picolet.pid`);
      assert.match(root.output(`${PATH}; picolet --version; edgectl version`), new RegExp(`^picolet ${VERSION}\\n`));
      root.output("test -s /usr/local/share/man/man8/picolet.8");
      root.output("/usr/local/bin/picolet --config /usr/local/share/doc/picolet/config.yaml --check-config");

      root.output("rm /var/log/picolet.log");
      assert.match(root.output(`${folders[1]}/install.sh`), new RegExp(`installed picolet ${NEXT_VERSION}`));
      const second = root.output(`${UNTIL_ANSWER}; cat /run/picolet.pid`);
      assert.notEqual(second, first);
      assert.match(root.output("cat /usr/local/lib/picolet/package"), new RegExp(NEXT_VERSION));

      root.output(`${folders[1]}/install.sh --uninstall`);
      assert.ok(existsSync(join(root.path, "etc/picolet/config.yaml")));
      assert.notEqual(root.run(`${PATH}; command -v edgectl`).exitCode, 0);
      assert.ok(!existsSync(`/proc/${second.trim().split("\n").at(-1)}`));
      root.output(`${folders[1]}/install.sh --uninstall --purge && rm -r ${folders.join(" ")}`);
      const left = root.files().filter((path) => !before.includes(path) && !path.startsWith("/usr/local/share"));
      assert.deepEqual(left, []);
    } finally {
      root.run("/etc/init.d/picolet stop");
    }
  });

  test("the hub: with another prefix, as a user of its own, started by its administrator", () => {
    using root = new DebianRoot();
    const hub = unpack(root, made("picolet-hub", VERSION));
    root.output(`${hub}/install.sh --prefix /opt/picolet`);
    assert.match(root.output("/opt/picolet/bin/picolet-hub --version; getent passwd picolet-hub"), /picolet-hub:x:\d+/);
    assert.match(
      readFileSync(join(root.path, "etc/init.d/picolet-hub"), "utf8"),
      /exec \/opt\/picolet\/bin\/picolet-hub serve/,
    );
    assert.ok(!existsSync(join(root.path, "run/picolet-hub.pid")));
    root.output(`${hub}/install.sh --uninstall --prefix /opt/picolet`);
    assert.ok(!existsSync(join(root.path, "opt/picolet/bin/picolet-hub")));
  });

  test("a system that picolet cannot run on is refused before anything is changed, with the reason", () => {
    using root = new DebianRoot();
    const path = unpack(root, board);
    const before = root.files();
    for (const [fakes, reason] of [
      [{ uname: "echo armv7l" }, /32-bit ARM \(armv7l\), .* V8's WebAssembly and Node's releases have left it/],
      [{ uname: "echo armv6l" }, /32-bit ARM \(armv6l\)/],
      [
        { uname: "echo aarch64", dpkg: "echo armhf" },
        /64-bit kernel with a 32-bit system \(armhf\): install the 64-bit Raspberry Pi OS/,
      ],
      [
        { uname: "echo aarch64", dpkg: "echo arm64" },
        /this archive is for linux-x64, .* get picolet-0\.1\.0-linux-arm64\.tar\.gz/,
      ],
      [{ uname: "echo riscv64" }, /this machine is a riscv64/],
      [{ ldd: "echo 'musl libc (x86_64)' >&2; exit 1" }, /this system has musl .* are linked with glibc/],
      [{ getconf: "echo glibc 2.31" }, /this system has glibc 2\.31; picolet needs 2\.34/],
      [{ getconf: "exit 1", ldd: "echo 'ldd (Debian GLIBC 2.28-10) 2.28'" }, /this system has glibc 2\.28/],
      [{ grep: "exit 1" }, /libstdc\+\+\.so\.6 is too old: .* GLIBCXX_3\.4\.29/],
      [{ id: "echo 1000" }, /run it as root/],
    ] as const) {
      const fake = join(root.path, "tmp/fake");
      execFileSync("rm", ["-rf", fake]);
      mkdirSync(fake);
      for (const [name, script] of Object.entries(fakes)) {
        writeFileSync(join(fake, name), `#!/bin/sh\n${script}\n`);
        chmodSync(join(fake, name), 0o755);
      }
      const { exitCode, output } = root.run(`PATH=/tmp/fake:$PATH ${path}/install.sh`);
      assert.equal(exitCode, 1, output);
      assert.match(output, reason);
    }
    execFileSync("rm", ["-rf", join(root.path, "tmp/fake")]);
    assert.deepEqual(root.files(), before);
    assert.match(root.run(`${path}/install.sh --prefx /opt`).output, /unknown argument --prefx/);
    assert.match(root.run(`${path}/install.sh --purge`).output, /--purge goes with --uninstall/);
  });
});
