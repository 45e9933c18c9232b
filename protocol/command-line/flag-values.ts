/**
 * The kinds of values that flags take. Each kind is parsed in one place, with one sentence for a value that is wrong:
 * `--ttl must be a duration such as 1h, not "soon"`.
 */

import { describeError } from "../errors.ts";
import { parseDuration } from "../kubernetes/duration.ts";
import { parseQuantity, quantityValue } from "../kubernetes/quantity.ts";
import { unitHint } from "../kubernetes/quantity-hint.ts";
import type { Millis } from "../ports.ts";
import type { Flag } from "./program.ts";
import { usageError } from "./usage-error.ts";

/** A flag whose value has the type `V`. */
export interface ValueFlag<V> extends Flag {
  readonly value: string;
  readonly parse: (text: string) => V;
}

type Init = Omit<Flag, "parse" | "value"> & { readonly value?: string };
type Made<I, V> = I & ValueFlag<V>;

/** @param sentence what the value must be */
const refused = (name: string, sentence: string, text: string, hint = ""): never => {
  throw usageError(`--${name} must be ${sentence}, not "${text}"${hint}`);
};

/** @param parse undefined for a text that is none */
function valueFlag<I extends Init, V>(
  init: I,
  value: string,
  sentence: string,
  parse: (text: string) => V | undefined,
): Made<I, V> {
  return { value, ...init, parse: (text) => parse(text) ?? refused(init.name, sentence, text) };
}

interface DurationInit extends Init {
  /** Values that the sentence about a wrong one shows. Missing: the default. */
  readonly example?: string;
  /** True when a number without a unit means seconds. */
  readonly takesSeconds?: boolean;
  readonly takesZero?: boolean;
}

/** "20s", "1m30s", "8760h", above zero. */
export function durationFlag<const I extends DurationInit>(init: I): Made<I, Millis> {
  const { example = init.default ?? "30s", takesSeconds = false, takesZero = false } = init;
  return valueFlag(init, "DURATION", `a duration such as ${example}`, (text) => {
    const duration = parseDuration(takesSeconds && /^\d+$/.test(text) ? `${text}s` : text);
    return duration === undefined || duration < 0 || (duration === 0 && !takesZero) ? undefined : duration;
  });
}

interface BytesInit extends Init {
  readonly example?: string;
  /** The least value as a quantity; undefined: one byte. */
  readonly least?: string;
}

/** A quantity of bytes: "64Mi", "1048576". */
export function bytesFlag<const I extends BytesInit>(init: I): Made<I, number> {
  const { example = "64Mi", least = "1" } = init;
  const range = init.least === undefined ? "" : ` of ${least} or more,`;
  return {
    value: "SIZE",
    takesNumber: true,
    ...init,
    parse: (text) => {
      const bytes = bytesOf(text);
      const isGood = bytes >= bytesOf(least) && Number.isSafeInteger(bytes);
      const hint = Number.isNaN(bytes) ? unitHint(text) : "";
      return isGood ? bytes : refused(init.name, `a size${range} such as ${example}`, text, hint);
    },
  };
}

/** A quantity that a program further on reads: "500m", "64Mi". */
export const quantityFlag = <const I extends Init & { readonly example: string }>(init: I): Made<I, string> => ({
  value: "QUANTITY",
  ...init,
  parse: (text) => {
    const isGood = parseQuantity(text).ok;
    return isGood ? text : refused(init.name, `a quantity such as ${init.example}`, text, unitHint(text));
  },
});

function bytesOf(text: string): number {
  const parsed = parseQuantity(text);
  return parsed.ok ? Number(quantityValue(parsed.quantity)) : Number.NaN;
}

/** No number that a person writes has more digits. */
const MAX_DIGITS = 15;

interface CountInit extends Init {
  readonly least?: number;
  /** A word, or a number beside the range, that stands for no count. */
  readonly besides?: string;
}

/** A whole number, not negative. */
export function countFlag<const I extends CountInit>(init: I): Made<I, number | undefined> {
  const { least = 0, besides } = init;
  const sentence = `a whole number${least > 0 ? ` of at least ${least}` : ""}`;
  return {
    value: "N",
    ...init,
    parse: (text) => {
      if (text === besides) return undefined;
      const isCount = new RegExp(`^\\d{1,${MAX_DIGITS}}$`).test(text) && Number(text) >= least;
      return isCount ? Number(text) : refused(init.name, sentence, text);
    },
  };
}

/** A number above zero: "0.5", "10". */
export const amountFlag = <const I extends Init>(init: I): Made<I, number> =>
  valueFlag(init, "N", "a number above 0", (text) => (Number(text) > 0 ? Number(text) : undefined));

/** An address to listen on. Port 0: any free one. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

const MAX_PORT = 65_535;
const ADDRESS = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d{1,5}))?$/;

/** `HOST:PORT`, `[IPv6]:PORT`, `:PORT` or `HOST`; what is missing is the default's. */
export function addressFlag<const I extends Init & { readonly default: string }>(init: I): Made<I, ListenAddress> {
  const parse = addressParser(init.default);
  return valueFlag(init, "HOST:PORT", `HOST:PORT, such as ${init.default}`, parse);
}

/** As `addressFlag`, for a service that may be `off`; without the flag its user decides. */
export const optionalAddressFlag = <const I extends Init>(init: I, example: string): Made<I, ListenAddress | "off"> => {
  const parse = addressParser(example);
  return valueFlag(init, "HOST:PORT", `HOST:PORT, such as ${example}, or off`, (text) =>
    text === "off" ? "off" : parse(text),
  );
};

function addressParser(example: string): (text: string) => ListenAddress | undefined {
  const [, , defaultHost = "", defaultPort] = ADDRESS.exec(example) ?? [];
  return (text) => {
    // A number alone is a port whose colon is missing. As a host it would be an address such as 0.0.82.78.
    if (/^\d+$/.test(text)) return undefined;
    const match = ADDRESS.exec(text);
    const port = Number(match?.[3] ?? defaultPort);
    return match === null || port > MAX_PORT ? undefined : { host: match[1] ?? (match[2] || defaultHost), port };
  };
}

/** `FIRST-LAST`. */
export const portRangeFlag = <const I extends Init>(init: I): Made<I, readonly [first: number, last: number]> =>
  valueFlag(init, "FIRST-LAST", "FIRST-LAST, such as 20000-29999", (text) => {
    const match = /^(\d{1,5})-(\d{1,5})$/.exec(text);
    const [first, last] = [Number(match?.[1]), Number(match?.[2])];
    return match !== null && first >= 1 && last <= MAX_PORT && first <= last ? ([first, last] as const) : undefined;
  });

/** Parses a URL without user and password. */
export const httpUrlFlag = <const I extends Init>(init: I): Made<I, URL> =>
  valueFlag(init, "URL", "an http:// or https:// URL without a user", (text) => {
    const url = URL.parse(text);
    return url !== null && /^https?:$/.test(url.protocol) && url.username === "" ? url : undefined;
  });

/** "2026-01-31T12:00:00Z". */
export const timeFlag = <const I extends Init>(init: I): Made<I, string> =>
  valueFlag(init, "TIME", "a time such as 2026-01-31T12:00:00Z", (text) =>
    /^\d{4}-\d\d-\d\dT/.test(text) && !Number.isNaN(Date.parse(text)) ? text : undefined,
  );

/** One of `choices`, which the parser checks. */
export const choiceFlag = <const C extends string, const I extends Init & { readonly choices: readonly C[] }>(
  init: I,
): Made<I, I["choices"][number]> => ({ value: init.choices.join("|"), ...init, parse: (text) => text as C });

/** A file or folder; not empty. */
export const fileFlag = <const I extends Init>(init: I): Made<I, string> => ({
  value: "FILE",
  completes: "files",
  ...init,
  parse: (text) => {
    if (text === "") throw usageError(`--${init.name} needs a value`);
    return text;
  },
});

export const textFlag = <const I extends Init & { readonly value: string }>(init: I): Made<I, string> => ({
  ...init,
  parse: (text) => text,
});

/** @param parse throws what is wrong, without the flag's name */
export const parsedFlag = <const I extends Init & { readonly value: string }, V>(
  init: I,
  parse: (text: string) => V,
): Made<I, V> => ({
  ...init,
  parse: (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw usageError(`--${init.name}: ${describeError(error)}`);
    }
  },
});
