/** Boards and a hub on real TLS: which boards get in, which do not, and with what message. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { createServer } from "node:tls";
import { parseHubProxy } from "@picolet/agent/core/hub/hub-address.ts";
import { connectThrough } from "@picolet/agent/tunnel/dialing/proxy-connection.ts";
import { makeAuthority, makeServerPair } from "@picolet/hub/identity/certificate-authority.ts";
import { DAY_MS, START_MS, TestBoard, TestHub } from "../support/unit/identity/identity-hub.ts";
import { ConnectProxy } from "../support/unit/images/connect-proxy.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const never = new AbortController().signal;

test("a board with a token and the hub's CA hash joins, and is known by its certificate", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token() });
  const credentials = await board.joined();
  assert.deepEqual(await board.dial().then(({ status, text }) => [status, text]), [200, "board-1 false"]);
  board.identity.worked(credentials);
  assert.deepEqual(readdirSync(board.folder).toSorted(), ["identity.pem", "time-floor"]);
  assert.equal(statSync(join(board.folder, "identity.pem")).mode & 0o777, 0o600);
  assert.equal(statSync(board.folder).mode & 0o777, 0o700);
});

test("a board joins by a file with the CA, and by the name of the hub", async () => {
  await using hub = await TestHub.open();
  using folder = new TempFolder();
  const caFile = folder.at("hub-ca.pem");
  writeFileSync(caFile, hub.ca.authority.certificate);
  await using board = new TestBoard({
    hub,
    token: await hub.token(),
    caFile,
    host: "localhost",
  });
  await board.joined();
  assert.equal((await board.dial()).status, 200);
});

test("a CA file that cannot be read is a problem of joining, and none of a board that has joined", async () => {
  await using hub = await TestHub.open();
  using folder = new TempFolder();
  const caFile = folder.at("hub-ca.pem");
  const disk = folder.at("identity");
  {
    await using board = new TestBoard({ hub, folder: disk, token: await hub.token(), caFile });
    assert.match(await board.problem(/./), /cannot read hub.caFile .*hub-ca.pem: ENOENT/);
    writeFileSync(caFile, hub.ca.authority.certificate);
    await board.nextAlarm();
    await board.joined();
  }
  rmSync(caFile);
  await using board = new TestBoard({ hub, folder: disk, caFile });
  await board.joined();
  assert.equal((await board.dial()).status, 200);
});

test("a wrong, an expired and a malformed token get the same answer, which says how to make one", async () => {
  await using hub = await TestHub.open();
  const token = await hub.token({ ttlMs: 1000 });
  hub.clock.setWall(START_MS + 2000);
  for (const wrong of [`${token.slice(0, 6)}.aaaaaaaaaaaaaaaa`, "aaaaaa.aaaaaaaaaaaaaaaa", token, "nonsense"]) {
    await using board = new TestBoard({ hub, token: wrong });
    const problem = await board.problem(/./);
    assert.match(problem, /the token is not accepted: .*`picolet-hub token create`/);
    assert.ok(!problem.includes(wrong));
    assert.deepEqual(
      hub.secrets.all.filter(({ metadata }) => metadata.name.startsWith("picolet-node-key")),
      [],
    );
  }
});

test("a token for one board lets that board in, as often as it asks, and no other", async () => {
  await using hub = await TestHub.open();
  const token = await hub.token({ uses: 1 });
  {
    await using board = new TestBoard({ hub, token });
    await board.joined();
  }
  // Its card was written again: the name is its own after a reset, and counts no second time.
  await hub.certifier.reset("board-1", never);
  await using again = new TestBoard({ hub, token });
  await again.joined();
  await using other = new TestBoard({ hub, token, name: "board-2" });
  assert.match(await other.problem(/./), /1 boards have joined with it, and it is for no more; make another one with/);
});

test("a token file that comes later is noticed; one that was refused is followed by another at once", async () => {
  await using hub = await TestHub.open();
  using folder = new TempFolder();
  const tokenFile = folder.at("token");
  await using board = new TestBoard({ hub, tokenFile });
  assert.match(await board.problem(/./), /needs a token of `picolet-hub token create` in .*token to join/);
  writeFileSync(tokenFile, "aaaaaa.aaaaaaaaaaaaaaaa\n");
  await board.problem(/not accepted/);
  writeFileSync(tokenFile, `${await hub.token()}\n`);
  await board.joined();
});

test("a token file in a folder that is not there yet is found by looking again", async () => {
  await using hub = await TestHub.open();
  using folder = new TempFolder();
  await using board = new TestBoard({ hub, tokenFile: folder.at("boot", "token") });
  await board.problem(/needs a token/);
  mkdirSync(folder.at("boot"));
  writeFileSync(folder.at("boot", "token"), await hub.token());
  await board.nextAlarm();
  await board.joined();
});

test("a hub whose CA is another than the pinned one is sent no token", async () => {
  await using hub = await TestHub.open();
  await using other = await TestHub.open();
  const bodies: string[] = [];
  other.intercept = (request) => {
    bodies.push(`${request.method} ${request.url}`);
    return false;
  };
  await using board = new TestBoard({ hub: other, caHashes: [hub.ca.hash], token: await hub.token() });
  assert.match(await board.problem(/./), /this is not the hub: its CA is sha256:[0-9a-f]{64}, and the configuration/);
  assert.deepEqual(bodies, ["GET /v1/ca"]);
});

test("somebody in between who hands out the real CA, but has no certificate from it, gets nothing of the token", async () => {
  await using hub = await TestHub.open();
  const evil = makeAuthority("picolet-hub-ca", { days: 30, now: new Date(START_MS) });
  const pair = makeServerPair(evil, ["127.0.0.1"], { days: 30, now: new Date(START_MS) });
  const heard: string[] = [];
  const ca = hub.ca.serving.current.caBundle;
  const server = createServer({ cert: pair.certificate + ca, key: pair.privateKey }, (socket) => {
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => {
      heard.push(chunk.toString());
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${ca.length}\r\n\r\n${ca}`);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const token = await hub.token();
  await using board = new TestBoard({ hub, token, port });
  assert.match(await board.problem(/./), /not from a CA that is trusted here/);
  assert.equal(heard.length, 1);
  assert.ok(!heard.join().includes(token.slice(7)));
  server.close();
});

test("a hub under another name than its certificate's is refused", async () => {
  await using hub = await TestHub.open({ names: ["hub.example"] });
  await using board = new TestBoard({ hub, token: await hub.token() });
  assert.match(await board.problem(/./), /certificate is for DNS:hub.example, not for 127.0.0.1/);
});

test("a board without any pin joins nobody", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token(), caHashes: [] });
  assert.match(await board.problem(/./), /this is not the hub/);
});

test("a name that another board has is not given away, unless its token may, or the node was reset", async () => {
  await using hub = await TestHub.open();
  await using first = new TestBoard({ hub, token: await hub.token() });
  await first.joined();
  {
    await using second = new TestBoard({ hub, token: await hub.token() });
    const problem = await second.problem(/./);
    assert.match(problem, /node board-1 has joined before with another key/);
    assert.match(problem, /picolet-hub node reset board-1.*picolet-hub token create --replace-nodes/);
    assert.equal((await first.dial()).status, 200);
    // Mended on the hub, without touching the board.
    await hub.certifier.reset("board-1", never);
    await second.nextAlarm();
    await second.joined();
    assert.equal((await second.dial()).text.split(" ")[0], "board-1");
  }
  assert.match((await first.dial()).text, /revoked/);
  await using third = new TestBoard({ hub, token: await hub.token({ replaceNodes: true }) });
  await third.joined();
  await using fourth = new TestBoard({ hub, token: await hub.token({ replaceNodes: true }) });
  await fourth.joined();
  assert.match((await third.dial()).text, /revoked/);
  assert.equal((await fourth.dial()).status, 200);
});

test("the same board can join again under its name when the answer of the hub was lost", async () => {
  await using hub = await TestHub.open();
  const token = await hub.token();
  const log = hub.log.entries;
  hub.intercept = (request, response) => {
    if (request.url !== "/v1/join") return false;
    hub.intercept = undefined;
    // Signed and written down; then the link is gone.
    response.end = () => response.destroy();
    return false;
  };
  await using board = new TestBoard({ hub, token });
  await board.problem(/broke/);
  assert.ok(log.some(({ message }) => message === "certified a node"));
  assert.ok(existsSync(join(board.folder, "pending-key.pem")));
  await board.nextAlarm();
  await board.joined();
  assert.ok(!existsSync(join(board.folder, "pending-key.pem")));
});

test("a board that was given another name joins anew, with a token only", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  {
    await using board = new TestBoard({ hub, token: await hub.token(), folder });
    board.identity.worked(await board.joined());
  }
  {
    await using board = new TestBoard({ hub, folder, name: "board-2" });
    assert.match(await board.problem(/./), /has the certificate of node board-1: to join as board-2, it needs a token/);
  }
  await using board = new TestBoard({ hub, folder, name: "board-2", token: await hub.token() });
  const credentials = await board.joined();
  assert.equal((await board.dial()).text, "board-2 false");
  // The one before is another node's: nothing to fall back to.
  board.identity.refused(credentials, "test");
  assert.equal(board.identity.state.current.kind, "joined");
  assert.ok(readFileSync(join(folder, "identity.pem"), "utf8").includes(credentials.certificateChain));
});

test("of two hubs the one that answers is taken", async () => {
  await using hub = await TestHub.open();
  const hubs = [
    { host: "127.0.0.1", port: 1 },
    { host: "127.0.0.1", port: hub.port },
  ];
  await using board = new TestBoard({ hub, hubs, token: await hub.token() });
  await board.joined();
});

test("a board joins through a proxy, which it names when the proxy refuses", async () => {
  await using hub = await TestHub.open();
  await using proxy = await ConnectProxy.start();
  const address = parseHubProxy(`http://${proxy.address}`);
  assert.ok(typeof address !== "string");
  proxy.refusal = 403;
  await using board = new TestBoard({
    ...{ hub, host: "localhost", port: 10_270, token: await hub.token() },
    openSocket: (to, signal) => connectThrough(address, to, signal),
  });
  await board.problem(/cannot reach localhost:10270 through the proxy .*: it refuses \(403\)$/);
  proxy.refusal = undefined;
  proxy.places.set("localhost:10270", hub.port);
  await board.nextAlarm();
  await board.joined();
  assert.equal(new Set(proxy.asked).size, 1);
});

test("a hub that is away is asked again, ever more seldom, but once a minute at least", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, port: 1, token: await hub.token() });
  await board.problem(/cannot connect to 127.0.0.1:1/);
  const waits: number[] = [];
  for (let n = 0; n < 9; n += 1) waits.push(await board.nextAlarm());
  assert.ok((waits[0] ?? 0) <= 1000 && (waits[8] ?? 0) >= 30_000 && Math.max(...waits) <= 60_000, String(waits));
});

test("what is joined and left alone asks for the hub's CAs once a day, and for nothing else", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token() });
  await board.joined();
  const asked: string[] = [];
  hub.intercept = (request) => {
    asked.push(request.url ?? "");
    return false;
  };
  let passed = 0;
  for (let n = 0; n < 4; n += 1) passed += await board.nextAlarm();
  await board.idle();
  assert.deepEqual(asked, ["/v1/ca", "/v1/ca", "/v1/ca", "/v1/ca"]);
  assert.ok(passed > 2.7 * DAY_MS && passed < 4.4 * DAY_MS, String(passed));
});
