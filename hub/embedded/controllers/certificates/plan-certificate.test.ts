import assert from "node:assert/strict";
import { test } from "node:test";
import {
  API_CLIENT,
  apiClientProblem,
  approvalRight,
  KUBELET_CLIENT,
  kubeletClientProblem,
  type SigningRequest,
} from "./plan-certificate.ts";

const request = (signerName: string, username: string): SigningRequest => ({
  apiVersion: "certificates.k8s.io/v1",
  kind: "CertificateSigningRequest",
  metadata: { name: "r" },
  spec: { request: "", signerName, usages: ["client auth", "digital signature"], username },
});
const subject = (commonName: string, ...organizations: readonly string[]) => {
  return { commonName, organizations, hasOthers: false };
};

test("a kubelet's certificate is for a name that a node can have", () => {
  const problem = (name: string) =>
    kubeletClientProblem(request(KUBELET_CLIENT, ""), subject(`system:node:${name}`, "system:nodes"));
  for (const name of ["board-1", "0", "edge.shed.example", "a".repeat(253)])
    assert.equal(problem(name), undefined, name);
  for (const name of ["", "Board", "a b", "a.", ".a", "a..b", "a_b", "-a", "a-", "a/b", "a\n", "é", "a".repeat(254)]) {
    assert.match(problem(name) ?? "", /names no node/, JSON.stringify(name));
    const asked = request(KUBELET_CLIENT, `system:node:${name}`);
    assert.equal(approvalRight(asked, subject(`system:node:${name}`, "system:nodes")), undefined);
  }
});

test("no identity of the cluster's own is signed for a client, whoever has approved it", () => {
  const refused = [
    subject("ann", "system:masters"),
    subject("ann", "team", "system:nodes"),
    subject("ann", "System:Masters"),
    subject("ann", " system:masters"),
    subject("system:node:board-1"),
    subject("system:admin"),
    subject("system:kube-controller-manager"),
    subject("system:serviceaccount:default:default"),
    subject("kube-apiserver-kubelet-client"),
    subject("", "team"),
    subject(" "),
  ];
  for (const each of refused) {
    assert.notEqual(apiClientProblem(request(API_CLIENT, "joe"), each), undefined, JSON.stringify(each));
  }
  assert.equal(apiClientProblem(request(API_CLIENT, "joe"), subject("ann", "team", "systems")), undefined);
});
