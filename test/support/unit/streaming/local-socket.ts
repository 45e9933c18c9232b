/** The agent's local socket in front of a node's streams. */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LocalApi } from "@picolet/agent/api/local-api.ts";
import type { StreamHandlers } from "@picolet/agent/core/hub/tunnel-ports.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { FakeAgentView } from "../agent/fake-agent-view.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { ChannelClient } from "./channel-client.ts";

export class LocalSocket implements AsyncDisposable {
  readonly log = new RecordedLog();
  readonly #folder = mkdtempSync(join(tmpdir(), "picolet-socket-"));
  readonly path = join(this.#folder, "picolet.sock");
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  readonly #api: LocalApi;

  private constructor(streams: StreamHandlers) {
    const view = new FakeAgentView();
    this.#api = new LocalApi(
      { clock: systemClock, log: this.log, view, logs: view.logs, streams },
      { socketPath: this.path },
    );
    this.#running = endOfRun(this.#api.run(this.#stop.signal));
  }

  static async start(streams: StreamHandlers): Promise<LocalSocket> {
    const socket = new LocalSocket(streams);
    await socket.#api.listen();
    return socket;
  }

  open(path: string, ...protocols: readonly string[]): Promise<ChannelClient> {
    return ChannelClient.open(`ws+unix:${this.path}:${path}`, protocols);
  }

  /** @returns status and body */
  async ask(path: string, method = "GET"): Promise<readonly [number, string]> {
    const request = httpRequest({ socketPath: this.path, path, method, agent: false });
    request.end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    let body = "";
    for await (const piece of response.setEncoding("utf8")) body += String(piece);
    return [response.statusCode ?? 0, body];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    rmSync(this.#folder, { recursive: true });
  }
}
