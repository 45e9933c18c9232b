/**
 * Between an API server of our own (`hub/embedded`) and the kubelets of its nodes, for the subresources that it passes on:
 * pods/log, pods/exec, pods/attach, pods/portforward, nodes/proxy. `hub/kubelet-proxy` implements it.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";

/** A node's kubelet endpoint, as its Node object has it: `status.addresses` and `status.daemonEndpoints`. */
export interface KubeletTarget {
  readonly node: string;
  /** An address or a host name. */
  readonly host: string;
  readonly port: number;
}

export interface KubeletConnector {
  /**
   * Passes a request without an upgrade on (`path` is the kubelet's, with its query) and streams the answer back, as fast
   * as the client takes it. What goes wrong is answered as a Kubernetes Status; never throws.
   */
  serve(target: KubeletTarget, path: string, request: IncomingMessage, response: ServerResponse): Promise<void>;
  /**
   * Takes a request over whose client asked for an upgrade (SPDY/3.1 or a WebSocket), answers it, and is done when the
   * session is over. Errors before the upgrade are answered as a Kubernetes Status; never throws.
   * @param head what came after the request's head already
   */
  upgrade(target: KubeletTarget, path: string, request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void>;
}

/** PodExecOptions and PodAttachOptions; `command` is empty for attach. */
export interface ContainerStreams {
  readonly command: readonly string[];
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

interface PodPath {
  readonly namespace: string;
  readonly name: string;
}

const joined = (kind: string, ...segments: readonly string[]): string =>
  `/${[kind, ...segments.map(encodeURIComponent)].join("/")}`;

const withQuery = (path: string, query: URLSearchParams): string => (query.size === 0 ? path : `${path}?${query}`);

/** The kubelet's path for pods/exec and pods/attach; its query has names of its own. */
export function containerStreamPath(
  kind: "exec" | "attach",
  pod: PodPath,
  container: string,
  streams: ContainerStreams,
): string {
  const query = new URLSearchParams();
  if (streams.stdin) query.append("input", "1");
  if (streams.stdout) query.append("output", "1");
  if (streams.stderr) query.append("error", "1");
  if (streams.tty) query.append("tty", "1");
  for (const word of streams.command) query.append("command", word);
  return withQuery(joined(kind, pod.namespace, pod.name, container), query);
}

/** @param ports of PodPortForwardOptions; SPDY clients name theirs later. */
export function portForwardPath(pod: PodPath, ports: readonly number[]): string {
  const query = new URLSearchParams(ports.map((port): [string, string] => ["port", String(port)]));
  return withQuery(joined("portForward", pod.namespace, pod.name), query);
}

/** @param options PodLogOptions as they came with the request, without `container`. */
export function containerLogPath(pod: PodPath, container: string, options: URLSearchParams): string {
  return withQuery(joined("containerLogs", pod.namespace, pod.name, container), options);
}
