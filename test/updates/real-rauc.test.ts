/**
 * RAUC itself, on a bus of its own, with two files as slots: the update program installs a bundle from a registry, and
 * the boot check activates its slot, judges it and goes back. Bundles are plain: verity ones need dm-verity, and a
 * stream needs nbd, which a board's kernel has.
 */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { runCommand } from "@picolet/agent/updates/program/commands.ts";
import { updateSystem } from "@picolet/agent/updates/program/system-update.ts";
import type { UpdateAnswer } from "@picolet/agent/updates/update-task.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { OS_ARTIFACT_TYPE, OS_LAYER_TYPE } from "@picolet/protocol/updates/node-updates.ts";
import { DEFAULT_PULL_LIMITS } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";
import { type Document, descriptorOf, digestOf, MANIFEST_TYPE } from "../support/unit/images/oci-content.ts";
import { ScriptedRegistry } from "../support/unit/images/scripted-registry.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const RAUC = "/usr/bin/rauc";
const BUS = "/usr/bin/dbus-daemon";
const MONITOR = "/usr/bin/dbus-monitor";
const OPENSSL = "/usr/bin/openssl";
const PROGRAMS = [RAUC, "/usr/bin/mksquashfs", BUS, MONITOR, OPENSSL, "/dev/loop-control"];
const missing = PROGRAMS.filter((path) => !existsSync(path));
const skip = missing.length === 0 ? false : `not here: ${missing.join(", ")}`;
const BOOT_CHECK = "firmware/updates/boot-check";
const COMPATIBLE = "picolet-test";
const NEVER = new AbortController().signal;

/** Keeps the boot loader's choice in files. */
const BACKEND = (folder: string): string => `#!/bin/sh
cd ${folder}
case $1 in
  get-primary) cat primary ;;
  set-primary) echo $2 >primary ;;
  get-state) cat state-$2 ;;
  set-state) echo $3 >state-$2 ;;
esac
`;

class RaucBoard implements AsyncDisposable {
  readonly #folder = new TempFolder("/var/tmp");
  readonly #children: ChildProcess[] = [];
  #service: ChildProcess | undefined;

  at(...names: readonly string[]): string {
    return this.#folder.at(...names);
  }

  read(name: string): string {
    return readFileSync(this.at(name), "utf8").trim();
  }

  async start(): Promise<void> {
    for (const name of ["a", "b"]) execFileSync("truncate", ["--size=4M", this.at(name)]);
    for (const [name, text] of [
      ["primary", "A"],
      ["state-A", "good"],
      ["state-B", "bad"],
    ] as const)
      writeFileSync(this.at(name), `${text}\n`);
    writeFileSync(this.at("backend"), BACKEND(this.at()), { mode: 0o755 });
    for (const name of ["fleet", "other"]) this.#makeKey(name);
    writeFileSync(
      this.at("system.conf"),
      `[system]\ncompatible=${COMPATIBLE}\nbootloader=custom\nactivate-installed=false\nstatusfile=${this.at("status")}\n` +
        `[handlers]\nbootloader-custom-backend=${this.at("backend")}\n[keyring]\npath=${this.at("fleet.crt")}\n` +
        `[slot.rootfs.0]\ndevice=${this.at("a")}\ntype=raw\nbootname=A\n` +
        `[slot.rootfs.1]\ndevice=${this.at("b")}\ntype=raw\nbootname=B\n`,
    );
    const bus = spawn(BUS, ["--session", "--nofork", `--address=${this.#bus}`, "--print-address"]);
    this.#children.push(bus);
    await once(bus.stdout, "data");
    mkdirSync(this.at("bin"));
    const rauc = `#!/bin/sh\nexec env ${this.#environment.join(" ")} /usr/bin/rauc "$@"\n`;
    writeFileSync(this.at("bin", "rauc"), rauc, { mode: 0o755 });
    const systemctl = `#!/bin/sh\n[ "$1" = is-failed ] && exit 1\necho "$1" >>${this.at("systemctl")}\n`;
    writeFileSync(this.at("bin", "systemctl"), systemctl, { mode: 0o755 });
    await this.boot("A");
  }

  get #bus(): string {
    return `unix:path=${this.at("bus")}`;
  }

  get #environment(): readonly string[] {
    return [`DBUS_SESSION_BUS_ADDRESS=${this.#bus}`, "DBUS_STARTER_BUS_TYPE=session"];
  }

  #makeKey(name: string): void {
    const files = ["-keyout", this.at(`${name}.key`), "-out", this.at(`${name}.crt`)];
    const how = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"];
    execFileSync(OPENSSL, ["req", ...how, "-subj", `/CN=${name}`, ...files], { stdio: "ignore" });
  }

  /** RAUC's service as it is after a start of this slot. */
  async boot(slot: "A" | "B"): Promise<void> {
    await this.#endService();
    writeFileSync(this.at("cmdline"), `quiet rauc.slot=${slot}\n`);
    const match = "type='signal',member='NameOwnerChanged',arg0='de.pengutronix.rauc'";
    const monitor = spawn(MONITOR, ["--address", this.#bus, match], { stdio: ["ignore", "pipe", "ignore"] });
    this.#children.push(monitor);
    // It names itself once it listens.
    await once(monitor.stdout, "data");
    const args = [...this.#environment, "rauc", "--conf", this.at("system.conf"), `--override-boot-slot=${slot}`];
    this.#service = spawn("env", [...args, "service"], { stdio: "ignore" });
    for await (const text of monitor.stdout as AsyncIterable<Buffer>) if (text.includes("NameOwnerChanged")) break;
    monitor.kill();
  }

  bundle(version: string, image: Uint8Array, key: "fleet" | "other" = "fleet"): Buffer {
    const name = `${key}-${version}`;
    mkdirSync(this.at(name));
    writeFileSync(this.at(name, "rootfs.img"), image);
    writeFileSync(
      this.at(name, "manifest.raucm"),
      `[update]\ncompatible=${COMPATIBLE}\nversion=${version}\n[bundle]\nformat=plain\n[image.rootfs]\nfilename=rootfs.img\n`,
    );
    const signer = [`--cert=${this.at(`${key}.crt`)}`, `--key=${this.at(`${key}.key`)}`];
    execFileSync(RAUC, ["bundle", ...signer, this.at(name), this.at(`${name}.raucb`)], { stdio: "ignore" });
    return readFileSync(this.at(`${name}.raucb`));
  }

  /** With the registry as the source of the bundle. */
  async update(bundle: Buffer, offered: string, version = "1"): Promise<UpdateAnswer> {
    await using registry = await ScriptedRegistry.start();
    const config = "{}";
    const content = JSON.stringify({
      ...{ schemaVersion: 2, mediaType: MANIFEST_TYPE, artifactType: OS_ARTIFACT_TYPE },
      config: descriptorOf(config, "application/vnd.oci.empty.v1+json"),
      layers: [descriptorOf(bundle, OS_LAYER_TYPE)],
      annotations: { "org.opencontainers.image.version": offered },
    });
    const manifest: Document = { content, mediaType: MANIFEST_TYPE, digest: digestOf(content) };
    registry.add(manifest, [bundle, config], "next");
    const access = {
      ...{ repository: "os", endpoints: [{ url: `http://${registry.address}`, caFile: undefined }] },
      ...{ credentials: undefined, credentialsFrom: undefined, limits: DEFAULT_PULL_LIMITS },
      proxies: { httpProxy: "", httpsProxy: "", noProxy: "" },
    };
    const components = {
      ...{ clock: systemClock, random: { next: () => 0 }, onInstalling: () => undefined },
      // A stream needs nbd.
      run: async (command: readonly string[], signal: AbortSignal) =>
        command[0] === "modprobe"
          ? { exitCode: 1, stdout: "", stderr: "" }
          : await runCommand(
              ["env", ...this.#environment, "rauc", ...this.#keyring(command), ...command.slice(1)],
              signal,
            ),
    };
    mkdirSync(this.at("updates"), { recursive: true });
    return await updateSystem(
      components,
      {
        ...{ want: "os", directory: this.at("updates"), install: true, bytesPerSecond: 0, allowDowngrade: false },
        ...{ version, slot: "A", compatible: COMPATIBLE, source: { kind: "registry", access, reference: "next" } },
      },
      NEVER,
    );
  }

  /** A board has it in /etc/rauc/system.conf. */
  #keyring([, verb]: readonly string[]): readonly string[] {
    return verb === "info" ? ["--keyring", this.at("fleet.crt")] : [];
  }

  /** @returns what it printed */
  check(): string {
    writeFileSync(this.at("uptime"), "5.00\n");
    return execFileSync("sh", [BOOT_CHECK], {
      encoding: "utf8",
      env: {
        PATH: `${this.at("bin")}:/usr/bin:/bin`,
        PICOLET_UPDATES: this.at("updates"),
        PICOLET_CMDLINE: this.at("cmdline"),
        PICOLET_UPTIME: this.at("uptime"),
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
  }

  trial(more: Readonly<Record<string, string>> = {}): void {
    execFileSync("sh", ["-c", `rm -f ${this.at("updates")}/* ${this.at("systemctl")}`]);
    writeFileSync(this.at("updates", "trial"), "id=t\nkind=os\ndeadline=0\nversion=2\nslot=B\n");
    for (const [name, text] of Object.entries(more)) writeFileSync(this.at("updates", name), text);
  }

  async #endService(): Promise<void> {
    const service = this.#service;
    this.#service = undefined;
    if (service === undefined || service.exitCode !== null) return;
    service.kill();
    await once(service, "exit");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#endService();
    for (const child of this.#children) {
      child.kill();
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    }
    this.#folder[Symbol.dispose]();
  }
}

describe("RAUC", { skip }, () => {
  const board = new RaucBoard();
  const image = randomBytes(1024 * 1024);

  before(async () => {
    if (skip === false) await board.start();
  });
  after(async () => await board[Symbol.asyncDispose]());

  test("a bundle that the board's keyring does not know is not installed, nor an older one under a newer name", async () => {
    const foreign = board.bundle("2", image, "other");
    await assert.rejects(board.update(foreign, "2"), (error) =>
      /RAUC does not accept it: .*signature/.test(describeError(error)),
    );
    const older = board.bundle("1", image);
    await assert.rejects(board.update(older, "9", "5"), /1 is older than 5, which runs/);
    assert.ok(
      readFileSync(board.at("b")).every((byte) => byte === 0),
      "the other slot is as it was",
    );
  });

  test("a bundle is written into the other slot, and the running one stays the one that starts", async () => {
    const bundle = board.bundle("2", image);
    const answer = await board.update(bundle, "2");
    assert.deepEqual(answer, {
      kind: "prepared",
      version: "2",
      slot: "B",
      bytes: bundle.length,
      totalBytes: bundle.length,
    });
    assert.ok(readFileSync(board.at("b")).subarray(0, image.length).equals(image));
    assert.equal(board.read("primary"), "A");
  });

  test("the boot check activates it, and marks it good once it is healthy", async () => {
    board.trial();
    board.check();
    assert.deepEqual([board.read("primary"), board.read("systemctl")], ["B", "reboot"]);
    await board.boot("B");
    writeFileSync(board.at("state-B"), "bad\n");
    writeFileSync(board.at("updates", "healthy"), "id=t\n");
    board.check();
    assert.match(readFileSync(board.at("updates", "result"), "utf8"), /^outcome=good$/m);
    assert.deepEqual([board.read("primary"), board.read("state-B")], ["B", "good"]);
  });

  test("the boot check goes back to the slot before when it is not", async () => {
    board.trial({ switched: "yes\n", unhealthy: "id=t\nreason=not running as before: default/web\n" });
    board.check();
    assert.match(
      readFileSync(board.at("updates", "result"), "utf8"),
      /^outcome=rolledBack\nreason=not healthy after 0 s: not running as before: default\/web$/m,
    );
    assert.deepEqual([board.read("primary"), board.read("state-B"), board.read("systemctl")], ["A", "bad", "reboot"]);
    await board.boot("A");
    board.check();
    assert.deepEqual([board.read("primary"), board.read("state-A"), board.read("state-B")], ["A", "good", "bad"]);
  });
});
