import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryFiles } from "@picolet/test/support/unit/agent/memory-files.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { dropPlainHashes } from "./plain-records.ts";
import { PullRecords } from "./pull-records.ts";

const NAME = "registry.example/app";
const secret = (name: string, credentialHash = name) => ({
  kubernetesSecrets: [{ namespace: "shop", name, credentialHash }],
});

class Bench {
  readonly files = new MemoryFiles();
  readonly log = new RecordedLog();
  readonly clock = new VirtualClock();
  readonly records = this.restarted();

  restarted(): PullRecords {
    return new PullRecords(this);
  }
}

test("what was written down is there after a restart, in the kubelet's form", () => {
  const bench = new Bench();
  const { files, records } = bench;
  assert.equal(records.get("id"), undefined);
  assert.equal(records.add("id", NAME, secret("one")), true);
  assert.equal(records.add("id", NAME, secret("two")), true);
  assert.equal(records.add("id", "other.example/app", { nodePodsAccessible: true }), true);
  const mapping = {
    [NAME]: { kubernetesSecrets: [...secret("one").kubernetesSecrets, ...secret("two").kubernetesSecrets] },
    "other.example/app": { nodePodsAccessible: true },
  };
  assert.deepEqual(bench.restarted().get("id"), mapping);
  const [text = ""] = files.files.values();
  const { kind, apiVersion, imageRef } = JSON.parse(text) as Record<string, unknown>;
  assert.deepEqual([kind, apiVersion, imageRef], ["ImagePulledRecord", "kubelet.config.k8s.io/v1alpha1", "id"]);
});

test("a record of an older picolet loses the hash that a password could be guessed by, and still opens for its Secret", () => {
  const bench = new Bench();
  const { files, records } = bench;
  records.add("id", NAME, secret("one", "ab".repeat(32)));
  records.add("other", NAME, { nodePodsAccessible: true });
  dropPlainHashes(files, [...files.files.keys(), "pulled-gone"], bench.log);
  const mapping = bench.restarted().get("id");
  assert.deepEqual(mapping, { [NAME]: secret("one", "") });
  assert.deepEqual(bench.restarted().get("other"), { [NAME]: { nodePodsAccessible: true } });
  files.isUnreadable = true;
  dropPlainHashes(files, [...files.files.keys()], bench.log);
});

test("what is known already is not written again, a secret's new content replaces the old", () => {
  const { files, records } = new Bench();
  records.add("id", NAME, secret("one"));
  records.add("id", NAME, secret("one"));
  assert.equal(files.writes, 1);
  records.add("id", NAME, secret("one", "changed"));
  assert.deepEqual(records.get("id"), { [NAME]: secret("one", "changed") });
  records.add("id", NAME, { nodePodsAccessible: true });
  records.add("id", NAME, secret("two"));
  assert.deepEqual(records.get("id"), { [NAME]: { nodePodsAccessible: true } });
  assert.equal(files.writes, 3);
});

test("a name of a hundred secrets forgets the oldest", () => {
  const { records } = new Bench();
  for (let index = 0; index <= 100; index += 1) records.add("id", NAME, secret(`s${index}`));
  const secrets = records.get("id")?.[NAME]?.kubernetesSecrets ?? [];
  assert.deepEqual([secrets.length, secrets[0]?.name], [100, "s1"]);
});

test("a pull that did not come to its end is known after a restart", () => {
  const bench = new Bench();
  const { records } = bench;
  records.begin(NAME);
  records.begin(NAME);
  records.end(NAME);
  assert.equal(records.isIntended(NAME), true, "another is under way");
  assert.equal(bench.restarted().isIntended(NAME), true);
  records.end(NAME);
  assert.equal(bench.restarted().isIntended(NAME), false);
  records.begin(NAME);
  bench.restarted().forget("id", [NAME]);
  assert.equal(bench.restarted().isIntended(NAME), false);
});

test("a full disk fails an intent, and leaves a record unwritten", () => {
  const { files, records, log } = new Bench();
  files.isFull = true;
  assert.throws(() => records.begin(NAME), /ENOSPC/);
  assert.equal(records.isIntended(NAME), false);
  assert.equal(records.add("id", NAME, secret("one")), false);
  assert.deepEqual(log.problems, ["cannot write down an image's pull"]);
});

test("what cannot be read is somebody's, nobody knows whose", () => {
  const { files, records, log } = new Bench();
  files.isUnreadable = true;
  assert.deepEqual(records.get("id"), {});
  assert.equal(records.isIntended(NAME), true);
  assert.equal(log.problems.length, 1);
});

test("whatever is in a record, it is taken or counts as nothing known", () => {
  const bench = new Bench();
  bench.records.add("id", NAME, secret("one"));
  const [file = ""] = bench.files.files.keys();
  const shaped = fc.jsonValue().map((value) => JSON.stringify({ credentialMapping: { [NAME]: value } }));
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), shaped), (text) => {
      bench.files.files.set(file, text);
      for (const { kubernetesSecrets = [] } of Object.values(bench.records.get("id") ?? {})) {
        assert.ok(kubernetesSecrets.every((each) => typeof each === "object"));
      }
      assert.equal(bench.records.add("id", NAME, secret("two")), true);
    }),
    { numRuns: 500 },
  );
});
