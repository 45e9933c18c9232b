import type { UserInfo } from "../api/resource-definition.ts";
import { type FieldRequirement, parseFieldSelector } from "../api/selectors.ts";

/** The access that a user wants. */
export type Attributes =
  | {
      readonly kind: "resource";
      readonly user: UserInfo;
      /**
       * `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `impersonate`, `approve` …
       */
      readonly verb: string;
      readonly group: string;
      readonly version: string;
      readonly plural: string;
      readonly subresource: string;
      readonly namespace: string;
      readonly name: string;
      /** The field selector of a list, watch or deletion of a collection; undefined for everything else. */
      readonly selected?: readonly FieldRequirement[];
    }
  | { readonly kind: "path"; readonly user: UserInfo; readonly verb: string; readonly path: string };

export type AuthorizationDecision =
  | { readonly kind: "allowed" }
  | { readonly kind: "no-opinion"; readonly reason: string };

export interface Authorizer {
  authorize(attributes: Attributes): AuthorizationDecision;
}

/** The groups that Kubernetes knows by name. */
export const MASTERS = "system:masters";
export const AUTHENTICATED = "system:authenticated";
export const UNAUTHENTICATED = "system:unauthenticated";
export const SERVICE_ACCOUNTS = "system:serviceaccounts";

export const ANONYMOUS: UserInfo = { name: "system:anonymous", uid: "", groups: [UNAUTHENTICATED], extra: {} };

/** A request as it came: its path, and its field selector, with any verb. */
export interface RequestedAccess {
  readonly user: UserInfo;
  readonly verb: string;
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly subresource: string;
  readonly namespace: string;
  /** "" for collections. */
  readonly name: string;
  /** Field selector of the query; "" for none. */
  readonly fieldSelector: string;
}

const SELECTING_VERBS: ReadonlySet<string> = new Set(["list", "watch", "deletecollection"]);

/**
 * The attributes to authorize, by Kubernetes' RequestInfo and GetAuthorizerAttributes: a selector counts only where it
 * narrows the answer down, and a list or watch of one name is a request for that name.
 */
export function resourceAttributes({
  fieldSelector,
  ...asked
}: RequestedAccess): Attributes & { readonly kind: "resource" } {
  if (!SELECTING_VERBS.has(asked.verb) || fieldSelector === "") return { kind: "resource", ...asked };
  const selected = requirementsOf(fieldSelector);
  const one = selected.find(({ field, isEqual }) => field === "metadata.name" && isEqual)?.value ?? "";
  const isOne = asked.name === "" && asked.verb !== "deletecollection" && isPathSegment(one);
  return { kind: "resource", ...asked, name: isOne ? one : asked.name, selected };
}

/** One that cannot be parsed selects nothing that is authorized, and is refused later. */
function requirementsOf(fieldSelector: string): readonly FieldRequirement[] {
  try {
    return parseFieldSelector(fieldSelector);
  } catch {
    return [];
  }
}

const isPathSegment = (name: string): boolean => name !== "" && name !== "." && name !== ".." && !/[/%]/.test(name);
