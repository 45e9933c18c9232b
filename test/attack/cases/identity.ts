/** Whose name a certificate gives, how long it counts, and what the API server's own credential is good for. */
import assert from "node:assert/strict";
import { createHash, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAuthority, makeClientPair } from "@picolet/hub/identity/certificate-authority.ts";
import { WebSocket } from "ws";
import type { AttackCase } from "../attack-case.ts";
import { type ApiClient, type ApiObject, AttackBoard, type AttackGround, type RawTunnel } from "../attack-ground.ts";

const REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet";
const API_CLIENT = "kubernetes.io/kube-apiserver-client";
const USAGES = ["digital signature", "client auth"];

type Subject = Parameters<AttackGround["request"]>[0];

const nodeSubject = (name: string): Subject => [
  { type: "O", value: "system:nodes" },
  { type: "CN", value: `system:node:${name}` },
];

const requestObject = (name: string, csr: string, signerName = KUBELET_CLIENT): ApiObject => ({
  apiVersion: "certificates.k8s.io/v1",
  kind: "CertificateSigningRequest",
  metadata: { name },
  spec: { request: Buffer.from(csr).toString("base64"), signerName, usages: USAGES },
});

interface RequestStatus {
  readonly certificate?: string;
  readonly conditions?: readonly { readonly type: string; readonly message?: string }[];
}

/**
 * Waits for the result of a request: a certificate (PEM), or why there is none. The hub decides within some
 * milliseconds.
 */
async function outcome(ground: AttackGround, name: string): Promise<{ certificate?: string; failure?: string }> {
  for (;;) {
    const { body } = await ground.admin.ask(`${REQUESTS}/${name}`);
    const { certificate, conditions = [] } = (body as { readonly status?: RequestStatus }).status ?? {};
    if (certificate !== undefined) return { certificate: Buffer.from(certificate, "base64").toString() };
    const failure = conditions.find(({ type }) => type === "Failed" || type === "Denied");
    if (failure !== undefined) return { failure: failure.message ?? failure.type };
  }
}

/** As a kubelet that has a join token does, or one that renews. @throws when it gets none */
async function certificateBy(client: ApiClient, ground: AttackGround, node: string): Promise<AttackBoard> {
  const { csr, privateKey } = ground.request(nodeSubject(node));
  const name = ground.unique("csr");
  assert.equal((await client.create(REQUESTS, requestObject(name, csr))).status, 201);
  const { certificate, failure } = await outcome(ground, name);
  assert.equal(failure, undefined);
  return new AttackBoard(ground, node, certificate ?? "", privateKey);
}

const ownNode = (board: AttackBoard): string => `/api/v1/nodes/${board.name}`;

/** A reset reaches the hub by a watch: at once, but not in the same moment. So many requests are many times as long. */
const MAX_ASKED = 500;

async function untilRefused(board: AttackBoard): Promise<void> {
  let status = 0;
  for (let asked = 0; status !== 401 && asked < MAX_ASKED; asked += 1)
    ({ status } = await board.api.ask(ownNode(board)));
  assert.equal(status, 401);
}

async function untilCut({ socket }: RawTunnel, ground: AttackGround): Promise<void> {
  for (let asked = 0; socket.readyState === WebSocket.OPEN && asked < MAX_ASKED; asked += 1) {
    await ground.admin.ask("/healthz");
  }
  assert.notEqual(socket.readyState, WebSocket.OPEN, "the tunnel is still open");
}

async function approve(ground: AttackGround, name: string): Promise<void> {
  const { body } = await ground.admin.ask(`${REQUESTS}/${name}`);
  const conditions = [{ type: "Approved", status: "True", reason: "Careless", message: "" }];
  const approved = { ...(body as object), status: { conditions } };
  const answer = await ground.admin.ask(`${REQUESTS}/${name}/approval`, { method: "PUT", body: approved });
  assert.equal(answer.status, 200);
}

async function claimAddress(board: AttackBoard, address: string, port: number): Promise<void> {
  const status = { addresses: [{ type: "InternalIP", address }], daemonEndpoints: { kubeletEndpoint: { Port: port } } };
  const answer = await board.api.ask(`${ownNode(board)}/status`, {
    method: "PATCH",
    contentType: "application/merge-patch+json",
    body: { status },
  });
  assert.equal(answer.status, 200, JSON.stringify(answer.body));
}

export const cases: readonly AttackCase[] = [
  {
    name: "a board leads the API server's dialing to the API server, to the tunnel and to metadata addresses",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const board = await ground.board();
      const made = await board.api.create("/api/v1/nodes", { metadata: { name: board.name } });
      assert.equal(made.status, 201);
      const [api, tunnel] = [ground.api, ground.tunnel].map((url) => Number(new URL(url).port));
      const addresses = ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "localhost", "2130706433"];
      for (const address of [...addresses, "169.254.169.254", "fe80::1", "fd00:ec2::254"]) {
        for (const port of [api ?? 0, tunnel ?? 0]) {
          await claimAddress(board, address, port);
          const { status, body } = await ground.admin.ask(`${ownNode(board)}/proxy/api/v1/secrets`);
          // The hub of this test advertises 127.0.0.1 itself: there the board counts as one that is not connected.
          assert.ok(status === 400 || status === 503, `${address}:${port}: ${status} ${JSON.stringify(body)}`);
          assert.match(JSON.stringify(body), /address not allowed|is not connected/);
        }
      }
    },
  },
  {
    name: "somebody who has the CA of the API server's own kubelet certificate asks the API server with it",
    attacker: "network",
    inTest: true,
    run: async (ground) => {
      const stored = readFileSync(join(ground.dataDir, "kubelet-client-ca.json"), "utf8");
      const files = JSON.parse(stored) as Readonly<Record<string, string>>;
      const authority = loadAuthority(files["ca.crt"] ?? "", files["ca.key"] ?? "");
      for (const [group, name] of [
        ["system:masters", "admin"],
        ["system:nodes", "system:node:any"],
      ] as const) {
        const subject = [{ type: "O", value: group } as const, { type: "CN", value: name } as const];
        await using forger = ground.client(makeClientPair(authority, subject, { days: 1, now: new Date() }));
        assert.equal((await forger.ask("/api/v1/nodes")).status, 401);
      }
    },
  },
  {
    name: "a join token gets a certificate for a board that has joined, by a certificate signing request",
    attacker: "join token",
    inTest: true,
    run: async (ground) => {
      const victim = await ground.board();
      await using thief = ground.client({ token: await ground.token() });
      const { csr } = ground.request(nodeSubject(victim.name));
      const name = ground.unique("csr");
      // With the requestor that it would like to be.
      const forged = requestObject(name, csr);
      const key = new X509Certificate(victim.certificate).publicKey.export({ type: "spki", format: "der" });
      const extra = { "picolet.io/certificate-key": [createHash("sha256").update(key).digest("hex")] };
      const requestor = { username: `system:node:${victim.name}`, groups: ["system:nodes"], uid: "u", extra };
      const spec = { ...(forged.spec as object), ...requestor };
      const made = await thief.create(REQUESTS, { ...forged, spec });
      assert.equal(made.status, 201);
      const recorded = (made.body as { spec: { username: string; groups: string[]; uid?: string; extra?: object } })
        .spec;
      assert.match(recorded.username, /^system:bootstrap:/);
      assert.deepEqual([recorded.uid ?? "", recorded.extra ?? {}], ["", {}]);
      const { certificate, failure } = await outcome(ground, name);
      assert.equal(certificate, undefined);
      assert.match(failure ?? "", /has joined before with another key/);
      // Nor by joining, nor by a key that only a request has brought onto record.
      const { status } = await ground.askToJoin(await ground.token(), csr);
      assert.equal(status, 403);
      const kubelet = await certificateBy(thief, ground, ground.unique("kubelet"));
      const other = ground.request(nodeSubject(kubelet.name));
      assert.equal((await ground.askToJoin(await ground.token(), other.csr)).status, 403);
      assert.equal((await victim.api.ask(ownNode(victim))).status, 404, "the victim is still who it was");
    },
  },
  {
    name: "a stolen board outlives its reset by certificates that it has got by requests",
    attacker: "board",
    inTest: false,
    run: async (ground) => {
      const stolen = await ground.board();
      const second = await certificateBy(stolen.api, ground, stolen.name);
      const third = await certificateBy(second.api, ground, stolen.name);
      const tunnel = await third.openTunnel();
      tunnel.greet();
      await tunnel.next("welcome");
      await ground.command("node", "reset", stolen.name);
      await untilCut(tunnel, ground);
      const { csr } = ground.request(nodeSubject(stolen.name));
      for (const each of [stolen, second, third]) {
        await untilRefused(each);
        await assert.rejects(each.openTunnel());
        const again = await each.api.create(REQUESTS, requestObject(ground.unique("csr"), csr));
        assert.equal(again.status, 401);
      }
      const successor = await ground.board(stolen.name);
      assert.equal((await successor.api.ask(ownNode(successor))).status, 404, "another board has the name");
      const renewed = await certificateBy(successor.api, ground, successor.name);
      assert.equal((await renewed.api.ask(ownNode(renewed))).status, 404);
      for (const each of [stolen, second, third]) assert.equal((await each.api.ask(ownNode(each))).status, 401);
    },
  },
  {
    name: "a stolen board is good again after the hub was started anew",
    attacker: "board",
    inTest: false,
    run: async (ground) => {
      const stolen = await ground.board();
      const second = await certificateBy(stolen.api, ground, stolen.name);
      await ground.command("node", "reset", stolen.name);
      await ground.restartHub("SIGKILL");
      for (const each of [stolen, second]) {
        // Until the list is read the hub answers 503, never 200.
        let { status } = await each.api.ask(ownNode(each));
        while (status === 503) ({ status } = await each.api.ask(ownNode(each)));
        assert.equal(status, 401);
        await assert.rejects(each.openTunnel());
      }
    },
  },
  {
    name: "a join token becomes a node with an empty name, or one in upper case, with blanks or odd dots",
    attacker: "join token",
    inTest: false,
    run: async (ground) => {
      const token = await ground.token();
      await using thief = ground.client({ token });
      for (const node of [
        "",
        "Board",
        "a b",
        " a",
        "a..b",
        ".a",
        "a.",
        "a_b",
        "../a",
        "a/b",
        "\u00e4",
        "a".repeat(254),
      ]) {
        const { csr } = ground.request(nodeSubject(node));
        assert.equal((await ground.askToJoin(token, csr)).status, 403, JSON.stringify(node));
        const name = ground.unique("csr");
        assert.equal((await thief.create(REQUESTS, requestObject(name, csr))).status, 201);
        await approve(ground, name);
        const { certificate, failure } = await outcome(ground, name);
        assert.equal(certificate, undefined, JSON.stringify(node));
        assert.match(failure ?? "", /names no node|cannot be read/);
        const made = await ground.admin.create("/api/v1/nodes", { metadata: { name: node } });
        assert.equal(made.status, 422, JSON.stringify(node));
      }
      const dotted = ground.request(nodeSubject(`${ground.unique("edge")}.shed.example`));
      assert.equal((await ground.askToJoin(token, dotted.csr)).status, 200, "dots between labels are Kubernetes' own");
    },
  },
  {
    name: "a careless approval gives a board an identity of the cluster's own",
    attacker: "board",
    inTest: false,
    run: async (ground) => {
      const [board, victim] = [await ground.board(), await ground.board()];
      const subjects: readonly Subject[] = [
        nodeSubject(victim.name),
        [{ type: "CN", value: "system:kube-controller-manager" }],
        [{ type: "CN", value: "kube-apiserver-kubelet-client" }],
        [{ type: "CN", value: "" }],
        [
          { type: "CN", value: "ann" },
          { type: "CN", value: `system:node:${victim.name}` },
        ],
        [
          { type: "O", value: "system:nodes" },
          { type: "CN", value: "ann" },
        ],
      ];
      for (const subject of subjects) {
        const name = ground.unique("csr");
        const { csr } = ground.request(subject);
        const made = await board.api.create(REQUESTS, requestObject(name, csr, API_CLIENT));
        // One whose subject cannot be read is refused at once.
        if (made.status === 403) continue;
        assert.equal(made.status, 201);
        await approve(ground, name);
        const { certificate } = await outcome(ground, name);
        assert.equal(certificate, undefined, JSON.stringify(subject));
      }
      const masters = ground.request([
        { type: "O", value: "system:masters" },
        { type: "CN", value: "ann" },
      ]);
      const refused = await board.api.create(REQUESTS, requestObject(ground.unique("csr"), masters.csr, API_CLIENT));
      assert.equal(refused.status, 403);
      // A board asks for its own name alone.
      const { csr } = ground.request(nodeSubject(victim.name));
      assert.equal((await board.api.create(REQUESTS, requestObject(ground.unique("csr"), csr))).status, 403);
    },
  },
  {
    name: "a board or a join token approves and signs requests itself",
    attacker: "join token",
    inTest: false,
    run: async (ground) => {
      const board = await ground.board();
      await using thief = ground.client({ token: await ground.token() });
      const name = ground.unique("csr");
      const { csr } = ground.request([{ type: "CN", value: "ann" }]);
      assert.equal((await thief.create(REQUESTS, requestObject(name, csr, API_CLIENT))).status, 201);
      const { body } = await ground.admin.ask(`${REQUESTS}/${name}`);
      for (const client of [board.api, thief]) {
        const status = { certificate: "AA==", conditions: [{ type: "Approved", status: "True", reason: "r" }] };
        for (const subresource of ["/approval", "/status", ""]) {
          const init = { method: "PUT", body: { ...(body as object), status } } as const;
          assert.equal((await client.ask(`${REQUESTS}/${name}${subresource}`, init)).status, 403, subresource);
        }
        assert.equal((await client.ask(`${REQUESTS}/${name}`, { method: "DELETE" })).status, 403);
      }
    },
  },
  {
    name: "a join token does anything with the API but ask for certificates",
    attacker: "join token",
    inTest: true,
    run: async (ground) => {
      await using thief = ground.client({ token: await ground.token("--replace-nodes") });
      for (const plural of ["pods", "nodes", "secrets", "configmaps", "services", "events", "namespaces"]) {
        assert.equal((await thief.ask(`/api/v1/${plural}`)).status, 403, plural);
        const namespaced = `/api/v1/namespaces/default/${plural}`;
        assert.equal((await thief.create(namespaced, { metadata: { name: "x" } })).status, 403, plural);
      }
      for (const path of [
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        "/api/v1/namespaces/kube-system/secrets",
      ]) {
        assert.equal((await thief.ask(path)).status, 403, path);
      }
      const headers = { "impersonate-user": "system:node:x", "impersonate-group": "system:nodes" };
      assert.equal((await thief.ask("/api/v1/nodes/x", { headers })).status, 403);
    },
  },
];
