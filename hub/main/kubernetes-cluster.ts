/** A cluster that is there already: reached with a kubeconfig, or with the account of the pod that the hub runs in. */
import { readFile } from "node:fs/promises";
import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import { NAMESPACES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { certificatesOf } from "@picolet/protocol/pki/pem.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { ClusterClientCa, NO_FRONT_PROXY } from "../bridge/cluster-client-ca.ts";
import { CsrSigner } from "../bridge/csr-signer.ts";
import { SecretPemStore } from "../bridge/secret-pem-store.ts";
import { HubCa } from "../identity/hub-ca.ts";
import type { KubeletTls } from "../kubelet-proxy/kubelet-proxy.ts";
import { loadKubeconfigAccess } from "../kubernetes/kubeconfig-access.ts";
import type { ClusterArguments, ServeArguments } from "./arguments.ts";
import type { Cluster, HubPorts } from "./cluster.ts";
import { joinedWatch } from "./derived-watch.ts";
import { HUB_NAMESPACE, openClient } from "./hub-client.ts";

/** The hub's own CA and certificate, shared by its replicas. */
const CA_SECRET = { namespace: HUB_NAMESPACE, name: "picolet-hub-ca" };

export const secretPemStore = (client: KubeClient): SecretPemStore => new SecretPemStore({ client }, CA_SECRET);

type KubernetesArguments = Pick<ServeArguments, "clientCaFile" | "kubeletClientCaFile" | "adoptFleets"> & {
  readonly cluster: Extract<ClusterArguments, { readonly kind: "kubernetes" }>;
  /** Names in the hub's certificate. */
  readonly names: readonly string[];
};

/** @throws what the API server answers to the first requests; each names what was asked for */
export async function openKubernetesCluster(
  ports: HubPorts,
  args: KubernetesArguments,
  signal: AbortSignal,
): Promise<Cluster> {
  const { clock, log } = ports;
  const { kubeconfig } = args.cluster;
  const client = openClient(ports, await loadKubeconfigAccess(kubeconfig === undefined ? {} : { kubeconfig }));
  const ca = await HubCa.open({ store: secretPemStore(client), clock, log }, { names: args.names }, signal);
  const { serving } = ca;
  const published = new ClusterClientCa({ ...ports, client });
  const clientCa = await clientCaOf(args.clientCaFile, published, signal);
  const isPublished = clientCa === published.pem;
  const kubeletClientCa =
    args.kubeletClientCaFile === undefined
      ? isPublished
        ? published.kubeletClientPem
        : clientCa
      : await givenCa(args.kubeletClientCaFile);
  const fleet = await fleetOf(client, log, signal);
  return {
    components: [client, ca, ...(isPublished ? [published] : [])],
    client,
    signer: new CsrSigner({ ...ports, client, clientCa }),
    serving,
    clientCa,
    frontProxy: isPublished ? published.frontProxy : new WatchSource(NO_FRONT_PROXY),
    apiServer: undefined,
    kubeletTls: joinedWatch(serving, kubeletClientCa, ({ certificateChain, privateKey }, ca): KubeletTls => {
      return { certificateChain, privateKey, clientCa: ca };
    }),
    api: "",
    kubeconfig: "",
    caHash: ca.hash,
    fleet: fleet === undefined ? undefined : { id: fleet, former: args.adoptFleets },
    revocations: undefined,
  };
}

/** The usual identity of a cluster: the UID of its namespace kube-system. */
async function fleetOf(client: KubeClient, log: Log, signal: AbortSignal): Promise<string | undefined> {
  try {
    const { metadata } = await client.get(NAMESPACES, { namespace: "", name: "kube-system" }, signal);
    return metadata.uid;
  } catch (error) {
    if (!isPicoletError(error, "permission_denied")) throw error;
    const need = "boards that know this cluster stay away; the ClusterRole picolet-hub needs get on namespaces";
    log.error("cannot read the namespace kube-system", { error: describeError(error), need });
    return undefined;
  }
}

async function clientCaOf(
  file: string | undefined,
  published: ClusterClientCa,
  signal: AbortSignal,
): Promise<Watch<string>> {
  if (file !== undefined) return await givenCa(file);
  try {
    await published.load(signal);
  } catch (error) {
    const message = "cannot read the cluster's CA of client certificates; name its file with --client-ca-file";
    throw new PicoletError("unavailable", message, { cause: error });
  }
  return published.pem;
}

async function givenCa(path: string): Promise<Watch<string>> {
  try {
    const pem = await readFile(path, "utf8");
    if (certificatesOf(pem).length === 0) throw new PicoletError("invalid", "there is no certificate in it");
    return new WatchSource(pem);
  } catch (error) {
    throw new PicoletError("invalid", `cannot read the CA in ${path}`, { cause: error });
  }
}
