/** Finds the credentials for an image, by the kubelet's rules. Pure. */

export interface KeyringEntry<T> {
  readonly location: string;
  readonly value: T;
}

interface Place {
  /** The parts of the host name between dots. */
  readonly hostParts: readonly string[];
  /** "" for none. */
  readonly port: string;
  readonly path: string;
}

/** The name under which Docker stores the credentials of its own registry. */
const DEFAULT_REGISTRY = "index.docker.io";
/** Longer than any name of an image; a longer location matches nothing. */
const MAX_LOCATION_LENGTH = 1024;

/**
 * Values whose location matches, more specific ones first: those that sort last do. A location is a host, which may
 * have globs in each of its parts, a port if the image has one, and a path that the image's begins with.
 * @param image name with its domain, without tag and digest: `registry.example/team/app`
 */
export function findCredentials<T>(entries: readonly KeyringEntry<T>[], image: string): readonly T[] {
  const keyed = entries.map(({ location, value }) => ({ key: keyOf(location), value }));
  const target = placeOf(image);
  if (target === undefined) return [];
  const found = keyed
    .filter(({ key }) => key !== undefined && matches(key, target))
    .sort((a, b) => compareDescending(a.key ?? "", b.key ?? ""));
  if (found.length > 0) return found.map(({ value }) => value);
  if (!isOfDefaultRegistry(image)) return [];
  return keyed.filter(({ key }) => key === DEFAULT_REGISTRY).map(({ value }) => value);
}

/** @returns whether a location or a plugin's `matchImages` glob matches the image */
export function matchesImage(glob: string, image: string): boolean {
  const target = placeOf(image);
  return target !== undefined && glob.length <= MAX_LOCATION_LENGTH && matches(glob, target);
}

/** Without scheme, and without the `/v1` or `/v2` that Docker's own have. */
function keyOf(location: string): string | undefined {
  if (location.length > MAX_LOCATION_LENGTH) return undefined;
  const place = splitPlace(location.replace(/^https?:\/\//, ""));
  if (place === undefined) return undefined;
  const path = /^\/v[12]\//.test(place.path) ? place.path.slice(3) : place.path;
  return path === "/" ? place.host : place.host + path;
}

function splitPlace(text: string): { readonly host: string; readonly path: string } | undefined {
  const end = text.search(/[?#]/);
  const whole = end < 0 ? text : text.slice(0, end);
  const slash = whole.indexOf("/");
  const authority = slash < 0 ? whole : whole.slice(0, slash);
  const host = authority.slice(authority.lastIndexOf("@") + 1);
  if (/[\s\\^`{|}%]/.test(host)) return undefined;
  return { host, path: slash < 0 ? "" : whole.slice(slash) };
}

function placeOf(text: string): Place | undefined {
  const place = splitPlace(text);
  if (place === undefined) return undefined;
  // An IPv6 address has colons of its own, between brackets.
  const [, host, port = ""] = /^(\[[^\]]*\]|[^:]*)(?::(\d*))?$/.exec(place.host) ?? [];
  if (host === undefined) return undefined;
  return { hostParts: host.replace(/^\[(.*:.*)\]$/, "$1").split("."), port, path: place.path };
}

function matches(glob: string, target: Place): boolean {
  const place = placeOf(glob);
  if (place === undefined || place.port !== target.port) return false;
  if (place.hostParts.length !== target.hostParts.length || !target.path.startsWith(place.path)) return false;
  return place.hostParts.every((part, index) => globMatches(part, target.hostParts[index] ?? ""));
}

/**
 * Go's filepath.Match on one part of a host name: `*` and classes (a `?` would begin a URL's query). A pattern that is
 * none matches nothing. Goes back to the last `*` only, so that no pattern takes longer than pattern times name.
 */
function globMatches(pattern: string, name: string): boolean {
  let [at, position] = [0, 0];
  let star: { readonly at: number; position: number } | undefined;
  for (;;) {
    if (at < pattern.length && pattern[at] === "*") {
      star = { at, position };
      at += 1;
      continue;
    }
    const next =
      at < pattern.length && position < name.length ? matchOne(pattern, at, name[position] ?? "") : undefined;
    if (next !== undefined) {
      at = next;
      position += 1;
    } else if (at === pattern.length && position === name.length) return true;
    else if (star !== undefined && star.position < name.length) {
      star.position += 1;
      at = star.at + 1;
      position = star.position;
    } else return false;
  }
}

/** @returns the next position in the pattern; undefined when the character does not match, or the pattern is broken */
function matchOne(pattern: string, at: number, character: string): number | undefined {
  const expected = pattern[at];
  if (expected !== "[") return expected === character ? at + 1 : undefined;
  const negated = pattern[at + 1] === "^";
  const start = at + (negated ? 2 : 1);
  const end = pattern.indexOf("]", start + 1);
  if (end < 0) return undefined;
  const members = pattern.slice(start, end).matchAll(/(.)-(.)|(.)/gs);
  const isIn = [...members].some(([, low, high, single]) =>
    single === undefined ? (low ?? "") <= character && character <= (high ?? "") : single === character,
  );
  return isIn === negated ? undefined : end + 1;
}

const compareDescending = (a: string, b: string): number => (a < b ? 1 : a > b ? -1 : 0);

/** `docker.io/…`, and names without a host. */
function isOfDefaultRegistry(image: string): boolean {
  const [first = "", ...rest] = image.split("/");
  if (first === "") return false;
  return rest.length === 0 || first === "docker.io" || first === DEFAULT_REGISTRY || !/[.:]/.test(first);
}
