import { type KubeObject, SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache } from "../object-cache.ts";

/** Bounds the wait for a token that expires in years. */
const MAX_WAIT_MS = 86_400_000;

/** @returns milliseconds of the wall clock; undefined: it does not expire, or what it says of it cannot be read */
export function tokenExpiry(secret: KubeObject): number | undefined {
  const data = secret.data as Readonly<Record<string, string>> | undefined;
  const text = Buffer.from(data?.expiration ?? "", "base64").toString();
  const time = Date.parse(text);
  return Number.isNaN(time) ? undefined : time;
}

/** Deletes bootstrap tokens that have expired. */
export class TokenCleaner extends Controller {
  readonly #ports: ControllerPorts;
  readonly #tokens: ObjectCache;

  /** @param components.tokens Secrets of the type `bootstrap.kubernetes.io/token` in kube-system */
  constructor({ tokens, ...ports }: ControllerPorts & { readonly tokens: ObjectCache }) {
    super(ports, { name: "token cleaner", needs: [tokens] });
    this.#ports = ports;
    this.#tokens = tokens;
    tokens.onChange(({ key }) => this.loop.add(key));
  }

  protected async reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined> {
    const secret = this.#tokens.get(key);
    const expiry = secret === undefined ? undefined : tokenExpiry(secret);
    if (secret === undefined || expiry === undefined) return undefined;
    const left = expiry - this.#ports.clock.wall().getTime();
    if (left > 0) return millis(Math.min(left, MAX_WAIT_MS));
    const { namespace = "", name, uid } = secret.metadata;
    try {
      await this.#ports.client.delete(SECRETS, { namespace, name }, uid === undefined ? {} : { uid }, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found") && !isPicoletError(error, "conflict")) throw error;
    }
    return undefined;
  }
}
