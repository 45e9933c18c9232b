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
  return { folder, paths, idOf: (uid: string) => userNamespaceOf(uid, paths).hostId / 65_536 };
}

test("each pod has ids of its own for as long as it is there", () => {
  const { folder, paths, idOf } = node();
  using _ = folder;
  assert.deepEqual(userNamespaceOf("one", paths), { hostId: 65_536, length: 65_536 });
  assert.deepEqual(["two", "three", "one", "two"].map(idOf), [2, 3, 1, 2]);
  rmSync(paths.pod("two"), { recursive: true });
  assert.deepEqual(["four", "five"].map(idOf), [2, 4], "what went free is given again");
  rmSync(paths.pod("one"), { recursive: true });
  assert.equal(idOf("three"), 3, "it keeps what it has");
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
      const mine = userNamespaceOf("mine", paths);
      assert.ok(mine.hostId >= 65_536 && mine.length === 65_536);
      const other = userNamespaceOf("other", paths);
      assert.ok(other.hostId + other.length <= mine.hostId || mine.hostId + mine.length <= other.hostId);
    }),
  );
});
