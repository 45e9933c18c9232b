/** Paths of the kubelet's HTTP API, taken apart. Pure. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { CommandStreams } from "../streaming/command-session.ts";

interface PodPath {
  readonly namespace: string;
  readonly pod: string;
  /** "" when the path has none. */
  readonly uid: string;
}

export type KubeletPath =
  | ({
      readonly kind: "logs";
      readonly container: string;
      readonly query: Readonly<Record<string, string>>;
    } & Omit<PodPath, "uid">)
  | ({
      readonly kind: "exec" | "attach";
      readonly container: string;
      readonly command: readonly string[];
      readonly streams: CommandStreams;
    } & PodPath)
  | ({ readonly kind: "run"; readonly container: string; readonly command: readonly string[] } & PodPath)
  | ({ readonly kind: "portForward"; readonly ports: readonly number[] } & PodPath)
  /** Answered by the node; with its query. */
  | { readonly kind: "get"; readonly path: string };

/** As for the agent's own check of a tunnel message; longer ones are refused here already. */
export const MAX_PATH_LENGTH = 256 * 1024;
export const MAX_WORDS = 1024;
export const MAX_PORTS = 256;
export const MAX_LOG_OPTIONS = 32;

const invalid = (message: string): PicoletError => new PicoletError("invalid", message);

const isSet = (query: URLSearchParams, name: string): boolean => ["1", "true"].includes(query.get(name) ?? "");

/** Streams of exec and attach, by the kubelet's names. @throws `invalid` when the query names none */
export function commandStreams(query: URLSearchParams): CommandStreams {
  const tty = isSet(query, "tty");
  const streams = {
    stdin: isSet(query, "input"),
    stdout: isSet(query, "output"),
    // A terminal has one output.
    stderr: isSet(query, "error") && !tty,
    tty,
  };
  if (streams.stdin || streams.stdout || streams.stderr) return streams;
  throw invalid("you must specify at least 1 of stdin, stdout, stderr");
}

function ports(query: URLSearchParams): readonly number[] {
  const texts = query.getAll("port").flatMap((each) => each.split(","));
  if (texts.length > MAX_PORTS) throw invalid(`more than ${MAX_PORTS} ports`);
  return texts.map((text) => {
    const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
    if (port > 0 && port < 65_536) return port;
    throw invalid(`port ${JSON.stringify(text.slice(0, 20))} is none`);
  });
}

function words(query: URLSearchParams, name: string): readonly string[] {
  const all = query.getAll(name);
  if (all.length > MAX_WORDS) throw invalid(`a command of more than ${MAX_WORDS} words`);
  return all;
}

function logQuery(query: URLSearchParams): Readonly<Record<string, string>> {
  if (query.size > MAX_LOG_OPTIONS) throw invalid(`more than ${MAX_LOG_OPTIONS} options`);
  return Object.fromEntries(query);
}

function segmentsOf(pathname: string): readonly string[] {
  try {
    return pathname
      .split("/")
      .slice(1)
      .map((segment) => decodeURIComponent(segment));
  } catch {
    throw invalid("the path is not encoded properly");
  }
}

const notFound = (): PicoletError => new PicoletError("not_found", "404 page not found");

/** namespace, pod, UID if there is one, container. */
function containerOf(segments: readonly string[]): PodPath & { readonly container: string } {
  const [namespace = "", pod = "", third = "", fourth, ...more] = segments;
  const [uid, container] = fourth === undefined ? ["", third] : [third, fourth];
  if (namespace === "" || pod === "" || container === "" || more.length > 0) throw notFound();
  return { namespace, pod, uid, container };
}

/**
 * @param url path and query, as the request line has them
 * @throws `invalid`, `not_found`
 */
export function parseKubeletPath(url: string): KubeletPath {
  if (url.length > MAX_PATH_LENGTH) throw invalid("the path is too long");
  const parsed = URL.parse(url, "http://node");
  // Read once more, by the node, a path that begins with two slashes would begin with a host.
  const isPath = parsed?.pathname.startsWith("//") === false && url.startsWith("/") && !url.startsWith("//");
  if (parsed === null || !isPath) throw invalid("the path is none");
  const query = parsed.searchParams;
  const [kind = "", ...rest] = segmentsOf(parsed.pathname);
  switch (kind) {
    case "containerLogs": {
      const { namespace, pod, uid, container } = containerOf(rest);
      if (uid !== "") throw notFound();
      return { kind: "logs", namespace, pod, container, query: logQuery(query) };
    }
    case "exec":
      return { kind, ...containerOf(rest), command: words(query, "command"), streams: commandStreams(query) };
    case "attach":
      return { kind, ...containerOf(rest), command: [], streams: commandStreams(query) };
    case "run":
      // One text, which the kubelet cuts at its spaces.
      return { kind, ...containerOf(rest), command: (query.get("cmd") ?? "").split(" ").filter((word) => word !== "") };
    case "portForward": {
      const [namespace = "", pod = "", uid = "", ...more] = rest;
      if (namespace === "" || pod === "" || more.length > 0) throw notFound();
      return { kind, namespace, pod, uid, ports: ports(query) };
    }
    default:
      return { kind: "get", path: `${parsed.pathname}${parsed.search}` };
  }
}

/** Ours: not the node answers it but the hub. */
export const isTelemetry = (path: KubeletPath): path is Extract<KubeletPath, { readonly kind: "get" }> =>
  path.kind === "get" && /^\/telemetry(?:\?|$)/.test(path.path);

/** The hub may answer it from the newest sample. */
export const isResourceMetrics = (path: KubeletPath): boolean =>
  path.kind === "get" && /^\/metrics\/resource(?:\?|$)/.test(path.path);

/**
 * The rights that a Kubernetes role must grant: any one of these subresources of `nodes`.
 * @param url as for `parseKubeletPath`; read in the same way, or `/stats/../exec` would be one thing here and another
 * there
 */
export function subresourcesOf(url: string): readonly string[] {
  const pathname = URL.parse(url, "http://node")?.pathname ?? "";
  const below = (path: string): boolean => pathname === path || pathname.startsWith(`${path}/`);
  if (below("/stats")) return ["stats"];
  if (below("/metrics")) return ["metrics"];
  if (below("/logs")) return ["log"];
  if (below("/spec")) return ["spec", "proxy"];
  // KEP-2862: a finer one first, and the one that allows everything.
  if (below("/pods") || below("/runningpods")) return ["pods", "proxy"];
  if (below("/page")) return ["page", "proxy"];
  if (below("/telemetry")) return ["telemetry", "proxy"];
  if (below("/healthz")) return ["healthz", "proxy"];
  if (below("/configz")) return ["configz", "proxy"];
  if (below("/checkpoint")) return ["checkpoint"];
  return ["proxy"];
}
