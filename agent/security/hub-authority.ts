/**
 * The dealings with a hub that end in a certificate, its CAs or the time. One attempt each; when to try is the
 * caller's.
 */
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { CertificateAnswer } from "@picolet/protocol/pki/join-messages.ts";
import { certificatesOf, encodePem } from "@picolet/protocol/pki/pem.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import { join, renew, requestCa, requestTime } from "./certificate-requests.ts";
import type { CorrectedClock } from "./corrected-clock.ts";
import { type ClientPair, HubConnection, type HubEndpoint, type OpenSocket } from "./hub-connection.ts";
import { type HubPins, pinnedCas } from "./hub-trust.ts";
import { type HubVerifier, isClockRefusal } from "./hub-verifier.ts";
import type { StoredIdentity } from "./identity-file.ts";

export interface HubAuthorityComponents {
  readonly clock: CorrectedClock;
  readonly verifier: HubVerifier;
  /** Undefined: hubs are reached directly. */
  readonly openSocket?: OpenSocket | undefined;
}

export interface HubAuthorityInit {
  readonly nodeName: string;
  /** Tried in turn, the one that answered last first. */
  readonly hubs: readonly HubEndpoint[];
}

/** Handshake, nonce and a signature that Kubernetes makes; a board on a satellite link takes some seconds for it. */
export const ATTEMPT_LIMIT: Millis = seconds(45);

export interface Certified {
  readonly certificateChain: string;
  readonly hubCa: string;
}

type Task<T> = (connection: HubConnection, host: string, signal: AbortSignal) => Promise<T>;

export class HubAuthority {
  readonly #clock: CorrectedClock;
  readonly #verifier: HubVerifier;
  readonly #openSocket: OpenSocket | undefined;
  readonly #init: HubAuthorityInit;
  #lastGood = 0;

  constructor(components: HubAuthorityComponents, init: HubAuthorityInit) {
    this.#clock = components.clock;
    this.#verifier = components.verifier;
    this.#openSocket = components.openSocket;
    this.#init = init;
  }

  /**
   * First contact and joining, on one connection: the token is sent when the peer has been verified up to a pinned CA.
   * @param key PEM
   */
  join(key: string, token: string, pins: HubPins, signal: AbortSignal): Promise<Certified> {
    const { nodeName: node } = this.#init;
    return this.#withHub(
      undefined,
      async (connection, host, stop) => {
        const hubCa = await this.#firstContact(connection, host, pins, stop);
        const sentAt = this.#clock.monotonic();
        return this.#certified(await join(connection, { node, key, token }, stop), connection, host, hubCa, sentAt);
      },
      signal,
    );
  }

  /** Over mutual TLS with what there is, even where it has ended. @param key PEM, the new one */
  renew(old: StoredIdentity, key: string, signal: AbortSignal): Promise<Certified> {
    const { nodeName: node } = this.#init;
    return this.#withHub(
      { cert: old.certificateChain, key: old.privateKey },
      async (connection, host, stop) => {
        await this.#verify(connection, host, old.hubCa, stop);
        const sentAt = this.#clock.monotonic();
        const answer = await renew(connection, { node, key, oldKey: old.privateKey }, stop);
        return this.#certified(answer, connection, host, old.hubCa, sentAt);
      },
      signal,
    );
  }

  /** Requests the hub's current CAs from a known hub, which may have to prove the time for it. @returns PEM */
  currentCa(hubCa: string, signal: AbortSignal): Promise<string> {
    return this.#withHub(
      undefined,
      async (connection, host, stop) => {
        await this.#verify(connection, host, hubCa, stop);
        return this.#checkedBundle(await requestCa(connection, stop), connection, host, hubCa);
      },
      signal,
    );
  }

  /** Learns the hub's CAs by the configured pins alone, regardless of earlier trust. @returns PEM */
  learnCa(pins: HubPins, signal: AbortSignal): Promise<string> {
    return this.#withHub(
      undefined,
      async (connection, host, stop) => {
        const pinned = await this.#firstContact(connection, host, pins, stop);
        return this.#checkedBundle(await requestCa(connection, stop), connection, host, pinned);
      },
      signal,
    );
  }

  /** @returns PEM: the pinned CAs, up to one of which the peer has been verified */
  async #firstContact(connection: HubConnection, host: string, pins: HubPins, signal: AbortSignal): Promise<string> {
    const pinned = pinnedCas(pins.ca === "" ? await requestCa(connection, signal) : "", pins);
    await this.#verify(connection, host, pinned, signal);
    return pinned;
  }

  /** Where only the time is in the way, a time that is signed by the CA settles who is right. */
  async #verify(connection: HubConnection, host: string, hubCa: string, signal: AbortSignal): Promise<void> {
    const { peerChain } = connection;
    try {
      this.#verifier.verify(peerChain, host, hubCa);
    } catch (error) {
      if (!isClockRefusal(error)) throw error;
      const askedAt = this.#clock.monotonic();
      const timeMs = await requestTime(connection, hubCa, signal).catch((cause: unknown) => {
        if (isCancelled(cause)) throw cause;
        throw error;
      });
      this.#clock.observe(timeMs, this.#clock.monotonic() - askedAt);
      this.#verifier.verify(peerChain, host, hubCa);
    }
  }

  #certified(
    answer: CertificateAnswer,
    connection: HubConnection,
    host: string,
    hubCa: string,
    sentAt: number,
  ): Certified {
    if (this.#verifier.isPlausible(answer.timeMs)) {
      this.#clock.observe(answer.timeMs, this.#clock.monotonic() - sentAt);
    }
    return {
      certificateChain: onlyCertificates(answer.certificate),
      hubCa: this.#checkedBundle(answer.hubCa, connection, host, hubCa),
    };
  }

  /**
   * A bundle by which the very hub that sent it would not be known again is a mistake of the hub's: `otherwise` stays.
   */
  #checkedBundle(bundle: string, connection: HubConnection, host: string, otherwise: string): string {
    try {
      const clean = onlyCertificates(bundle);
      this.#verifier.verify(connection.peerChain, host, clean);
      return clean;
    } catch {
      return otherwise;
    }
  }

  /** @throws what the last one that was tried failed with */
  async #withHub<T>(pair: ClientPair | undefined, task: Task<T>, signal: AbortSignal): Promise<T> {
    const { hubs } = this.#init;
    let failure: unknown = new PicoletError("invalid", "no hub is configured");
    for (let turn = 0; turn < hubs.length; turn += 1) {
      const index = (this.#lastGood + turn) % hubs.length;
      const hub = hubs[index];
      if (hub === undefined) continue;
      try {
        const result = await withDeadline(
          this.#clock,
          ATTEMPT_LIMIT,
          `deal with the hub ${hub.host}`,
          async (stop) => {
            using connection = await HubConnection.open(hub, pair, stop, this.#openSocket);
            return await task(connection, hub.host, stop);
          },
          signal,
        );
        this.#lastGood = index;
        return result;
      } catch (error) {
        if (isCancelled(error)) throw error;
        failure = error;
      }
    }
    throw failure;
  }
}

/** @throws `invalid` */
const onlyCertificates = (pem: string): string =>
  certificatesOf(pem)
    .map((each) => encodePem("CERTIFICATE", each))
    .join("");
