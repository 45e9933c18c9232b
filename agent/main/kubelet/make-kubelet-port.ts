/** Port 10250, put together: a listening socket; what answers is loaded with the first client. */
import { join } from "node:path";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { PushedPods } from "../../core/pods/pushed-pods.ts";
import { KubeletPort } from "../../kubelet-server/kubelet-port.ts";
import type { KubeletServer } from "../../kubelet-server/kubelet-server.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { NodeStreamsOnDemand } from "../base/node-streams-on-demand.ts";

/** The kubelet's folder and name for a certificate of its own. */
const OWN_PAIR = { folder: "pki", name: "kubelet-server-current.pem" };

export interface KubeletPortParts {
  readonly streams: NodeStreamsOnDemand;
  readonly pushed: PushedPods;
}

/** Empty where the configuration has it off. */
export function makeKubeletPort(base: AgentBase, parts: KubeletPortParts): readonly Component[] {
  const { clock, log } = base.ports;
  const { enableServer, address, port } = base.init.configuration;
  if (!enableServer) return [];
  let server: Promise<KubeletServer> | undefined;
  const load = (): Promise<KubeletServer> => {
    server ??= makeServer(base, parts).catch((error: unknown) => {
      server = undefined;
      throw error;
    });
    return server;
  };
  return [new KubeletPort({ load, clock, log }, { address, port })];
}

async function makeServer(base: AgentBase, { streams, pushed }: KubeletPortParts): Promise<KubeletServer> {
  const [{ KubeletServer, MAX_SESSIONS }, { ServingTls }, { HubReviews }, { opensslCiphers }, { DurableFolderOnDisk }] =
    await Promise.all([
      import("../../kubelet-server/kubelet-server.ts"),
      import("../../kubelet-server/serving-tls.ts"),
      import("../../kubelet-server/hub-reviews.ts"),
      import("../../config/cipher-suites.ts"),
      import("../../security/durable-folder.ts"),
    ]);
  const { clock, log } = base.ports;
  const { configuration, args } = base.init;
  const { nodeName, authentication, authorization, enableDebuggingHandlers: debugging } = configuration;
  const folder = new DurableFolderOnDisk({ path: join(args.rootDir, OWN_PAIR.folder) });
  const own = {
    read: () => folder.read(OWN_PAIR.name),
    write: (text: string) => {
      folder.write(`${OWN_PAIR.name}.new`, text);
      folder.rename(`${OWN_PAIR.name}.new`, OWN_PAIR.name);
      folder.sync();
    },
  };
  const tls = new ServingTls(
    { clock, own },
    {
      nodeName,
      addresses: base.node.hostIps,
      certFile: configuration.tlsCertFile,
      keyFile: configuration.tlsPrivateKeyFile,
      clientCaFile: authentication.x509.clientCAFile,
      minVersion: configuration.tlsMinVersion === "VersionTLS13" ? "TLSv1.3" : "TLSv1.2",
      ciphers: opensslCiphers(configuration.tlsCipherSuites),
    },
  );
  const { webhook, anonymous } = authentication;
  return new KubeletServer(
    {
      ...{ clock, log, tls },
      streams: streams.handlers(MAX_SESSIONS),
      reviews: new HubReviews({ hub: base.cluster.link }),
      pushed,
    },
    {
      ...{ nodeName, debugging },
      access: {
        tokenTtl: webhook.cacheTTL,
        allowedTtl: authorization.webhook.cacheAuthorizedTTL,
        deniedTtl: authorization.webhook.cacheUnauthorizedTTL,
        reviewsTokens: webhook.enabled,
        allowsAnonymous: anonymous.enabled,
        allowsEverything: authorization.mode === "AlwaysAllow",
      },
    },
  );
}
