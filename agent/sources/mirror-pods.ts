import { hash } from "node:crypto";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { mirrorsDigest } from "@picolet/protocol/tunnel/digest.ts";
import type { MirrorItem } from "@picolet/protocol/tunnel/messages.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { MirrorSet } from "../core/hub/tunnel-ports.ts";
import { apiUidOf } from "../core/pods/pod-identity.ts";
import type { DesiredSnapshot } from "../core/store/store-ports.ts";

/** The pods that did not come from the API server, as it is to show them. Changes only when one of them does. */
export class MirrorPods implements Watch<MirrorSet> {
  readonly #desired: Watch<DesiredSnapshot>;
  #pods: readonly DesiredPod[] = [];
  #set: MirrorSet = mirrorSet([]);

  constructor(components: { readonly desired: Watch<DesiredSnapshot> }) {
    this.#desired = components.desired;
  }

  get current(): MirrorSet {
    const pods = shownOf(this.#desired.current);
    const isSame = pods.length === this.#pods.length && pods.every((each, index) => each === this.#pods[index]);
    if (isSame) return this.#set;
    this.#pods = pods;
    this.#set = mirrorSet(pods.map(mirrorItem));
    return this.#set;
  }

  async *changes(signal: AbortSignal): AsyncIterable<MirrorSet> {
    let told: MirrorSet | undefined;
    for await (const _ of this.#desired.changes(signal)) {
      const { current } = this;
      if (current === told) continue;
      told = current;
      yield current;
    }
  }
}

/** One pod for each name: the first of two sources has it, and the other waits. */
function shownOf({ pods }: DesiredSnapshot): readonly DesiredPod[] {
  const byName = new Map<string, DesiredPod>();
  for (const desired of pods.values()) {
    const { namespace, name } = desired.pod.metadata;
    const key = `${namespace}/${name}`;
    if (desired.source !== "api" && !byName.has(key)) byName.set(key, desired);
  }
  return [...byName.values()];
}

function mirrorItem(desired: DesiredPod): MirrorItem {
  const { apiVersion, kind, metadata } = desired.pod;
  // An API server takes no pod that is made with them.
  const { ephemeralContainers: _, ...spec } = desired.pod.spec;
  const { namespace, name, labels, annotations } = metadata;
  const texts = { ...(labels === undefined ? {} : { labels }), ...(annotations === undefined ? {} : { annotations }) };
  const pod = { apiVersion, kind, metadata: { namespace, name, ...texts }, spec };
  return { namespace, name, uid: apiUidOf(desired), source: desired.source, pod };
}

const mirrorSet = (items: readonly MirrorItem[]): MirrorSet => ({
  current: items,
  digest: mirrorsDigest((bytes) => hash("sha256", bytes, "buffer"), items),
});
