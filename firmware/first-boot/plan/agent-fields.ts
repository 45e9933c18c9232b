/** The fields of the agent's configuration that follow from `picolet.yaml`. */
import { hubAddress } from "@picolet/agent/cli/commands/hub-configuration.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import type { BoardFile } from "./board-file-fields.ts";
import { JOIN_TOKEN, REGISTRY_CAS } from "./places.ts";

/** Plain data by field. */
export type Fields = Readonly<Record<string, unknown>>;

export interface AgentFields {
  readonly values: Fields;
  /** The path in `picolet.yaml` of a field of the agent's configuration. */
  pathOf(path: string): string;
}

/** The agent's fields, and what the owner writes instead; the longest first. */
const PATHS: readonly (readonly [agent: string, board: string])[] = [
  ["hub.tokenFile", "hub.token"],
  ["hub", "hub"],
  ["nodeName", "node.name"],
  ["nodeLabels", "node.labels"],
  ["registerWithTaints", "node.taints"],
  ["wasm.registries", "registries"],
  ["wasm.proxy.httpProxy", "proxy.httpProxy"],
  ["wasm.proxy.httpsProxy", "proxy.httpsProxy"],
  ["wasm.proxy.noProxy", "proxy.noProxy"],
];

/** A host as part of a file's name. */
export const hostFile = (host: string): string => host.replaceAll(/[^A-Za-z0-9.-]/g, "_");

export function agentFields(file: BoardFile, nodeName: string, defaults: Fields, problems: FieldProblems): AgentFields {
  const { hub, node = {}, registries = [], proxy } = file;
  const own = {
    ...(nodeName === "" ? {} : { nodeName }),
    ...(hub === undefined ? {} : { hub: hubFields(hub, problems) }),
    ...(node.labels === undefined ? {} : { nodeLabels: node.labels }),
    ...(node.taints === undefined ? {} : { registerWithTaints: node.taints }),
    ...(registries.length + Object.keys(proxy ?? {}).length === 0
      ? {}
      : { wasm: { ...registryFields(registries), ...proxyFields(proxy) } }),
  };
  const fromFile = merged((file.config ?? {}) as Fields, own);
  for (const key of ["server", "token", "tokenFile", "caHash", "proxy"] as const)
    if (hub !== undefined && isFields(file.config?.hub) && file.config.hub[key] !== undefined)
      problems.forbidden(`config.hub.${key}`, `write it as hub.${key === "tokenFile" ? "token" : key}`);
  return {
    values: merged(defaults, fromFile),
    pathOf: (path) => {
      const isGiven = Object.hasOwn(own, path.split(/[.[]/, 1)[0] ?? "");
      const row = PATHS.find(([agent]) => isGiven && isAtOrBelow(path, agent));
      if (row === undefined) return path === "" ? "config" : `config.${path}`;
      const field = `${row[1]}${path.slice(row[0].length)}`;
      const isUrl = field.startsWith("hub.server") && hub?.server === undefined && hub?.url !== undefined;
      const isRule = field === "node.name" && node.name === undefined;
      return isUrl ? field.replace("hub.server", "hub.url") : isRule ? "node.nameRule" : field;
    },
  };
}

const isAtOrBelow = (path: string, above: string): boolean =>
  path === above || (path.startsWith(above) && /[.[]/.test(path[above.length] ?? ""));

function hubFields(hub: NonNullable<BoardFile["hub"]>, problems: FieldProblems): Fields {
  const name = hub.server === undefined && hub.url !== undefined ? "url" : "server";
  if (hub.server !== undefined && hub.url !== undefined)
    problems.forbidden("hub.url", "is another name of hub.server: write one of them");
  const given = hub[name] ?? [];
  const server = given.map((text, index) => {
    try {
      return hubAddress(text);
    } catch (error) {
      problems.add(`hub.${name}${given.length === 1 ? "" : `[${index}]`}`, `Invalid value: ${describeError(error)}`);
      // Judged once is enough.
      return "https://hub.invalid:10270";
    }
  });
  const one = (list: readonly string[]): string | readonly string[] => (list.length === 1 ? (list[0] ?? "") : list);
  return {
    server: one(server),
    ...((hub.token ?? "") === "" ? {} : { tokenFile: JOIN_TOKEN }),
    ...(hub.caHash === undefined ? {} : { caHash: one(hub.caHash) }),
    ...(hub.proxy === undefined ? {} : { proxy: hub.proxy }),
  };
}

const registryFields = (registries: NonNullable<BoardFile["registries"]>): Fields =>
  registries.length === 0
    ? {}
    : {
        registries: registries.map(({ host, mirrors, insecure, ca }) => ({
          host,
          ...(mirrors === undefined ? {} : { mirrors }),
          ...(insecure === undefined ? {} : { insecure }),
          ...(ca === undefined ? {} : { caFile: `/run/${REGISTRY_CAS}/${hostFile(host)}.pem` }),
        })),
      };

const proxyFields = (proxy: BoardFile["proxy"]): Fields =>
  proxy === undefined
    ? {}
    : {
        proxy: {
          ...(proxy.httpProxy === undefined ? {} : { httpProxy: proxy.httpProxy }),
          ...(proxy.httpsProxy === undefined ? {} : { httpsProxy: proxy.httpsProxy }),
          ...(proxy.noProxy === undefined ? {} : { noProxy: proxy.noProxy.join(",") }),
        },
      };

export const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Mappings field by field; else the second counts. */
function merged(first: Fields, second: Fields): Fields {
  const both = Object.keys(second).map((key) => {
    const [one, other] = [first[key], second[key]];
    return [key, isFields(one) && isFields(other) ? merged(one, other) : other] as const;
  });
  return { ...first, ...Object.fromEntries(both) };
}
