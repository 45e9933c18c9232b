import type { ServicePeer } from "@picolet/runtime-contract/board-services.ts";

/** A container whose pod names the bucket `b`. */
export const KEYVALUE_PEER: ServicePeer = {
  containerId: "c",
  container: "main",
  pod: { name: "p", namespace: "default", uid: "u" },
  interfaces: ["keyvalue"],
  buckets: [{ name: "b", maxBytes: 2_000_000, maxKeys: 2000 }],
};
