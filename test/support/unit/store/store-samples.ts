/** Pods and statuses for tests of the store and the sources. */
import { hash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ObjectReference, PodStatusRecord } from "@picolet/agent/core/store/store-ports.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import { objectKey, type RemoteObject } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "../pods/sample-pods.ts";

export interface SampleInit {
  readonly image?: string;
  readonly source?: SourceId;
  readonly origin?: string;
}

/** A pod whose uid is `uid-<name>`. */
export function samplePod(name: string, init: SampleInit = {}): DesiredPod {
  const { image = "busybox:1", source = "file", origin = `/manifests/${name}.yaml` } = init;
  const containers = [{ name: "app", image, args: ["sleep", "inf"], env: [{ name: "GREETING", value: "grüß dich" }] }];
  const pod = podOf({ containers }, { name, uid: `uid-${name}`, labels: { app: name } });
  return { uid: podUid(`uid-${name}`), source, origin, pod };
}

export const sampleStatus = (name: string, message: string): PodStatusRecord => ({
  uid: podUid(`uid-${name}`),
  apiUid: `uid-${name}`,
  namespace: "default",
  name,
  status: { phase: "Running", message, conditions: [{ type: "Ready", status: "True" }] },
});

export const sampleReference = (name: string): ObjectReference => ({
  kind: "Pod",
  namespace: "default",
  name,
  uid: `uid-${name}`,
  fieldPath: "",
});

/** A folder of its own that is gone when the scope is left. */
export class TemporaryFolder implements Disposable {
  readonly path: string = mkdtempSync(join(tmpdir(), "picolet-test-"));

  file(name: string): string {
    return join(this.path, name);
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** A Pod object as the hub sends it; `hash` is made of what it says. */
export function remotePod(name: string, init: { readonly uid?: string; readonly image?: string } = {}): RemoteObject {
  const { uid = `api-${name}`, image = "busybox:1" } = init;
  return remoteObject("Pod", name, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "default", uid },
    spec: { nodeName: "n", containers: [{ name: "app", image }] },
  });
}

export const remoteObject = (kind: string, name: string, object: Readonly<Record<string, unknown>>): RemoteObject => ({
  key: objectKey(kind, "default", name),
  hash: hash("sha256", JSON.stringify(object), "buffer").subarray(0, 16),
  object,
});
