import type { IncomingHttpHeaders } from "node:http";
import type { UserInfo } from "../api/resource-definition.ts";
import { badRequest } from "../api/status-error.ts";
import { requireAccess } from "./access.ts";
import { ANONYMOUS, AUTHENTICATED, type Authorizer, SERVICE_ACCOUNTS, UNAUTHENTICATED } from "./attributes.ts";

const EXTRA_PREFIX = "impersonate-extra-";
/** More groups than this of one user are no user. */
const MAX_VALUES = 256;

const valuesOf = (header: string | string[] | undefined): string[] =>
  (header === undefined ? [] : Array.isArray(header) ? header : [header])
    .flatMap((each) => each.split(/, (?=system:|\S)/))
    .slice(0, MAX_VALUES);

/**
 * The user that a request acts as (Impersonate-User, -Group, -Uid, -Extra-*).
 * @throws StatusError 403 unless the caller may impersonate each part, 400 without a user
 */
export function impersonate(authorizer: Authorizer, user: UserInfo, headers: IncomingHttpHeaders): UserInfo {
  const name = headers["impersonate-user"];
  const groups = valuesOf(headers["impersonate-group"]);
  const uid = headers["impersonate-uid"];
  const extras = Object.entries(headers).filter(([key]) => key.startsWith(EXTRA_PREFIX));
  if (typeof name !== "string" || name === "") {
    if (groups.length > 0 || uid !== undefined || extras.length > 0) {
      throw badRequest("requested impersonation without an Impersonate-User header");
    }
    return user;
  }
  const require = (group: string, plural: string, subresource: string, namespace: string, wanted: string): void =>
    requireAccess(authorizer, {
      kind: "resource",
      user,
      verb: "impersonate",
      group,
      version: "",
      plural,
      subresource,
      namespace,
      name: wanted,
    });
  const [, namespace, account] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(name) ?? [];
  if (namespace !== undefined && account !== undefined) require("", "serviceaccounts", "", namespace, account);
  else require("", "users", "", "", name);
  for (const group of groups) require("", "groups", "", "", group);
  if (typeof uid === "string") require("authentication.k8s.io", "uids", "", "", uid);
  const extra: Record<string, string[]> = {};
  for (const [header, value] of extras) {
    const key = decodeURIComponentSafely(header.slice(EXTRA_PREFIX.length));
    const values = valuesOf(value);
    for (const each of values) require("authentication.k8s.io", "userextras", key, "", each);
    extra[key] = values;
  }
  return { name, uid: typeof uid === "string" ? uid : "", groups: withImplied(name, groups, namespace), extra };
}

function withImplied(name: string, groups: readonly string[], namespace: string | undefined): string[] {
  if (name === ANONYMOUS.name) return groups.length > 0 ? [...groups] : [UNAUTHENTICATED];
  const own =
    namespace !== undefined && groups.length === 0 ? [SERVICE_ACCOUNTS, `${SERVICE_ACCOUNTS}:${namespace}`] : groups;
  return [...new Set([...own, AUTHENTICATED])];
}

function decodeURIComponentSafely(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
