import { CERTIFICATE_SIGNING_REQUESTS, SUBJECT_ACCESS_REVIEWS } from "@picolet/hub-core/kube-client/resource-types.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache } from "../object-cache.ts";
import type { CertificateIssuer } from "./certificate-issuer.ts";
import {
  API_CLIENT,
  approvalRight,
  isSignable,
  KUBELET_SERVING,
  requestPem,
  type SigningRequest,
  signingProblem,
  timeLeft,
} from "./plan-certificate.ts";

/** A request that no approver decides on is read again only to be cleaned up. */
const MAX_WAIT_MS = 3_600_000;

/**
 * Approves nodes' requests for client certificates that their requestors may make, signs approved ones, deletes old.
 */
export class CertificateController extends Controller {
  readonly #ports: ControllerPorts;
  readonly #requests: ObjectCache;
  readonly #issuer: CertificateIssuer;

  constructor(components: ControllerPorts & { readonly requests: ObjectCache; readonly issuer: CertificateIssuer }) {
    const { requests, issuer, ...ports } = components;
    super(ports, { name: "certificate controller", needs: [requests] });
    this.#ports = ports;
    this.#requests = requests;
    this.#issuer = issuer;
    requests.onChange(({ key }) => this.loop.add(key));
  }

  protected async reconcile(name: string, signal: AbortSignal): Promise<Millis | undefined> {
    const request = this.#requests.get(name) as SigningRequest | undefined;
    if (request === undefined || request.metadata.deletionTimestamp !== undefined) return undefined;
    const left = timeLeft(request, this.#ports.clock.wall().getTime());
    if (left <= 0) {
      await this.#delete(request, signal);
      return undefined;
    }
    if (isSignable(request)) await this.#sign(request, signal);
    else await this.#approve(request, signal);
    return millis(Math.min(left, MAX_WAIT_MS));
  }

  async #delete({ metadata }: SigningRequest, signal: AbortSignal): Promise<void> {
    const ref = { namespace: "", name: metadata.name };
    const options = metadata.uid === undefined ? {} : { uid: metadata.uid };
    try {
      await this.#ports.client.delete(CERTIFICATE_SIGNING_REQUESTS, ref, options, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }

  #subjectOf(request: SigningRequest): ReturnType<CertificateIssuer["read"]> | undefined {
    try {
      return this.#issuer.read(requestPem(request));
    } catch (error) {
      if (isPicoletError(error, "invalid")) return undefined;
      throw error;
    }
  }

  async #approve(request: SigningRequest, signal: AbortSignal): Promise<void> {
    const subject = this.#subjectOf(request);
    const right = subject === undefined ? undefined : approvalRight(request, subject);
    if (right === undefined || !(await this.#isAllowed(request, right, signal))) return;
    const approved = {
      type: "Approved",
      reason: "AutoApproved",
      message:
        right === "selfnodeclient"
          ? "Auto approving self kubelet client certificate after SubjectAccessReview."
          : "Auto approving kubelet client certificate after SubjectAccessReview.",
    };
    await this.#writeCondition(request, approved, "approval", signal);
  }

  async #isAllowed({ spec }: SigningRequest, right: string, signal: AbortSignal): Promise<boolean> {
    const resourceAttributes = {
      group: CERTIFICATE_SIGNING_REQUESTS.group,
      version: "*",
      resource: CERTIFICATE_SIGNING_REQUESTS.plural,
      subresource: right,
      verb: "create",
    };
    const { username: user, uid, groups, extra } = spec;
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      metadata: {},
      spec: { user, uid, groups, extra, resourceAttributes },
    };
    const answer = await this.#ports.client.create(
      SUBJECT_ACCESS_REVIEWS,
      { namespace: "", name: "" },
      review,
      {},
      signal,
    );
    return (answer.status as { allowed?: boolean } | undefined)?.allowed === true;
  }

  async #sign(request: SigningRequest, signal: AbortSignal): Promise<void> {
    const subject = this.#subjectOf(request);
    const problem = subject === undefined ? "the request cannot be read" : signingProblem(request, subject);
    if (problem !== undefined) return await this.#fail(request, problem, signal);
    let certificate: string;
    try {
      certificate = await this.#issue(request, signal);
    } catch (error) {
      if (!isPicoletError(error, "invalid") && !isPicoletError(error, "permission_denied")) throw error;
      return await this.#fail(request, describeError(error), signal);
    }
    const status = { ...request.status, certificate: Buffer.from(certificate).toString("base64") };
    const ref = { namespace: "", name: request.metadata.name };
    const update = { ...request, status };
    await this.#ports.client.update(CERTIFICATE_SIGNING_REQUESTS, ref, update, { subresource: "status" }, signal);
  }

  async #issue(request: SigningRequest, signal: AbortSignal): Promise<string> {
    const { signerName, expirationSeconds, username = "", groups = [], extra = {} } = request.spec;
    const pem = requestPem(request);
    if (signerName === API_CLIENT) return this.#issuer.issue(pem, expirationSeconds);
    const requestor = { name: username, groups, extra };
    const wish = { requestPem: pem, expirationSeconds, requestor };
    return signerName === KUBELET_SERVING
      ? await this.#issuer.issueServing(wish, signal)
      : await this.#issuer.issueNode(wish, signal);
  }

  #fail(request: SigningRequest, message: string, signal: AbortSignal): Promise<void> {
    const failed = { type: "Failed", reason: "SignerValidationFailure", message };
    return this.#writeCondition(request, failed, "status", signal);
  }

  async #writeCondition(
    request: SigningRequest,
    condition: { readonly type: string; readonly reason: string; readonly message: string },
    subresource: "approval" | "status",
    signal: AbortSignal,
  ): Promise<void> {
    const now = kubeTime(this.#ports.clock.wall());
    const full = { ...condition, status: "True", lastUpdateTime: now, lastTransitionTime: now };
    const status = { ...request.status, conditions: [...(request.status?.conditions ?? []), full] };
    const ref = { namespace: "", name: request.metadata.name };
    await this.#ports.client.update(CERTIFICATE_SIGNING_REQUESTS, ref, { ...request, status }, { subresource }, signal);
  }
}
