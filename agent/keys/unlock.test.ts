/**
 * Providers of the key, real where Debian has them: what becomes of sealed boxes through starts, changes and losses.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import {
  Board,
  DiskFolder,
  keepsItsKey,
  losesItsKey,
  NEVER,
  opens,
  seal,
  waitsForItsKey,
} from "@picolet/test/support/unit/agent/key-board.ts";
import { type DataKeys, MAX_MESSAGES, ROTATION_MS } from "./data-keys.ts";
import { type KeyFolder, parseKeyFile } from "./key-file.ts";
import { KEY_FILE } from "./key-file-name.ts";
import { makeKeyProviders, runTool } from "./key-providers.ts";
import { unlockDataKeys } from "./unlock.ts";

const SYSTEMD_CREDS = "/usr/bin/systemd-creds";
const withoutCreds = existsSync(SYSTEMD_CREDS) && process.getuid?.() === 0 ? false : "needs systemd-creds and root";

test("systemd-creds: the host's key decrypts; with another one the key is lost", { skip: withoutCreds }, async (t) => {
  const board = new Board(t);
  const secret = board.file("credential.secret");
  const before = process.env.SYSTEMD_CREDENTIAL_SECRET;
  process.env.SYSTEMD_CREDENTIAL_SECRET = secret;
  t.after(() => {
    if (before === undefined) delete process.env.SYSTEMD_CREDENTIAL_SECRET;
    else process.env.SYSTEMD_CREDENTIAL_SECRET = before;
  });
  await runTool(SYSTEMD_CREDS, ["setup"]);
  board.devices = { systemdFolder: board.path };
  const box = await keepsItsKey(board, "systemd-creds");
  rmSync(secret);
  await runTool(SYSTEMD_CREDS, ["setup"]);
  await losesItsKey(board, box, /./);
});

/** The kernel's folder of a Raspberry Pi with this key. */
function otpFolder(board: Board, name: string, key: Buffer): string {
  const device = board.file(`${name}/rpi-otp-private0`);
  mkdirSync(device, { recursive: true });
  writeFileSync(join(device, "nvmem"), key);
  return board.file(name);
}

test("rpi-otp: the key follows from the OTP; one that was never programmed is none", async (t) => {
  const board = new Board(t);
  board.devices = { nvmemFolder: otpFolder(board, "blank", Buffer.alloc(32)) };
  const without = await board.start();
  assert.equal(without.report().provider, "file");
  rmSync(board.file(KEY_FILE));
  board.devices = { nvmemFolder: otpFolder(board, "own", Buffer.alloc(32, 5)) };
  const box = await keepsItsKey(board, "rpi-otp");
  board.devices = { nvmemFolder: "/nonexistent" };
  await waitsForItsKey(board, box);
  board.devices = { nvmemFolder: otpFolder(board, "other", Buffer.alloc(32, 6)) };
  await losesItsKey(board, box, /it is another one/);
});

test("rpi-otp: without the kernel's file the firmware's tool is asked", async (t) => {
  const board = new Board(t);
  mkdirSync(board.file("bin"));
  writeFileSync(board.file("bin/rpi-otp-private-key"), `#!/bin/sh\necho ${"0123456789abcdef".repeat(4)}\n`, {
    mode: 0o755,
  });
  const { PATH } = process.env;
  process.env.PATH = `${board.file("bin")}:${PATH}`;
  t.after(() => {
    process.env.PATH = PATH;
  });
  await keepsItsKey(board, "rpi-otp", "rpi-otp");
});

test("file: a key file that is gone, cut short or of another store is a lost key", async (t) => {
  for (const damage of [
    rmSync,
    (path: string) => truncateSync(path, 20),
    (path: string) => writeFileSync(path, `${Buffer.alloc(32, 1).toString("base64")}\n`),
  ]) {
    const board = new Board(t);
    const box = await keepsItsKey(board, "file");
    damage(board.file("store.key"));
    await losesItsKey(board, box, /./);
  }
});

test("file: on a medium that is away the key is waited for", async (t) => {
  const board = new Board(t);
  const medium = new Board(t);
  board.devices = { keyFile: medium.file("usb/store.key") };
  mkdirSync(medium.file("usb"));
  const box = await keepsItsKey(board, "file");
  assert.ok(!existsSync(board.file("store.key")));
  const key = readFileSync(medium.file("usb/store.key"));
  rmSync(medium.file("usb"), { recursive: true });
  await waitsForItsKey(board, box);
  mkdirSync(medium.file("usb"));
  writeFileSync(medium.file("usb/store.key"), key);
  assert.ok(opens(await board.start(), box));
});

test("a provider that comes a little later than the agent is waited for; one that never comes is not for ever", async (t) => {
  const board = new Board(t);
  const medium = new Board(t);
  board.devices = { keyFile: medium.file("store.key") };
  const box = await keepsItsKey(board, "file");
  const key = readFileSync(medium.file("store.key"));
  rmSync(medium.file("store.key"));
  const unlock = async (whenWaiting: (sleeps: number) => void): Promise<DataKeys> => {
    let sleeps = 0;
    const sleep = async (): Promise<void> => {
      sleeps += 1;
      whenWaiting(sleeps);
    };
    const clock = { wall: () => board.clock.wall(), monotonic: () => board.clock.monotonic(), sleep };
    const providers = makeKeyProviders({
      ...{ tpmDevice: "/nonexistent", systemdFolder: "/nonexistent", nvmemFolder: "/nonexistent" },
      ...{ rootDir: board.path, keyFile: medium.file("store.key"), folderAt: (path) => new DiskFolder(path) },
    });
    const parts = { clock, log: board.log, folder: board.folder, providers };
    return await unlockDataKeys(parts, { choice: "auto", waits: [millis(1), millis(2)] }, NEVER);
  };
  assert.ok(!(await unlock(() => undefined)).isDurable);
  const late = await unlock((sleeps) => {
    if (sleeps === 2) writeFileSync(medium.file("store.key"), key);
  });
  assert.ok(opens(late, box));
});

test("a damaged key file never stops the agent and never opens anything", async (t) => {
  const board = new Board(t);
  const box = await keepsItsKey(board, "file");
  const whole = readFileSync(board.file(KEY_FILE));
  const kek = readFileSync(board.file("store.key"));
  for (let at = 0; at < whole.length; at += 7) {
    const bytes = Buffer.from(whole);
    bytes[at] = (bytes[at] ?? 0) ^ 0x02;
    writeFileSync(board.file(KEY_FILE), bytes);
    const keys = await board.start();
    // White space is the only thing that may change without harm.
    if (!opens(keys, box)) assert.equal(keys.problem?.kind, "lost", `byte ${at}`);
    assert.ok(keys.isDurable);
    const isNew = keys.problem !== undefined;
    if (isNew) assert.deepEqual(readFileSync(board.file("store.key.lost")), kek, "an operator may mend it");
    writeFileSync(board.file(KEY_FILE), whole);
    writeFileSync(board.file("store.key"), kek);
    assert.ok(opens(await board.start(), box));
  }
  for (const length of [0, 1, whole.length / 2, whole.length - 5]) {
    writeFileSync(board.file(KEY_FILE), whole.subarray(0, length));
    assert.equal((await board.start()).problem?.kind, "lost");
  }
});

test("another provider takes over what the one before sealed, with a new data key, and the old key file goes", async (t) => {
  const board = new Board(t);
  const box = await keepsItsKey(board, "file");
  board.devices = { nvmemFolder: otpFolder(board, "own", Buffer.alloc(32, 5)) };
  assert.equal((await board.start()).report().provider, "file", "auto keeps what works");
  const keys = await board.start("rpi-otp");
  assert.equal(keys.report().provider, "rpi-otp");
  assert.equal(keys.generation, 2);
  assert.ok(opens(keys, box));
  assert.ok(!existsSync(board.file("store.key")), "nothing on the disk opens it any more");
  const refused = await board.start("tpm2");
  assert.equal(refused.report().provider, "rpi-otp", "a provider that is not there changes nothing");
  assert.match(refused.problem?.reason ?? "", /cannot use the key provider tpm2: there is no \/nonexistent/);
  assert.ok(opens(refused, box));
});

test("a disk that fails at any step of a provider's change or a rotation leaves keys that open everything", async (t) => {
  for (let failing = 0; failing < 8; failing += 1) {
    const board = new Board(t);
    const box = await keepsItsKey(board, "file");
    await board.clock.advance(millis(ROTATION_MS));
    let steps = 0;
    const breaking = new Proxy(board.folder, {
      get:
        (target, name: keyof KeyFolder) =>
        (...given: [string, string]) => {
          if (name !== "read") steps += 1;
          if (name !== "read" && steps > failing) throw new Error("EIO");
          return (target[name] as (...args: [string, string]) => unknown).apply(target, given);
        },
    });
    const providers = makeKeyProviders({
      ...{
        tpmDevice: "/nonexistent",
        systemdFolder: "/nonexistent",
        nvmemFolder: otpFolder(board, "own", Buffer.alloc(32, 5)),
      },
      ...{ rootDir: board.path, keyFile: board.file("store.key"), folderAt: () => breaking },
    });
    const parts = { clock: board.clock, log: board.log, providers };
    const during = await unlockDataKeys(
      { ...parts, folder: breaking },
      { choice: failing % 2 === 0 ? "rpi-otp" : "auto" },
      NEVER,
    );
    assert.ok(opens(during, box), `the process that fails at step ${failing}`);
    const after = await unlockDataKeys({ ...parts, folder: board.folder }, { choice: "auto" }, NEVER);
    assert.equal(after.problem, undefined);
    assert.ok(opens(after, box) && opens(after, seal(during)), `the one after step ${failing}`);
  }
});

test("auto takes what is bound to the board before what is on its disk", async (t) => {
  const board = new Board(t);
  const run = async (program: string, args: readonly string[]): Promise<Buffer> => {
    if (args[0] === "has-tpm2") throw new Error("partial");
    return Buffer.from(`${program} has encrypted`);
  };
  board.devices = { systemdFolder: board.path, run };
  mkdirSync(board.file("bin"));
  writeFileSync(board.file("bin/systemd-creds"), "", { mode: 0o755 });
  const { PATH } = process.env;
  process.env.PATH = `${board.file("bin")}:${PATH}`;
  t.after(() => {
    process.env.PATH = PATH;
  });
  assert.equal((await board.start()).report().provider, "systemd-creds");
  rmSync(board.file(KEY_FILE));
  board.devices = { ...board.devices, nvmemFolder: otpFolder(board, "own", Buffer.alloc(32, 5)) };
  assert.equal((await board.start()).report().provider, "rpi-otp");
});

test("a key is rotated when it is old, in use or not, and when it has sealed much; a disk that refuses delays that", async (t) => {
  const board = new Board(t);
  const box = await keepsItsKey(board, "file");
  await board.clock.advance(millis(ROTATION_MS));
  const keys = await board.start();
  assert.equal(keys.generation, 2);
  assert.ok(opens(keys, box));
  await board.clock.advance(millis(ROTATION_MS));
  assert.equal(keys.generationOf(seal(keys)), 3);
  keys.settle(new Set([2, 3]));
  assert.ok(!opens(keys, box), "dropped when nothing needs it");
  const generations = (): number[] =>
    parseKeyFile(board.folder.read(KEY_FILE) ?? "").keys.map(({ generation }) => generation);
  assert.deepEqual(generations(), [2, 3]);
  assert.ok(MAX_MESSAGES * 2 < 2 ** 32);
  board.clock.setWall(0);
  assert.equal(keys.generationOf(seal(keys)), 3, "a clock that went back makes no key old");
});
