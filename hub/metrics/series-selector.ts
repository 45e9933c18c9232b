/**
 * `match[]` of `/federate`: Prometheus' series selectors, with `=`, `!=`, and `=~`, `!~` for alternatives of texts with
 * `.*` and `.+`. A whole regular expression of a client could hold up the hub. Pure.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";

/** Selectors of one request. */
export const MAX_SELECTORS = 16;
const MAX_SELECTOR_CHARACTERS = 1024;
const MAX_MATCHERS = 16;
const MAX_ALTERNATIVES = 64;

const NAME = "__name__";
const METRIC_NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*/;
const MATCHER = /^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*(,|(?=\}))/;

type Matches = (value: string) => boolean;

interface Matcher {
  readonly label: string;
  readonly matches: Matches;
}

/** One of these selectors selects a series when all of its matchers do. */
export class SeriesSelectors {
  readonly #selectors: readonly (readonly Matcher[])[];

  /** @param texts none selects everything. @throws `invalid` */
  constructor(texts: readonly string[]) {
    if (texts.length > MAX_SELECTORS) throw wrong(`there are more than ${MAX_SELECTORS}`);
    this.#selectors = texts.map(parseSelector);
  }

  /** True when some series of this metric may be selected. */
  hasMetric(name: string): boolean {
    return this.#any((matcher) => matcher.label !== NAME || matcher.matches(name));
  }

  /** @param value of a label; "" for one that the series does not have */
  selects(name: string, value: (label: string) => string): boolean {
    return this.#any(({ label, matches }) => matches(label === NAME ? name : value(label)));
  }

  #any(holds: (matcher: Matcher) => boolean): boolean {
    return this.#selectors.length === 0 || this.#selectors.some((matchers) => matchers.every(holds));
  }
}

const wrong = (problem: string): PicoletError => new PicoletError("invalid", `cannot use match[]: ${problem}`);

function parseSelector(text: string): Matcher[] {
  if (text.length > MAX_SELECTOR_CHARACTERS) throw wrong(`a selector is longer than ${MAX_SELECTOR_CHARACTERS}`);
  const shown = JSON.stringify(text.slice(0, 100));
  const [name = ""] = METRIC_NAME.exec(text.trim()) ?? [];
  const matchers: Matcher[] = name === "" ? [] : [{ label: NAME, matches: (value) => value === name }];
  let rest = text.trim().slice(name.length).trim();
  if (rest === "" && name !== "") return matchers;
  if (!rest.startsWith("{")) throw wrong(`${shown} is no selector such as up{job="a"}`);
  rest = rest.slice(1);
  while (rest.trim() !== "}") {
    const [whole, label = "", operator = "", quoted = ""] = MATCHER.exec(rest) ?? [];
    if (whole === undefined || matchers.length === MAX_MATCHERS)
      throw wrong(`${shown} is no selector such as up{job="a"}, or has more than ${MAX_MATCHERS} matchers`);
    matchers.push({ label, matches: matchesOf(operator, unquoted(quoted)) });
    rest = rest.slice(whole.length);
  }
  if (matchers.length === 0) throw wrong(`${shown} selects nothing: name a metric or a label`);
  return matchers;
}

const unquoted = (quoted: string): string =>
  quoted.slice(1, -1).replace(/\\(.)/g, (_, char: string) => (char === "n" ? "\n" : char === "t" ? "\t" : char));

function matchesOf(operator: string, text: string): Matches {
  const positive: Matches = operator.endsWith("~") ? patternOf(text) : (value) => value === text;
  return operator.startsWith("!") ? (value) => !positive(value) : positive;
}

/** Wildcards in a text; each is a text that must be found behind the one before. */
function patternOf(pattern: string): Matches {
  const alternatives = pattern.split("|");
  if (alternatives.length > MAX_ALTERNATIVES) throw wrong(`a pattern has more than ${MAX_ALTERNATIVES} alternatives`);
  const matchers = alternatives.map((alternative) => {
    const pieces = alternative.split(/(\.\*|\.\+)/).map((piece, index) => {
      if (index % 2 === 1) return piece;
      const literal = piece.replaceAll(/\\([.^$*+?()[\]{}|\\/-])/g, "\0$1");
      if (/(?<!\0)[.^$*+?()[\]{}\\]/.test(literal)) {
        throw wrong(
          `${JSON.stringify(pattern.slice(0, 100))} may have texts with .* and .+, divided by |, and no more`,
        );
      }
      return literal.replaceAll("\0", "");
    });
    return (value: string): boolean => fits(value, pieces);
  });
  return (value) => matchers.some((matches) => matches(value));
}

/** @param pieces texts, and wildcards in the odd places. Linear in `value` for each piece. */
function fits(value: string, pieces: readonly string[]): boolean {
  const [first = "", ...rest] = pieces;
  if (rest.length === 0) return value === first;
  const last = rest.at(-1) ?? "";
  if (!value.startsWith(first) || !value.endsWith(last)) return false;
  let at = first.length;
  for (let index = 0; index < rest.length; index += 2) {
    const least = rest[index] === ".+" ? 1 : 0;
    const isLast = index === rest.length - 2;
    const found = isLast ? value.length - last.length : value.indexOf(rest[index + 1] ?? "", at + least);
    if (found < at + least) return false;
    at = found + (rest[index + 1] ?? "").length;
  }
  return true;
}
