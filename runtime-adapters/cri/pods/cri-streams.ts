import { type ErrorCode, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Millis, PodUid } from "@picolet/protocol/ports.ts";
import type { ExecResult, RuntimeStream, StreamRequest } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type CriClient, failure } from "../wire/cri-client.ts";
import { RuntimeService } from "../wire/cri-messages.ts";
import { GrpcStatusError } from "../wire/grpc-status.ts";
import type { OwnedIds } from "./owned-ids.ts";

/** Addresses that a server listens on but that cannot be connected to, with the address that reaches it. */
const REACHED_AT: Readonly<Record<string, string>> = { "0.0.0.0": "127.0.0.1", "[::]": "::1", "": "127.0.0.1" };

/** Exec, attach and port-forward of our own containers and sandboxes. */
export class CriStreams {
  readonly #client: CriClient;
  readonly #owned: OwnedIds;

  constructor(components: { readonly client: CriClient; readonly owned: OwnedIds }) {
    this.#client = components.client;
    this.#owned = components.owned;
  }

  async open(uid: PodUid, request: StreamRequest, signal: AbortSignal): Promise<RuntimeStream> {
    try {
      if (request.kind === "portForward") await this.#require(uid, request.sandboxId, "sandbox", signal);
      else await this.#require(uid, request.containerId, "container", signal);
      return upgradeAt(await this.#urlOf(request, signal));
    } catch (error) {
      throw failure(error, `cannot open ${request.kind} of pod ${uid}`);
    }
  }

  async execSync(
    uid: PodUid,
    containerId: string,
    command: readonly string[],
    timeout: Millis,
    signal: AbortSignal,
  ): Promise<ExecResult> {
    const request = { containerId, cmd: command, timeout: Math.max(1, Math.ceil(timeout / 1000)) };
    try {
      await this.#require(uid, containerId, "container", signal);
      // As the kubelet: containerd answers only when the children of a command that it killed have closed their output.
      const deadline = timeout + this.#client.requestTimeoutMs;
      return await this.#client.call(RuntimeService.execSync, request, signal, deadline);
    } catch (error) {
      throw failure(error, `cannot run a command in container ${containerId}`, execCode(error));
    }
  }

  async #urlOf(request: StreamRequest, signal: AbortSignal): Promise<string> {
    switch (request.kind) {
      case "exec": {
        const { containerId, command, stdin, stdout, stderr, tty } = request;
        const message = { containerId, cmd: command, tty, stdin, stdout, stderr };
        return (await this.#client.call(RuntimeService.exec, message, signal)).url;
      }
      case "attach": {
        const { containerId, stdin, stdout, stderr, tty } = request;
        return (await this.#client.call(RuntimeService.attach, { containerId, stdin, tty, stdout, stderr }, signal))
          .url;
      }
      case "portForward": {
        const { sandboxId: podSandboxId, ports: port } = request;
        return (await this.#client.call(RuntimeService.portForward, { podSandboxId, port }, signal)).url;
      }
    }
  }

  async #require(uid: PodUid, id: string, kind: "sandbox" | "container", signal: AbortSignal): Promise<void> {
    const owned = await this.#owned.require(id, kind, signal);
    if (owned?.uid !== uid) throw new PicoletError("not_found", `there is no ${kind} ${id} of this pod`);
  }
}

/**
 * Distinguishes a command that took too long from a runtime that did not answer in time: only the first says something
 * of the container. containerd says DEADLINE_EXCEEDED "timeout 1s exceeded", others UNKNOWN with such words; its bare
 * "context deadline exceeded" is about the call as a whole, in which the command may never have begun.
 */
function execCode(error: unknown): { readonly code?: ErrorCode } {
  if (!isPicoletError(error)) return {};
  const isAnswer = error instanceof GrpcStatusError;
  if (isAnswer && /timeout .* exceeded|timed? ?out/i.test(error.message)) return { code: "deadline_exceeded" };
  const isOfCall = !isAnswer || /(^|: )context deadline exceeded$/.test(error.message);
  return error.code === "deadline_exceeded" && isOfCall ? { code: "unavailable" } : {};
}

function upgradeAt(text: string): RuntimeStream {
  const url = URL.parse(text);
  if (url?.protocol !== "http:") {
    // The certificate of an address with TLS cannot be verified on this node.
    const what = url === null ? "no address" : `${url.protocol}//${url.host}`;
    throw new PicoletError(
      "unimplemented",
      `the runtime streams at ${what}, not at a plain one: set stream_server_address to 127.0.0.1 and no TLS`,
    );
  }
  const host = REACHED_AT[url.hostname] ?? url.hostname.replace(/^\[(.*)\]$/, "$1");
  return { kind: "upgrade", host, port: Number(url.port || 80), path: `${url.pathname}${url.search}` };
}
