/** The ports that all parts of `picolet-hub serve` are made with, and the cluster that they work for. */
import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { NodeSigner } from "@picolet/hub-core/node-credentials.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import type { FleetIdentity } from "@picolet/protocol/tunnel/messages.ts";
import type { RevocationJournal } from "../identity/revocation-journal.ts";
import type { Serving } from "../identity/serving.ts";
import type { KubeletTls } from "../kubelet-proxy/kubelet-proxy.ts";
import type { ApiServerFigures } from "../metrics/hub-metrics.ts";
import type { FrontProxy } from "../metrics/metrics-access.ts";

export interface HubPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** The Kubernetes API that the hub is in front of, wherever it is. */
export interface Cluster {
  /** To be started before everything else, and ended after it. */
  readonly components: readonly Component[];
  readonly client: KubeClient;
  readonly signer: NodeSigner;
  /** Certificate and CA that boards see. */
  readonly serving: Serving;
  /** PEM: whom boards' certificates are issued by. */
  readonly clientCa: Watch<string>;
  /** How an API server that passes requests on shows for whom. */
  readonly frontProxy: Watch<FrontProxy>;
  readonly kubeletTls: Watch<KubeletTls>;
  /** Figures of the embedded API server; undefined: there is another one. */
  readonly apiServer: ApiServerFigures | undefined;
  readonly api: string;
  readonly kubeconfig: string;
  readonly caHash: string;
  /** The fleet's identity in every welcome; undefined when its id cannot be read. */
  readonly fleet: FleetIdentity | undefined;
  /** The journal of revocations beside the store; undefined: the cluster keeps them, and its operator backs them up. */
  readonly revocations: RevocationJournal | undefined;
}
