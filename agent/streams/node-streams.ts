import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { ContainerStatus } from "@picolet/protocol/pod/pod.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type {
  ExecParams,
  IncomingStream,
  PortForwardParams,
  SessionReply,
  StreamError,
  TunnelStream,
} from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { ObservedContainer, RuntimeStream, StreamRequest } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { ContainerLogs, LogStream } from "../core/pods/container-logs.ts";
import type { RuntimeRouter } from "../core/pods/pod-ports.ts";
import type { KubeletAnswers } from "./kubelet-answers.ts";
import { parseLogQuery } from "./log-query.ts";
import { copyLog } from "./log-session.ts";
import { copyRaw, RuntimeConnection, upgradeRequest } from "./raw-session.ts";
import { execParams, kubeletParams, logsParams, type PodSelector, portForwardParams } from "./stream-params.ts";

export interface NodeStreamsComponents {
  readonly pods: () => readonly AgentPod[];
  readonly router: RuntimeRouter;
  readonly logs: ContainerLogs;
  readonly kubelet: KubeletAnswers;
  readonly clock: Clock;
  readonly log: Log;
}

export interface NodeStreamsInit {
  /** Default: `MAX_SESSIONS`. */
  readonly maxSessions?: number | undefined;
}

/** Bounds memory: a busy session takes about 100 KiB. A further one is refused. */
export const MAX_SESSIONS = 64;
/** Pieces of an answer are gathered to about this size before they are sent. */
const BODY_PIECE_BYTES = 16 * KIBIBYTE;

/** One stream that a hub asks for: accepted at most once, then written to. */
interface Exchange {
  readonly params: unknown;
  accept(reply: unknown): TunnelStream;
  /** Aborts when the stream is over for any reason. */
  readonly signal: AbortSignal;
}

type Session = (exchange: Exchange) => Promise<void>;

/** Answers the streams that a client opens, a hub most of all: logs, exec, attach, port-forward, the kubelet's GETs. */
export class NodeStreams {
  readonly handlers: StreamHandlers;
  readonly #components: NodeStreamsComponents;
  readonly #maxSessions: number;
  #sessions = 0;

  constructor(components: NodeStreamsComponents, { maxSessions = MAX_SESSIONS }: NodeStreamsInit = {}) {
    this.#components = components;
    this.#maxSessions = maxSessions;
    const answering = (session: Session) => (stream: IncomingStream) => void this.#answer(stream, session);
    this.handlers = {
      logs: answering((exchange) => this.#logs(exchange)),
      exec: answering((exchange) => this.#exec(exchange)),
      attach: answering((exchange) => this.#attach(exchange)),
      portForward: answering((exchange) => this.#portForward(exchange)),
      kubelet: answering((exchange) => this.#kubelet(exchange)),
    };
  }

  /** The number of open sessions. */
  get sessions(): number {
    return this.#sessions;
  }

  async #answer(stream: IncomingStream, session: Session): Promise<void> {
    let accepted: TunnelStream | undefined;
    if (this.#sessions >= this.#maxSessions) {
      const message = `${this.#maxSessions} streams of this node are open already`;
      stream.reject({ code: "resource_exhausted", message });
      return;
    }
    this.#sessions += 1;
    using life = joinSignals(stream.closed);
    try {
      const accept = (reply: unknown): TunnelStream => {
        accepted = stream.accept(reply);
        return accepted;
      };
      await session({ params: stream.params, accept, signal: life.signal });
    } catch (error) {
      if (stream.closed.aborted) return;
      const failure = failureOf(error);
      if (failure.code === "internal") this.#components.log.error("a stream failed", { kind: stream.kind, error });
      if (accepted === undefined) stream.reject(failure);
      else accepted.reset(failure);
    } finally {
      this.#sessions -= 1;
      life.abort();
    }
  }

  async #logs({ params: given, accept, signal }: Exchange): Promise<void> {
    const params = logsParams(given);
    const pod = findPod(this.#components.pods(), params);
    const { previous, request } = parseLogQuery(params.query, this.#components.clock.wall());
    const container = params.container === "" ? undefined : params.container;
    const found = await this.#components.logs.find(pod, { container, previous });
    const pieces = found.read(request, signal);
    try {
      // A failure of the first read rejects the stream. The first line of a followed log may take long, so it is not
      // awaited.
      const first = request.follow ? undefined : await pieces.next();
      const stream = accept({});
      if (first?.done === false) await stream.write(first.value, signal);
      for await (const piece of pieces) await stream.write(piece, signal);
      if (!signal.aborted) stream.end();
    } finally {
      await pieces.return(undefined);
    }
  }

  async #exec(exchange: Exchange): Promise<void> {
    const params = execParams(exchange.params);
    if (params.command.length === 0) throw new PicoletError("invalid", "you must specify at least one command");
    const { command } = params;
    await this.#container(exchange, params, (id) => ({ kind: "exec", containerId: id, command, ...outputs(params) }));
  }

  async #attach(exchange: Exchange): Promise<void> {
    const params = execParams(exchange.params);
    await this.#container(exchange, params, (id) => ({ kind: "attach", containerId: id, ...outputs(params) }));
  }

  async #container(exchange: Exchange, params: ExecParams, request: (id: string) => StreamRequest): Promise<void> {
    if (!params.stdin && !params.stdout && !params.stderr) {
      throw new PicoletError("invalid", "you must specify at least 1 of stdin, stdout, stderr");
    }
    const { router, logs, pods } = this.#components;
    const pod = findPod(pods(), params);
    const { id, name } = findRunning(pod, params.container);
    const adapter = router.adapterFor(pod.desired);
    const target = await adapter.stream(pod.desired.uid, request(id), exchange.signal);
    if (target.kind === "upgrade") return await this.#raw(exchange, target, params.upgrade);
    if (target.kind !== "log") throw new PicoletError("internal", "a container has no ports");
    const log = await logs.find(pod, { container: name, previous: false });
    const wanted: LogStream[] = [
      ...(params.stdout ? ["stdout" as const] : []),
      ...(params.stderr ? ["stderr" as const] : []),
    ];
    const stream = exchange.accept({ mode: "channels" } satisfies SessionReply);
    await copyLog(stream, log, wanted, exchange.signal);
  }

  async #portForward(exchange: Exchange): Promise<void> {
    const params = portForwardParams(exchange.params);
    const { router, pods } = this.#components;
    const pod = findPod(pods(), params);
    const { uid } = pod.desired;
    const adapter = router.adapterFor(pod.desired);
    const { sandboxes } = await adapter.inspect(uid, exchange.signal);
    const sandbox = sandboxes.find((each) => each.state === "ready");
    if (sandbox === undefined) throw new PicoletError("unavailable", `pod "${params.pod}" is not running`);
    const request = { kind: "portForward", sandboxId: sandbox.id, ports: params.ports } as const;
    const target = await adapter.stream(uid, request, exchange.signal);
    if (target.kind === "log") throw new PicoletError("internal", "a log has no ports");
    if (target.kind === "upgrade") await this.#raw(exchange, target, params.upgrade);
    // The hub speaks the client's protocol, and comes again for each connection.
    else if (params.upgrade !== undefined) exchange.accept({ mode: "connections" } satisfies SessionReply).end();
    else await this.#connection(exchange, target, params);
  }

  async #connection(
    { accept, signal }: Exchange,
    { host, ports }: Extract<RuntimeStream, { kind: "ports" }>,
    { pod, ports: [port = 0] }: PortForwardParams,
  ): Promise<void> {
    if (!ports.includes(port)) {
      const served =
        ports.length === 0 ? "nothing of it is served at the moment" : `it is served on ${ports.join(", ")}`;
      throw new PicoletError("not_found", `pod "${pod}" is not served on port ${port}: ${served}`);
    }
    using connection = await RuntimeConnection.open({ host, port }, `port ${port} of pod "${pod}"`, signal);
    await copyRaw(accept({ mode: "raw" } satisfies SessionReply), connection, signal);
  }

  async #raw(
    { accept, signal }: Exchange,
    target: Extract<RuntimeStream, { kind: "upgrade" }>,
    headers: Readonly<Record<string, string>> | undefined,
  ): Promise<void> {
    if (headers?.upgrade === undefined) {
      throw new PicoletError("invalid", "this needs a request that can be upgraded to SPDY/3.1 or a WebSocket");
    }
    using connection = await RuntimeConnection.open(target, "the container runtime's streaming server", signal);
    void connection.write(upgradeRequest(target, headers));
    const stream = accept({ mode: "raw" } satisfies SessionReply);
    await copyRaw(stream, connection, signal);
  }

  async #kubelet({ params, accept, signal }: Exchange): Promise<void> {
    const request = kubeletParams(params);
    const { kubelet } = this.#components;
    const answer =
      "action" in request
        ? await kubelet.change(request.action, request.user, signal)
        : await kubelet.get(request.path, signal, request.accept);
    const { status, contentType, body, isStream = false } = answer;
    const stream = accept({ status, contentType });
    let gathered: Uint8Array[] = [];
    let size = 0;
    for await (const piece of body) {
      const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
      gathered.push(bytes);
      size += bytes.length;
      if (size < BODY_PIECE_BYTES && !isStream) continue;
      await stream.write(Buffer.concat(gathered), signal);
      [gathered, size] = [[], 0];
    }
    if (size > 0) await stream.write(Buffer.concat(gathered), signal);
    stream.end();
  }
}

const outputs = ({ stdin, stdout, stderr, tty }: ExecParams) => ({ stdin, stdout, stderr: stderr && !tty, tty });

function failureOf(error: unknown): StreamError {
  if (isCancelled(error)) return { code: "cancelled", message: "the stream was cancelled" };
  return { code: error instanceof PicoletError ? error.code : "internal", message: describeError(error) };
}

/** Finds the pod of a request; a live one comes before those of the same name that are ending. @throws `not_found` */
function findPod(pods: readonly AgentPod[], { namespace, pod: name, uid }: PodSelector): AgentPod {
  const named = pods.filter(({ desired }) => {
    const { metadata } = desired.pod;
    if (metadata.namespace !== namespace || metadata.name !== name) return false;
    // The node's own identity of a pod can differ from the API server's.
    return uid === "" || metadata.uid === uid || desired.uid === uid;
  });
  const found = named.find((each) => each.terminatingSinceMs === undefined) ?? named[0];
  if (found !== undefined) return found;
  throw new PicoletError("not_found", `pods "${name}" not found`);
}

const namesIn = ({ desired }: AgentPod): readonly string[] => {
  const { containers, initContainers = [], ephemeralContainers = [] } = desired.pod.spec;
  return [...containers, ...initContainers, ...ephemeralContainers].map((each) => each.name);
};

/**
 * @param name "" for the first
 * @throws `not_found` for a container that the pod has not, `unavailable` for one that has not started yet, `conflict`
 * for one that has ended
 */
function findRunning(pod: AgentPod, name: string): ObservedContainer {
  const names = namesIn(pod);
  const wanted = name === "" ? (names[0] ?? "") : name;
  if (!names.includes(wanted)) throw new PicoletError("not_found", `container not found ("${wanted}")`);
  const runs = pod.containers.filter((each) => each.name === wanted);
  const running = runs.find((each) => each.state.kind === "running");
  if (running !== undefined) return running;
  const { name: podName } = pod.desired.pod.metadata;
  const status = statusOf(pod, wanted);
  if (status?.state.waiting !== undefined || runs.length === 0) {
    const reason = status?.state.waiting?.reason ?? "ContainerCreating";
    throw new PicoletError("unavailable", `container "${wanted}" in pod "${podName}" is waiting to start: ${reason}`);
  }
  throw new PicoletError("conflict", `container "${wanted}" in pod "${podName}" is not running`);
}

function statusOf({ status }: AgentPod, name: string): ContainerStatus | undefined {
  const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = status ?? {};
  return [...containerStatuses, ...initContainerStatuses, ...ephemeralContainerStatuses].find(
    (each) => each.name === name,
  );
}
