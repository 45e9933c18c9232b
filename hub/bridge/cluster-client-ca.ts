import { CONFIG_MAPS, type KubeClient, type KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { type CachedObject, Reflector } from "@picolet/hub-core/kube-client/reflector.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log, Random } from "@picolet/protocol/ports.ts";
import { fieldsAt } from "./remote-object.ts";

/** The ConfigMap in which an API server publishes the CAs of client certificates. */
const NAMESPACE = "kube-system";
const NAME = "extension-apiserver-authentication";
export const CLIENT_CA_KEY = "client-ca-file";
/** The embedded API server's alone: another API server shows kubelets a certificate of its client CA. */
export const KUBELET_CLIENT_CA_KEY = "picolet-kubelet-client-ca-file";

/** How the API server shows for whom it passes requests on, as it publishes it. */
export interface PublishedFrontProxy {
  /** PEM; "": it publishes none. */
  readonly ca: string;
  readonly allowedNames: readonly string[];
  readonly userHeaders: readonly string[];
  readonly groupHeaders: readonly string[];
  readonly extraPrefixes: readonly string[];
}

export const NO_FRONT_PROXY: PublishedFrontProxy = {
  ca: "",
  allowedNames: [],
  userHeaders: [],
  groupHeaders: [],
  extraPrefixes: [],
};

interface Published {
  readonly frontProxy: PublishedFrontProxy;
  readonly pem: string;
  readonly kubeletClientPem: string;
}

interface Stored extends CachedObject, Published {}

/** The cluster's client CA as its API server publishes it, followed: a CA that is rotated is known at once. */
export class ClusterClientCa implements Component {
  readonly name = "client CA of the cluster";
  readonly #client: KubeClient;
  readonly #reflector: Reflector<Stored>;
  readonly #pem = new WatchSource("");
  readonly #kubeletClientPem = new WatchSource("");
  readonly #frontProxy = new WatchSource(NO_FRONT_PROXY);

  constructor(components: {
    readonly client: KubeClient;
    readonly clock: Clock;
    readonly random: Random;
    readonly log: Log;
  }) {
    this.#client = components.client;
    this.#reflector = new Reflector<Stored>(components, {
      type: CONFIG_MAPS,
      selection: { namespace: NAMESPACE, fieldSelector: `metadata.name=${NAME}` },
      trim: (object) => ({ resourceVersion: object.metadata.resourceVersion ?? "", ...publishedIn(object) }),
      onChange: ({ after }) => {
        if (after !== undefined) this.#take(after);
      },
    });
  }

  /** PEM; "" before `load`. A CA that disappears stays until there is another, so that a slip locks no client out. */
  get pem(): Watch<string> {
    return this.#pem;
  }

  /** PEM: whom the API server's own certificate is issued by when it dials kubelets. */
  get kubeletClientPem(): Watch<string> {
    return this.#kubeletClientPem;
  }

  get frontProxy(): Watch<PublishedFrontProxy> {
    return this.#frontProxy;
  }

  /** @throws `not_found` when the API server publishes none: then it has to be given by hand */
  async load(signal: AbortSignal): Promise<string> {
    const object = await this.#client.get(CONFIG_MAPS, { namespace: NAMESPACE, name: NAME }, signal);
    const published = publishedIn(object);
    if (published.pem === "") {
      throw new PicoletError("not_found", `cannot find ${CLIENT_CA_KEY} in ConfigMap ${NAMESPACE}/${NAME}`);
    }
    this.#take(published);
    return published.pem;
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#reflector.run(signal);
  }

  #take({ pem, kubeletClientPem, frontProxy }: Published): void {
    if (JSON.stringify(frontProxy) !== JSON.stringify(this.#frontProxy.current)) this.#frontProxy.set(frontProxy);
    if (pem === "") return;
    if (pem !== this.#pem.current) this.#pem.set(pem);
    const next = kubeletClientPem === "" ? pem : kubeletClientPem;
    if (next !== this.#kubeletClientPem.current) this.#kubeletClientPem.set(next);
  }
}

function publishedIn(object: KubeObject): Published {
  const data = fieldsAt(object, "data");
  const textOf = (key: string): string => {
    const value = data[key];
    return typeof value === "string" ? value : "";
  };
  const headersIn = (key: string): readonly string[] => listIn(textOf(key)).map((name) => name.toLowerCase());
  const frontProxy = {
    ca: textOf("requestheader-client-ca-file"),
    allowedNames: listIn(textOf("requestheader-allowed-names")),
    userHeaders: headersIn("requestheader-username-headers"),
    groupHeaders: headersIn("requestheader-group-headers"),
    extraPrefixes: headersIn("requestheader-extra-headers-prefix"),
  };
  return { pem: textOf(CLIENT_CA_KEY), kubeletClientPem: textOf(KUBELET_CLIENT_CA_KEY), frontProxy };
}

/** @param text a JSON list of texts; anything else is an empty one */
function listIn(text: string): readonly string[] {
  try {
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) ? list.filter((each): each is string => typeof each === "string") : [];
  } catch {
    return [];
  }
}
