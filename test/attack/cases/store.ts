/** The hub's store: what a thief reads in it, and what an older or an empty one gives back. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import type { AttackCase } from "../attack-case.ts";
import type { AttackGround } from "../attack-ground.ts";

const SECRET = "correct-horse-battery-staple";

/** Files of the data directory in which a text is, in clear or as Secrets have it. */
function filesWith(ground: AttackGround, text: string): readonly string[] {
  const forms = [text, Buffer.from(text).toString("base64")];
  return readdirSync(ground.dataDir, { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .filter((path) => forms.some((form) => readFileSync(path).includes(form)));
}

const secretsPath = "/api/v1/namespaces/default/secrets";

export const cases: readonly AttackCase[] = [
  {
    name: "a thief of the database, its log and a backup looks for a Secret, after it was changed and deleted too",
    attacker: "network",
    inTest: true,
    run: async (ground) => {
      const metadata = { name: ground.unique("secret") };
      const secret = { apiVersion: "v1", kind: "Secret", metadata, stringData: { password: SECRET } };
      await ground.make(secretsPath, secret);
      assert.deepEqual(filesWith(ground, SECRET), []);
      const changed = { stringData: { password: `${SECRET}-2` } };
      const contentType = "application/merge-patch+json";
      const path = `${secretsPath}/${metadata.name}`;
      assert.equal((await ground.admin.ask(path, { method: "PATCH", body: changed, contentType })).status, 200);
      await ground.command("backup", join(ground.dataDir, "backup.db"));
      assert.equal((await ground.admin.ask(path, { method: "DELETE" })).status, 200);
      assert.deepEqual(filesWith(ground, SECRET), []);
      const token = await ground.token();
      assert.deepEqual(filesWith(ground, token.split(".")[1] ?? token), [], "a bootstrap token is a Secret, too");
    },
  },
  {
    name: "a board and a service account ask for a backup, and rotate keys",
    attacker: "board",
    inTest: true,
    run: async (ground) => {
      const board = await ground.board();
      await using account = await ground.serviceAccount();
      await using nobody = ground.client({});
      for (const client of [board.api, account, nobody]) {
        assert.equal((await client.ask("/picolet/backup")).status, 403);
        assert.equal((await client.ask("/picolet/keys/rotate", { method: "POST" })).status, 403);
      }
    },
  },
  {
    name: "a board whose key was revoked waits for the restore of a backup from before",
    attacker: "board",
    inTest: false,
    run: async (ground) => {
      const board = await ground.board();
      const backup = join(ground.dataDir, `${ground.unique("before")}.db`);
      await ground.command("backup", backup);
      await ground.command("node", "reset", board.name);
      await assert.rejects(board.openTunnel());
      await ground.hub.end("SIGTERM");
      await ground.command("restore", backup);
      await ground.restartHub();
      await assert.rejects(board.openTunnel());
      assert.equal((await board.api.ask(`/api/v1/nodes/${board.name}`)).status, 401);
    },
  },
  {
    name: "somebody takes the database away while the hub is down, so that boards end their pods",
    attacker: "network",
    inTest: false,
    run: async (ground) => {
      const path = join(ground.dataDir, "hub.db");
      await assert.rejects(
        ground.restartHub("SIGTERM", () => renameSync(path, `${path}.away`)),
        /ended with 65 before it served: .*is missing, but the keys beside it show/,
      );
      await ground.restartHub("SIGTERM", () => renameSync(`${path}.away`, path));
    },
  },
];
