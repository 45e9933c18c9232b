import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { CorrectedClock } from "./corrected-clock.ts";
import { verifyHub } from "./hub-trust.ts";

/** A hub's certificate is good for a day before it begins, where clocks of hubs and CAs differ. */
const HUB_CLOCK_SLACK_MS = 86_400_000;

/** Judges every connection to a hub by the time that this board can be sure of. */
export class HubVerifier {
  readonly #clock: CorrectedClock;
  #validity: { readonly notBeforeMs: number; readonly notAfterMs: number } | undefined;

  constructor(components: { readonly clock: CorrectedClock }) {
    this.#clock = components.clock;
  }

  /** @throws as `verifyHub` */
  verify(peerChain: readonly Uint8Array[], host: string, hubCa: string): void {
    const isLowerBound = !this.#clock.isConfirmed;
    const time = { atMs: this.#clock.wall().getTime(), isLowerBound };
    const [own] = verifyHub(peerChain, host, hubCa, time);
    if (own === undefined) return;
    this.#validity = own;
    // A CA issues nothing for later: what has begun for it has begun.
    if (isLowerBound) this.#clock.raiseFloor(own.notBeforeMs);
  }

  /**
   * @returns whether a hub's time is within the life of its certificate, so that a hub with a wrong clock cannot move
   * its boards into another century for good
   */
  isPlausible(hubTimeMs: number): boolean {
    const validity = this.#validity;
    if (validity === undefined) return false;
    return hubTimeMs >= validity.notBeforeMs - HUB_CLOCK_SLACK_MS && hubTimeMs <= validity.notAfterMs;
  }
}

/** A refusal that the right time could turn around. */
export const isClockRefusal = (error: unknown): boolean =>
  isPicoletError(error, "permission_denied") &&
  (error.reason === "CertificateExpired" || error.reason === "CertificateNotYetValid");
