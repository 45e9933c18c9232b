/**
 * The hub's own rights in its API server: no more than its rows of the access table, and than its role in a cluster.
 */

import { type AccessRow, rowsOf } from "@picolet/hub-core/access-table.ts";
import { dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { NODE_USER_PREFIX } from "@picolet/protocol/pki/node-subject.ts";
import type { UserInfo } from "../api/resource-definition.ts";
import { type Attributes, AUTHENTICATED, type AuthorizationDecision, type Authorizer } from "./attributes.ts";

/**
 * The hub's tunnel and bridge, within this process. They are known by this very object: no certificate, token or
 * impersonation with that name makes another client the hub.
 */
export const HUB_USER: UserInfo = { name: "system:picolet-hub", uid: "", groups: [AUTHENTICATED], extra: {} };

const ROWS = rowsOf("hub");

export class HubAuthorizer implements Authorizer {
  authorize(attributes: Attributes): AuthorizationDecision {
    const isAllowed =
      attributes.user === HUB_USER && attributes.kind === "resource" && ROWS.some((row) => allows(row, attributes));
    return isAllowed ? { kind: "allowed" } : { kind: "no-opinion", reason: "" };
  }
}

function allows(
  { group, resources, verbs, relation, namespace, names = [] }: AccessRow,
  asked: Attributes & { readonly kind: "resource" },
): boolean {
  const resource = asked.subresource === "" ? asked.plural : `${asked.plural}/${asked.subresource}`;
  if (asked.group !== group || !resources.includes(resource) || !verbs.includes(asked.verb)) return false;
  if (namespace !== undefined && asked.namespace !== namespace) return false;
  if (relation === "listed") return names.includes(asked.name);
  if (relation !== "a board") return relation === "any";
  return asked.name.startsWith(NODE_USER_PREFIX) && isNodeName(asked.name.slice(NODE_USER_PREFIX.length));
}

const isNodeName = (name: string): boolean => dnsSubdomainProblems(name).length === 0;
