/** What a hub shows to those who connect. */
import type { KeyObject } from "node:crypto";
import { createPrivateKey, X509Certificate } from "node:crypto";
import type { Component } from "../../protocol/async/component.ts";
import { type Watch, WatchSource } from "../../protocol/async/watch.ts";
import { describeError, PicoletError } from "../../protocol/errors.ts";
import { certificatesOf } from "../../protocol/pki/pem.ts";
import { type Clock, type Log, seconds } from "../../protocol/ports.ts";

export interface ServingIdentity {
  /** PEM: the server's certificate, then what leads from it to any CA that an agent may trust. */
  readonly certificateChain: string;
  /** PEM. */
  readonly privateKey: string;
  /** PEM: the CAs that agents are to trust from now on. */
  readonly caBundle: string;
  /** Of those CAs, as far as the hub holds them: for the time that it signs. None: it cannot prove the time. */
  readonly caKeys: readonly KeyObject[];
}

/** Never empty: whoever has one has something to show. */
export type Serving = Watch<ServingIdentity>;

/** As often as a Secret that is mounted is brought up to date. */
const RELOAD_INTERVAL = seconds(60);

/** A certificate that somebody else makes and renews (cert-manager, an operator): read again every minute. */
export class GivenServing implements Component {
  readonly name = "hub certificate";
  readonly #read: () => Promise<Omit<ServingIdentity, "caKeys">>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #serving: WatchSource<ServingIdentity>;

  private constructor(
    components: { readonly clock: Clock; readonly log: Log },
    read: () => Promise<Omit<ServingIdentity, "caKeys">>,
    first: ServingIdentity,
  ) {
    this.#clock = components.clock;
    this.#log = components.log;
    this.#read = read;
    this.#serving = new WatchSource(first);
  }

  /** @throws what `read` throws, `invalid` when key and certificate do not belong together */
  static async open(
    components: { readonly clock: Clock; readonly log: Log },
    read: () => Promise<Omit<ServingIdentity, "caKeys">>,
  ): Promise<GivenServing> {
    return new GivenServing(components, read, checked(await read()));
  }

  get serving(): Serving {
    return this.#serving;
  }

  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#clock.sleep(RELOAD_INTERVAL, signal);
      try {
        const now = checked(await this.#read());
        const { current } = this.#serving;
        if (now.certificateChain === current.certificateChain && now.caBundle === current.caBundle) continue;
        this.#serving.set(now);
        this.#log.info("the hub's certificate was replaced");
      } catch (error) {
        // Halfway through a replacement the two do not match; the pair in use goes on.
        this.#log.warn("cannot use the hub's certificate as it is now", { error: describeError(error) });
      }
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

function checked(given: Omit<ServingIdentity, "caKeys">): ServingIdentity {
  const [own] = certificatesOf(given.certificateChain);
  certificatesOf(given.caBundle);
  assertPair(own ?? new Uint8Array(), given.privateKey);
  return { ...given, caKeys: [] };
}

/** @throws `invalid` */
export function assertPair(certificate: Uint8Array, privateKey: string): void {
  let belongs: boolean;
  try {
    belongs = new X509Certificate(certificate).checkPrivateKey(createPrivateKey(privateKey));
  } catch (error) {
    throw new PicoletError("invalid", "cannot read the certificate and its key", { cause: error });
  }
  if (!belongs) throw new PicoletError("invalid", "the key does not belong to the certificate");
}
