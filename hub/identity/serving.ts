/** The certificate and key that a hub shows to its clients. */
import type { KeyObject } from "node:crypto";
import { createPrivateKey, X509Certificate } from "node:crypto";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";

export interface ServingIdentity {
  /** PEM: the server's certificate, then what leads from it to any CA that an agent may trust. */
  readonly certificateChain: string;
  /** PEM. */
  readonly privateKey: string;
  /** PEM: the CAs that agents trust from now on. */
  readonly caBundle: string;
  /** Keys of those CAs that the hub holds, for signing the time. Without any it cannot prove the time. */
  readonly caKeys: readonly KeyObject[];
}

/** Never empty: a hub that has one always has a certificate. */
export type Serving = Watch<ServingIdentity>;

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
