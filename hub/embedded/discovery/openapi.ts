import { createHash } from "node:crypto";
import { ALL_VERBS, apiVersionOf, type ResourceDefinition } from "../api/resource-definition.ts";
import type { ResourceTable } from "../api/resource-table.ts";
import { type ModelSource, reachableModels } from "../schema/models.ts";
import { encodeOpenApiV2 } from "./openapi-protobuf.ts";
import { type OpenApiVersion, type Schema, SchemaWriter, schemaNames } from "./openapi-schemas.ts";

/** The options that kubectl looks for before it uses them. */
const WRITE_OPTIONS = ["dryRun", "fieldManager", "fieldValidation", "pretty"];

export interface Document {
  readonly body: Buffer;
  /** Hash of the content, for URLs and ETags. */
  readonly hash: string;
}

const documentOf = (body: Buffer): Document => ({
  body,
  hash: createHash("sha256").update(body).digest("hex").slice(0, 32).toUpperCase(),
});

/**
 * OpenAPI documents of the resources, each made when it is first asked for and kept: half a megabyte for version 2.
 * They have what kubectl reads of them: types with descriptions, merge keys, and which options a write takes.
 */
export class OpenApi {
  readonly #table: ResourceTable;
  readonly #models: ModelSource;
  readonly #version: string;
  readonly #documents = new Map<string, Document>();
  #names: ReadonlyMap<string, string> | undefined;

  constructor(table: ResourceTable, models: ModelSource, version: string) {
    this.#table = table;
    this.#models = models;
    this.#version = version;
  }

  v2Json(): Document {
    return this.#cached("v2", () => Buffer.from(JSON.stringify(this.#v2())));
  }

  v2Protobuf(): Document {
    return this.#cached("v2.pb", () => encodeOpenApiV2(this.#v2()));
  }

  /** The index of `/openapi/v3`. */
  v3Index(): Schema {
    const paths = this.#table.groupVersions().map((apiVersion): [string, Schema] => {
      const path = pathOf(apiVersion);
      return [path, { serverRelativeURL: `/openapi/v3/${path}?hash=${this.#v3(apiVersion).hash}` }];
    });
    return { paths: Object.fromEntries(paths) };
  }

  /** @param path `api/v1`, `apis/apps/v1` */
  v3(path: string): Document | undefined {
    const apiVersion = this.#table.groupVersions().find((each) => pathOf(each) === path);
    return apiVersion === undefined ? undefined : this.#v3(apiVersion);
  }

  #cached(key: string, make: () => Buffer): Document {
    const known = this.#documents.get(key);
    if (known !== undefined) return known;
    const made = documentOf(make());
    this.#documents.set(key, made);
    return made;
  }

  #v2(): Schema {
    return {
      swagger: "2.0",
      info: { title: "Kubernetes", version: this.#version },
      paths: this.#paths("v2", this.#table.all),
      definitions: this.#schemas("v2", this.#table.all),
    };
  }

  #v3(apiVersion: string): Document {
    return this.#cached(apiVersion, () => {
      const definitions = this.#table.all.filter((each) => apiVersionOf(each) === apiVersion);
      const document = {
        openapi: "3.0.0",
        info: { title: "Kubernetes", version: this.#version },
        paths: this.#paths("v3", definitions),
        components: { schemas: this.#schemas("v3", definitions) },
      };
      return Buffer.from(JSON.stringify(document));
    });
  }

  #writer(version: OpenApiVersion): SchemaWriter {
    this.#names ??= schemaNames(this.#models, this.#table.all);
    return new SchemaWriter(this.#models, this.#names, version);
  }

  #schemas(version: OpenApiVersion, definitions: readonly ResourceDefinition[]): Schema {
    const writer = this.#writer(version);
    const models = reachableModels(
      this.#models,
      definitions.map(({ model }) => model),
    );
    const entries = models.map((model): [string, Schema] => {
      const kinds = definitions.filter((each) => each.model === model.name);
      return [writer.nameOf(model.name), writer.model(model, kinds)];
    });
    return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  #paths(version: OpenApiVersion, definitions: readonly ResourceDefinition[]): Schema {
    const paths: Record<string, Schema> = {};
    for (const definition of definitions) {
      const base = `/${pathOf(apiVersionOf(definition))}`;
      const collection = `${base}${definition.namespaced ? "/namespaces/{namespace}" : ""}/${definition.plural}`;
      const operations = this.#operations(version, definition);
      paths[collection] = pickOperations(operations, ["list", "create"]);
      const verbs = definition.verbs ?? ALL_VERBS;
      if (verbs.includes("get"))
        paths[`${collection}/{name}`] = pickOperations(operations, ["get", "update", "patch", "delete"]);
    }
    return paths;
  }

  #operations(version: OpenApiVersion, definition: ResourceDefinition): Record<string, Schema> {
    const { group, version: own, kind, model, verbs = ALL_VERBS } = definition;
    const reference = { $ref: this.#writer(version).reference(model) };
    const ok: Schema =
      version === "v2"
        ? { description: "OK", schema: reference }
        : { description: "OK", content: { "application/json": { schema: reference } } };
    const operations = verbs.map((verb): [string, Schema] => {
      const options = ["create", "update", "patch"].includes(verb)
        ? WRITE_OPTIONS
        : verb === "delete"
          ? ["dryRun", "pretty"]
          : [];
      const parameters = options.map((name) =>
        version === "v2"
          ? { name, in: "query", type: "string", uniqueItems: true }
          : { name, in: "query", schema: { type: "string", uniqueItems: true } },
      );
      return [
        verb,
        {
          ...(parameters.length === 0 ? {} : { parameters }),
          responses: { "200": ok },
          "x-kubernetes-action": verb,
          "x-kubernetes-group-version-kind": { group, version: own, kind },
        },
      ];
    });
    return Object.fromEntries(operations);
  }
}

const METHODS: Readonly<Record<string, string>> = {
  list: "get",
  create: "post",
  get: "get",
  update: "put",
  patch: "patch",
  delete: "delete",
};

function pickOperations(operations: Readonly<Record<string, Schema>>, verbs: readonly string[]): Schema {
  const entries = verbs.flatMap((verb): [string, Schema][] => {
    const operation = operations[verb];
    return operation === undefined ? [] : [[METHODS[verb] ?? verb, operation]];
  });
  return Object.fromEntries(entries);
}

const pathOf = (apiVersion: string): string => (apiVersion.includes("/") ? `apis/${apiVersion}` : `api/${apiVersion}`);
