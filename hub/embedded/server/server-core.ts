import { rmSync } from "node:fs";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import { accessAdmission } from "../admission/access-admission.ts";
import { DiskSpace, type DiskSpaceComponents } from "../admission/disk-space.ts";
import { podSecurity } from "../admission/pod-security.ts";
import { DEFAULT_POD_SECURITY, type PodSecurityConfiguration } from "../admission/pod-security-configuration.ts";
import type { Labels } from "../admission/pod-security-standards.ts";
import { budgetOf, Quotas } from "../admission/quotas.ts";
import type { ResourceDefinition, UserInfo } from "../api/resource-definition.ts";
import { ResourceTable } from "../api/resource-table.ts";
import type { Authorizer } from "../auth/attributes.ts";
import { MASTERS } from "../auth/attributes.ts";
import { Authenticator, type IsRevoked, type StaticToken } from "../auth/authenticator.ts";
import { HealthAuthorizer, UnionAuthorizer } from "../auth/authorizers.ts";
import { HubAuthorizer } from "../auth/hub-authorizer.ts";
import { NodeAuthorizer } from "../auth/node-authorizer.ts";
import { RbacAuthorizer } from "../auth/rbac.ts";
import { ServiceAccountTokens } from "../auth/service-account-tokens.ts";
import type { ModelSource } from "../schema/models.ts";
import type { Admission } from "../service/resource-request.ts";
import { ResourceService } from "../service/resource-service.ts";
import type { FleetGuard } from "../store/fleet-guard.ts";
import { type ObjectKeys, ObjectStore } from "../store/object-store.ts";
import { podBinding } from "./pod-binding.ts";
import { podEviction } from "./pod-eviction.ts";
import { servedResources } from "./served-resources.ts";
import { serviceAccountToken } from "./service-account-token.ts";

export interface ApiServerCoreComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly models: ModelSource;
  /** Tells which keys of client certificates are refused before their end. Default: none. */
  readonly isRevoked?: IsRevoked;
  /** Default: statfs(2). */
  readonly diskSpace?: DiskSpaceComponents["diskSpace"] | undefined;
  /** As `ObjectStoreComponents`. */
  readonly guard?: FleetGuard | undefined;
}

export interface ApiServerCoreInit {
  readonly storePath: string;
  readonly definitions: readonly ResourceDefinition[];
  /** The `iss` of service accounts' tokens, and the audience of this API. */
  readonly issuer: string;
  /** Tokens of the operator. */
  readonly tokens: readonly StaticToken[];
  /** Size of the store above which boards are refused. Undefined: what the disk has, less a reserve. */
  readonly maxStoreBytes?: number | undefined;
  /** Default: namespaces' labels alone count, and nothing is exempt. */
  readonly podSecurity?: PodSecurityConfiguration;
}

/** The server itself acts as this user: expiry, its own objects. */
export const SERVER_USER: UserInfo = { name: "system:apiserver", uid: "", groups: [MASTERS], extra: {} };

/** Everything of the API server but HTTP. */
export class ApiServerCore implements Disposable {
  readonly store: ObjectStore;
  readonly table: ResourceTable;
  readonly models: ModelSource;
  readonly service: ResourceService;
  readonly quotas: Quotas;
  readonly authorizer: Authorizer;
  readonly rbac: RbacAuthorizer;
  readonly serviceAccounts: ServiceAccountTokens;
  readonly authenticator: Authenticator;
  readonly #storePath: string;
  #backups = 0;

  /** @throws as `openDatabase` */
  constructor(components: ApiServerCoreComponents, init: ApiServerCoreInit) {
    const { storePath, definitions, issuer, tokens, maxStoreBytes } = init;
    const { clock, random, models, isRevoked = () => false } = components;
    this.models = models;
    this.#storePath = storePath;
    const ports = () => ({ ...this, issuer, admit: (user: UserInfo) => this.quotas.admitReview(user) });
    this.table = new ResourceTable(servedResources(definitions, ports));
    this.store = new ObjectStore(components, storePath);
    const { store, table } = this;
    const admission: Admission = (request) => {
      const { authorizer, rbac, service } = this;
      accessAdmission({ authorizer, rbac, lookup: service.lookup })(request);
      this.quotas.admit(request);
    };
    const validation = this.#podSecurity(components, init.podSecurity);
    this.service = new ResourceService({ store, table, models, clock, random, admission, validation, budgetOf });
    const { lookup } = this.service;
    const disk = new DiskSpace({ ...components, storeSpace: () => store.space }, { storePath, maxStoreBytes });
    const remove = (key: ObjectKeys): void => this.service.remove(SERVER_USER, key);
    this.quotas = new Quotas({ ...components, store, disk, remove });
    this.rbac = new RbacAuthorizer(store);
    this.authorizer = new UnionAuthorizer([
      new HealthAuthorizer(),
      new NodeAuthorizer(lookup, store),
      new HubAuthorizer(),
      this.rbac,
    ]);
    this.serviceAccounts = new ServiceAccountTokens({ store, lookup, clock, random }, issuer);
    this.authenticator = new Authenticator({ clock, lookup, serviceAccounts: this.serviceAccounts, isRevoked }, tokens);
    this.#addSubresources(() => clock.wall());
  }

  #podSecurity({ clock, log }: ApiServerCoreComponents, configuration = DEFAULT_POD_SECURITY): Admission {
    const namespaceLabels = (name: string): Labels | undefined =>
      this.service.lookup.get("namespaces", "", name)?.metadata.labels;
    const podBodies = (namespace: string): Iterable<{ readonly body: string }> => this.store.list("pods", namespace);
    return podSecurity({ namespaceLabels, podBodies, clock, log }, configuration);
  }

  #addSubresources(now: () => Date): void {
    const { service, table, serviceAccounts } = this;
    service.addHandler("pods/binding", podBinding(service, now));
    service.addHandler("pods/eviction", podEviction(service, table, now));
    service.addHandler(
      "serviceaccounts/token",
      this.quotas.limitTokens(serviceAccountToken(serviceAccounts, service.lookup)),
    );
  }

  removeExpired(): void {
    this.service.removeExpired(SERVER_USER);
  }

  /** @returns a file with a copy of the store, the caller's to remove */
  async backup(): Promise<string> {
    this.#backups += 1;
    const path = `${this.#storePath}.backup-${this.#backups}`;
    rmSync(path, { force: true });
    await this.store.backup(path);
    return path;
  }

  [Symbol.dispose](): void {
    this.store[Symbol.dispose]();
  }
}
