/**
 * Attempts of a board, a join token or a service account at data that is not its own; test/hub/authorization.test.ts
 * covers the rest.
 */
import assert from "node:assert/strict";
import type { MirrorItem } from "@picolet/protocol/tunnel/messages.ts";
import type { AttackCase } from "../attack-case.ts";
import type { ApiObject, AttackBoard, AttackGround } from "../attack-ground.ts";

const MIRROR = { "kubernetes.io/config.mirror": "hash" };
const CONTAINER = { name: "c", image: "busybox" };
const MERGE = "application/merge-patch+json";
const NEVER = new AbortController().signal;

const metadataOf = (body: unknown): { readonly uid: string; readonly resourceVersion: string } =>
  (body as { readonly metadata: { readonly uid: string; readonly resourceVersion: string } }).metadata;

/** The ways to name a Secret that admission once overlooked, and some that it did not. */
const WAYS: readonly ApiObject[] = [
  { imagePullSecrets: [{ name: "loot" }] },
  { volumes: [{ name: "v", projected: { sources: [{ secret: { name: "loot" } }] } }] },
  { volumes: [{ name: "v", csi: { driver: "x.example.com", nodePublishSecretRef: { name: "loot" } } }] },
  { volumes: [{ name: "v", flexVolume: { driver: "x/y", secretRef: { name: "loot" } } }] },
  { volumes: [{ name: "v", secret: { secretName: "loot" } }] },
  { initContainers: [{ ...CONTAINER, name: "i", envFrom: [{ secretRef: { name: "loot" } }] }] },
];

/** A namespace with a Secret that no pod names. */
async function withLoot(ground: AttackGround): Promise<string> {
  const namespace = await ground.namespace();
  const secret = { apiVersion: "v1", kind: "Secret", metadata: { name: "loot" }, stringData: { k: "v" } };
  await ground.make(`/api/v1/namespaces/${namespace}/secrets`, secret);
  return namespace;
}

/** A board's Node, as owner of its mirror pods. */
async function ownerOf(board: AttackBoard): Promise<ApiObject> {
  const node = { apiVersion: "v1", kind: "Node", metadata: { name: board.name } };
  await board.api.create("/api/v1/nodes", node);
  const { body } = await board.api.ask(`/api/v1/nodes/${board.name}`);
  return { apiVersion: "v1", kind: "Node", name: board.name, uid: metadataOf(body).uid, controller: true };
}

const mirrorOf = (board: AttackBoard, owner: ApiObject, name: string, spec: ApiObject = {}): ApiObject => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, annotations: MIRROR, ownerReferences: [owner] },
  spec: { nodeName: board.name, containers: [CONTAINER], tolerations: [{ operator: "Exists" }], ...spec },
});

/** A pod that the cluster has given to a board. */
async function podOn(ground: AttackGround, board: AttackBoard, namespace: string): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/pods`;
  const name = ground.unique("pod");
  const spec = { nodeName: board.name, containers: [CONTAINER] };
  await ground.make(path, { apiVersion: "v1", kind: "Pod", metadata: { name }, spec });
  return `${path}/${name}`;
}

const tokenRequest = (pod: string, uid: string, expirationSeconds = 600): ApiObject => ({
  apiVersion: "authentication.k8s.io/v1",
  kind: "TokenRequest",
  spec: { audiences: [], expirationSeconds, boundObjectRef: { apiVersion: "v1", kind: "Pod", name: pod, uid } },
});

/** Resolves when the API server has the pod. */
async function appeared(ground: AttackGround, path: string): Promise<string> {
  for (;;) {
    const { status, body } = await ground.admin.ask(path);
    if (status === 200) return metadataOf(body).uid;
  }
}

export const cases: readonly AttackCase[] = [
  {
    name: "a board reads a Secret by a mirror pod that names it",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const [board, namespace] = [await ground.board(), await withLoot(ground)];
      const owner = await ownerOf(board);
      for (const [index, spec] of WAYS.entries()) {
        const pod = mirrorOf(board, owner, `m-${index}`, spec);
        assert.equal((await board.api.create(`/api/v1/namespaces/${namespace}/pods`, pod)).status, 403);
        assert.equal((await board.api.ask(`/api/v1/namespaces/${namespace}/secrets/loot`)).status, 403);
      }
    },
  },
  {
    name: "a board reads a Secret by mirror pods that it reports through its tunnel",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const [board, namespace] = [await ground.board(), await withLoot(ground)];
      await ownerOf(board);
      const tunnel = await board.openTunnel();
      tunnel.greet();
      await tunnel.next("welcome");
      const item = (name: string, spec: ApiObject = {}): MirrorItem => ({
        ...{ namespace, name, uid: name, source: "file" },
        pod: {
          apiVersion: "v1",
          kind: "Pod",
          metadata: { namespace, name },
          spec: { containers: [CONTAINER], ...spec },
        },
      });
      const items = [...WAYS.map((spec, index) => item(`m-${index}`, spec)), item("plain")];
      tunnel.mux.send({ kind: "mirrors", items, last: true });
      const podUid = await appeared(ground, `/api/v1/namespaces/${namespace}/pods/plain`);
      const asked = {
        namespace,
        serviceAccount: "default",
        audiences: [],
        expirationSeconds: 600,
        podName: "plain",
        podUid,
      };
      await assert.rejects(tunnel.mux.open("token", asked, "control", NEVER));
      await tunnel.mux.ping(NEVER);
      assert.doesNotMatch(JSON.stringify(tunnel.received.filter(({ kind }) => kind === "desired")), /loot/);
      assert.equal((await board.api.ask(`/api/v1/namespaces/${namespace}/secrets/loot`)).status, 403);
    },
  },
  {
    name: "a board gets a token of the default service account by a mirror pod, masked or unmasked",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const [board, namespace] = [await ground.board(), await ground.namespace()];
      const pods = `/api/v1/namespaces/${namespace}/pods`;
      const made = await board.api.create(pods, mirrorOf(board, await ownerOf(board), "m"));
      assert.equal(made.status, 201);
      const token = `/api/v1/namespaces/${namespace}/serviceaccounts/default/token`;
      const request = tokenRequest("m", metadataOf(made.body).uid);
      assert.equal((await board.api.create(token, request)).status, 403);
      const unmask = { metadata: { annotations: { "kubernetes.io/config.mirror": null } } };
      const patch = { method: "PATCH", body: unmask, contentType: MERGE } as const;
      assert.equal((await board.api.ask(`${pods}/m/status`, patch)).status, 422);
      assert.equal((await board.api.create(token, request)).status, 403);
    },
  },
  {
    name: "a board asks for a token of 136 years for a pod of its own",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const [board, namespace] = [await ground.board(), await ground.namespace()];
      const pod = await podOn(ground, board, namespace);
      const { body } = await ground.admin.ask(pod);
      const request = tokenRequest(pod.split("/").at(-1) ?? "", metadataOf(body).uid, 2 ** 32);
      const account = `/api/v1/namespaces/${namespace}/serviceaccounts/default/token`;
      const answer = await board.api.create(account, request);
      assert.equal(answer.status, 201, JSON.stringify(answer.body));
      const { expirationTimestamp } = (answer.body as { readonly status: { readonly expirationTimestamp: string } })
        .status;
      assert.ok(Date.parse(expirationTimestamp) < Date.now() + 2 * 3600 * 1000, expirationTimestamp);
    },
  },
  {
    name: "a board reads another board's pod with a selector of its own node",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const [board, victim, namespace] = [await ground.board(), await ground.board(), await ground.namespace()];
      const pod = await podOn(ground, victim, namespace);
      const selector = `fieldSelector=spec.nodeName%3D${board.name}`;
      for (const path of [`${pod}?${selector}`, `${pod}?${selector}&watch=1`, pod.replace("/v1/", "/v1/watch/")]) {
        assert.equal((await board.api.ask(path)).status, 403, path);
      }
    },
  },
  {
    name: "a board's refused eviction marks another board's pod or spends its budget",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const [board, victim, namespace] = [await ground.board(), await ground.board(), await ground.namespace()];
      const pod = await podOn(ground, victim, namespace);
      const before = metadataOf((await ground.admin.ask(pod)).body).resourceVersion;
      for (const query of ["", "?dryRun=All"]) {
        const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: pod.split("/").at(-1) } };
        assert.equal((await board.api.create(`${pod}/eviction${query}`, eviction)).status, 403);
      }
      assert.equal(metadataOf((await ground.admin.ask(pod)).body).resourceVersion, before);
    },
  },
  {
    name: "somebody who may impersonate users acts as the hub itself",
    attacker: "service account",
    inTest: true,
    run: async (ground) => {
      for (const user of ["system:picolet-hub", "system:kube-controller-manager", "system:apiserver"]) {
        const headers = { "impersonate-user": user };
        assert.equal((await ground.admin.ask("/api/v1/secrets", { headers })).status, 403, user);
      }
    },
  },
];
