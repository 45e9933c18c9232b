import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { AlternativeNames } from "@picolet/protocol/pki/extensions.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { ReviewParams, ServingReply } from "@picolet/protocol/tunnel/stream.ts";
import { MemoryPairFile } from "@picolet/test/support/unit/identity/memory-pair-file.ts";
import { requestedNames, TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { ServingCertificate } from "./serving-certificate.ts";
import { parsePair } from "./serving-pair.ts";
import { ServingTls } from "./serving-tls.ts";

const DAY = 86_400;
const { signal } = new AbortController();

class Board {
  readonly clock = new VirtualClock(Date.parse("2026-01-01T00:00:00Z"));
  readonly log = new RecordedLog();
  readonly issued = new MemoryPairFile();
  readonly pending = new MemoryPairFile();
  readonly own = new MemoryPairFile();
  readonly asked: string[] = [];
  addresses: readonly string[] = ["192.0.2.7", "2001:db8::7"];
  reply: (request: string) => unknown = () => ({ state: "pending" });
  certificate = this.restarted();

  restarted(): ServingCertificate {
    const { clock, log, issued, pending } = this;
    const hub = {
      review: async (params: ReviewParams): Promise<unknown> => {
        assert.ok(params.review === "serving");
        this.asked.push(params.request);
        return this.reply(params.request);
      },
    };
    const random = { next: () => 0.5 };
    return new ServingCertificate({ clock, log, random, hub, issued, pending } as never, {
      nodeName: "edge-1",
      addresses: () => this.addresses,
    });
  }

  /** For a day from now, by a new authority. */
  sign(request: string, names?: AlternativeNames): ServingReply {
    const now = this.clock.wall();
    return { state: "issued", certificate: new TlsAuthority("cluster", now).signServing(request, now, names) };
  }

  async step(): Promise<Millis> {
    return await this.certificate.step(signal);
  }

  get names(): string | undefined {
    const pair = parsePair(this.issued.text);
    return pair === undefined ? undefined : new X509Certificate(pair.cert).subjectAltName;
  }

  get tls(): ServingTls {
    const { clock, own, issued } = this;
    return new ServingTls(
      { clock, own, issued },
      {
        ...{ nodeName: "edge-1", certFile: "", keyFile: "", clientCaFile: "", minVersion: undefined, ciphers: [] },
        addresses: () => this.addresses,
      },
    );
  }
}

const issuerOf = (tls: ServingTls): string => new X509Certificate(String(tls.options().cert)).issuer;

test("a request waits for its approval, through restarts, and its certificate is served then", async () => {
  const board = new Board();
  const tls = board.tls;
  assert.match(issuerOf(tls), /^CN=edge-1@/);
  const first = await board.step();
  assert.ok(first <= seconds(5), `${first}`);
  board.certificate = board.restarted();
  await board.step();
  assert.equal(new Set(board.asked).size, 1);
  assert.equal(tls.hasChanged(), false);
  board.reply = (request) => board.sign(request);
  await board.step();
  assert.equal(board.names, "DNS:edge-1, IP Address:192.0.2.7, IP Address:2001:DB8:0:0:0:0:0:7");
  assert.equal(board.pending.text, undefined);
  assert.equal(tls.hasChanged(), true);
  assert.equal(issuerOf(tls), "CN=cluster");
  assert.equal(tls.hasChanged(), false);
});

test("it is renewed at 70 to 90 percent of its life with another key, and when the addresses change", async () => {
  const board = new Board();
  board.reply = (request) => board.sign(request);
  await board.step();
  const first = board.issued.text;
  await board.clock.advance(seconds(0.79 * DAY));
  await board.step();
  assert.equal(board.issued.text, first);
  await board.clock.advance(seconds(0.02 * DAY));
  board.reply = () => ({ state: "pending" });
  await board.step();
  assert.equal(board.issued.text, first, "the former one serves until there is another");
  board.reply = (request) => board.sign(request);
  await board.step();
  assert.notEqual(parsePair(board.issued.text)?.key, parsePair(first)?.key);
  board.addresses = ["192.0.2.8"];
  await board.step();
  assert.equal(board.names, "DNS:edge-1, IP Address:192.0.2.8");
});

test("a certificate that has ended is not served: the agent's own is, until there is another", async () => {
  const board = new Board();
  board.reply = (request) => board.sign(request);
  await board.step();
  const tls = board.tls;
  assert.equal(issuerOf(tls), "CN=cluster");
  await board.clock.advance(seconds(1.01 * DAY));
  assert.equal(tls.hasChanged(), true);
  assert.match(issuerOf(tls), /^CN=edge-1@/);
});

test("addresses that another node has are left out, also after a restart", async () => {
  const board = new Board();
  board.reply = (request) => {
    const { addresses } = requestedNames(request);
    return addresses.some((each) => each.length === 4)
      ? { state: "taken", addresses: ["192.0.2.7"] }
      : { state: "pending" };
  };
  await board.step();
  assert.equal(board.asked.length, 2);
  board.certificate = board.restarted();
  await board.step();
  assert.equal(board.asked[1], board.asked[3], "the smaller request is the same one");
  const { reply } = board;
  board.reply = (request) => {
    const answer = reply(request) as ServingReply;
    return answer.state === "taken" ? answer : board.sign(request);
  };
  await board.step();
  assert.equal(board.names, "DNS:edge-1, IP Address:2001:DB8:0:0:0:0:0:7");
  board.certificate = board.restarted();
  const wait = await board.step();
  assert.equal(wait, seconds(3600));
  assert.equal(board.asked.length, 6, "it asks only whether the address is free by now");
});

test("a denied request is not repeated at once, and the next one has another key", async () => {
  const board = new Board();
  board.reply = () => ({ state: "denied", reason: "not ours" });
  assert.ok((await board.step()) >= seconds(900));
  await board.step();
  assert.equal(new Set(board.asked).size, 2);
  assert.equal(board.log.entries.length, 1);
});

test("while there is no hub nothing is logged, and the delay stays short", async () => {
  const board = new Board();
  board.reply = () => {
    throw new PicoletError("unavailable", "there is no connection to a hub");
  };
  for (let round = 0; round < 20; round += 1) assert.ok((await board.step()) <= seconds(300));
  assert.deepEqual(board.log.entries, []);
});

test("a certificate of another key or of other names is refused", async () => {
  const board = new Board();
  const strange = new Board();
  await strange.step();
  board.reply = () => strange.sign(strange.asked[0] ?? "");
  await board.step();
  board.reply = (request) => board.sign(request, { dns: ["edge-1", "edge-2"], addresses: [] });
  await board.step();
  assert.equal(board.issued.text, undefined);
  assert.deepEqual(
    board.log.entries.map(({ fields }) => String(fields?.error)),
    ["the issued certificate is not of this board's key", "the issued certificate has other names than the request"],
  );
});

test("any answer and any file on disk end in a delay", async () => {
  const text = fc.oneof(fc.string(), fc.constantFrom("-----BEGIN CERTIFICATE-----\n", "-----BEGIN PRIVATE KEY-----\n"));
  const reply = fc.oneof(
    fc.anything(),
    fc.record({ state: fc.constantFrom("issued", "taken", "denied"), certificate: text, addresses: fc.array(text) }),
  );
  await fc.assert(
    fc.asyncProperty(reply, text, text, async (answer, issued, pending) => {
      const board = new Board();
      board.reply = () => answer;
      board.issued.text = issued;
      board.pending.text = pending;
      assert.ok((await board.step()) > 0);
    }),
    { numRuns: 60 },
  );
});
