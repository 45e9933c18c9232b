import { TOKEN_SECONDS } from "@picolet/hub-core/access-table.ts";
import { isMirrorPod } from "@picolet/hub-core/pod-references.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { invalidValue, requiredValue } from "../api/field-errors.ts";
import type { ApiObject, ObjectLookup } from "../api/resource-definition.ts";
import { conflict, forbidden, invalidObject, notFound } from "../api/status-error.ts";
import { nodeNameOf, nodeOf } from "../auth/node-authorizer.ts";
import type { ServiceAccountTokens, TokenBinding } from "../auth/service-account-tokens.ts";
import { tokenSourcesOf } from "../auth/token-sources.ts";
import type { ResourceRequest } from "../service/resource-request.ts";
import type { SubresourceHandler } from "../service/resource-service.ts";

type Fields = Record<string, unknown>;

const TOKEN_REQUEST = { group: "authentication.k8s.io", kind: "TokenRequest" };

const asFields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});

interface Bound {
  readonly binding: TokenBinding;
  readonly object: ApiObject;
}

/** `serviceaccounts/token`: TokenRequest. What a board may ask for is NodeRestriction's to say. */
export function serviceAccountToken(tokens: ServiceAccountTokens, lookup: ObjectLookup): SubresourceHandler {
  return {
    async create(request, input) {
      const { name, namespace } = request;
      const account = lookup.get("serviceaccounts", namespace, name);
      if (account === undefined) throw notFound(request.definition, name);
      const spec = asFields(input.spec);
      const { audiences, seconds: asked } = readSpec(spec, tokens.issuer);
      const bound = readBinding(lookup, request, spec.boundObjectRef);
      const seconds = Math.min(asked, longestFor(request, lookup, audiences, tokens.issuer, bound));
      if (seconds < asked) {
        request.warnings.push(`requested expiration of ${asked} seconds shortened to ${seconds} seconds`);
      }
      const { token, expiresAt } = await tokens.sign({
        namespace,
        serviceAccount: { name, uid: account.metadata.uid ?? "" },
        audiences,
        expirationSeconds: seconds,
        binding: bound?.binding,
        node: bound?.binding.kind === "Pod" ? nodeClaim(lookup, bound.object) : undefined,
      });
      return {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenRequest",
        metadata: { name, namespace, creationTimestamp: kubeTime(new Date(expiresAt.getTime() - seconds * 1000)) },
        spec: { ...spec, audiences, expirationSeconds: seconds, boundObjectRef: spec.boundObjectRef ?? null },
        status: { token, expirationTimestamp: kubeTime(expiresAt) },
      };
    },
  };
}

function readSpec(spec: Fields, issuer: string): { readonly audiences: readonly string[]; readonly seconds: number } {
  const given = Array.isArray(spec.audiences)
    ? spec.audiences.filter((each): each is string => typeof each === "string")
    : [];
  const asked = spec.expirationSeconds;
  const seconds = typeof asked === "number" ? asked : TOKEN_SECONDS.default;
  const path = "spec.expirationSeconds";
  if (seconds < TOKEN_SECONDS.shortest)
    throw invalidObject(TOKEN_REQUEST, "", [
      invalidValue(path, seconds, "may not specify a duration less than 10 minutes"),
    ]);
  if (seconds > TOKEN_SECONDS.longestRequest)
    throw invalidObject(TOKEN_REQUEST, "", [
      invalidValue(path, seconds, "may not specify a duration larger than 2^32 seconds"),
    ]);
  return { audiences: given.length === 0 ? [issuer] : given, seconds };
}

function readBinding(
  lookup: ObjectLookup,
  { namespace, name }: ResourceRequest,
  reference: unknown,
): Bound | undefined {
  if (reference === undefined || reference === null) return undefined;
  const { kind, name: wanted, uid } = asFields(reference);
  const path = "spec.boundObjectRef";
  if (kind !== "Pod" && kind !== "Secret" && kind !== "Node") {
    throw invalidObject(TOKEN_REQUEST, "", [
      invalidValue(`${path}.kind`, kind, "cannot bind token to object of this type"),
    ]);
  }
  if (typeof wanted !== "string" || wanted === "")
    throw invalidObject(TOKEN_REQUEST, "", [requiredValue(`${path}.name`)]);
  const plural = `${kind.toLowerCase()}s`;
  const object = lookup.get(plural, kind === "Node" ? "" : namespace, wanted);
  if (object === undefined) throw notFound({ group: "", plural }, wanted);
  if (typeof uid === "string" && uid !== "" && uid !== object.metadata.uid) {
    const why = `the UID in the bound object reference (${uid}) does not match the UID in record. The object might have been deleted and then recreated`;
    throw conflict({ group: "", plural }, wanted, why);
  }
  const isOther = kind === "Pod" && (isMirrorPod(object) || asFields(object.spec).serviceAccountName !== name);
  if (isOther) {
    const why = `cannot bind token for serviceaccount ${JSON.stringify(name)} to pod running with different serviceaccount name.`;
    throw forbidden({ group: "", plural: "pods" }, wanted, why);
  }
  return { binding: { kind, name: wanted, uid: object.metadata.uid ?? "" }, object };
}

/** @returns seconds. A board's token lives no longer than its pod asks. */
function longestFor(
  { user }: ResourceRequest,
  lookup: ObjectLookup,
  audiences: readonly string[],
  issuer: string,
  bound: Bound | undefined,
): number {
  if (nodeOf(user) === undefined || bound === undefined) return TOKEN_SECONDS.longest;
  const asked = tokenSourcesOf(bound.object, lookup)
    .filter(({ audience }) => audiences.includes(audience === "" ? issuer : audience))
    .map(({ expirationSeconds }) => expirationSeconds);
  return Math.min(Math.max(TOKEN_SECONDS.default, ...asked), TOKEN_SECONDS.longest);
}

function nodeClaim(lookup: ObjectLookup, pod: ApiObject): { readonly name: string; readonly uid: string } | undefined {
  const name = nodeNameOf(pod);
  const node = name === "" ? undefined : lookup.get("nodes", "", name);
  return node === undefined ? undefined : { name, uid: node.metadata.uid ?? "" };
}
