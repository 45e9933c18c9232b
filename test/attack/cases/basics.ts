/** Basic rules: wrong credentials, and the purposes of a certificate. */
import assert from "node:assert/strict";
import type { AttackCase } from "../attack-case.ts";
import { AttackBoard } from "../attack-ground.ts";

export const cases: readonly AttackCase[] = [
  {
    name: "somebody without credentials lists Secrets",
    attacker: "network",
    inTest: true,
    run: async (ground) => {
      await using nobody = ground.client({});
      assert.equal((await nobody.ask("/api/v1/secrets")).status, 403);
    },
  },
  {
    name: "a board lists all Secrets",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const board = await ground.board();
      assert.equal((await board.api.ask("/api/v1/secrets")).status, 403);
      assert.equal((await board.api.ask("/api/v1/namespaces/kube-system/secrets")).status, 403);
    },
  },
  {
    name: "a service account without rights reads Secrets and makes pods",
    attacker: "service account",
    inTest: true,
    run: async (ground) => {
      await using account = await ground.serviceAccount();
      assert.equal((await account.ask("/api/v1/namespaces/default/secrets")).status, 403);
      const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "p" }, spec: { containers: [] } };
      assert.equal((await account.create("/api/v1/namespaces/default/pods", pod)).status, 403);
    },
  },
  {
    name: "a client greets the tunnel without a certificate",
    attacker: "network",
    inTest: true,
    run: async (ground) => {
      const board = await ground.board();
      const tunnel = await board.openTunnel();
      tunnel.greet();
      await tunnel.next("welcome");
      tunnel.socket.terminate();
      await using nobody = new AttackBoard(ground, board.name, "", "");
      await assert.rejects(nobody.openTunnel());
    },
  },
];
