/** Port 10250, put together: a listening socket; what answers is loaded with the first client. */
import { join } from "node:path";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { PushedPods } from "../../core/pods/pushed-pods.ts";
import { KubeletPort } from "../../kubelet-server/kubelet-port.ts";
import type { KubeletServer } from "../../kubelet-server/kubelet-server.ts";
import type { PairFile } from "../../kubelet-server/serving-pair.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { NodeStreamsOnDemand } from "../base/node-streams-on-demand.ts";

/** The kubelet's folder, and its name for a certificate of its own. */
const PKI_FOLDER = "pki";
const OWN_PAIR = "kubelet-server-current.pem";
const ISSUED_PAIR = "kubelet-server-issued.pem";
const PENDING_PAIR = "kubelet-server-request.pem";

export interface KubeletPortParts {
  readonly streams: NodeStreamsOnDemand;
  readonly pushed: Pick<PushedPods, "replace">;
}

/** Empty where the configuration has it off. */
export function makeKubeletPort(base: AgentBase, parts: KubeletPortParts): readonly Component[] {
  const { clock, log } = base.ports;
  const { enableServer, address, port, serverTLSBootstrap, tlsCertFile } = base.init.configuration;
  if (!enableServer) return [];
  let server: Promise<KubeletServer> | undefined;
  const load = (): Promise<KubeletServer> => {
    server ??= makeServer(base, parts).catch((error: unknown) => {
      server = undefined;
      throw error;
    });
    return server;
  };
  const listener = new KubeletPort({ load, clock, log }, { address, port });
  // A file of the owner's wins.
  if (!serverTLSBootstrap || tlsCertFile !== "") return [listener];
  return [listener, servingCertificateTask(base)];
}

/** Loaded where it is configured alone. */
function servingCertificateTask(base: AgentBase): Component {
  const { clock, log, random } = base.ports;
  const { link } = base.cluster;
  const run = async (signal: AbortSignal): Promise<void> => {
    if (link === undefined) {
      log.warn("serverTLSBootstrap has no effect: this node belongs to no hub that passes its request on");
      return await aborted(signal);
    }
    const { ServingCertificate } = await import("../../kubelet-server/serving-certificate.ts");
    const file = await pkiFiles(base);
    const certificate = new ServingCertificate(
      { clock, random, log, hub: link, issued: file(ISSUED_PAIR), pending: file(PENDING_PAIR) },
      { nodeName: base.init.configuration.nodeName, addresses: base.node.hostIps },
    );
    for (;;) await clock.sleep(await certificate.step(signal), signal);
  };
  return { name: "serving certificate", run, [Symbol.asyncDispose]: () => Promise.resolve() };
}

async function pkiFiles({ init }: AgentBase): Promise<(name: string) => PairFile> {
  const { DurableFolderOnDisk } = await import("../../security/durable-folder.ts");
  const folder = new DurableFolderOnDisk({ path: join(init.args.rootDir, PKI_FOLDER) });
  return (name) => ({
    read: () => folder.read(name),
    write: (text) => {
      folder.write(`${name}.new`, text);
      folder.rename(`${name}.new`, name);
      folder.sync();
    },
    remove: () => {
      folder.remove(name);
      folder.sync();
    },
  });
}

async function makeServer(base: AgentBase, { streams, pushed }: KubeletPortParts): Promise<KubeletServer> {
  const [{ KubeletServer, MAX_SESSIONS }, { ServingTls }, { HubReviews }, { opensslCiphers }, file] = await Promise.all(
    [
      import("../../kubelet-server/kubelet-server.ts"),
      import("../../kubelet-server/serving-tls.ts"),
      import("../../kubelet-server/hub-reviews.ts"),
      import("../../config/cipher-suites.ts"),
      pkiFiles(base),
    ],
  );
  const { clock, log } = base.ports;
  const { configuration } = base.init;
  const { nodeName, authentication, authorization, enableDebuggingHandlers: debugging } = configuration;
  const tls = new ServingTls(
    { clock, own: file(OWN_PAIR), issued: file(ISSUED_PAIR) },
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
