import assert from "node:assert/strict";
import { test } from "node:test";
import { parseImageReference, type RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { MemoryFiles } from "@picolet/test/support/unit/agent/memory-files.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PullCredential } from "../credentials/pull-credentials.ts";
import { ImageAccess } from "./image-access.ts";
import { PullRecords } from "./pull-records.ts";

const ID = `sha256:${"1".repeat(64)}`;
const SECRET: PullCredential = {
  credentials: { username: "me", password: "secret", serverAddress: "" },
  hash: "h",
  source: { kind: "secret", namespace: "default", name: "pull" },
};

const reference = (text: string): RegistryReference => {
  const parsed = parseImageReference(text);
  assert.ok(parsed.ok && parsed.reference.kind === "registry");
  return parsed.reference;
};
const image = (...tags: string[]) => ({ id: ID, tags, digests: [], sizeBytes: 1, pinned: false });

function make(): ImageAccess {
  const records = new PullRecords({ files: new MemoryFiles(), clock: new VirtualClock(), log: new RecordedLog() });
  return new ImageAccess({ records }, { policy: "NeverVerifyPreloadedImages", allowlist: [] });
}
const mayAnybodyUse = (access: ImageAccess, name: string): Promise<boolean> =>
  access.mayUse(reference(name), ID, async () => []);

test("what was brought by hand stays everybody's when a pull brings the same content by another name", async () => {
  const access = make();
  const pulled = reference("registry.example/app:1");
  access.begin(pulled);
  access.end(pulled, image("docker.io/local/app:1", "registry.example/app:1"), SECRET);
  assert.equal(await mayAnybodyUse(access, "local/app:1"), true, "the name that was here");
  assert.equal(await mayAnybodyUse(access, "registry.example/app:1"), false, "the name that a secret has opened");
  assert.equal(await mayAnybodyUse(access, "elsewhere.example/app:1"), false, "a name that nobody has brought");
});

test("pulls of one content by two names give neither of them to everybody", async () => {
  const access = make();
  const [one, other] = [reference("registry.example/one:1"), reference("registry.example/other:1")];
  const both = image("registry.example/one:1", "registry.example/other:1");
  for (const each of [one, other]) access.begin(each);
  for (const each of [one, other]) access.end(each, both, SECRET);
  for (const name of both.tags) assert.equal(await mayAnybodyUse(access, name), false, name);
});

test("another tag of a name that a secret has opened is that secret's too", async () => {
  const access = make();
  const pulled = reference("registry.example/app:2");
  access.begin(pulled);
  access.end(pulled, image("registry.example/app:1", "registry.example/app:2"), SECRET);
  assert.equal(await mayAnybodyUse(access, "registry.example/app:1"), false);
});
