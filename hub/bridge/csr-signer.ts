import { WriteSlots } from "@picolet/hub-core/fairness/write-slots.ts";
import type { KubeClient, KubeObject, ObjectRef, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { NodeSigner } from "@picolet/hub-core/node-credentials.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { type Clock, type Log, type Millis, NEVER, type Random, seconds } from "@picolet/protocol/ports.ts";
import { logFailure } from "./node-connection.ts";
import { conditionsOf, fieldsAt } from "./remote-object.ts";

export const SIGNING_REQUESTS: ResourceType = {
  group: "certificates.k8s.io",
  version: "v1",
  plural: "certificatesigningrequests",
  kind: "CertificateSigningRequest",
  namespaced: false,
};

/** Kubernetes' own signer of client certificates of kubelets; kube-controller-manager serves it. */
const SIGNER = "kubernetes.io/kube-apiserver-client-kubelet";
/** A signer answers within a second; one that does not answer by then is not there. */
const DEFAULT_TIMEOUT = seconds(20);
const CLEANUP_TIMEOUT = seconds(5);
/** Each holds a connection with its watch. A fleet that joins for the first time waits its turn. */
const MAX_CONCURRENT = 32;
/** `picolet-<node>-<suffix>`, of 253 characters. */
export const MAX_NODE_IN_NAME = 200;

/** Writers of one request: approver, signer and we. */
const MAX_CONFLICTS = 5;

const APPROVAL = {
  type: "Approved",
  status: "True",
  reason: "PicoletHubApprove",
  message: "The hub has verified the node's join token or its earlier certificate.",
} as const;

export interface CsrSignerInit {
  readonly timeout?: Millis;
}

interface Components {
  readonly client: KubeClient;
  /** PEM, whom the API server takes client certificates from. */
  readonly clientCa: Watch<string>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/**
 * Has the cluster sign nodes' certificates: a CertificateSigningRequest that the hub makes, approves and takes away
 * again.
 */
export class CsrSigner implements NodeSigner {
  readonly #components: Components;
  readonly #timeout: Millis;
  readonly #slots: WriteSlots;

  constructor(components: Components, init: CsrSignerInit = {}) {
    this.#components = components;
    this.#slots = new WriteSlots(components, MAX_CONCURRENT);
    this.#timeout = init.timeout ?? DEFAULT_TIMEOUT;
  }

  sign(node: string, requestPem: string, signal: AbortSignal): Promise<string> {
    return this.#slots.run(node, () => this.#signNow(node, requestPem, signal), signal);
  }

  async clientCa(): Promise<string> {
    return this.#components.clientCa.current;
  }

  async #signNow(node: string, requestPem: string, signal: AbortSignal): Promise<string> {
    const ref = { namespace: "", name: this.#name(node) };
    const task = async (within: AbortSignal): Promise<string> => {
      const made = await this.#components.client.create(
        SIGNING_REQUESTS,
        ref,
        requestOf(ref.name, requestPem),
        {},
        within,
      );
      const approved = await this.#approve(ref, made, within);
      return await this.#certificate(node, ref, approved, within);
    };
    try {
      return await withDeadline(
        this.#components.clock,
        this.#timeout,
        `get a certificate for node ${node}`,
        task,
        signal,
      );
    } catch (error) {
      if (!isPicoletError(error, "deadline_exceeded")) throw error;
      const message = `cannot get a certificate for node ${node}: no signer has signed it`;
      throw new PicoletError("unavailable", message, { retryable: true, cause: error });
    } finally {
      await this.#remove(ref);
    }
  }

  #name(node: string): string {
    const suffix = Math.floor(this.#components.random.next() * 2 ** 48).toString(36);
    return `picolet-${node.slice(0, MAX_NODE_IN_NAME)}-${suffix}`;
  }

  /** The cluster's own approver may be as fast. */
  async #approve(ref: ObjectRef, made: KubeObject, signal: AbortSignal): Promise<KubeObject> {
    const { client, clock } = this.#components;
    let current = made;
    for (let round = 1; ; round += 1) {
      if (conditionsOf(current.status).length > 0) return current;
      const condition = {
        ...APPROVAL,
        lastUpdateTime: kubeTime(clock.wall()),
        lastTransitionTime: kubeTime(clock.wall()),
      };
      const approved = { ...current, status: { ...fieldsAt(current, "status"), conditions: [condition] } };
      try {
        return await client.update(SIGNING_REQUESTS, ref, approved, { subresource: "approval" }, signal);
      } catch (error) {
        if (!isPicoletError(error, "conflict") || round >= MAX_CONFLICTS) throw error;
        current = await client.get(SIGNING_REQUESTS, ref, signal);
      }
    }
  }

  async #certificate(node: string, ref: ObjectRef, approved: KubeObject, signal: AbortSignal): Promise<string> {
    const ready = certificateIn(node, approved);
    if (ready !== undefined) return ready;
    const options = {
      fieldSelector: `metadata.name=${ref.name}`,
      resourceVersion: approved.metadata.resourceVersion ?? "",
    };
    for await (const event of this.#components.client.watch(SIGNING_REQUESTS, options, signal)) {
      if (event.type === "BOOKMARK") continue;
      if (event.type === "DELETED") break;
      const certificate = certificateIn(node, event.object);
      if (certificate !== undefined) return certificate;
    }
    throw new PicoletError("unavailable", `cannot get a certificate for node ${node}: the request is gone`, {
      retryable: true,
    });
  }

  /** Kubernetes takes away what is left after an hour. */
  async #remove(ref: ObjectRef): Promise<void> {
    const { client, clock, log } = this.#components;
    const task = (within: AbortSignal): Promise<void> => client.delete(SIGNING_REQUESTS, ref, {}, within);
    try {
      await withDeadline(clock, CLEANUP_TIMEOUT, "delete a CertificateSigningRequest", task, NEVER);
    } catch (error) {
      if (!isPicoletError(error, "not_found"))
        logFailure(log, "cannot delete a CertificateSigningRequest", ref as never)(error);
    }
  }
}

const requestOf = (name: string, requestPem: string): Readonly<Record<string, unknown>> => ({
  apiVersion: "certificates.k8s.io/v1",
  kind: "CertificateSigningRequest",
  metadata: { name, labels: { "app.kubernetes.io/managed-by": "picolet-hub" } },
  spec: {
    request: Buffer.from(requestPem).toString("base64"),
    signerName: SIGNER,
    usages: ["digital signature", "client auth"],
  },
});

/** @throws `permission_denied` when it was denied or cannot be signed */
function certificateIn(node: string, request: KubeObject): string | undefined {
  const refusal = conditionsOf(request.status).find(({ type }) => type === "Denied" || type === "Failed");
  if (refusal !== undefined) {
    const cause = new Error(String(refusal.message ?? refusal.reason ?? refusal.type));
    throw new PicoletError("permission_denied", `cannot get a certificate for node ${node}`, { cause });
  }
  const { certificate } = fieldsAt(request, "status");
  if (typeof certificate !== "string" || certificate === "") return undefined;
  return Buffer.from(certificate, "base64").toString("utf8");
}
