/** A cluster with no Kubernetes: the embedded API server with its CA, controllers and administrator. */

import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { LabelledCounts } from "@picolet/hub-core/counts.ts";
import { CONFIG_MAPS, type KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import { NAMESPACES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { type CertificateFacts, isRevoked } from "@picolet/hub-core/node-credentials.ts";
import type { UsageObjects } from "@picolet/hub-core/usage-objects.ts";
import {
  DEFAULT_POD_SECURITY,
  type PodSecurityConfiguration,
  parsePodSecurity,
} from "@picolet/hub-embedded/admission/pod-security-configuration.ts";
import { HUB_USER } from "@picolet/hub-embedded/auth/hub-authorizer.ts";
import { KUBELET_CLIENT_USER } from "@picolet/hub-embedded/controllers/cluster/bootstrap-roles.ts";
import { ensureInitialObjects } from "@picolet/hub-embedded/controllers/cluster/initial-objects.ts";
import { EmbeddedApiServer } from "@picolet/hub-embedded/embedded-api-server.ts";
import { embeddedControllers } from "@picolet/hub-embedded/embedded-controllers.ts";
import { embeddedResources } from "@picolet/hub-embedded/embedded-resources.ts";
import { usageResources } from "@picolet/hub-embedded/resources/usage-resources.ts";
import { FileModelSource } from "@picolet/hub-embedded/schema/models.ts";
import { lockDataDir } from "@picolet/hub-embedded/store/data-dir-lock.ts";
import { writeDurably } from "@picolet/hub-embedded/store/durable-file.ts";
import { FleetGuard, fileFacts, storePathIn } from "@picolet/hub-embedded/store/fleet-guard.ts";
import { ObjectStore } from "@picolet/hub-embedded/store/object-store.ts";
import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { ListenAddress } from "@picolet/protocol/command-line/flag-values.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Millis, Random } from "@picolet/protocol/ports.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { boardTolerations } from "../bridge/away-tolerations.ts";
import { CLIENT_CA_KEY, KUBELET_CLIENT_CA_KEY, NO_FRONT_PROXY } from "../bridge/cluster-client-ca.ts";
import { CsrSigner } from "../bridge/csr-signer.ts";
import { makeClientPair } from "../identity/certificate-authority.ts";
import { HubCa } from "../identity/hub-ca.ts";
import { NodeCertifier } from "../identity/node-certifier.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes } from "../identity/node-keys.ts";
import { FilePemStore } from "../identity/pem-store.ts";
import { RequestIssuer } from "../identity/request-issuer.ts";
import { RevocationJournal } from "../identity/revocation-journal.ts";
import type { Serving } from "../identity/serving.ts";
import { type KubeletClientTls, KubeletDialer } from "../kubelet-proxy/kubelet-dialer.ts";
import { KubeletTargets, type OwnKubelets } from "../kubelet-proxy/kubelet-targets.ts";
import { adminToken, kubeconfigText } from "./admin-files.ts";
import type { Cluster } from "./cluster.ts";
import { derivedWatch, joinedWatch } from "./derived-watch.ts";
import { HUB_NAMESPACE } from "./hub-client.ts";

export interface EmbeddedClusterComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Usage of the boards of this hub. */
  readonly usage: UsageObjects;
  /** By claim and result. */
  readonly claims: LabelledCounts;
  /** Undefined: not known yet. */
  readonly isRevoked: (certificate: CertificateFacts) => boolean | undefined;
  /** The nodes that are connected to this hub. */
  readonly ownKubelets: OwnKubelets;
  /** Ports that the hub listens on; the API server's is added. */
  readonly ownPorts: Set<number>;
}

export interface EmbeddedClusterInit {
  readonly dataDir: string;
  readonly api: ListenAddress;
  /** Names in the certificates. */
  readonly names: readonly string[];
  /** Path of the administrator's kubeconfig; undefined: `admin.kubeconfig` in the data directory. */
  readonly kubeconfigOut: string | undefined;
  readonly nodeCertificateDuration: Millis;
  /** PEM: whom kubelets' certificates are issued by, where the nodes have another hub; undefined: this one. */
  readonly kubeletCaFile: string | undefined;
  /** CIDRs in which kubelets of other hubs are dialed; empty: everywhere but loopback, link-local and the like. */
  readonly kubeletNetworks: readonly string[];
  /** Size of the store above which boards' writes are refused; undefined: what the disk has. */
  readonly storeMaxBytes?: number | undefined;
  /** A PodSecurityConfiguration or AdmissionConfiguration; undefined: Kubernetes' defaults. */
  readonly admissionConfigFile: string | undefined;
  readonly relaxesUserNamespaces: boolean;
  /** The models of the API's types, gathered when the hub was built. */
  readonly modelsPath: string;
  /** As `FleetGuardInit`. */
  readonly acceptRestoredStore: string | undefined;
  readonly adoptFleets: readonly string[];
  readonly credential: Uint8Array | undefined;
}

const ISSUER = "https://kubernetes.default.svc.cluster.local";
const MASTERS = "system:masters";
/**
 * Holds `system:kubelet-api-admin` by a binding (bootstrap-roles.ts), for kubelets that ask this API server who may
 * what.
 */
const KUBELET_CLIENT = [{ type: "CN", value: KUBELET_CLIENT_USER }] as const;
/** The identity of Kubernetes' own controllers. */
const CONTROLLERS = { name: "system:kube-controller-manager", uid: "", groups: [MASTERS], extra: {} };
/** It is made again with every start and every certificate of the hub. */
const KUBELET_CLIENT_DAYS = 90;

/**
 * Its API answers when this returns.
 * @throws `conflict` with the reason `RefusedStore` for a store that is not the one this hub left; `unavailable` when
 * another hub runs on the data directory
 */
export async function openEmbeddedCluster(
  components: EmbeddedClusterComponents,
  init: EmbeddedClusterInit,
  signal: AbortSignal,
): Promise<Cluster> {
  const lock = lockDataDir(init.dataDir);
  try {
    const cluster = await openLocked(components, init, signal);
    const keeper: Component = {
      name: "lock of the data directory",
      run: (stop) => aborted(stop),
      [Symbol.asyncDispose]: () => {
        lock[Symbol.dispose]();
        return Promise.resolve();
      },
    };
    return { ...cluster, components: [keeper, ...cluster.components] };
  } catch (error) {
    lock[Symbol.dispose]();
    throw error;
  }
}

async function openLocked(
  components: EmbeddedClusterComponents,
  init: EmbeddedClusterInit,
  signal: AbortSignal,
): Promise<Cluster> {
  const { clock, random, log, isRevoked: isRevokedInStore, ownKubelets, ownPorts, usage, claims } = components;
  const { dataDir, names } = init;
  const { acceptRestoredStore: accept, adoptFleets: adopt, credential } = init;
  const guard = new FleetGuard({ clock, log }, { dataDir, accept, adopt, credential });
  const storePath = storePathIn(dataDir);
  // The CA is made after the store: keys without a store then always mean that the store was lost.
  if (fileFacts(storePath) !== undefined) new ObjectStore({ clock, log, guard }, storePath)[Symbol.dispose]();
  // Known before the first request is answered; the store's own list is read only when the API serves.
  const revocations = new RevocationJournal({ log }, { path: join(dataDir, "hub-revocations.jsonl") });
  const ca = await HubCa.open({ store: pemStore(dataDir), clock, log }, { names }, signal);
  const { serving } = ca;
  const clientCa = derivedWatch(serving, ({ caBundle }) => caBundle);
  const kubeletClient = await openKubeletClient({ clock, log }, { ...init, servingCa: clientCa }, signal);
  const admin = adminToken(dataDir);
  const definitions = embeddedResources({ serviceAccountTokens: true, tolerationsOn: boardTolerations });
  const server = new EmbeddedApiServer(
    {
      clock,
      random,
      log,
      isRevoked: (facts) => isRevoked(revocations.current, facts) || isRevokedInStore(facts),
      guard,
      models: new FileModelSource(init.modelsPath),
      kubelets: new KubeletDialer({
        clock,
        tls: kubeletClient.tls,
        targets: new KubeletTargets({ own: ownKubelets }, { networks: init.kubeletNetworks }),
      }),
    },
    {
      version: VERSION,
      tokens: [{ token: admin, user: "picolet-admin", groups: [MASTERS] }],
      issuer: ISSUER,
      storePath,
      maxStoreBytes: init.storeMaxBytes,
      definitions: [...definitions, ...usageResources(usage)],
      podSecurity: podSecurityOf(init),
      address: init.api.host,
      port: init.api.port,
      tls: tlsOf(serving),
    },
  );
  const port = await server.listen();
  ownPorts.add(port);
  const url = `https://${reachable(init.api.host)}:${port}`;
  const kubeconfig = init.kubeconfigOut ?? join(dataDir, "admin.kubeconfig");
  const writeKubeconfig = (): void =>
    writeDurably(kubeconfig, kubeconfigText({ server: url, ca: serving.current.caBundle, token: admin }));
  writeKubeconfig();
  const client: KubeClient = server.client(CONTROLLERS);
  await ensureInitialObjects(client, signal);
  await makeNamespace(client, signal);
  // Without HTTP, for both ends are this process: TLS and a copy of every object at either end were two thirds of what
  // a fleet at rest costs, and half of what registering it does. The rules of the API are the same.
  const hub = server.client(HUB_USER);
  const revoked = new RevokedKeysInKubernetes({ client: hub, clock, random, log }, { namespace: HUB_NAMESPACE });
  const keys = new NodeKeysInKubernetes({ client: hub }, { namespace: HUB_NAMESPACE });
  const certifier = new NodeCertifier({ keys, revoked, clock, log, claims });
  // A store that was restored from a backup learns what was revoked since, before anyone is certified.
  await revoked.restore(revocations.current, signal);
  const longest = init.nodeCertificateDuration;
  const issuer = new RequestIssuer({ ca, certifier, clock }, { longest, hubNames: names });
  const controllers = embeddedControllers({ client, clock, random, log }, { definitions, caBundle: clientCa, issuer });
  return {
    components: [
      ca,
      kubeletClient.ca,
      server,
      followTls(server, serving, writeKubeconfig),
      ...controllers,
      publishCas(client, { [CLIENT_CA_KEY]: clientCa, [KUBELET_CLIENT_CA_KEY]: kubeletClient.clientCa }),
    ],
    client: hub,
    signer: new CsrSigner({ clock, random, log, client: hub, clientCa }),
    serving,
    clientCa,
    frontProxy: new WatchSource(NO_FRONT_PROXY),
    apiServer: server.requests,
    kubeletTls: joinedWatch(serving, kubeletClient.clientCa, ({ certificateChain, privateKey }, ca) => {
      return { certificateChain, privateKey, clientCa: ca };
    }),
    api: url,
    kubeconfig,
    caHash: ca.hash,
    fleet: { id: guard.keys.fleet, former: guard.keys.formerFleets },
    revocations,
  };
}

/** @throws `invalid` with the file's name and all that is wrong with it */
function podSecurityOf({ admissionConfigFile, relaxesUserNamespaces }: EmbeddedClusterInit): PodSecurityConfiguration {
  if (admissionConfigFile === undefined) return { ...DEFAULT_POD_SECURITY, relaxesUserNamespaces };
  const beside = (path: string): string => readFileSync(resolve(dirname(admissionConfigFile), path), "utf8");
  try {
    const parsed = parsePodSecurity(readFileSync(admissionConfigFile, "utf8"), beside);
    return { ...parsed, relaxesUserNamespaces };
  } catch (cause) {
    throw new PicoletError("invalid", `cannot use ${admissionConfigFile}`, { cause });
  }
}

/** Makes the namespace of the hub's own objects. In Kubernetes its manifests make it. */
async function makeNamespace(client: KubeClient, signal: AbortSignal): Promise<void> {
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: HUB_NAMESPACE } };
  try {
    await client.create(NAMESPACES, { namespace: "", name: "" }, namespace, {}, signal);
  } catch (error) {
    if (!isPicoletError(error, "already_exists")) throw error;
  }
}

/**
 * The certificate that the API server shows to kubelets. Its CA signs nothing else and is not among those that the API
 * server takes client certificates from, so that neither a dialed kubelet nor a thief gets access with it here.
 */
async function openKubeletClient(
  { clock, log }: Pick<EmbeddedClusterComponents, "clock" | "log">,
  { dataDir, kubeletCaFile, servingCa }: KubeletClientInit,
  signal: AbortSignal,
): Promise<{ readonly ca: HubCa; readonly clientCa: Watch<string>; readonly tls: Watch<KubeletClientTls> }> {
  const store = new FilePemStore({ path: join(dataDir, "kubelet-client-ca.json") });
  const init = { names: [KUBELET_CLIENT_USER], caName: "picolet-kubelet-client-ca" };
  const ca = await HubCa.open({ store, clock, log }, init, signal);
  const clientCa = derivedWatch(ca.serving, ({ caBundle }) => caBundle);
  const others = kubeletCaFile === undefined ? "" : readFileSync(kubeletCaFile, "utf8");
  const pair = derivedWatch(ca.serving, () =>
    makeClientPair(ca.authority, KUBELET_CLIENT, { days: KUBELET_CLIENT_DAYS, now: clock.wall() }),
  );
  const tls = joinedWatch(pair, servingCa, ({ certificate, privateKey }, own): KubeletClientTls => {
    return { certificateChain: certificate, privateKey, kubeletCa: `${others}\n${own}` };
  });
  return { ca, clientCa, tls };
}

interface KubeletClientInit extends Pick<EmbeddedClusterInit, "dataDir" | "kubeletCaFile"> {
  /** CA of the hub's own kubelet endpoints. */
  readonly servingCa: Watch<string>;
}

/** The ConfigMap in which API servers publish the CAs of client certificates; hubs of other processes read it. */
const PUBLISHED = { namespace: "kube-system", name: "extension-apiserver-authentication" };

const publishCas = (client: KubeClient, cas: Readonly<Record<string, Watch<string>>>): Component => ({
  name: "CAs of the API server",
  run: async (signal) => {
    using life = joinSignals(signal);
    const follow = async (ca: Watch<string>): Promise<void> => {
      for await (const _ of ca.changes(life.signal)) await publish(client, currentOf(cas), life.signal);
    };
    try {
      await Promise.all(Object.values(cas).map(follow));
    } finally {
      life.abort();
    }
  },
  [Symbol.asyncDispose]: () => Promise.resolve(),
});

const currentOf = (cas: Readonly<Record<string, Watch<string>>>): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(cas).map(([key, { current }]) => [key, current]));

async function publish(client: KubeClient, data: Readonly<Record<string, string>>, signal: AbortSignal): Promise<void> {
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
