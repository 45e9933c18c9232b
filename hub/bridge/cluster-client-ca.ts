import type { Component } from "../../protocol/async/component.ts";
import { type Watch, WatchSource } from "../../protocol/async/watch.ts";
import { PicoletError } from "../../protocol/errors.ts";
import type { Clock, Log, Random } from "../../protocol/ports.ts";
import { CONFIG_MAPS, type KubeClient, type KubeObject } from "../core/kube-client.ts";
import { type Kept, Reflector } from "../kubernetes/reflector.ts";
import { fieldsAt } from "./remote-object.ts";

/** Where an API server publishes whom it takes client certificates from. */
const NAMESPACE = "kube-system";
const NAME = "extension-apiserver-authentication";
const KEY = "client-ca-file";

interface Stored extends Kept {
  readonly pem: string;
}

/** The cluster's client CA as its API server publishes it, followed: a CA that is rotated is known at once. */
export class ClusterClientCa implements Component {
  readonly name = "client CA of the cluster";
  readonly #client: KubeClient;
  readonly #reflector: Reflector<Stored>;
  readonly #pem = new WatchSource("");

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
      trim: (object) => ({ resourceVersion: object.metadata.resourceVersion ?? "", pem: pemIn(object) }),
      onChange: ({ after }) => this.#take(after?.pem ?? ""),
    });
  }

  /** PEM; "" before `load`. One that disappears stays until there is another: nobody is locked out by a slip. */
  get pem(): Watch<string> {
    return this.#pem;
  }

  /** @throws `not_found` when the API server publishes none: then it has to be given by hand */
  async load(signal: AbortSignal): Promise<string> {
    const object = await this.#client.get(CONFIG_MAPS, { namespace: NAMESPACE, name: NAME }, signal);
    const pem = pemIn(object);
    if (pem === "") throw new PicoletError("not_found", `cannot find ${KEY} in ConfigMap ${NAMESPACE}/${NAME}`);
    this.#take(pem);
    return pem;
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#reflector.run(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#reflector[Symbol.asyncDispose]();
  }

  #take(pem: string): void {
    if (pem !== "" && pem !== this.#pem.current) this.#pem.set(pem);
  }
}

function pemIn(object: KubeObject): string {
  const pem = fieldsAt(object, "data")[KEY];
  return typeof pem === "string" ? pem : "";
}
