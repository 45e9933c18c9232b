import { type CertificateAuthority, issueClientCertificate } from "@picolet/hub/identity/certificate-authority.ts";
import { checkNodeRequest } from "@picolet/hub/identity/node-request.ts";
import type { NodeSigner } from "@picolet/hub-core/node-credentials.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";

export interface LocalSignerInit {
  readonly days?: number;
}

/** As kube-controller-manager's `--cluster-signing-duration`. A board renews at 70 to 90 percent of it. */
const NODE_CERTIFICATE_DAYS = 365;

/** Signs with a CA that the test has, where there is no Kubernetes that would. */
export class LocalSigner implements NodeSigner {
  readonly #authority: () => CertificateAuthority;
  readonly #clock: Clock;
  readonly #days: number;

  constructor(
    components: { readonly authority: () => CertificateAuthority; readonly clock: Clock },
    init: LocalSignerInit = {},
  ) {
    this.#authority = components.authority;
    this.#clock = components.clock;
    this.#days = init.days ?? NODE_CERTIFICATE_DAYS;
  }

  async sign(node: string, requestPem: string): Promise<string> {
    const request = checkNodeRequest(requestPem);
    if (request.node !== node) {
      throw new PicoletError("internal", `a request of node ${request.node} was taken for that of ${node}`);
    }
    const init = { days: this.#days, now: this.#clock.wall() };
    return issueClientCertificate(this.#authority(), request.pem, init);
  }

  clientCa(): Promise<string> {
    return Promise.resolve(this.#authority().certificate);
  }
}
