/** `picolet-hub serve`: builds every part of the hub and runs it until `signal` aborts. */

import { realpathSync } from "node:fs";
import { hostname, networkInterfaces } from "node:os";
import { dirname, join } from "node:path";
import { CountedKubeClient, KubeCallCounts } from "@picolet/hub-core/counted-kube-client.ts";
import { LabelledCounts } from "@picolet/hub-core/counts.ts";
import type { KubeletEndpoints } from "@picolet/hub-core/fleet.ts";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { type CertificateFacts, isRevoked } from "@picolet/hub-core/node-credentials.ts";
import type { UsageObjects } from "@picolet/hub-core/usage-objects.ts";
import { aborted, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { supervise } from "@picolet/protocol/async/supervisor.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { KubernetesReviews } from "../bridge/kubelet-reviews.ts";
import { KubernetesFleet } from "../bridge/kubernetes-fleet.ts";
import { NodeAuthenticator } from "../identity/authenticate-node.ts";
import { BootstrapTokens } from "../identity/bootstrap-tokens.ts";
import { JoinService } from "../identity/join-service.ts";
import { LiveConnections } from "../identity/live-connections.ts";
import { NodeCertifier } from "../identity/node-certifier.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes } from "../identity/node-keys.ts";
import { KeptRevocations } from "../identity/revocation-journal.ts";
import { KubeletProxy, type KubeletProxyComponents } from "../kubelet-proxy/kubelet-proxy.ts";
import type { OwnEndpoint, OwnKubelets } from "../kubelet-proxy/kubelet-targets.ts";
import { KUBELET_PORT } from "../kubelet-proxy/node-addresses.ts";
import { METRICS_SERVICE } from "../metrics/api-service-ca.ts";
import type { HubFigures } from "../metrics/hub-metrics.ts";
import { ResourceAnswers } from "../metrics/resource-answers.ts";
import { boardPageFiles } from "../page/board-page-files.ts";
import { TunnelServer } from "../tunnel/tunnel-server.ts";
import { WhyAnswerer } from "../why/why-answerer.ts";
import type { ServeArguments } from "./arguments.ts";
import { BoardServer } from "./board-server.ts";
import type { Cluster, HubPorts } from "./cluster.ts";
import { openEmbeddedCluster } from "./embedded-cluster.ts";
import { HUB_NAMESPACE } from "./hub-client.ts";
import { openKubernetesCluster } from "./kubernetes-cluster.ts";
import { makeSamples, openMetricsPort } from "./metrics-components.ts";
import { makeFleetPage, pageFolder } from "./page-components.ts";
import { makeRollouts } from "./rollout-components.ts";
import { readCredential } from "./root-key-credential.ts";
import { makeTelemetry } from "./telemetry-components.ts";

/** Link-local addresses are good on one wire only. */
const isLocal = (address: string): boolean => address.startsWith("fe80:") || address.startsWith("169.254.");

/** This machine's addresses, IPv4 first, loopback left out. */
function machineAddresses(): readonly string[] {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const outside = all.filter(({ internal, address }) => !internal && !isLocal(address));
  const of = (family: string): string[] =>
    outside.filter((each) => each.family === family).map(({ address }) => address);
  return [...of("IPv4"), ...of("IPv6")];
}

/** Names of this machine in the hub's certificate, besides those of its flags. */
const machineNames = (): readonly string[] => [
  "localhost",
  hostname().toLowerCase(),
  "127.0.0.1",
  "::1",
  ...machineAddresses(),
];

/** Loopback, and a Service's name, which its own cluster alone resolves. */
const LOCAL_NAME = /^(?:localhost|127\..*|::1|\[::1\])$|\.svc(?:\.|$)/i;
const ALL_INTERFACES = /^(?:0\.0\.0\.0|::)$/;

/**
 * True for a hub that listens to other machines and has no name but those of this machine: good in its own network,
 * but neither behind a router or balancer nor by a DNS name.
 */
export const lacksServerName = ({ tunnel, serverNames }: Pick<ServeArguments, "tunnel" | "serverNames">): boolean =>
  ALL_INTERFACES.test(tunnel.host) && serverNames.every((name) => LOCAL_NAME.test(name));

/** One line of JSON on standard output, once everything answers. */
export interface HubReady {
  /** For boards. */
  readonly tunnel: string;
  /** Embedded only, else "". */
  readonly api: string;
  /** Path; embedded only, else "". */
  readonly kubeconfig: string;
  /** The hash that boards pin. */
  readonly caHash: string;
  /** For scrapers; "": metrics are not served. */
  readonly metrics: string;
}

/** For slow boards, after the time over which boards are sent elsewhere. */
const DRAIN_GRACE = millis(5_000);

/** @param ready called once, when everything answers */
export async function serve(
  ports: HubPorts,
  args: ServeArguments,
  ready: (ready: HubReady) => void,
  signal: AbortSignal,
): Promise<void> {
  const { clock, random, log } = ports;
  const advertise = args.advertiseAddress ?? machineAddresses()[0] ?? "127.0.0.1";
  const late = new LateParts(advertise);
  const claims = new LabelledCounts();
  const hubNames = [...new Set([...args.serverNames, advertise, ...machineNames()])];
  const opened = await openCluster({ ...ports, late, claims }, args, hubNames, signal);
  const calls = new KubeCallCounts(ports);
  const client = new CountedKubeClient(opened.client, calls);
  const cluster = { ...opened, client };
  const { serving, clientCa } = cluster;
  const { stored, revoked, parts, authenticator, join } = makeIdentity({ ...ports, claims }, cluster, args);
  late.revoked = stored;
  if (lacksServerName(args)) {
    log.warn("boards and kubectl elsewhere may refuse this hub: set --server-name to the name at which they reach it", {
      names: machineNames().join(","),
    });
  }
  const backend = new KubernetesFleet(
    { client, endpoints: late, clock, random, log },
    { hub: args.hubName, hubNames, hasReplicas: args.cluster.kind === "kubernetes" },
  );
  const telemetry = makeTelemetry(ports, args);
  const { receiver } = telemetry;
  const { fleet } = cluster;
  const sampled = makeSamples(ports, backend, args);
  late.usage = sampled.usage;
  const tunnel = new TunnelServer(
    { clock, random, log, backend, telemetry: receiver, samples: sampled.receiver },
    { hubVersion: VERSION, fleet },
  );
  const reviews = new KubernetesReviews({ client });
  const usage = new ResourceAnswers({ samples: sampled.samples, clock });
  const { kubeletTls: tls } = cluster;
  const proxy = makeProxy({ fleet: tunnel, reviews, tls, telemetry: telemetry.reader, usage, clock, log }, late, args);
  const connections = new LiveConnections({ revoked, clock, log });
  const boards = new BoardServer({
    serving,
    clientCa,
    join,
    authenticator,
    connections,
    tunnel,
    problem: backend.problem,
    clock,
    log,
  });
  const page = makeFleetPage({ ...ports, client, fleet: tunnel, nodes: backend.nodes, reviews, serving }, args);
  const { nodes, questions } = backend;
  const why = new WhyAnswerer({ questions, fleet: tunnel, nodes, client, clock, log });
  const rollouts = makeRollouts({ ...ports, client, nodes: backend.nodes }, args);
  const figures: HubFigures = {
    ...{ tunnel, calls, samples: sampled.samples, certificates: claims, rollouts: rollouts[1] },
    readiness: () => backend.readiness(),
    get connections() {
      return boards.load;
    },
    telemetry: telemetry.store,
    apiServer: cluster.apiServer,
  };
  const metrics = await openMetricsPort(ports, { cluster, figures, samples: sampled }, args);
  const startUp: Component = {
    name: "start-up",
    run: async (stop) => {
      await whenReady(backend, stop);
      await stored.ready(stop);
      const port = await boards.listen(args.tunnel);
      late.ownPorts.add(port);
      if (page !== undefined) late.ownPorts.add(await page.listen());
      const { api, kubeconfig, caHash } = cluster;
      ready({
        tunnel: `https://${hostOf(args.tunnel.host)}:${port}`,
        api,
        kubeconfig,
        caHash,
        metrics: metrics?.url ?? "",
      });
      await aborted(stop);
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  using life = joinSignals();
  const draining = drainAt(signal, tunnel, args, life);
  await supervise(
    [
      ...cluster.components,
      ...telemetry.parts,
      ...sampled.parts,
      ...(metrics?.parts ?? []),
      ...parts,
      backend,
      ...rollouts,
      proxy,
      tunnel,
      why,
      boards,
      connections,
      ...(page === undefined ? [] : [page]),
      startUp,
    ],
    ports,
    life.signal,
  );
  await draining;
}

/** Builds the nodes' kubelet endpoints. */
function makeProxy(
  components: Omit<KubeletProxyComponents, "page">,
  late: LateParts,
  { kubeletPorts, kubeletAddresses: range }: ServeArguments,
): KubeletProxy {
  const proxy = new KubeletProxy(
    { ...components, page: boardPageFiles(pageFolder("board")) },
    {
      address: late.advertisedAddress,
      host: undefined,
      ports: kubeletPorts && { first: kubeletPorts[0], last: kubeletPorts[1] },
      nodeAddresses: range && { range, port: KUBELET_PORT },
    },
  );
  late.proxy = proxy;
  return proxy;
}

/** Builds joining, renewal and authentication of boards. */
function makeIdentity(
  { clock, random, log, claims }: HubPorts & { readonly claims: LabelledCounts },
  cluster: Cluster,
  { renewalWindow }: ServeArguments,
) {
  const { client, serving, clientCa, signer } = cluster;
  const init = { namespace: HUB_NAMESPACE };
  const stored = new RevokedKeysInKubernetes({ client, clock, random, log }, init);
  const journal = cluster.revocations;
  const kept = journal === undefined ? [] : [new KeptRevocations({ stored, journal, clock, log })];
  const { revoked } = kept[0] ?? stored;
  const authenticator = new NodeAuthenticator({ clientCa, revoked, clock });
  const certifier = new NodeCertifier({
    keys: new NodeKeysInKubernetes({ client }, init),
    revoked: stored,
    clock,
    log,
    claims,
  });
  const join = new JoinService(
    {
      tokens: new BootstrapTokens({ client, clock }),
      certifier,
      signer,
      authenticator,
      serving,
      clock,
      log,
    },
    { renewalWindowMs: renewalWindow },
  );
  return { stored, revoked, parts: [stored, ...kept], authenticator, join };
}

/** At `signal` boards are sent elsewhere first. When they have gone, everything ends. */
async function drainAt(
  signal: AbortSignal,
  tunnel: TunnelServer,
  { drainTime }: ServeArguments,
  life: { readonly signal: AbortSignal; abort(reason?: unknown): void },
): Promise<void> {
  using either = joinSignals(signal, life.signal);
  await aborted(either.signal);
  if (life.signal.aborted) return;
  await tunnel.drain("this hub is ending", drainTime, DRAIN_GRACE, life.signal);
  life.abort(signal.reason);
}

async function whenReady({ problem }: KubernetesFleet, signal: AbortSignal): Promise<void> {
  for await (const text of problem.changes(signal)) if (text === "") return;
}

async function openCluster(
  { late, claims, ...ports }: HubPorts & { readonly late: LateParts; readonly claims: LabelledCounts },
  args: ServeArguments,
  names: readonly string[],
  signal: AbortSignal,
): Promise<Cluster> {
  const { cluster: where } = args;
  if (where.kind === "kubernetes") {
    const all = [...names, `${METRICS_SERVICE}.${HUB_NAMESPACE}.svc`];
    return await openKubernetesCluster(ports, { ...args, cluster: where, names: all }, signal);
  }
  // The bundle and what was gathered at its side when it was built.
  const modelsPath = join(dirname(realpathSync(process.argv[1] ?? "")), "kubernetes-models.json");
  return await openEmbeddedCluster(
    { ...ports, claims, usage: late, isRevoked: late.isRevoked, ownKubelets: late, ownPorts: late.ownPorts },
    { ...args, dataDir: where.dataDir, names, modelsPath, credential: readCredential(process.env) },
    signal,
  );
}

/**
 * What is needed before it can stand. The bridge has to know where the kubelet endpoints are, which have to know who is
 * connected, which is the bridge's; and the API server which keys are revoked, which is in the API server.
 */
class LateParts implements KubeletEndpoints, OwnKubelets, UsageObjects {
  proxy: KubeletProxy | undefined;
  usage: UsageObjects | undefined;
  /** Ports of the API server and the tunnel, as they become known. */
  readonly ownPorts = new Set<number>();
  readonly advertisedAddress: string;
  revoked: RevokedKeysInKubernetes | undefined;

  constructor(advertisedAddress: string) {
    this.advertisedAddress = advertisedAddress;
  }

  node(name: string): KubeObject | undefined {
    return this.usage?.node(name);
  }

  nodes(): Iterable<KubeObject> {
    return this.usage?.nodes() ?? [];
  }

  pod(namespace: string, name: string): KubeObject | undefined {
    return this.usage?.pod(namespace, name);
  }

  pods(namespace: string): Iterable<KubeObject> {
    return this.usage?.pods(namespace) ?? [];
  }

  ownEndpoint(node: string): OwnEndpoint | undefined {
    return this.proxy?.ownEndpoint(node);
  }

  isNodeAddress(address: string): boolean {
    return this.proxy?.isNodeAddress(address) ?? false;
  }

  isOwnPort(port: number): boolean {
    return this.ownPorts.has(port) || (this.proxy?.isOwnPort(port) ?? false);
  }

  readonly isRevoked = (certificate: CertificateFacts): boolean | undefined =>
    this.revoked?.isRead === true ? isRevoked(this.revoked.revoked.current, certificate) : undefined;

  endpointOf(node: string, port?: number): { readonly address: string; readonly port: number } {
    if (this.proxy === undefined) throw new PicoletError("internal", "the kubelet endpoints are not ready yet");
    return this.proxy.endpointOf(node, port);
  }
}

const hostOf = (host: string): string => {
  if (host === "0.0.0.0" || host === "::") return machineAddresses()[0] ?? "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
};
