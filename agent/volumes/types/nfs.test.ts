/** With a mounter that records: neither this kernel nor the tests' machine has NFS. */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { SystemMounter } from "../files/mounter.ts";
import { PodPaths } from "../files/pod-paths.ts";
import { mountNfs } from "./nfs.ts";

const NEVER = new AbortController().signal;

class RecordingMounter extends SystemMounter {
  readonly mounted: (readonly [source: string, target: string, type: string, options: string])[] = [];

  override async mountNetwork(source: string, target: string, type: string, options: readonly string[]): Promise<void> {
    this.mounted.push([source, target, type, options.join()]);
  }

  override mountPointsWithin(folder: string): readonly string[] {
    return this.mounted.map(([, target]) => target).filter((target) => target.startsWith(folder));
  }
}

test("an export is mounted once for a pod, with its options, at the kubelet's place", async () => {
  using folder = new TempFolder();
  const paths = new PodPaths({ rootDir: folder.at("lib"), podLogsDir: folder.at("logs") });
  const mounter = new RecordingMounter();
  const desired = { uid: podUid("pod-1"), source: "api", origin: "", pod: podOf({}, { uid: "pod-1" }) } as const;
  const plain = { name: "media", server: "nas.local", path: "/films", readOnly: false, mountOptions: [] };
  const other = { ...plain, name: "v6", server: "2001:db8::1", readOnly: true, mountOptions: ["nfsvers=4.1"] };
  for (const volume of [plain, plain, other]) await mountNfs({ paths, mounter }, desired, volume, NEVER);
  const at = (name: string): string => `${paths.volumes("pod-1")}/kubernetes.io~nfs/${name}`;
  assert.deepEqual(mounter.mounted, [
    ["nas.local:/films", at("media"), "nfs", ""],
    ["[2001:db8::1]:/films", at("v6"), "nfs", "ro,nfsvers=4.1"],
  ]);
});

test("a node without the helper program says what to install", async () => {
  using folder = new TempFolder();
  const target = folder.at("target");
  mkdirSync(target);
  const mounting = new SystemMounter().mountNetwork("nas:/x", target, "picolet-none", [], NEVER);
  await assert.rejects(
    mounting,
    /^PicoletError: cannot mount nas:\/x: this node has no mount.picolet-none; install it/,
  );
});
