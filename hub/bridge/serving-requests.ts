/** Requests of boards for the serving certificate of their port 10250, as CertificateSigningRequests of the nodes. */
import { isIP } from "node:net";
import type { KubeObject, ObjectRef } from "@picolet/hub-core/kube-client/kube-client.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { EXTENSION } from "@picolet/protocol/pki/extensions.ts";
import { nodeOfSubject } from "@picolet/protocol/pki/node-subject.ts";
import type { ServingReply } from "@picolet/protocol/tunnel/stream.ts";
import { readRequest } from "../identity/certificate-authority.ts";
import { alternativeNamesOf, refuseHubNames } from "../identity/serving-request.ts";
import { MAX_NODE_IN_NAME, SIGNING_REQUESTS } from "./csr-signer.ts";
import type { NodeConnection } from "./node-connection.ts";
import { conditionsOf, fieldsAt } from "./remote-object.ts";
import { addressKey } from "./stored-objects.ts";

const SIGNER = "kubernetes.io/kubelet-serving";
/** Digits of the hash of a request in its object's name: no other request gets this name. */
const HASH_DIGITS = 24;
/** A board asks for one address of each family. */
const MAX_ADDRESSES = 16;

interface Wanted {
  /** As `addressKey` has them. */
  readonly addresses: readonly string[];
}

/**
 * Makes the object of a request, unless it is there, and answers with what became of it. Approval is the cluster's.
 * The name of the object follows from the request, so the hub keeps nothing, and any replica answers.
 * @param requestPem PKCS#10
 * @param hubNames DNS names and addresses of the hub
 * @throws `permission_denied` for a name that is not the node's, `invalid` for a malformed request
 */
export async function requestServingCertificate(
  { node, client, cache }: Pick<NodeConnection, "node" | "client" | "cache">,
  requestPem: string,
  hubNames: readonly string[],
  signal: AbortSignal,
): Promise<ServingReply> {
  const { addresses } = readWanted(node, requestPem, hubNames);
  const own = new Set(hubNames.filter((name) => isIP(name) !== 0).map(addressKey));
  const others = cache.addressesOfOthers(node);
  const taken = addresses.filter((address) => isSpecial(address) || own.has(address) || others.has(address));
  if (taken.length > 0) return { state: "taken", addresses: taken.map(addressText) };
  const hash = Buffer.from(sha256(new TextEncoder().encode(requestPem))).toString("hex");
  const name = `picolet-serving-${node.slice(0, MAX_NODE_IN_NAME)}-${hash.slice(0, HASH_DIGITS)}`;
  const ref: ObjectRef = { namespace: "", name };
  let found: KubeObject;
  try {
    found = await client.get(SIGNING_REQUESTS, ref, signal);
  } catch (error) {
    if (!isPicoletError(error, "not_found")) throw error;
    found = await client.create(SIGNING_REQUESTS, ref, requestObject(name, requestPem), {}, signal);
  }
  return outcomeOf(found);
}

const requestObject = (name: string, requestPem: string): Readonly<Record<string, unknown>> => ({
  apiVersion: "certificates.k8s.io/v1",
  kind: "CertificateSigningRequest",
  metadata: { name },
  spec: {
    request: Buffer.from(requestPem).toString("base64"),
    signerName: SIGNER,
    usages: ["digital signature", "server auth"],
  },
});

function readWanted(node: string, requestPem: string, hubNames: readonly string[]): Wanted {
  const request = readRequest(requestPem);
  const wanted = nodeOfSubject(request.subject);
  const refuse = (why: string): never => {
    throw new PicoletError("permission_denied", `cannot request a serving certificate for node ${node}: ${why}`);
  };
  if (wanted !== node) return refuse(`its subject is node ${wanted}`);
  if (request.hasOtherAttributes || request.extensions.some(({ oid }) => oid !== EXTENSION.subjectAltName)) {
    return refuse("it asks for more than names and addresses");
  }
  const { dns, addresses, others } = alternativeNamesOf(request);
  const foreign = dns.find((name) => name !== node) ?? others[0];
  if (foreign !== undefined) return refuse(`the name ${foreign} is not its own`);
  if (dns.length + addresses.length === 0) return refuse("it has neither name nor address");
  if (addresses.length > MAX_ADDRESSES) return refuse(`it has more than ${MAX_ADDRESSES} addresses`);
  refuseHubNames({ dns, addresses: [] }, hubNames);
  return { addresses: addresses.map((bytes) => Buffer.from(bytes).toString("hex")) };
}

/** Unspecified, loopback and multicast: the address of no board. */
const isSpecial = (key: string): boolean =>
  key.length === 8 ? /^(?:00|7f|[ef])/.test(key) : /^(?:ff|0{31}[01]$|0{20}ffff)/.test(key);

function addressText(key: string): string {
  const bytes = Buffer.from(key, "hex");
  if (bytes.length === 4) return bytes.join(".");
  return (key.match(/.{4}/g) ?? []).map((word) => word.replace(/^0{1,3}/, "")).join(":");
}

function outcomeOf({ status }: KubeObject): ServingReply {
  const conditions = conditionsOf(status);
  const refusal = conditions.find(({ type }) => type === "Denied" || type === "Failed");
  if (refusal !== undefined) {
    return { state: "denied", reason: String(refusal.message ?? refusal.reason ?? refusal.type) };
  }
  const { certificate } = fieldsAt({ status }, "status");
  if (typeof certificate !== "string" || certificate === "") return { state: "pending" };
  return { state: "issued", certificate: Buffer.from(certificate, "base64").toString("utf8") };
}
