/** Discovery documents of the server's resources: `/api`, `/apis`, each group version, and all at once (aggregated). */
import { KUBERNETES_VERSION } from "@picolet/protocol/version.ts";
import { ALL_VERBS, apiVersionOf, type ResourceDefinition, type Subresource } from "../api/resource-definition.ts";
import type { ResourceTable } from "../api/resource-table.ts";

type Fields = Readonly<Record<string, unknown>>;

const verbsOf = ({ verbs = ALL_VERBS }: ResourceDefinition): string[] => [...verbs].sort();

const kindOf = (definition: ResourceDefinition, subresource: Subresource) => subresource.kind ?? definition;

export const apiVersions = (address: string): Fields => ({
  kind: "APIVersions",
  versions: ["v1"],
  serverAddressByClientCIDRs: [{ clientCIDR: "0.0.0.0/0", serverAddress: address }],
});

interface Group {
  readonly name: string;
  readonly versions: readonly string[];
}

function groupsOf(table: ResourceTable): Group[] {
  const groups = new Map<string, string[]>();
  for (const { group, version } of table.all) {
    if (group === "") continue;
    const versions = groups.get(group) ?? [];
    groups.set(group, versions);
    if (!versions.includes(version)) versions.push(version);
  }
  return [...groups].map(([name, versions]) => ({ name, versions }));
}

const groupEntry = ({ name, versions }: Group): Fields => {
  const all = versions.map((version) => ({ groupVersion: `${name}/${version}`, version }));
  return { name, versions: all, preferredVersion: all[0] };
};

export const apiGroupList = (table: ResourceTable): Fields => ({
  kind: "APIGroupList",
  apiVersion: "v1",
  groups: groupsOf(table).map(groupEntry),
});

export function apiGroup(table: ResourceTable, name: string): Fields | undefined {
  const group = groupsOf(table).find((each) => each.name === name);
  return group === undefined ? undefined : { kind: "APIGroup", apiVersion: "v1", ...groupEntry(group) };
}

/** @param apiVersion `v1`, `apps/v1` */
export function apiResourceList(table: ResourceTable, apiVersion: string): Fields | undefined {
  const definitions = table.all.filter((each) => apiVersionOf(each) === apiVersion);
  if (definitions.length === 0) return undefined;
  const resources = definitions.flatMap((definition) => {
    const { plural, singular, namespaced, kind, shortNames, categories, subresources = [] } = definition;
    const own = {
      name: plural,
      singularName: singular,
      namespaced,
      kind,
      verbs: verbsOf(definition),
      ...(shortNames === undefined ? {} : { shortNames }),
      ...(categories === undefined ? {} : { categories }),
    };
    const parts = subresources.map((subresource) => ({
      name: `${plural}/${subresource.name}`,
      singularName: "",
      namespaced,
      ...(subresource.kind === undefined ? {} : { group: subresource.kind.group, version: subresource.kind.version }),
      kind: kindOf(definition, subresource).kind,
      verbs: [...subresource.verbs].sort(),
    }));
    return [own, ...parts];
  });
  return { kind: "APIResourceList", apiVersion: "v1", groupVersion: apiVersion, resources };
}

/** `apidiscovery.k8s.io`: what kubectl 1.26 and newer asks for. */
export type AggregatedVersion = "v2" | "v2beta1";

export const aggregatedType = (version: AggregatedVersion): string =>
  `application/json;g=apidiscovery.k8s.io;v=${version};as=APIGroupDiscoveryList`;

export function aggregatedDiscovery(table: ResourceTable, isCore: boolean, version: AggregatedVersion): Fields {
  const groups = isCore ? [{ name: "", versions: ["v1"] }] : groupsOf(table);
  return {
    kind: "APIGroupDiscoveryList",
    apiVersion: `apidiscovery.k8s.io/${version}`,
    metadata: {},
    items: groups.map(({ name, versions }) => ({
      metadata: name === "" ? { creationTimestamp: null } : { name, creationTimestamp: null },
      versions: versions.map((each) => ({
        version: each,
        freshness: "Current",
        resources: table.all
          .filter(({ group, version: own }) => group === name && own === each)
          .map(aggregatedResource),
      })),
    })),
  };
}

function aggregatedResource(definition: ResourceDefinition): Fields {
  const { plural, singular, group, version, kind, namespaced, shortNames, categories, subresources = [] } = definition;
  return {
    resource: plural,
    responseKind: { group, version, kind },
    scope: namespaced ? "Namespaced" : "Cluster",
    singularResource: singular,
    verbs: verbsOf(definition),
    ...(shortNames === undefined ? {} : { shortNames }),
    ...(categories === undefined ? {} : { categories }),
    ...(subresources.length === 0
      ? {}
      : {
          subresources: subresources.map((subresource) => {
            const { group: partGroup, version: partVersion, kind: partKind } = kindOf(definition, subresource);
            return {
              subresource: subresource.name,
              responseKind: { group: partGroup, version: partVersion, kind: partKind },
              verbs: [...subresource.verbs].sort(),
            };
          }),
        }),
  };
}

const [major = "", minor = ""] = KUBERNETES_VERSION.split(".");

/** kubectl warns when the version is too far from its own. */
export const versionInfo = (build: string): Fields => ({
  major,
  minor,
  gitVersion: `v${KUBERNETES_VERSION}.0+picolet-${build}`,
  gitCommit: "",
  gitTreeState: "clean",
  buildDate: "1970-01-01T00:00:00Z",
  goVersion: "",
  compiler: "",
  platform: `${process.platform}/${process.arch === "x64" ? "amd64" : process.arch}`,
});
