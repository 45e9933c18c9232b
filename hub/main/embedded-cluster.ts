/** A cluster with no Kubernetes: the embedded API server with its CA, controllers and administrator. */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Component } from "../../protocol/async/component.ts";
import type { Watch } from "../../protocol/async/watch.ts";
import { isPicoletError } from "../../protocol/errors.ts";
import type { Clock, Log, Millis, Random } from "../../protocol/ports.ts";
import { VERSION } from "../../protocol/version.ts";
import { CsrSigner } from "../bridge/csr-signer.ts";
import { CONFIG_MAPS, type KubeClient } from "../core/kube-client.ts";
import { ensureInitialObjects } from "../embedded/controllers/bootstrap/initial-objects.ts";
import { embeddedControllers } from "../embedded/controllers/embedded-controllers.ts";
import { NAMESPACES } from "../embedded/controllers/resource-types.ts";
import { EmbeddedApiServer } from "../embedded/embedded-api-server.ts";
import { embeddedResources } from "../embedded/resources/embedded-resources.ts";
import { FileModelSource } from "../embedded/schema/models.ts";
import { issueClientCertificate, makeClientPair, readRequest } from "../identity/certificate-authority.ts";
import { HubCa } from "../identity/hub-ca.ts";
import { FilePemStore } from "../identity/pem-store.ts";
import type { Serving } from "../identity/serving.ts";
import { type KubeletClientTls, KubeletDialer } from "../kubelet-proxy/kubelet-dialer.ts";
import { adminToken, kubeconfigText, writePrivately } from "./admin-files.ts";
import type { ListenAddress } from "./arguments.ts";
import { derivedWatch } from "./derived-watch.ts";
import { HUB_NAMESPACE } from "./hub-client.ts";
import type { Cluster } from "./serve.ts";

export interface EmbeddedClusterComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Whether a key (SPKI SHA-256, lower-case hex) is refused whatever certificate it has. */
  readonly isRevoked: (spkiHash: string) => boolean;
}

export interface EmbeddedClusterInit {
  readonly dataDir: string;
  readonly api: ListenAddress;
  /** Of the certificates. */
  readonly names: readonly string[];
  /** Where the administrator's is written; undefined: `admin.kubeconfig` in the data directory. */
  readonly kubeconfigOut: string | undefined;
  readonly nodeCertificateDuration: Millis;
  /** PEM: whom kubelets' certificates are issued by, where the nodes have another hub; undefined: this one. */
  readonly kubeletCaFile: string | undefined;
  /** The models of the API's types, gathered when the hub was built. */
  readonly modelsPath: string;
}

const ISSUER = "https://kubernetes.default.svc.cluster.local";
const MASTERS = "system:masters";
/** How Kubernetes' own controllers are known. */
const CONTROLLERS = { name: "system:kube-controller-manager", uid: "", groups: [MASTERS], extra: {} };
const HUB = { name: "system:picolet-hub", uid: "", groups: [MASTERS], extra: {} };
const DAY_MS = 86_400_000;
/** Made anew with every start and every certificate of the hub. */
const KUBELET_CLIENT_DAYS = 90;

/** Its API answers when this returns. */
export async function openEmbeddedCluster(
  components: EmbeddedClusterComponents,
  init: EmbeddedClusterInit,
  signal: AbortSignal,
): Promise<Cluster> {
  const { clock, random, log, isRevoked } = components;
  const { dataDir, names } = init;
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const ca = await HubCa.open({ store: pemStore(dataDir), clock, log }, { names }, signal);
  const { serving } = ca;
  const clientCa = derivedWatch(serving, ({ caBundle }) => caBundle);
  const now = (): Date => clock.wall();
  const kubeletCa = init.kubeletCaFile === undefined ? undefined : readFileSync(init.kubeletCaFile, "utf8");
  const kubeletClient = derivedWatch(serving, ({ caBundle }): KubeletClientTls => {
    const subject = [
      { type: "O", value: MASTERS },
      { type: "CN", value: "kube-apiserver-kubelet-client" },
    ] as const;
    const pair = makeClientPair(ca.authority, subject, { days: KUBELET_CLIENT_DAYS, now: now() });
    return { certificateChain: pair.certificate, privateKey: pair.privateKey, kubeletCa: kubeletCa ?? caBundle };
  });
  const admin = adminToken(dataDir);
  const definitions = embeddedResources({ serviceAccountTokens: true });
  const server = new EmbeddedApiServer(
    {
      clock,
      random,
      log,
      isRevoked,
      models: new FileModelSource(init.modelsPath),
      kubelets: new KubeletDialer({ clock, tls: kubeletClient }),
    },
    {
      version: VERSION,
      tokens: [{ token: admin, user: "picolet-admin", groups: [MASTERS] }],
      issuer: ISSUER,
      storePath: join(dataDir, "hub.db"),
      definitions,
      address: init.api.host,
      port: init.api.port,
      tls: tlsOf(serving),
    },
  );
  const port = await server.listen();
  const url = `https://${reachable(init.api.host)}:${port}`;
  const kubeconfig = init.kubeconfigOut ?? join(dataDir, "admin.kubeconfig");
  const writeKubeconfig = (): void =>
    writePrivately(kubeconfig, kubeconfigText({ server: url, ca: serving.current.caBundle, token: admin }));
  writeKubeconfig();
  const client: KubeClient = server.client(CONTROLLERS);
  await ensureInitialObjects(client, signal);
  await makeNamespace(client, signal);
  const controllers = embeddedControllers(
    { client, clock, random, log },
    { definitions, caBundle: clientCa, issuer: issuerOf(ca, clock, init.nodeCertificateDuration) },
  );
  // Without HTTP, for both ends are this process: TLS and a copy of every object at either end were two thirds of what a
  // fleet at rest costs, and half of what registering it does. The rules of the API are the same.
  const hub = server.client(HUB);
  return {
    components: [
      ca,
      server,
      followTls(server, serving, writeKubeconfig),
      ...controllers,
      publishClientCa(client, clientCa),
    ],
    client: hub,
    signer: new CsrSigner({ clock, random, log, client: hub, clientCa }),
    serving,
    clientCa,
    kubeletTls: derivedWatch(serving, ({ certificateChain, privateKey, caBundle }) => {
      return { certificateChain, privateKey, clientCa: caBundle };
    }),
    api: url,
    kubeconfig,
    caHash: ca.hash,
  };
}

/** Of what the hub itself keeps. In Kubernetes its manifests make it. */
async function makeNamespace(client: KubeClient, signal: AbortSignal): Promise<void> {
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: HUB_NAMESPACE } };
  try {
    await client.create(NAMESPACES, { namespace: "", name: "" }, namespace, {}, signal);
  } catch (error) {
    if (!isPicoletError(error, "already_exists")) throw error;
  }
}

/** Where API servers say whom they take client certificates from; hubs of other processes look there. */
const PUBLISHED = { namespace: "kube-system", name: "extension-apiserver-authentication" };

const publishClientCa = (client: KubeClient, clientCa: Watch<string>): Component => ({
  name: "client CA of the API server",
  run: async (signal) => {
    for await (const pem of clientCa.changes(signal)) await publish(client, pem, signal);
  },
  [Symbol.asyncDispose]: () => Promise.resolve(),
});

async function publish(client: KubeClient, pem: string, signal: AbortSignal): Promise<void> {
  const data = { "client-ca-file": pem };
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata: PUBLISHED, data };
  try {
    await client.create(CONFIG_MAPS, PUBLISHED, object, {}, signal);
  } catch (error) {
    if (!isPicoletError(error, "already_exists")) throw error;
    await client.patch(CONFIG_MAPS, PUBLISHED, "merge", { data }, {}, signal);
  }
}

export const pemStore = (dataDir: string): FilePemStore => new FilePemStore({ path: join(dataDir, "hub-ca.json") });

const tlsOf = ({ current: { certificateChain, privateKey, caBundle } }: Serving) => ({
  certificate: certificateChain,
  privateKey,
  clientCa: caBundle,
});

/** An address that this machine's own kubectl reaches. */
const reachable = (host: string): string => {
  if (host === "0.0.0.0") return "127.0.0.1";
  if (host === "::") return "[::1]";
  return host.includes(":") ? `[${host}]` : host;
};

function issuerOf(ca: HubCa, clock: Clock, longest: Millis) {
  return {
    read: (requestPem: string) => {
      const { subject, extensions, hasOtherAttributes } = readRequest(requestPem);
      const values = (type: string): string[] => subject.filter((each) => each.type === type).map(({ value }) => value);
      const [commonName = ""] = values("CN");
      const organizations = values("O");
      const others = subject.length - organizations.length - (commonName === "" ? 0 : 1);
      return { commonName, organizations, hasOthers: others > 0 || extensions.length > 0 || hasOtherAttributes };
    },
    issue: (requestPem: string, expirationSeconds: number | undefined) => {
      const lifeMs = Math.min(longest, (expirationSeconds ?? Number.POSITIVE_INFINITY) * 1000);
      return issueClientCertificate(ca.authority, requestPem, { days: lifeMs / DAY_MS, now: clock.wall() });
    },
  };
}

const followTls = (server: EmbeddedApiServer, serving: Serving, changed: () => void): Component => ({
  name: "API server certificate",
  run: async (signal) => {
    for await (const _ of serving.changes(signal)) {
      server.setTls(tlsOf(serving));
      changed();
    }
  },
  [Symbol.asyncDispose]: () => Promise.resolve(),
});
