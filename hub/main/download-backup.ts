import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { BACKUP_PATH } from "@picolet/hub-embedded/http/path-endpoint.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { ClusterAccess } from "../kubernetes/cluster-access.ts";
import { loadKubeconfigAccess } from "../kubernetes/kubeconfig-access.ts";

/** From the request to the first byte: the copy is made before it is sent. */
const ANSWER_TIMEOUT_MS = 120_000;

/**
 * A backup of the embedded API server that runs on `dataDir`, made while it serves.
 * @param file complete when it is there
 * @throws `unavailable` when no hub runs there
 */
export async function downloadBackup(dataDir: string, file: string): Promise<void> {
  const partial = `${file}.partial`;
  try {
    const save = (body: IncomingMessage): Promise<void> =>
      pipeline(body, createWriteStream(partial, { mode: 0o600, flush: true }));
    await callRunningHub(dataDir, "GET", BACKUP_PATH, "make a backup", save);
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
}

/** @throws `unavailable` when the administrator's kubeconfig cannot be read: a hub writes it when it starts */
export const administratorAccess = (dataDir: string): Promise<ClusterAccess> =>
  loadKubeconfigAccess({ kubeconfig: join(dataDir, "admin.kubeconfig") }).catch((cause: unknown) => {
    const help = "start one with --embedded, or name its folder with --data-dir";
    throw new PicoletError("unavailable", `no hub has ever run on ${dataDir}: ${help}`, { cause });
  });

/**
 * One request to the embedded API server that runs on `dataDir`, as its administrator.
 * @param what completes "cannot ask the hub to"
 * @throws `unavailable` when no hub runs there, `failed` when it does not do it
 */
export async function callRunningHub(
  dataDir: string,
  method: "GET" | "POST",
  path: string,
  what: string,
  take?: (body: IncomingMessage) => Promise<void>,
): Promise<void> {
  const access = await administratorAccess(dataDir);
  const { tls, headers } = await access.credentials();
  await new Promise<void>((resolve, reject) => {
    const options = { ...tls, method, headers, timeout: ANSWER_TIMEOUT_MS };
    const asked = request(`${access.server}${path}`, options, (response) => {
      if (response.statusCode === 200 && take !== undefined) {
        take(response).then(resolve, reject);
        return;
      }
      response.resume();
      if (response.statusCode === 200) resolve();
      else reject(new PicoletError("failed", `the hub answered ${response.statusCode} when it was asked to ${what}`));
    });
    asked.once("timeout", () => asked.destroy(new Error("no answer in time")));
    asked.once("error", (cause) => {
      const isAway = errnoOf(cause) === "ECONNREFUSED";
      reject(new PicoletError(isAway ? "unavailable" : "failed", `cannot ask the hub to ${what}`, { cause }));
    });
    asked.end();
  });
}
