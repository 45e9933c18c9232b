import { apiVersionOf, type ResourceDefinition, resourceName } from "./resource-definition.ts";

/** Every resource that the server has, by the ways it is asked for. */
export class ResourceTable {
  readonly all: readonly ResourceDefinition[];
  readonly #byPath = new Map<string, ResourceDefinition>();
  readonly #byName = new Map<string, ResourceDefinition>();

  constructor(definitions: readonly ResourceDefinition[]) {
    this.all = definitions;
    for (const definition of definitions) {
      const path = `${apiVersionOf(definition)}/${definition.plural}`;
      if (this.#byPath.has(path)) throw new TypeError(`the resource ${path} is defined twice`);
      this.#byPath.set(path, definition);
      // The first version of a resource is the one that lookups by name mean.
      const name = resourceName(definition);
      if (!this.#byName.has(name)) this.#byName.set(name, definition);
    }
  }

  /** @param apiVersion `v1`, `apps/v1` */
  find(apiVersion: string, plural: string): ResourceDefinition | undefined {
    return this.#byPath.get(`${apiVersion}/${plural}`);
  }

  /** @param name `pods`, `daemonsets.apps` */
  named(name: string): ResourceDefinition | undefined {
    return this.#byName.get(name);
  }

  /** Group versions in the order of the table, core first. */
  groupVersions(): readonly string[] {
    const all = [...new Set(this.all.map(apiVersionOf))];
    return [...all.filter((each) => !each.includes("/")), ...all.filter((each) => each.includes("/"))];
  }
}
