import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { PodPaths } from "./files/pod-paths.ts";
import { userNamespaceOf } from "./user-namespaces.ts";

function node() {
  const folder = new TempFolder();
  const paths = new PodPaths({ rootDir: folder.path, podLogsDir: folder.at("logs") });
  mkdirSync(paths.podsDir);
  return { folder, paths, idOf: (uid: string) => userNamespaceOf(uid, paths, folder.path).hostId / 65_536 };
}

test("each pod has ids of its own for as long as it is there", () => {
  const { folder, paths, idOf } = node();
  using _ = folder;
  assert.deepEqual(userNamespaceOf("one", paths, folder.path), { hostId: 65_536, length: 65_536 });
  assert.deepEqual(["two", "three", "one", "two"].map(idOf), [2, 3, 1, 2]);
  rmSync(paths.pod("two"), { recursive: true });
  assert.deepEqual(["four", "five"].map(idOf), [2, 4], "what went free is given again");
  rmSync(paths.pod("one"), { recursive: true });
  assert.equal(idOf("three"), 3, "it keeps what it has");
});

test("ids come from those that the node gives to the user kubelet", () => {
  const { folder, paths } = node();
  using _ = folder;
  const give = (uids: string, gids = uids): void => {
    writeFileSync(folder.at("subuid"), `pi:100000:65536\n${uids}`);
    writeFileSync(folder.at("subgid"), `pi:100000:65536\n${gids}`);
  };
  const idOf = (uid: string): number => userNamespaceOf(uid, paths, folder.path).hostId;
  give("kubelet:655360:131072\n");
  assert.deepEqual(["one", "two"].map(idOf), [655_360, 720_896]);
  assert.throws(() => idOf("three"), /could not find an empty slot/);
  give("kubelet:655360:131072\n", "kubelet:655360:65536\n");
  assert.equal(idOf("one"), 655_360, "it keeps what it has");
  for (const [uids, gids, message] of [
    ["kubelet:655360:131072", "kubelet:655360:65536", /mismatched subuids and subgids for user "kubelet"/],
    ["kubelet:655360:131072", "", /mismatched/],
    ["kubelet:655360:65536\nkubelet:131072:65536", undefined, /more than one range/],
    ["kubelet:655361:65536", undefined, /assigned ID 655361 is not a multiple of 65536/],
    ["kubelet:0:65536", undefined, /assigned ID 0 must be greater or equal to 65536/],
    ["kubelet:655360:65537", undefined, /IDs length 65537 is not a multiple of 65536/],
  ] as const) {
    give(uids, gids ?? uids);
    assert.throws(() => idOf("three"), { code: "invalid", reason: "FailedCreatePodSandBox", message });
  }
});

test("no file makes it fail, or gives two pods one id", () => {
  const { folder, paths } = node();
  using _ = folder;
  const mapping = fc.record({ hostId: fc.oneof(fc.integer(), fc.double()), length: fc.integer() });
  const content = fc.oneof(
    fc.string(),
    fc.json(),
    fc.record({ uidMappings: fc.array(mapping) }).map((each) => JSON.stringify(each)),
  );
  mkdirSync(paths.pod("other"));
  fc.assert(
    fc.property(content, (text) => {
      rmSync(paths.pod("mine"), { recursive: true, force: true });
      writeFileSync(`${paths.pod("other")}/userns`, text);
      const mine = userNamespaceOf("mine", paths, folder.path);
      assert.ok(mine.hostId >= 65_536 && mine.length === 65_536);
      const other = userNamespaceOf("other", paths, folder.path);
      assert.ok(other.hostId + other.length <= mine.hostId || mine.hostId + mine.length <= other.hostId);
    }),
  );
});
