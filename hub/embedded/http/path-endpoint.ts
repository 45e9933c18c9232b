/** Paths that are no resources: health, version, discovery, OpenAPI, keys. */
import type { IncomingMessage } from "node:http";
import { methodNotAllowed, pathNotFound, StatusError } from "../api/status-error.ts";
import {
  type AggregatedVersion,
  aggregatedDiscovery,
  aggregatedType,
  apiGroup,
  apiGroupList,
  apiResourceList,
  apiVersions,
  versionInfo,
} from "../discovery/discovery.ts";
import { type Document, OpenApi } from "../discovery/openapi.ts";
import type { ApiServerCore } from "../server/server-core.ts";
import { NOT_ACCEPTABLE, parseAccept } from "./negotiation.ts";
import { jsonReply, type Reply, textReply } from "./reply.ts";

export const BACKUP_PATH = "/picolet/backup";
export const ROTATE_KEYS_PATH = "/picolet/keys/rotate";

const HEALTH_PATH = /^\/(healthz|livez|readyz)(\/[a-z-]+)?$/;

export class PathEndpoint {
  readonly #core: ApiServerCore;
  readonly #init: { readonly version: string; readonly isStopping: () => boolean };

  readonly #openApi: OpenApi;

  constructor(core: ApiServerCore, init: { readonly version: string; readonly isStopping: () => boolean }) {
    this.#core = core;
    this.#init = init;
    this.#openApi = new OpenApi(core.table, core.models, init.version);
  }

  /** @throws StatusError */
  async handle(message: IncomingMessage, path: string, query: URLSearchParams): Promise<Reply> {
    // For `picolet-hub keys rotate`. Only administrators have access to this path.
    if (message.method === "POST" && path === ROTATE_KEYS_PATH) {
      this.#core.store.rotateKeys();
      return textReply(200, "ok");
    }
    if (message.method !== "GET" && message.method !== "HEAD") throw methodNotAllowed();
    const plain = path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
    const health = HEALTH_PATH.exec(plain)?.[1];
    if (health !== undefined) return this.#health(health, query.has("verbose"));
    if (plain === "/version") return jsonReply(200, versionInfo(this.#init.version));
    if (plain.startsWith("/openapi/")) return this.#openApiReply(message, plain);
    if (plain === "/openid/v1/jwks") {
      const keys = JSON.stringify(await this.#core.serviceAccounts.keys());
      return textReply(200, keys, "application/jwk-set+json");
    }
    if (plain === "/.well-known/openid-configuration") {
      return jsonReply(200, this.#core.serviceAccounts.discovery(`https://${message.headers.host ?? ""}`));
    }
    // For `picolet-hub backup` while the hub runs. Only administrators have access to this path.
    if (plain === BACKUP_PATH) return { kind: "file", path: await this.#core.backup() };
    return this.#discovery(message, plain);
  }

  #health(kind: string, isVerbose: boolean): Reply {
    const isReady = kind !== "readyz" || !this.#init.isStopping();
    if (!isReady) return textReply(503, "[-]shutdown failed: reason withheld\nreadyz check failed\n");
    return textReply(200, isVerbose ? `[+]ping ok\n[+]store ok\n${kind} check passed\n` : "ok");
  }

  #openApiReply(message: IncomingMessage, path: string): Reply {
    const { accept } = message.headers;
    if (path === "/openapi/v2") {
      const form = parseAccept(accept)
        .map(({ type }) => openApiV2Form(type))
        .find((each) => each !== undefined);
      if (form === undefined) throw new StatusError("NotAcceptable", NOT_ACCEPTABLE);
      if (form === "json") return documentReply(message, this.#openApi.v2Json(), "application/json");
      return documentReply(
        message,
        this.#openApi.v2Protobuf(),
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
      );
    }
    if (path === "/openapi/v3") return jsonReply(200, this.#openApi.v3Index());
    const document = this.#openApi.v3(path.slice("/openapi/v3/".length));
    if (document === undefined) throw pathNotFound();
    return documentReply(message, document, "application/json");
  }

  #discovery(message: IncomingMessage, path: string): Reply {
    const { table } = this.#core;
    const address = message.headers.host ?? "";
    if (path === "/api" || path === "/apis") {
      const aggregated = aggregatedVersion(message.headers.accept);
      if (aggregated !== undefined) {
        const body = JSON.stringify(aggregatedDiscovery(table, path === "/api", aggregated));
        return {
          kind: "body",
          status: 200,
          contentType: aggregatedType(aggregated),
          body,
          headers: { Vary: "Accept" },
        };
      }
      return jsonReply(200, path === "/api" ? apiVersions(address) : apiGroupList(table));
    }
    const [, prefix, first = "", second, ...more] = path.split("/");
    const isGroup = prefix === "apis" && second === undefined && first !== "";
    const isCore = prefix === "api" && second === undefined && first !== "";
    const isGroupVersion = prefix === "apis" && second !== undefined && more.length === 0;
    const found = isGroup
      ? apiGroup(table, first)
      : isCore
        ? apiResourceList(table, first)
        : isGroupVersion
          ? apiResourceList(table, `${first}/${second}`)
          : undefined;
    if (found !== undefined) return jsonReply(200, found);
    if (path === "/") return jsonReply(200, { paths: rootPaths(table.groupVersions()) });
    throw pathNotFound();
  }
}

function openApiV2Form(type: string): "json" | "protobuf" | undefined {
  if (type === "application/json" || type === "*/*" || type === "application/*") return "json";
  return /^application\/com\.github\.proto-openapi\.spec\.v2[@.]v1\.0\+protobuf$/.test(type) ? "protobuf" : undefined;
}

/** The content is known by its hash: a client that has it is spared it. */
function documentReply(message: IncomingMessage, { body, hash }: Document, contentType: string): Reply {
  const headers = { ETag: `"${hash}"`, Vary: "Accept" };
  if (message.headers["if-none-match"] === `"${hash}"`)
    return { kind: "body", status: 304, contentType, body: "", headers };
  return { kind: "body", status: 200, contentType, body, headers };
}

function aggregatedVersion(accept: string | undefined): AggregatedVersion | undefined {
  for (const { type, params } of parseAccept(accept)) {
    if (type !== "application/json") continue;
    const { g, v, as } = params;
    if (as === undefined) return undefined;
    if (as === "APIGroupDiscoveryList" && g === "apidiscovery.k8s.io" && (v === "v2" || v === "v2beta1")) return v;
  }
  return undefined;
}

const rootPaths = (groupVersions: readonly string[]): string[] => [
  "/api",
  ...groupVersions.map((each) => (each.includes("/") ? `/apis/${each}` : `/api/${each}`)),
  "/apis",
  "/healthz",
  "/livez",
  "/openapi/v2",
  "/openapi/v3",
  "/readyz",
  "/version",
];
