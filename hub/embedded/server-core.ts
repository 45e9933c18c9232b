import type { Clock, Log, Random } from "../../protocol/ports.ts";
import type { Authorizer } from "./auth/attributes.ts";
import { MASTERS } from "./auth/attributes.ts";
import { UnionAuthorizer } from "./auth/authorizers.ts";
import { RbacAuthorizer } from "./auth/rbac.ts";
import { ServiceAccountTokens } from "./auth/service-account-tokens.ts";
import type { ResourceDefinition, UserInfo } from "./resource-definition.ts";
import { ResourceTable } from "./resource-table.ts";
import type { ModelSource } from "./schema/models.ts";
import { ResourceService } from "./service/resource-service.ts";
import { ObjectStore } from "./store/object-store.ts";

export interface ApiServerCoreComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly models: ModelSource;
}

export interface ApiServerCoreInit {
  readonly storePath: string;
  readonly definitions: readonly ResourceDefinition[];
  /** The `iss` of service accounts' tokens, and the audience of this API. */
  readonly issuer: string;
}

/** The server itself acts as this user: expiry, its own objects. */
export const SERVER_USER: UserInfo = { name: "system:apiserver", uid: "", groups: [MASTERS], extra: {} };

/** Everything of the API server but HTTP. */
export class ApiServerCore implements Disposable {
  readonly store: ObjectStore;
  readonly table: ResourceTable;
  readonly models: ModelSource;
  readonly service: ResourceService;
  readonly authorizer: Authorizer;
  readonly rbac: RbacAuthorizer;
  readonly serviceAccounts: ServiceAccountTokens;

  /** @throws as `openDatabase` */
  constructor(components: ApiServerCoreComponents, { storePath, definitions, issuer }: ApiServerCoreInit) {
    const { clock, random, models } = components;
    this.models = models;
    this.table = new ResourceTable(definitions);
    this.store = new ObjectStore(components, storePath);
    const { store, table } = this;
    this.service = new ResourceService({ store, table, models, clock, random, admission: () => undefined });
    const { lookup } = this.service;
    this.rbac = new RbacAuthorizer({ store, lookup });
    this.authorizer = new UnionAuthorizer([this.rbac]);
    this.serviceAccounts = new ServiceAccountTokens({ store, lookup, clock, random }, issuer);
  }

  removeExpired(): void {
    this.service.removeExpired(SERVER_USER);
  }

  [Symbol.dispose](): void {
    this.store[Symbol.dispose]();
  }
}
