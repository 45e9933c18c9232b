/** Plans the outcome of a CertificateSigningRequest. Pure. Rules of pkg/controller/certificates (Kubernetes 1.34). */

import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { NODE_USER_PREFIX, nodeOfUser } from "@picolet/protocol/pki/node-subject.ts";
import { type Condition, conditionOf } from "../../api/typed-objects.ts";
import { KUBELET_CLIENT_USER } from "../cluster/bootstrap-roles.ts";
import type { RequestFacts } from "./certificate-issuer.ts";

export const KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet";
export const API_CLIENT = "kubernetes.io/kube-apiserver-client";
export const KUBELET_SERVING = "kubernetes.io/kubelet-serving";

export interface SigningRequest extends KubeObject {
  readonly spec: {
    /** Base64 of the PEM text. */
    readonly request: string;
    readonly signerName: string;
    readonly usages?: readonly string[];
    readonly expirationSeconds?: number;
    readonly username?: string;
    readonly uid?: string;
    readonly groups?: readonly string[];
    readonly extra?: Readonly<Record<string, readonly string[]>>;
  };
  readonly status?: {
    readonly certificate?: string;
    readonly conditions?: readonly (Condition & { lastUpdateTime?: string })[];
  };
}

const KUBELET_USAGES: readonly string[] = ["client auth", "digital signature", "key encipherment"];
const SERVING_USAGES: readonly string[] = ["digital signature", "key encipherment", "server auth"];
/** Identities of Kubernetes' own parts; none of them is made by this signer. */
const SYSTEM_PREFIX = "system:";

export const hasCondition = (request: SigningRequest, type: string): boolean =>
  conditionOf(request.status?.conditions, type)?.status === "True";

const isDecided = (request: SigningRequest): boolean =>
  hasCondition(request, "Approved") || hasCondition(request, "Denied");

export const requestPem = ({ spec }: SigningRequest): string => Buffer.from(spec.request, "base64").toString();

/** @returns the right that its requestor needs for the approver to approve it; undefined: a human decides */
export function approvalRight(
  request: SigningRequest,
  subject: RequestFacts,
): "nodeclient" | "selfnodeclient" | undefined {
  if (isDecided(request) || request.spec.signerName !== KUBELET_CLIENT) return undefined;
  if (kubeletClientProblem(request, subject) !== undefined) return undefined;
  return request.spec.username === subject.commonName ? "selfnodeclient" : "nodeclient";
}

/** @returns why it is no request of a kubelet for its client certificate */
export function kubeletClientProblem({ spec }: SigningRequest, subject: RequestFacts): string | undefined {
  const problem = nodeSubjectProblem(subject);
  if (problem !== undefined) return problem;
  if (subject.hasOthers) return "subject alternative names or other subject attributes are not allowed";
  const usages = spec.usages ?? [];
  const isRight =
    usages.includes("client auth") &&
    usages.includes("digital signature") &&
    usages.every((usage) => KUBELET_USAGES.includes(usage));
  return isRight ? undefined : "usages did not match client auth, digital signature, key encipherment";
}

/**
 * Stricter than Kubernetes in that only the node itself may be the requestor, so that an approver has names and
 * addresses alone to judge.
 * @returns why it is no request of a kubelet for its serving certificate
 */
export function kubeletServingProblem({ spec }: SigningRequest, subject: RequestFacts): string | undefined {
  const problem = nodeSubjectProblem(subject);
  if (problem !== undefined) return problem;
  const { dns, addresses, others } = subject.names;
  if (dns.length === 0 && addresses.length === 0) return "DNS or IP subjectAltName is required";
  if (others.length > 0) return `${others[0]} subjectAltNames are not allowed`;
  const { usages = [], username = "", groups = [] } = spec;
  const isRight =
    usages.includes("server auth") &&
    usages.includes("digital signature") &&
    usages.every((usage) => SERVING_USAGES.includes(usage));
  if (!isRight) return "usages did not match digital signature, key encipherment, server auth";
  const isItself = username === subject.commonName && nodeOfUser({ name: username, groups }) !== undefined;
  return isItself ? undefined : `requestor ${username} is not ${subject.commonName}`;
}

function nodeSubjectProblem(subject: RequestFacts): string | undefined {
  if (subject.organizations.length !== 1 || subject.organizations[0] !== "system:nodes") {
    return "subject organization is not system:nodes";
  }
  if (!subject.commonName.startsWith(NODE_USER_PREFIX)) {
    return "subject common name does not begin with system:node:";
  }
  if (nodeOfUser({ name: subject.commonName, groups: subject.organizations }) === undefined) {
    return "subject common name names no node: a node's name is a lowercase RFC 1123 subdomain";
  }
  return undefined;
}

const PROBLEM_OF: Readonly<Record<string, (request: SigningRequest, subject: RequestFacts) => string | undefined>> = {
  [KUBELET_CLIENT]: kubeletClientProblem,
  [API_CLIENT]: apiClientProblem,
  [KUBELET_SERVING]: kubeletServingProblem,
};

/** @returns why the signer of the request refuses it */
export function signingProblem(request: SigningRequest, subject: RequestFacts): string | undefined {
  const { signerName } = request.spec;
  const problemOf = PROBLEM_OF[signerName];
  return problemOf === undefined ? `signer ${signerName} is not served here` : problemOf(request, subject);
}

/**
 * Stricter than Kubernetes, which refuses system:masters alone and leaves the rest to the approver: nothing that
 * begins with `system:` is signed, so that neither a node (whose keys are on record) nor a part of the cluster is made
 * this way.
 */
export function apiClientProblem({ spec }: SigningRequest, subject: RequestFacts): string | undefined {
  if (subject.commonName.trim() === "") return "subject has not exactly one common name";
  const reserved = [subject.commonName, ...subject.organizations].find(
    (each) => each.trim().toLowerCase().startsWith(SYSTEM_PREFIX) || each === KUBELET_CLIENT_USER,
  );
  if (reserved !== undefined) return `subject ${reserved} is not allowed: it is an identity of the cluster's own`;
  const usages = spec.usages ?? [];
  return usages.includes("client auth") && usages.every((usage) => KUBELET_USAGES.includes(usage))
    ? undefined
    : "usages did not match client auth";
}

export const isSignable = (request: SigningRequest): boolean =>
  hasCondition(request, "Approved") &&
  !hasCondition(request, "Denied") &&
  !hasCondition(request, "Failed") &&
  (request.status?.certificate ?? "") === "" &&
  Object.hasOwn(PROBLEM_OF, request.spec.signerName);

/** Kubernetes' own: decided ones an hour, undecided ones a day. */
const DECIDED_MS = 3_600_000;
const UNDECIDED_MS = 86_400_000;

/** Milliseconds until a request may go; 0 or less: now. */
export function timeLeft(request: SigningRequest, nowMs: number): number {
  const times = (request.status?.conditions ?? [])
    .filter(({ type }) => ["Approved", "Denied", "Failed"].includes(type))
    .map(({ lastUpdateTime, lastTransitionTime }) => Date.parse(lastUpdateTime ?? lastTransitionTime ?? ""));
  const decidedAt = Math.max(...times.filter((time) => !Number.isNaN(time)));
  if (Number.isFinite(decidedAt)) return decidedAt + DECIDED_MS - nowMs;
  return Date.parse(request.metadata.creationTimestamp ?? "") + UNDECIDED_MS - nowMs;
}
