/**
 * The annotation `wasm.picolet.io/http`: how a component that exports wasi:http/incoming-handler is served. It has
 * pairs of name and value, separated by `;`, `,` or line breaks. All of them may be left out:
 *
 *   port=8080         the container's first TCP port
 *   instances=4       requests at the same time, each with an instance and so a memory of its own
 *   waiting=64        requests that wait for an instance; more get 503
 *   timeout=60s       from a request's head to the end of its response
 *   max-body=8Mi      of a request; more get 413
 *
 * Pure.
 */
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, EphemeralContainer } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

export interface HttpOptions {
  /** Undefined: the container's own. */
  readonly port: number | undefined;
  readonly instances: number;
  readonly waiting: number;
  readonly timeoutMs: number;
  readonly maxBodyBytes: number;
}

/** As it goes to the runner, in JSON. */
export type ServeOptions = HttpOptions & { readonly port: number };

export const DEFAULT_HTTP_OPTIONS: HttpOptions = {
  port: undefined,
  instances: 4,
  waiting: 64,
  timeoutMs: 60_000,
  maxBodyBytes: 8 * MEBIBYTE,
};

const MAX_TEXT_LENGTH = 1024;
const MAX_PORT = 65_535;
/** Each has a memory of its own. */
const MAX_INSTANCES = 64;
const MAX_WAITING = 4096;
const MAX_TIMEOUT_S = 86_400;

type Setting = (value: string) => Partial<Record<keyof HttpOptions, number>> | undefined;

const whole = (value: string, first: number, last: number): number | undefined => {
  const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
  return number >= first && number <= last ? number : undefined;
};

const setting =
  (name: keyof HttpOptions, read: (value: string) => number | undefined): Setting =>
  (value) => {
    const number = read(value);
    return number === undefined ? undefined : { [name]: number };
  };

const SETTINGS: Readonly<Record<string, readonly [set: Setting, what: string]>> = {
  port: [setting("port", (value) => whole(value, 1, MAX_PORT)), `1 to ${MAX_PORT}`],
  instances: [setting("instances", (value) => whole(value, 1, MAX_INSTANCES)), `1 to ${MAX_INSTANCES}`],
  waiting: [setting("waiting", (value) => whole(value, 0, MAX_WAITING)), `0 to ${MAX_WAITING}`],
  timeout: [
    setting("timeoutMs", (value) => {
      const seconds = whole(value.replace(/s$/, ""), 1, MAX_TIMEOUT_S);
      return seconds === undefined ? undefined : seconds * 1000;
    }),
    `1s to ${MAX_TIMEOUT_S}s`,
  ],
  "max-body": [setting("maxBodyBytes", bytes), "a quantity like 8Mi"],
};

function bytes(value: string): number | undefined {
  const parsed = parseQuantity(value);
  if (!parsed.ok) return undefined;
  const number = Number(quantityValue(parsed.quantity));
  return number >= 0 && number <= Number.MAX_SAFE_INTEGER ? number : undefined;
}

export function parseHttpOptions(text: string): {
  readonly options: HttpOptions;
  readonly problems: readonly string[];
} {
  const problems: string[] = [];
  let options = DEFAULT_HTTP_OPTIONS;
  if (text.length > MAX_TEXT_LENGTH) return { options, problems: [`longer than ${MAX_TEXT_LENGTH} characters`] };
  for (const entry of text.split(/[;,\n]/).map((each) => each.trim())) {
    if (entry === "") continue;
    const [name = "", ...rest] = entry.split("=").map((each) => each.trim());
    const value = rest.join("=");
    const known = Object.hasOwn(SETTINGS, name) ? SETTINGS[name] : undefined;
    const set = known?.[0](value);
    if (known === undefined)
      problems.push(`${name}: there is no such option; known are ${Object.keys(SETTINGS).join(", ")}`);
    else if (set === undefined) problems.push(`${name}: must be ${known[1]}, not ${JSON.stringify(value)}`);
    else options = { ...options, ...set };
  }
  return { options, problems };
}

/** @returns undefined when no port is given on which the component could be served */
export function serveOptions(
  options: HttpOptions | undefined,
  { ports = [] }: Pick<Container | EphemeralContainer, "ports">,
): ServeOptions | undefined {
  const own = ports.find(({ protocol = "TCP" }) => protocol === "TCP")?.containerPort;
  const port = options?.port ?? own;
  return port === undefined ? undefined : { ...(options ?? DEFAULT_HTTP_OPTIONS), port };
}
