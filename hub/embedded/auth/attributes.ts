import type { UserInfo } from "../resource-definition.ts";

/** What somebody wants to do. */
export type Attributes =
  | {
      readonly kind: "resource";
      readonly user: UserInfo;
      /** `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `impersonate`, `approve` … */
      readonly verb: string;
      readonly group: string;
      readonly version: string;
      readonly plural: string;
      readonly subresource: string;
      readonly namespace: string;
      readonly name: string;
      /** Of the query: what a list or watch is narrowed to. */
      readonly fieldSelector?: string;
    }
  | { readonly kind: "path"; readonly user: UserInfo; readonly verb: string; readonly path: string };

export type Decision = { readonly kind: "allowed" } | { readonly kind: "no-opinion"; readonly reason: string };

export interface Authorizer {
  authorize(attributes: Attributes): Decision;
}

/** The groups that Kubernetes knows by name. */
export const MASTERS = "system:masters";
export const AUTHENTICATED = "system:authenticated";
export const UNAUTHENTICATED = "system:unauthenticated";
export const NODES = "system:nodes";
export const SERVICE_ACCOUNTS = "system:serviceaccounts";

export const ANONYMOUS: UserInfo = { name: "system:anonymous", uid: "", groups: [UNAUTHENTICATED], extra: {} };
