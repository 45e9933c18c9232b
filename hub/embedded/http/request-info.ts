/** Reads a URL as Kubernetes' RequestInfoResolver does. */

export interface ResourcePath {
  readonly kind: "resource";
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  /** "" where the path has none. */
  readonly namespace: string;
  readonly name: string;
  readonly subresource: string;
  /** Behind the subresource: `/metrics` of `nodes/x/proxy/metrics`; "" when there is nothing. */
  readonly rest: string;
  /** As `/api/v1/watch/…` of old. */
  readonly isWatchPath: boolean;
}

export type RequestPath = ResourcePath | { readonly kind: "other"; readonly path: string };

/** `/api/v1/namespaces/x/status`: these are of the namespace itself. */
const NAMESPACE_SUBRESOURCES: ReadonlySet<string> = new Set(["status", "finalize"]);

/** Undefined: the path cannot be decoded. */
export function parsePath(path: string): RequestPath | undefined {
  const raw = path.split("/").slice(1);
  let parts: string[];
  try {
    parts = raw.map(decodeURIComponent);
  } catch {
    return undefined;
  }
  if (parts.at(-1) === "" && parts.length > 1) parts = parts.slice(0, -1);
  const [prefix, ...behind] = parts;
  const isCore = prefix === "api";
  const [group = "", version = ""] = isCore ? ["", behind[0] ?? ""] : [behind[0] ?? "", behind[1] ?? ""];
  let segments = behind.slice(isCore ? 1 : 2);
  if ((!isCore && prefix !== "apis") || version === "" || segments.length === 0 || segments[0] === "") {
    return { kind: "other", path };
  }
  const isWatchPath = segments[0] === "watch" && segments.length > 1;
  if (isWatchPath) segments = segments.slice(1);
  const behindNamespace = segments[2];
  const isInNamespace =
    segments[0] === "namespaces" && behindNamespace !== undefined && !NAMESPACE_SUBRESOURCES.has(behindNamespace);
  const namespace = isInNamespace ? (segments[1] ?? "") : "";
  const [plural = "", name = "", subresource = "", ...rest] = isInNamespace ? segments.slice(2) : segments;
  // The path behind a proxy is passed on as it came, with its escapes.
  const tail =
    rest.length === 0 ? "" : `/${raw.slice(raw.length - rest.length - (path.endsWith("/") ? 1 : 0)).join("/")}`;
  return { kind: "resource", group, version, plural, namespace, name, subresource, rest: tail, isWatchPath };
}

export type RequestVerb = "get" | "list" | "watch" | "create" | "update" | "patch" | "delete" | "deletecollection";

/** Undefined: a method that the API does not have. */
export function verbOf(method: string, path: ResourcePath, isWatch: boolean): RequestVerb | undefined {
  switch (method) {
    case "GET":
    case "HEAD":
      if (path.subresource !== "") return "get";
      if (path.isWatchPath) return "watch";
      // `?watch=1` of one object is ignored, as in Kubernetes.
      if (path.name !== "") return "get";
      return isWatch ? "watch" : "list";
    case "POST":
      return "create";
    case "PUT":
      return "update";
    case "PATCH":
      return "patch";
    case "DELETE":
      return path.name === "" ? "deletecollection" : "delete";
    default:
      return undefined;
  }
}
