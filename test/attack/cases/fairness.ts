/**
 * Finding 7 and its neighbours: one identity fills the disk, the memory or the queue of the hub, or takes others'
 * place.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type TLSSocket } from "node:tls";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { AttackCase } from "../attack-case.ts";
import type { ApiAnswer, AttackBoard, AttackGround, RawTunnel } from "../attack-ground.ts";

const EVENTS = "/api/v1/namespaces/default/events";
const REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const event = (name: string, message: string) => ({
  ...{ apiVersion: "v1", kind: "Event", metadata: { name }, reason: "Flood", type: "Normal", message },
  involvedObject: { kind: "Pod", namespace: "default", name: "web" },
});

const review = {
  ...{ apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview" },
  spec: { resourceAttributes: { verb: "get", resource: "pods", namespace: "default" } },
};

const refused = (answers: readonly ApiAnswer[]): readonly ApiAnswer[] => answers.filter(({ status }) => status === 429);

/** Asks for `count` things, so many at a time. */
async function flood(count: number, ask: (n: number) => Promise<ApiAnswer>): Promise<readonly ApiAnswer[]> {
  const answers: ApiAnswer[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) {
      next += 1;
      answers.push(await ask(next));
    }
  };
  await Promise.all(Array.from({ length: 64 }, work));
  return answers;
}

async function isAnswered(board: AttackBoard): Promise<void> {
  const { status, body } = await board.api.create(REVIEWS, review);
  assert.equal(status, 201, JSON.stringify(body));
}

/** Requests of the board whose bodies never come. */
async function stall(ground: AttackGround, board: AttackBoard, count: number): Promise<readonly TLSSocket[]> {
  const { hostname, port } = new URL(ground.api);
  const socketOf = async (): Promise<TLSSocket> => {
    const credentials = { ca: ground.ca, cert: board.certificate, key: board.privateKey };
    const socket = connect({ ...credentials, host: hostname, port: Number(port) });
    socket.on("error", () => undefined);
    await once(socket, "secureConnect");
    const head = ["POST /api/v1/namespaces/default/events HTTP/1.1", "Host: x", "Content-Type: application/json"];
    socket.write(`${[...head, "Content-Length: 3000000"].join("\r\n")}\r\n\r\n{`);
    return socket;
  };
  return await Promise.all(Array.from({ length: count }, socketOf));
}

export const cases: readonly AttackCase[] = [
  {
    name: "a board sends Events of 12 KB as fast as it can",
    attacker: "board",
    inTest: false,
    maxWaitMs: 100,
    run: async (ground) => {
      const board = await ground.board();
      const answers = await flood(3000, (n) => board.api.create(EVENTS, event(`f-${n}`, "x".repeat(12 * KIBIBYTE))));
      const late = refused(answers);
      assert.ok(answers.length - late.length < 1000, `${answers.length - late.length} were taken`);
      assert.ok(late.every(({ headers }) => Number(headers["retry-after"]) >= 1));
      assert.match(JSON.stringify(late[0]?.body), /limit reached on type User for key system:node:/);
      const { status } = await board.api.create(EVENTS, event("large", "x".repeat(17 * KIBIBYTE)));
      assert.equal(status, 413);
    },
  },
  {
    name: "a board asks for certificates with requests of 1.6 MB, and for a hundred",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const board = await ground.board();
      const signer = { signerName: "example.com/signer", usages: ["client auth"] };
      const request = (text: string) => ({
        ...{ apiVersion: "certificates.k8s.io/v1", kind: "CertificateSigningRequest" },
        metadata: { name: ground.unique("flood") },
        spec: { ...signer, request: Buffer.from(text).toString("base64") },
      });
      const pem = (size: number): string =>
        `-----BEGIN CERTIFICATE REQUEST-----\n${"A".repeat(size)}\n-----END CERTIFICATE REQUEST-----\n`;
      const { status } = await board.api.create(REQUESTS, request(pem(1_600_000)));
      assert.ok([413, 422].includes(status), String(status));
      const answers = await flood(100, () => board.api.create(REQUESTS, request(pem(600))));
      const taken = answers.filter((answer) => answer.status === 201);
      assert.ok(taken.length <= 16, `${taken.length} were taken`);
      assert.equal(refused(answers).length, answers.length - taken.length);
    },
  },
  {
    name: "a board opens tunnel sessions that never greet, and keeps others from theirs",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const [board, other] = [await ground.board(), await ground.board()];
      const tunnels: RawTunnel[] = [];
      const failures: unknown[] = [];
      for (let n = 0; n < 60; n += 1) {
        await board.openTunnel().then(
          (tunnel) => tunnels.push(tunnel),
          (error: unknown) => failures.push(error),
        );
      }
      assert.ok(failures.length >= 20, `${failures.length} were refused`);
      assert.match(String(failures.at(-1)), /429/);
      const tunnel = await other.openTunnel();
      tunnel.greet();
      await tunnel.next("welcome");
      const isOpen = ({ socket }: RawTunnel): boolean => socket.readyState === socket.OPEN;
      assert.ok(tunnels.filter(isOpen).length <= 4, `${tunnels.filter(isOpen).length} are open`);
    },
  },
  {
    name: "a board begins 100 uploads of 3 MB that never end",
    attacker: "board",
    inTest: true,
    maxWaitMs: 100,
    run: async (ground) => {
      const [board, other] = [await ground.board(), await ground.board()];
      const sockets = await stall(ground, board, 100);
      const isRefused = (socket: TLSSocket): Promise<boolean> =>
        once(socket, "data").then(([data]) => String(data).startsWith("HTTP/1.1 429"));
      assert.equal(await Promise.race(sockets.map(isRefused)), true);
      await isAnswered(other);
      for (const socket of sockets) socket.destroy();
    },
  },
  {
    name: "a board asks for 5000 reviews at once",
    attacker: "board",
    inTest: false,
    maxWaitMs: 100,
    run: async (ground) => {
      const [board, other] = [await ground.board(), await ground.board()];
      const answers = flood(5000, () => board.api.create(REVIEWS, review));
      for (let n = 0; n < 20; n += 1) await isAnswered(other);
      assert.ok(refused(await answers).length > 0);
    },
  },
  {
    name: "a board opens 600 watches",
    attacker: "board",
    inTest: false,
    maxWaitMs: 100,
    run: async (ground) => {
      const board = await ground.board();
      const { hostname, port } = new URL(ground.api);
      const credentials = { ca: ground.ca, cert: board.certificate, key: board.privateKey };
      const path = "/api/v1/services?watch=1";
      const open = async (): Promise<{ readonly socket: TLSSocket; readonly status: number }> => {
        const socket = connect({ ...credentials, host: hostname, port: Number(port) });
        socket.on("error", () => undefined);
        await once(socket, "secureConnect");
        socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
        const [data] = await once(socket, "data");
        return { socket, status: Number(String(data).slice(9, 12)) };
      };
      const watches: { readonly socket: TLSSocket; readonly status: number }[] = [];
      for (let n = 0; n < 10; n += 1) watches.push(...(await Promise.all(Array.from({ length: 60 }, open))));
      for (const { socket } of watches) socket.destroy();
      assert.equal(watches.filter(({ status }) => status === 200).length, 512);
      assert.equal(watches.filter(({ status }) => status === 429).length, 88);
    },
  },
];
