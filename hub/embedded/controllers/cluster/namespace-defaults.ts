import { CONFIG_MAPS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { SERVICE_ACCOUNTS } from "@picolet/hub-core/kube-client/resource-types.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache } from "../object-cache.ts";

export const DEFAULT_ACCOUNT = "default";
export const ROOT_CA_MAP = "kube-root-ca.crt";
const CA_KEY = "ca.crt";
const DESCRIPTION = "kubernetes.io/description";
const DESCRIPTION_TEXT =
  "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

export interface NamespaceDefaultsCaches {
  readonly namespaces: ObjectCache;
  /** Those named `default` are enough. */
  readonly accounts: ObjectCache;
  /** Those named `kube-root-ca.crt` are enough. */
  readonly rootCaMaps: ObjectCache;
}

/** Every namespace has the service account `default` and the ConfigMap `kube-root-ca.crt`, as long as it is there. */
export class NamespaceDefaults extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: NamespaceDefaultsCaches;
  readonly #caBundle: Watch<string>;

  /** @param init.caBundle PEM: what clients in pods check the API server's certificate against */
  constructor(
    { caches, ...ports }: ControllerPorts & { readonly caches: NamespaceDefaultsCaches },
    init: { readonly caBundle: Watch<string> },
  ) {
    super(ports, { name: "namespace furniture", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    this.#caBundle = init.caBundle;
    caches.namespaces.onChange(({ key }) => this.loop.add(key));
    for (const cache of [caches.accounts, caches.rootCaMaps]) {
      cache.onChange(({ before, after }) => this.loop.add((after ?? before)?.metadata.namespace ?? ""));
    }
  }

  override async run(signal: AbortSignal): Promise<void> {
    await Promise.all([super.run(signal), this.#followBundle(signal)]);
  }

  async #followBundle(signal: AbortSignal): Promise<void> {
    for await (const _ of this.#caBundle.changes(signal)) {
      for (const namespace of this.#caches.namespaces.keys()) this.loop.add(namespace);
    }
  }

  protected async reconcile(namespace: string, signal: AbortSignal): Promise<Millis | undefined> {
    const object = this.#caches.namespaces.get(namespace);
    if (object === undefined || object.metadata.deletionTimestamp !== undefined) return undefined;
    await this.#ensureAccount(namespace, signal);
    await this.#ensureRootCa(namespace, signal);
    return undefined;
  }

  async #ensureAccount(namespace: string, signal: AbortSignal): Promise<void> {
    if (this.#caches.accounts.get(keyOf(namespace, DEFAULT_ACCOUNT)) !== undefined) return;
    const ref = { namespace, name: DEFAULT_ACCOUNT };
    const account = { apiVersion: "v1", kind: "ServiceAccount", metadata: ref };
    await tolerating(this.#ports.client.create(SERVICE_ACCOUNTS, ref, account, {}, signal));
  }

  async #ensureRootCa(namespace: string, signal: AbortSignal): Promise<void> {
    const ref = { namespace, name: ROOT_CA_MAP };
    const data = { [CA_KEY]: this.#caBundle.current };
    const existing = this.#caches.rootCaMaps.get(keyOf(namespace, ROOT_CA_MAP));
    if (existing === undefined) {
      const metadata = { ...ref, annotations: { [DESCRIPTION]: DESCRIPTION_TEXT } };
      const map = { apiVersion: "v1", kind: "ConfigMap", metadata, data };
      await tolerating(this.#ports.client.create(CONFIG_MAPS, ref, map, {}, signal));
    } else if ((existing.data as Record<string, string> | undefined)?.[CA_KEY] !== data[CA_KEY]) {
      await this.#ports.client.update(CONFIG_MAPS, ref, { ...existing, data }, {}, signal);
    }
  }
}

/** It is there already, or its namespace is about to go: nothing to be done. */
async function tolerating(creation: Promise<unknown>): Promise<void> {
  try {
    await creation;
  } catch (error) {
    const isSettled = ["already_exists", "not_found", "permission_denied"].some((code) =>
      isPicoletError(error, code as "not_found"),
    );
    if (!isSettled) throw error;
  }
}
