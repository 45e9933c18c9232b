/** `picolet-hub kubeconfig`: the administrator's access to the embedded API server, from another machine. */
import { isIP } from "node:net";
import { checkServerIdentity, connect, type PeerCertificate } from "node:tls";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ClusterAccess } from "../kubernetes/cluster-access.ts";
import { kubeconfigText } from "./admin-files.ts";
import type { ServerName } from "./arguments.ts";
import { administratorAccess } from "./download-backup.ts";

/** A hub of this machine answers in milliseconds; one that swaps takes seconds. */
const ANSWER_TIMEOUT_MS = 20_000;
const BEARER = "Bearer ";

/**
 * @param server as kubectl reaches it; the port is the hub's own where it names none
 * @throws `unavailable` when no hub runs on `dataDir`, `invalid` when its certificate does not name `server`
 */
export async function outsideKubeconfig(dataDir: string, server: ServerName | undefined): Promise<string> {
  if (server === undefined) {
    const how = "name the hub as kubectl reaches it: --server NAME, or serverName in the configuration";
    throw new PicoletError("invalid", how);
  }
  const access = await administratorAccess(dataDir);
  const { tls, headers } = await access.credentials();
  const ca = String(tls.ca ?? "");
  await requireName(access, ca, server.host.replace(/^\[|\]$/g, ""));
  const port = server.port ?? new URL(access.server).port;
  const token = String(headers.authorization ?? "").slice(BEARER.length);
  return kubeconfigText({ server: `https://${server.host}:${port}`, ca, token });
}

/** Compares the certificate of the hub that runs with the name that kubectl will verify. */
async function requireName({ server }: ClusterAccess, ca: string, name: string): Promise<void> {
  const { hostname, port } = new URL(server);
  await new Promise<void>((resolve, reject) => {
    const check = (_: string, certificate: PeerCertificate): Error | undefined => {
      if (checkServerIdentity(name, certificate) === undefined) return undefined;
      const names = (certificate.subjectaltname ?? "").replaceAll(/(?:DNS|IP Address):/g, "");
      const message = `the hub's certificate does not name ${name}: start the hub with --server-name ${name}; it names ${names}`;
      return new PicoletError("invalid", message);
    };
    const socket = connect(
      {
        ...{ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port), ca, checkServerIdentity: check },
        ...(isIP(name) === 0 ? { servername: name } : {}),
      },
      () => {
        socket.destroy();
        resolve();
      },
    );
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy(new Error("no answer in time")));
    socket.once("error", (cause) => {
      if (cause instanceof PicoletError) reject(cause);
      else reject(new PicoletError("unavailable", "cannot ask the hub for its certificate", { cause }));
    });
  });
}
