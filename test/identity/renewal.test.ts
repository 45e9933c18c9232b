/** Certificates that end, are refused, are renewed, by boards that were away or whose clock is wrong. */
import assert from "node:assert/strict";
import { createPrivateKey, generateKeyPairSync, sign } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { NodeCredentials } from "@picolet/agent/core/hub/identity.ts";
import { makeNodeRequest } from "@picolet/agent/security/certificate-requests.ts";
import { HubConnection } from "@picolet/agent/security/hub-connection.ts";
import { encodeIdentity } from "@picolet/agent/security/identity-file.ts";
import { issueClientCertificate, makeAuthority } from "@picolet/hub/identity/certificate-authority.ts";
import { possessionStatement } from "@picolet/protocol/pki/join-messages.ts";
import { encodeBase64, encodePem } from "@picolet/protocol/pki/pem.ts";
import { DAY_MS, START_MS, TestBoard, type TestBoardInit, TestHub } from "../support/unit/identity/identity-hub.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const never = new AbortController().signal;

/** A board that joined, worked, and was switched off. @returns what it had */
async function joinedOnce(hub: TestHub, folder: string, init: Partial<TestBoardInit> = {}): Promise<NodeCredentials> {
  await using board = new TestBoard({ hub, folder, token: await hub.token(), ...init });
  const credentials = await board.joined();
  board.identity.worked(credentials);
  return credentials;
}

test("a certificate is renewed between 70 and 90 percent of its life, with a new key, and the old is kept until it works", async () => {
  await using hub = await TestHub.open({ nodeDays: 40 });
  await using board = new TestBoard({ hub, token: await hub.token() });
  const first = await board.joined();
  board.identity.worked(first);
  // The hub is a day ahead, as long as the board sleeps at most, and renews its own certificate on the way.
  for (let day = 0; ; day += 1) {
    hub.clock.setWall(board.machine.wall().getTime() + DAY_MS);
    if (day % 25 === 24) await hub.renewed({ rotateCa: false });
    await board.nextAlarm();
    await board.idle();
    const now = board.machine.wall().getTime();
    const { current } = board.identity.state;
    assert.ok(current.kind === "joined");
    if (current.credentials.certificateChain === first.certificateChain) continue;
    const share = (now - first.notBeforeMs) / (first.notAfterMs - first.notBeforeMs);
    assert.ok(share >= 0.7 && share <= 0.9, String(share));
    assert.notEqual(current.credentials.privateKey, first.privateKey);
    assert.equal(board.joins, 1, "a renewal is no joining: the node belongs to the fleet that it belonged to");
    assert.ok(readFileSync(join(board.folder, "identity.previous.pem"), "utf8").includes(first.certificateChain));
    assert.equal((await board.dial()).status, 200);
    board.identity.worked(current.credentials);
    assert.throws(() => readFileSync(join(board.folder, "identity.previous.pem")), { code: "ENOENT" });
    return;
  }
});

test("a new certificate that the hub refuses gives way to the old one", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  const first = await joinedOnce(hub, folder);
  const later = START_MS + 340 * DAY_MS;
  hub.clock.setWall(later);
  await hub.renewed({ rotateCa: false });
  await using board = new TestBoard({ hub, folder, wallMs: later });
  const second = await board.joined(first);
  board.identity.refused(second, "test");
  assert.equal((await board.joined(second)).certificateChain, first.certificateChain);
  assert.equal((await board.dial()).status, 200);
  // And is renewed again, not at once.
  assert.ok((await board.nextAlarm()) > 0);
  const third = await board.joined(first);
  board.identity.worked(third);
});

test("a certificate that ended while the board was away is renewed within the window", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  const first = await joinedOnce(hub, folder);
  const later = START_MS + (365 + 179) * DAY_MS;
  hub.clock.setWall(later);
  await hub.renewed({ rotateCa: true });
  await using board = new TestBoard({ hub, folder, wallMs: later });
  const second = await board.joined(first);
  assert.notEqual(second.privateKey, first.privateKey);
  assert.equal((await board.dial()).status, 200);
});

test("beyond the window it takes a token, and the board keeps its name without the right to replace nodes if it has its key", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  const first = await joinedOnce(hub, folder);
  const later = START_MS + (365 + 181) * DAY_MS;
  hub.clock.setWall(later);
  await hub.renewed({ rotateCa: true });
  {
    await using board = new TestBoard({ hub, folder, wallMs: later });
    const problem = await board.problem(/180 days/);
    assert.match(
      problem,
      /^the certificate ended at .*; the hub refused: .*join again with a token of `picolet-hub token create`/,
    );
  }
  {
    await using board = new TestBoard({ hub, folder, wallMs: later, token: await hub.token() });
    assert.match(await board.problem(/another key/), /node reset board-1/);
  }
  await using board = new TestBoard({ hub, folder, wallMs: later, token: await hub.token({ replaceNodes: true }) });
  await board.joined(first);
  assert.equal((await board.dial()).status, 200);
});

test("a node that was reset is neither let in nor renewed, within its time and after", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  const first = await joinedOnce(hub, folder);
  await hub.certifier.reset("board-1", never);
  await using board = new TestBoard({ hub, folder });
  const credentials = await board.joined();
  const { status, text } = await board.dial();
  assert.deepEqual([status, /revoked/.test(text)], [401, true]);
  board.identity.refused(credentials, text);
  await board.nextAlarm();
  while (!board.log.problems.includes("cannot renew the node's certificate")) await board.machine.settle();
  assert.equal((await board.joined()).certificateChain, first.certificateChain);
});

test("a renewal whose answer was lost is made again with the same key, even after the old certificate ended", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  const first = await joinedOnce(hub, folder);
  const late = START_MS + 364 * DAY_MS;
  hub.clock.setWall(late);
  await hub.renewed({ rotateCa: true });
  hub.intercept = (request, response) => {
    if (request.url === "/v1/renew") response.end = () => response.destroy();
    return false;
  };
  {
    await using board = new TestBoard({ hub, folder, wallMs: late });
    while (!board.log.problems.includes("cannot renew the node's certificate")) await board.machine.settle();
  }
  hub.intercept = undefined;
  hub.clock.setWall(START_MS + 370 * DAY_MS);
  await using board = new TestBoard({ hub, folder, wallMs: START_MS + 370 * DAY_MS });
  await board.joined(first);
  assert.equal((await board.dial()).status, 200);
});

test("with its clock at 1970 a board gets in, and has the time from then on", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  await joinedOnce(hub, folder);
  hub.clock.setWall(START_MS + 25 * DAY_MS);
  await hub.renewed({ rotateCa: true });
  await using board = new TestBoard({ hub, folder, wallMs: 0 });
  await board.joined();
  assert.ok(board.clock.wall().getTime() >= START_MS - 600_000, "not before what is known to be over");
  assert.equal((await board.dial()).status, 200);
  board.identity.observeTime(hub.clock.wall().getTime(), 40);
  assert.ok(Math.abs(board.clock.wall().getTime() - hub.clock.wall().getTime()) < 100);
  // NTP, at last.
  board.machine.setWall(START_MS + 25 * DAY_MS + 30_000);
  assert.equal(board.clock.wall().getTime(), START_MS + 25 * DAY_MS + 30_000);
});

test("a board at 1970 joins, with a certificate of a hub that it cannot know to be valid yet", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token(), wallMs: 0 });
  await board.joined();
  assert.equal((await board.dial()).status, 200);
  assert.ok(board.clock.wall().getTime() >= START_MS);
});

test("a board whose certificate ended, and whose clock is at 1970, gets back in", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  const first = await joinedOnce(hub, folder);
  hub.clock.setWall(START_MS + 400 * DAY_MS);
  await hub.renewed({ rotateCa: true });
  await using board = new TestBoard({ hub, folder, wallMs: 0 });
  const credentials = await board.joined();
  const { status, text } = await board.dial();
  assert.deepEqual([status, /ended at/.test(text)], [401, true]);
  board.identity.refused(credentials, text);
  await board.nextAlarm();
  await board.joined(first);
  assert.equal((await board.dial()).status, 200);
});

test("a board whose clock is years ahead asks for the time, which only the hub's CA can sign", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token(), wallMs: START_MS + 3000 * DAY_MS });
  await board.joined();
  assert.equal((await board.dial()).status, 200);
  assert.ok(Math.abs(board.clock.wall().getTime() - START_MS) < 1000);
  assert.ok(board.clock.floorMs < START_MS + DAY_MS, "the wrong time is not written down");
});

test("a hub's certificate that has ended is refused, and the time that its holder claims counts for nothing", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  await joinedOnce(hub, folder);
  // A thief has the hub's old key and certificate, but not the CA's key: another key signs the time.
  const stolen = hub.ca.serving.current;
  const thief = makeAuthority("thief", { days: 1, now: new Date(START_MS) });
  Object.assign(stolen, { caKeys: [thief.key] });
  const later = START_MS + 40 * DAY_MS;
  await using board = new TestBoard({ hub, folder, wallMs: later });
  await board.joined();
  const asked: string[] = [];
  hub.intercept = ({ url }) => {
    asked.push(url ?? "");
    return false;
  };
  const expired = { code: "permission_denied", reason: "CertificateExpired" };
  await assert.rejects(board.dial(), expired);
  // It asks for the time, and gets a wrong one.
  while (asked.length === 0) await board.machine.settle();
  await board.idle();
  assert.deepEqual(asked, ["/v1/time"]);
  assert.ok(Math.abs(board.clock.wall().getTime() - later) < 1000);
  await assert.rejects(board.dial(), expired);
});

test("a hub's certificate that had ended by the floor is refused on a board at 1970", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  await joinedOnce(hub, folder);
  const later = START_MS + 40 * DAY_MS;
  {
    // It met the real hub once more, and wrote the time down.
    hub.clock.setWall(START_MS + 20 * DAY_MS);
    await using board = new TestBoard({ hub, folder, wallMs: START_MS + 20 * DAY_MS });
    await board.joined();
    await board.dial();
    board.identity.observeTime(START_MS + 20 * DAY_MS, 10);
    await board.idle();
  }
  Object.assign(hub.ca.serving.current, { caKeys: [] });
  {
    await using board = new TestBoard({ hub, folder, wallMs: 0 });
    await board.joined();
    assert.equal((await board.dial()).status, 200, "20 days: not over yet");
    board.identity.observeTime(later, 10);
    assert.ok(board.clock.wall().getTime() < later, "a time after the hub's own certificate is not believed");
  }
});

test("what a hub says of the time is believed only once it is known, and only within its certificate's life", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token() });
  board.identity.observeTime(START_MS + 1000 * DAY_MS, 10);
  await board.joined();
  await board.dial();
  board.identity.observeTime(START_MS + 1000 * DAY_MS, 10);
  board.identity.observeTime(0, 10);
  board.identity.observeTime(Number.NaN, 10);
  assert.ok(Math.abs(board.clock.wall().getTime() - START_MS) < 1000);
});

test("the time is written down every six hours, not with every word of the hub's", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token() });
  await board.joined();
  await board.idle();
  const floor = (): number => Number(readFileSync(join(board.folder, "time-floor"), "utf8").split(" ")[0]);
  const first = floor();
  for (let minutes = 0; minutes <= 720; minutes += 30) {
    board.identity.observeTime(START_MS + minutes * 60_000, 10);
    await board.machine.settle();
    const hours = (floor() - first) / 3_600_000;
    assert.ok(minutes <= 360 ? hours < 0.1 : hours >= 6 && hours < 12.1, `${minutes} ${hours}`);
  }
});

test("a change of the hub's CA reaches boards that are connected, those that were away, and those with the old hash", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  await joinedOnce(hub, folder);
  const oldHash = hub.ca.hash;
  await using connected = new TestBoard({ hub, token: await hub.token(), name: "board-2" });
  const before = await connected.joined();
  await hub.renewed({ rotateCa: true });
  assert.notEqual(hub.ca.hash, oldHash);
  assert.equal((await connected.dial()).status, 200);
  await connected.nextAlarm();
  await connected.until((state) => state.kind === "joined" && state.credentials.hubCa !== before.hubCa);
  assert.equal((await connected.dial()).status, 200);
  await using away = new TestBoard({ hub, folder });
  await away.joined();
  assert.equal((await away.dial()).status, 200);
  await using fresh = new TestBoard({ hub, name: "board-3", token: await hub.token(), caHashes: [oldHash] });
  await fresh.joined();
  const caHashes = [hub.ca.hash];
  await using newest = new TestBoard({ hub, name: "board-4", token: await hub.token(), caHashes });
  await newest.joined();
});

test("a board that is told of another CA in its configuration believes no other from then on", async () => {
  await using old = await TestHub.open();
  using disk = new TempFolder();
  const folder = disk.at("identity");
  await joinedOnce(old, folder);
  await using hub = await TestHub.open();
  {
    await using board = new TestBoard({ hub, port: old.port, folder });
    assert.match(await board.problem(/not the hub/), /sha256/);
  }
  // The new hub does not know the board's certificate: a token helps.
  await using board = new TestBoard({ hub, folder, token: await hub.token() });
  const first = await board.joined();
  const { status, text } = await board.dial();
  assert.equal(status, 401);
  board.identity.refused(first, text);
  await board.nextAlarm();
  await board.joined(first);
  assert.equal((await board.dial()).status, 200);
});

test("connections outlive a change of the hub's certificate; sessions are resumed, and verified all the same", async () => {
  await using hub = await TestHub.open();
  await using board = new TestBoard({ hub, token: await hub.token() });
  await board.joined();
  const { ticket } = await board.dial();
  assert.ok(ticket !== undefined);
  assert.equal((await board.dial({ ticket })).text, "board-1 true");
  const connection = await HubConnection.open({ host: "127.0.0.1", port: hub.port }, undefined, never);
  await connection.get("/v1/ca", never);
  await hub.renewed({ rotateCa: true });
  assert.match(await connection.get("/v1/ca", never), /BEGIN CERTIFICATE/);
  connection[Symbol.dispose]();
  assert.equal((await board.dial({ ticket })).text, "board-1 false");
  // A revoked key is of no use in a resumed session either.
  const fresh = await board.dial();
  assert.ok(fresh.ticket !== undefined);
  await hub.certifier.reset("board-1", never);
  assert.equal((await board.dial({ ticket: fresh.ticket })).status, 401);
});

/** Asks for a renewal by hand. */
async function renewBy(
  hub: TestHub,
  credentials: Pick<NodeCredentials, "certificateChain" | "privateKey">,
  change: {
    readonly node?: string;
    readonly signingKey?: string;
    readonly twice?: boolean;
    readonly nonceOf?: "other";
  } = {},
): Promise<string> {
  const pair = { cert: credentials.certificateChain, key: credentials.privateKey };
  const address = { host: "127.0.0.1", port: hub.port };
  using connection = await HubConnection.open(address, pair, never);
  using other = await HubConnection.open(address, pair, never);
  const { nonce } = JSON.parse(await (change.nonceOf === "other" ? other : connection).get("/v1/nonce", never)) as {
    nonce: string;
  };
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const csr = makeNodeRequest(change.node ?? "board-1", privateKey.export({ type: "pkcs8", format: "pem" }).toString());
  const key = createPrivateKey(change.signingKey ?? credentials.privateKey);
  const signature = encodeBase64(sign("sha256", possessionStatement(Buffer.from(nonce, "base64"), csr), key));
  const body = { csr: encodePem("CERTIFICATE REQUEST", csr), signature };
  try {
    if (change.twice === true) await connection.post("/v1/renew", body, never);
    await connection.post("/v1/renew", body, never);
    return "renewed";
  } catch (error) {
    return (error as Error).message;
  }
}

test("a renewal takes the old key, a fresh nonce of the same connection, and the same name", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const mine = await joinedOnce(hub, disk.at("identity"));
  using otherDisk = new TempFolder();
  const other = await joinedOnce(hub, otherDisk.at("identity"), { name: "board-2" });
  assert.equal(await renewBy(hub, mine), "renewed");
  assert.match(await renewBy(hub, mine, { node: "board-2" }), /is that of node board-1, not of board-2/);
  assert.match(
    await renewBy(hub, mine, { signingKey: other.privateKey }),
    /not signed by the key of the old certificate/,
  );
  assert.match(await renewBy(hub, mine, { twice: true }), /get \/v1\/nonce first, on the same connection/);
  assert.match(await renewBy(hub, mine, { nonceOf: "other" }), /get \/v1\/nonce first/);
  assert.match(
    await renewBy(hub, { certificateChain: "", privateKey: mine.privateKey }),
    /there is no client certificate/,
  );
});

test("after its end only the key that is the last on record is renewed; before, another is let renew and named in the log", async () => {
  await using hub = await TestHub.open();
  using disk = new TempFolder();
  const mine = await joinedOnce(hub, disk.at("identity"));
  assert.equal(await renewBy(hub, mine), "renewed");
  // A copy of the board's disk was renewed first; now the board renews.
  assert.equal(await renewBy(hub, mine), "renewed");
  assert.ok(hub.log.problems.some((each) => /are there two boards of this name/.test(each)));
  hub.clock.setWall(START_MS + 366 * DAY_MS);
  assert.match(await renewBy(hub, mine), /node board-1 has another key by now: it can only join again/);
  await hub.keys.delete("board-1", never);
  assert.match(await renewBy(hub, mine), /node board-1 was deleted or reset/);
});

test("certificates that are no node's, or of another CA, renew nothing and open nothing", async () => {
  await using hub = await TestHub.open();
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  const csr = encodePem("CERTIFICATE REQUEST", makeNodeRequest("board-1", key));
  const now = new Date(START_MS);
  const stranger = makeAuthority("kubernetes", { days: 30, now });
  const forged = issueClientCertificate(stranger, csr, { days: 30, now });
  assert.match(await renewBy(hub, { certificateChain: forged, privateKey: key }), /not from a CA that is trusted here/);
  using disk = new TempFolder();
  const folder = disk.at("identity");
  await joinedOnce(hub, folder);
  const trust = hub.ca.hash;
  const hubCa = hub.ca.authority.certificate;
  writeFileSync(
    join(folder, "identity.pem"),
    encodeIdentity({ certificateChain: forged, privateKey: key, hubCa, trust }),
  );
  await using board = new TestBoard({ hub, folder });
  await board.joined();
  assert.equal((await board.dial()).status, 401);
});
