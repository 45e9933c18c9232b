/** What is no resource: health, version, discovery, OpenAPI, keys. */
import type { IncomingMessage } from "node:http";
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
import type { ApiServerCore } from "../server-core.ts";
import { methodNotAllowed, pathNotFound } from "../status-error.ts";
import { parseAccept } from "./negotiation.ts";
import { jsonReply, type Reply, textReply } from "./reply.ts";

const HEALTH_PATH = /^\/(healthz|livez|readyz)(\/[a-z-]+)?$/;

export class PathEndpoint {
  readonly #core: ApiServerCore;
  readonly #init: { readonly version: string; readonly isStopping: () => boolean };

  constructor(core: ApiServerCore, init: { readonly version: string; readonly isStopping: () => boolean }) {
    this.#core = core;
    this.#init = init;
  }

  /** @throws StatusError */
  handle(message: IncomingMessage, path: string, query: URLSearchParams): Reply {
    if (message.method !== "GET" && message.method !== "HEAD") throw methodNotAllowed();
    const plain = path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
    const health = HEALTH_PATH.exec(plain)?.[1];
    if (health !== undefined) return this.#health(health, query.has("verbose"));
    if (plain === "/version") return jsonReply(200, versionInfo(this.#init.version));
    return this.#discovery(message, plain);
  }

  #health(kind: string, isVerbose: boolean): Reply {
    const isReady = kind !== "readyz" || !this.#init.isStopping();
    if (!isReady) return textReply(503, "[-]shutdown failed: reason withheld\nreadyz check failed\n");
    return textReply(200, isVerbose ? `[+]ping ok\n[+]store ok\n${kind} check passed\n` : "ok");
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
