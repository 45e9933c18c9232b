/** Reads the options of a query as Kubernetes does. */

import { badRequest, StatusError } from "../api/status-error.ts";
import type { DeleteParams, ListParams, WatchParams, WriteParams } from "./resource-request.ts";

const isTrue = (text: string | null): boolean =>
  text !== null && ["true", "1", "", "t", "T", "TRUE", "True"].includes(text);

function integer(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null || text === "") return undefined;
  if (!/^-?\d{1,15}$/.test(text)) {
    throw badRequest(`strconv.ParseInt: parsing ${JSON.stringify(text.slice(0, 64))}: invalid syntax`);
  }
  return Number(text);
}

export function listParams(query: URLSearchParams): ListParams {
  const limit = integer(query, "limit") ?? 0;
  if (limit < 0) throw badRequest(`limit: Invalid value: ${limit}: must be greater than or equal to 0`);
  return {
    labelSelector: query.get("labelSelector") ?? "",
    fieldSelector: query.get("fieldSelector") ?? "",
    limit,
    continueToken: query.get("continue") ?? "",
    resourceVersion: query.get("resourceVersion") ?? "",
    resourceVersionMatch: query.get("resourceVersionMatch") ?? "",
  };
}

export function watchParams(query: URLSearchParams): WatchParams {
  const sendInitialEvents = query.get("sendInitialEvents");
  const timeoutSeconds = integer(query, "timeoutSeconds");
  return {
    ...listParams(query),
    wantsBookmarks: query.has("allowWatchBookmarks") && isTrue(query.get("allowWatchBookmarks")),
    timeoutSeconds: timeoutSeconds === 0 ? undefined : timeoutSeconds,
    sendInitialEvents: sendInitialEvents === null ? undefined : isTrue(sendInitialEvents),
  };
}

export const wantsWatch = (query: URLSearchParams): boolean => query.has("watch") && isTrue(query.get("watch"));

const invalidOptions = (kind: string, field: string, value: unknown, supported: readonly string[]): StatusError =>
  new StatusError(
    "Invalid",
    `${kind}.meta.k8s.io "" is invalid: ${field}: Unsupported value: ${JSON.stringify(value)}: supported values: ${supported.map((each) => JSON.stringify(each)).join(", ")}`,
    { group: "meta.k8s.io", kind },
  );

function isDryRun(kind: string, values: readonly unknown[]): boolean {
  const given = values.filter((value) => value !== "");
  if (given.some((value) => value !== "All")) throw invalidOptions(kind, "dryRun", given, ["All"]);
  return given.length > 0;
}

/** As long as Kubernetes lets a manager's name be. */
const MAX_FIELD_MANAGER_LENGTH = 128;
const VALIDATIONS = ["Ignore", "Warn", "Strict"] as const;

/** @param userAgent whose first part is the manager where none is named */
export function writeParams(kind: string, query: URLSearchParams, userAgent: string, isApply: boolean): WriteParams {
  const named = query.get("fieldManager") ?? "";
  if (named.length > MAX_FIELD_MANAGER_LENGTH) {
    throw new StatusError(
      "Invalid",
      `${kind}.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than ${MAX_FIELD_MANAGER_LENGTH} bytes`,
      {},
    );
  }
  const fallback = isApply ? "" : (userAgent.split("/")[0] ?? "").slice(0, MAX_FIELD_MANAGER_LENGTH) || "unknown";
  const asked = query.get("fieldValidation") ?? "";
  const fieldValidation = asked === "" ? "Warn" : VALIDATIONS.find((each) => each === asked);
  if (fieldValidation === undefined) throw invalidOptions(kind, "fieldValidation", asked, VALIDATIONS);
  return {
    isDryRun: isDryRun(kind, query.getAll("dryRun")),
    fieldManager: named === "" ? fallback : named,
    fieldValidation,
    isForced: query.has("force") && isTrue(query.get("force")),
  };
}

const POLICIES = ["Orphan", "Background", "Foreground"] as const;
/**
 * Kubernetes' replacement for a grace period below 0, which was given by mistake: 0 would delete the object at once.
 */
const NEGATIVE_GRACE_SECONDS = 1;

/** @param body DeleteOptions of the body, if there is one; it wins over the query */
export function deleteParams(
  query: URLSearchParams,
  body: Readonly<Record<string, unknown>> | undefined,
): DeleteParams {
  const seconds = body?.gracePeriodSeconds ?? integer(query, "gracePeriodSeconds");
  if (seconds !== undefined && seconds !== null && (typeof seconds !== "number" || !Number.isInteger(seconds))) {
    throw badRequest(
      "json: cannot unmarshal value into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
    );
  }
  const orphans = body?.orphanDependents ?? query.get("orphanDependents") ?? undefined;
  const asked = body?.propagationPolicy ?? query.get("propagationPolicy") ?? undefined;
  if (asked !== undefined && asked !== null && orphans !== undefined && orphans !== null) {
    throw new StatusError(
      "Invalid",
      'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: orphanDependents and deletionPropagation cannot be both set',
      {},
    );
  }
  const policy =
    asked === undefined || asked === null || asked === "" ? undefined : POLICIES.find((each) => each === asked);
  if (policy === undefined && typeof asked === "string" && asked !== "") {
    throw invalidOptions("DeleteOptions", "propagationPolicy", asked, ["Foreground", "Background", "Orphan", "nil"]);
  }
  const preconditions = (body?.preconditions ?? {}) as Readonly<Record<string, unknown>>;
  const { uid, resourceVersion } = typeof preconditions === "object" && preconditions !== null ? preconditions : {};
  const inBody = Array.isArray(body?.dryRun) ? (body.dryRun as readonly unknown[]) : [];
  return {
    isDryRun: isDryRun("DeleteOptions", [...inBody, ...query.getAll("dryRun")]),
    gracePeriodSeconds: typeof seconds === "number" ? (seconds < 0 ? NEGATIVE_GRACE_SECONDS : seconds) : undefined,
    propagationPolicy:
      policy ??
      (orphans === undefined || orphans === null
        ? undefined
        : orphans === true || orphans === "true"
          ? "Orphan"
          : "Background"),
    uid: typeof uid === "string" ? uid : undefined,
    resourceVersion: typeof resourceVersion === "string" ? resourceVersion : undefined,
  };
}
