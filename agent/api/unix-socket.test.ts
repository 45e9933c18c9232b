import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type ErrorCode, isPicoletError } from "@picolet/protocol/errors.ts";
import { listenOnSocket } from "./unix-socket.ts";

function place(t: TestContext): { path: string; server: () => Server } {
  const dir = mkdtempSync(join(tmpdir(), "picolet-socket-"));
  const servers: Server[] = [];
  t.after(() => {
    for (const each of servers) each.close();
    rmSync(dir, { recursive: true });
  });
  const server = (): Server => {
    const made = createServer((socket) => socket.destroy());
    servers.push(made);
    return made;
  };
  return { path: join(dir, "run", "picolet.sock"), server };
}

const fails = (code: ErrorCode, message: RegExp) => (error: unknown) =>
  isPicoletError(error, code) && message.test(error.message);

test("the folder is made, and the socket is for owner and group from its first moment", async (t) => {
  const { path, server } = place(t);
  const before = process.umask();
  const remove = await listenOnSocket(server(), path);
  assert.equal(statSync(path).mode & 0o777, 0o660);
  assert.equal(process.umask(), before);
  remove();
  assert.ok(!existsSync(path));
});

test("the socket of a killed agent is replaced", async (t) => {
  const { path, server } = place(t);
  (await listenOnSocket(server(), path))();
  const script = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  spawnSync(process.execPath, ["-e", script]);
  assert.ok(statSync(path).isSocket());
  await listenOnSocket(server(), path);
});

test("the socket of a living agent is left alone", async (t) => {
  const { path, server } = place(t);
  await listenOnSocket(server(), path);
  const { ino } = statSync(path);
  await assert.rejects(listenOnSocket(server(), path), fails("conflict", /another agent answers there/));
  assert.equal(statSync(path).ino, ino);
});

test("a file in the way and a path that is too long are refused", async (t) => {
  const { path, server } = place(t);
  (await listenOnSocket(server(), path))();
  writeFileSync(path, "precious");
  await assert.rejects(listenOnSocket(server(), path), fails("conflict", /no socket is there/));
  const long = join(path, "..", "x".repeat(120));
  await assert.rejects(listenOnSocket(server(), long), fails("invalid", /at most 107 bytes/));
  await assert.rejects(listenOnSocket(server(), join(path, "below.sock")), fails("failed", /cannot listen on/));
});

test("a socket that another process made meanwhile is not removed", async (t) => {
  const { path, server } = place(t);
  const first = server();
  const remove = await listenOnSocket(first, path);
  renameSync(path, `${path}.old`);
  await listenOnSocket(server(), path);
  remove();
  await new Promise((resolve) => first.close(resolve));
  assert.ok(existsSync(path));
  assert.deepEqual(readdirSync(join(path, "..")).sort(), ["picolet.sock", "picolet.sock.old"], "nothing is left over");
});
