import type { ClusterAccess, ClusterCredentials } from "@picolet/hub/kubernetes/cluster-access.ts";

/** Credentials that never change. */
export const fixedAccess = (server: string, credentials: ClusterCredentials): ClusterAccess => ({
  server: server.replace(/\/+$/, ""),
  credentials: async () => credentials,
  refused: () => undefined,
});
