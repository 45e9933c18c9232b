import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { IdentityState } from "../core/hub/identity.ts";
import type { NodeCertificateFacts, StoredIdentity } from "./identity-file.ts";

/** An identity that counts for this node. */
export interface UsableIdentity {
  readonly stored: StoredIdentity;
  readonly facts: NodeCertificateFacts;
}

/** This node's identity as other parts see it. Each change is logged once. */
export class ShownIdentity {
  readonly #log: Log;
  readonly #state = new WatchSource<IdentityState>({ kind: "joining", problem: "", isRefused: false });
  /** The last failure while the certificate is still valid: logged when it changes. */
  #problem = "";

  constructor({ log }: { readonly log: Log }) {
    this.#log = log;
  }

  get state(): Watch<IdentityState> {
    return this.#state;
  }

  /** @param problem with the renewal; "": none */
  joined({ stored, facts }: UsableIdentity, problem: string): void {
    if (problem !== "" && problem !== this.#problem) {
      this.#log.warn("cannot renew the node's certificate", { error: problem });
    }
    this.#problem = problem;
    const { current } = this.#state;
    const { privateKey, certificateChain, hubCa } = stored;
    if (
      current.kind === "joined" &&
      current.credentials.certificateChain === certificateChain &&
      current.credentials.hubCa === hubCa
    ) {
      return;
    }
    const { notBeforeMs, notAfterMs } = facts;
    this.#state.set({
      kind: "joined",
      credentials: { privateKey, certificateChain, hubCa, notBeforeMs, notAfterMs },
    });
  }

  /** @param problem why not; "": it is under way. @param isRefused whether it stays so until something is changed */
  joining(problem: string, isRefused: boolean): void {
    const { current } = this.#state;
    if (current.kind === "joining" && current.problem === problem && current.isRefused === isRefused) return;
    if (problem !== "") this.#log.warn("this node is not joined to a hub", { problem });
    this.#state.set({ kind: "joining", problem, isRefused });
  }
}
