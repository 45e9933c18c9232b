import assert from "node:assert/strict";
import { test } from "node:test";
import type { RequestFacts } from "./certificate-issuer.ts";
import {
  API_CLIENT,
  apiClientProblem,
  approvalRight,
  isSignable,
  KUBELET_CLIENT,
  KUBELET_SERVING,
  kubeletClientProblem,
  kubeletServingProblem,
  type SigningRequest,
} from "./plan-certificate.ts";

const request = (signerName: string, username: string): SigningRequest => ({
  apiVersion: "certificates.k8s.io/v1",
  kind: "CertificateSigningRequest",
  metadata: { name: "r" },
  spec: { request: "", signerName, usages: ["client auth", "digital signature"], username },
});
const subject = (commonName: string, ...organizations: readonly string[]) => {
  return { commonName, organizations, hasOthers: false, names: { dns: [], addresses: [], others: [] } };
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

test("no identity of the cluster's own is signed for a client, also when it was approved", () => {
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

test("a kubelet's serving certificate is for the node that asks, its names and the usages of a server", () => {
  const spec = {
    ...{ request: "", signerName: KUBELET_SERVING, usages: ["digital signature", "key encipherment", "server auth"] },
    ...{ username: "system:node:a", groups: ["system:nodes", "system:authenticated"] },
  };
  const wanted: RequestFacts = {
    ...{ commonName: "system:node:a", organizations: ["system:nodes"], hasOthers: true },
    names: { dns: ["a"], addresses: [Uint8Array.of(10, 0, 0, 7)], others: [] },
  };
  const problem = (specChange: object, factsChange: object = {}): string | undefined =>
    kubeletServingProblem(
      { ...request(KUBELET_SERVING, ""), spec: { ...spec, ...specChange } },
      { ...wanted, ...factsChange },
    );
  assert.equal(problem({}), undefined);
  assert.equal(problem({ usages: ["server auth", "digital signature"] }), undefined);
  assert.equal(problem({}, { names: { ...wanted.names, dns: [] } }), undefined);
  assert.equal(problem({}, { names: { ...wanted.names, addresses: [] } }), undefined);
  const refused: readonly (readonly [RegExp, object, object?])[] = [
    [/organization is not system:nodes/, {}, { organizations: ["system:nodes", "system:masters"] }],
    [/does not begin with system:node:/, {}, { commonName: "a" }],
    [/names no node/, {}, { commonName: "system:node:A" }],
    [/DNS or IP subjectAltName is required/, {}, { names: { dns: [], addresses: [], others: [] } }],
    [/Email subjectAltNames are not allowed/, {}, { names: { ...wanted.names, others: ["Email"] } }],
    [/URI subjectAltNames are not allowed/, {}, { names: { ...wanted.names, others: ["URI"] } }],
    [/usages did not match/, { usages: ["digital signature", "client auth"] }],
    [/usages did not match/, { usages: ["digital signature", "server auth", "client auth"] }],
    [/usages did not match/, { usages: ["server auth"] }],
    [/requestor system:node:b is not system:node:a/, { username: "system:node:b" }],
    [/requestor kubernetes-admin is not/, { username: "kubernetes-admin", groups: ["system:masters"] }],
    [/requestor system:node:a is not/, { groups: ["system:authenticated"] }],
  ];
  for (const [expected, specChange, factsChange] of refused)
    assert.match(problem(specChange, factsChange) ?? "", expected);
});

test("a serving request is never approved by itself, and is signed once it is approved", () => {
  const asked = request(KUBELET_SERVING, "system:node:a");
  assert.equal(approvalRight(asked, subject("system:node:a", "system:nodes")), undefined);
  const decided = (...types: readonly string[]): SigningRequest => ({
    ...asked,
    status: { conditions: types.map((type) => ({ type, status: "True" })) },
  });
  assert.equal(isSignable(asked), false);
  assert.equal(isSignable(decided("Approved")), true);
  assert.equal(isSignable(decided("Denied")), false);
  assert.equal(isSignable(decided("Approved", "Failed")), false);
});
