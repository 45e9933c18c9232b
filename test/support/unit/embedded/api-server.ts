/** An embedded API server over plain HTTP, and hands to ask it what a client would. */

import type { KubeletConnector } from "@picolet/hub-core/kubelet-connector.ts";
import type { IsRevoked } from "@picolet/hub-embedded/auth/authenticator.ts";
import { EmbeddedApiServer, type EmbeddedApiServerInit } from "@picolet/hub-embedded/embedded-api-server.ts";
import { embeddedResources } from "@picolet/hub-embedded/embedded-resources.ts";
import { FolderModelSource } from "@picolet/hub-embedded/schema/models.ts";
import type { ApiServerCoreComponents } from "@picolet/hub-embedded/server/server-core.ts";
import type { FleetGuard } from "@picolet/hub-embedded/store/fleet-guard.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Clock, Random } from "@picolet/protocol/ports.ts";
import { TempFolder } from "../machine/temp-folder.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";

export const MODELS = new FolderModelSource("node_modules/@kubernetes/client-node/dist/gen/models");
export const ISSUER = "https://kubernetes.default.svc";
export const ADMIN_USER = { name: "admin", uid: "", groups: ["system:masters", "system:authenticated"], extra: {} };

export type Json = Record<string, unknown>;

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The text as JSON; {} where it is none. */
  readonly body: Json;
}

export interface AskInit {
  readonly body?: unknown;
  readonly type?: string;
  /** Default: the admin's. "" for none. */
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export class TestApiServer implements AsyncDisposable {
  readonly log = new RecordedLog();
  readonly server: EmbeddedApiServer;
  readonly url: string;
  readonly #folder: TempFolder | undefined;
  readonly #life = new AbortController();

  private constructor(server: EmbeddedApiServer, url: string, folder: TempFolder | undefined, log: RecordedLog) {
    this.server = server;
    this.url = url;
    this.#folder = folder;
    this.log = log;
  }

  static async start(
    init: {
      clock?: Clock;
      random?: Random;
      storePath?: string;
      kubelets?: KubeletConnector;
      isRevoked?: IsRevoked;
      diskSpace?: ApiServerCoreComponents["diskSpace"];
      guard?: FleetGuard;
    } & Partial<EmbeddedApiServerInit> = {},
  ): Promise<TestApiServer> {
    const {
      clock = systemClock,
      random = seededRandom(7),
      kubelets,
      isRevoked = () => false,
      diskSpace,
      guard,
      ...more
    } = init;
    const folder = init.storePath === undefined ? new TempFolder() : undefined;
    const log = new RecordedLog();
    const server = new EmbeddedApiServer(
      { clock, random, log, models: MODELS, kubelets, isRevoked, diskSpace, guard },
      {
        storePath: folder?.at("hub.db") ?? "",
        definitions: embeddedResources({ serviceAccountTokens: false }),
        address: "127.0.0.1",
        port: 0,
        tls: undefined,
        version: "test",
        issuer: ISSUER,
        tokens: [
          { token: "admin", user: "admin", groups: ["system:masters"] },
          { token: "joe", user: "joe", groups: ["team"] },
          { token: "node-a", user: "system:node:a", groups: ["system:nodes"] },
        ],
        ...more,
      },
    );
    const port = await server.listen();
    const started = new TestApiServer(
      server,
      `${init.tls === undefined ? "http" : "https"}://127.0.0.1:${port}`,
      folder,
      log,
    );
    const NAMESPACES = { group: "", version: "v1", plural: "namespaces", kind: "Namespace", namespaced: false };
    const ref = { namespace: "", name: "default" };
    const body = { metadata: { name: "default" } };
    await server
      .client(ADMIN_USER)
      .create(NAMESPACES, ref, body, {}, started.#life.signal)
      .catch(() => undefined);
    return started;
  }

  async ask(
    method: string,
    path: string,
    { body, type = "application/json", token = "admin", headers = {} }: AskInit = {},
  ): Promise<Answer> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        ...(token === "" ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { "content-type": type }),
        ...headers,
      },
      ...(body === undefined
        ? {}
        : {
            body:
              typeof body === "string"
                ? body
                : body instanceof Uint8Array
                  ? (body as Uint8Array<ArrayBuffer>)
                  : JSON.stringify(body),
          }),
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, body: parsed(text) };
  }

  /** The object, or a failure with what was answered. */
  async expect(status: number, method: string, path: string, init: AskInit = {}): Promise<Json> {
    const answer = await this.ask(method, path, init);
    if (answer.status !== status) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.body;
  }

  /** Events of a watch, until the caller stops reading. */
  async *watch(
    path: string,
    signal: AbortSignal = this.#life.signal,
    headers: Readonly<Record<string, string>> = {},
  ): AsyncGenerator<Json> {
    const response = await fetch(`${this.url}${path}${path.includes("?") ? "&" : "?"}watch=1`, {
      headers: { authorization: "Bearer admin", ...headers },
      signal,
    });
    if (!response.ok) throw new Error(await response.text());
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of response.body ?? []) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) yield JSON.parse(line) as Json;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.server[Symbol.asyncDispose]();
    this.#folder?.[Symbol.dispose]();
  }
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return {};
  }
}
