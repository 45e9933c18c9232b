/**
 * Parses the header WWW-Authenticate, by which a registry demands an authorization (RFC 9110, section 11.6.1). Pure.
 */

export interface Challenge {
  /** In lower case: `bearer`, `basic`. */
  readonly scheme: string;
  /** By name, in lower case. The first of several with one name counts. */
  readonly parameters: ReadonlyMap<string, string>;
}

/** Longer ones are cut off; a token server's URL, service and scope have some hundred characters. */
const MAX_LENGTH = 16_384;
const MAX_CHALLENGES = 16;

const TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/y;
const TOKEN68 = /[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))/y;
const SPACE = /[ \t]*/y;

/** Never throws: what cannot be read ends the list. Takes time in proportion to the header. */
export function parseChallenges(header: string): readonly Challenge[] {
  const reader = new HeaderReader(header.slice(0, MAX_LENGTH));
  const challenges: Challenge[] = [];
  while (challenges.length < MAX_CHALLENGES) {
    reader.separators();
    const scheme = reader.token();
    if (scheme === undefined) break;
    challenges.push({ scheme: scheme.toLowerCase(), parameters: reader.parameters() });
  }
  return challenges;
}

class HeaderReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  separators(): void {
    for (;;) {
      this.#take(SPACE);
      if (this.#text[this.#at] !== ",") return;
      this.#at += 1;
    }
  }

  token(): string | undefined {
    return this.#take(TOKEN);
  }

  /** Up to the next scheme, which is a token that no `=` follows. */
  parameters(): ReadonlyMap<string, string> {
    const parameters = new Map<string, string>();
    const start = this.#at;
    this.#take(SPACE);
    if (this.#at > start && this.#take(TOKEN68) !== undefined) return parameters;
    for (;;) {
      const before = this.#at;
      this.separators();
      const name = this.token();
      this.#take(SPACE);
      if (name === undefined || this.#text[this.#at] !== "=") {
        this.#at = before;
        return parameters;
      }
      this.#at += 1;
      this.#take(SPACE);
      const value = this.#text[this.#at] === '"' ? this.#quoted() : this.token();
      if (value === undefined) {
        // Nothing behind it can be made out.
        this.#at = this.#text.length;
        return parameters;
      }
      if (!parameters.has(name.toLowerCase())) parameters.set(name.toLowerCase(), value);
    }
  }

  #quoted(): string | undefined {
    let value = "";
    for (let at = this.#at + 1; at < this.#text.length; at += 1) {
      const character = this.#text[at];
      if (character === '"') {
        this.#at = at + 1;
        return value;
      }
      if (character === "\\") at += 1;
      value += this.#text[at] ?? "";
    }
    return undefined;
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    this.#at += found?.length ?? 0;
    return found;
  }
}
