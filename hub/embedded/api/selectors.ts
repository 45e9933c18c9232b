import { labelValueProblems, qualifiedNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { badRequest, type StatusError } from "./status-error.ts";

type Labels = Readonly<Record<string, string>>;

export type LabelSelector = (labels: Labels | undefined) => boolean;

/** Bounds requirements in one selector; users of kubectl write a handful. */
const MAX_REQUIREMENTS = 256;

type Token = { readonly kind: "word" | "mark"; readonly text: string };

const NO_LABELS: Labels = {};

/** A label selector as in a query: `a=b,c!=d,e in (f,g),h,!i,j>1`. "" matches everything. @throws StatusError 400 */
export function parseLabelSelector(text: string): LabelSelector {
  const requirements = new LabelSelectorParser(text).requirements();
  return (labels) => requirements.every((matches) => matches(labels));
}

const unparsable = (detail: string): StatusError => badRequest(`unable to parse requirement: ${detail}`);

class LabelSelectorParser {
  readonly #tokens: readonly Token[];
  #at = 0;

  constructor(text: string) {
    this.#tokens = tokenize(text);
  }

  requirements(): readonly LabelSelector[] {
    const found: LabelSelector[] = [];
    while (this.#at < this.#tokens.length) {
      found.push(this.#requirement());
      if (found.length > MAX_REQUIREMENTS) throw unparsable("too many requirements");
      if (this.#at === this.#tokens.length) break;
      if (this.#mark(",") === undefined) throw this.#unexpected("',' or 'end of string'");
      if (this.#at === this.#tokens.length) throw this.#unexpected("identifier after ','");
    }
    return found;
  }

  #requirement(): LabelSelector {
    const isNegated = this.#mark("!") !== undefined;
    const name = this.#key();
    const next = this.#tokens[this.#at];
    if (isNegated || next === undefined || next.text === ",") {
      return (labels) => ((labels ?? NO_LABELS)[name] === undefined) === isNegated;
    }
    const equality = this.#mark("=", "==", "!=");
    if (equality !== undefined) {
      const wanted = this.#value();
      return (labels) => ((labels ?? NO_LABELS)[name] === wanted) === (equality !== "!=");
    }
    const comparison = this.#mark("<", ">");
    if (comparison !== undefined) return compare(name, comparison, this.#word());
    const operator = this.#word();
    if (operator === "in" || operator === "notin") return membership(name, operator === "in", this.#values());
    throw unparsable(`found '${operator}', expected: in, notin, =, ==, !=, gt, lt`);
  }

  #word(): string {
    const token = this.#tokens[this.#at];
    if (token?.kind !== "word") throw this.#unexpected("identifier");
    this.#at += 1;
    return token.text;
  }

  #mark(...any: readonly string[]): string | undefined {
    const token = this.#tokens[this.#at];
    if (token?.kind !== "mark" || !any.includes(token.text)) return undefined;
    this.#at += 1;
    return token.text;
  }

  #key(): string {
    const name = this.#word();
    const [problem] = qualifiedNameProblems(name);
    if (problem !== undefined) throw unparsable(`<nil>: Invalid value: ${JSON.stringify(name)}: ${problem}`);
    return name;
  }

  /** A value may be empty. */
  #value(): string {
    const found = this.#tokens[this.#at]?.kind === "word" ? this.#word() : "";
    const [problem] = labelValueProblems(found);
    if (problem !== undefined) throw unparsable(`values[0]: Invalid value: ${JSON.stringify(found)}: ${problem}`);
    return found;
  }

  #values(): string[] {
    if (this.#mark("(") === undefined) throw this.#unexpected("'('");
    const found = [this.#value()];
    while (this.#mark(",") !== undefined) found.push(this.#value());
    if (this.#mark(")") === undefined) throw this.#unexpected("',' or ')'");
    return found;
  }

  #unexpected(expected: string): StatusError {
    return unparsable(`found '${this.#tokens[this.#at]?.text ?? ""}', expected: ${expected}`);
  }
}

function membership(name: string, isIn: boolean, values: readonly string[]): LabelSelector {
  const set = new Set(values);
  return (labels) => {
    const found = (labels ?? NO_LABELS)[name];
    return found === undefined ? !isIn : set.has(found) === isIn;
  };
}

function compare(name: string, operator: string, bound: string): LabelSelector {
  if (!/^-?\d+$/.test(bound))
    throw badRequest(
      `unable to parse requirement: values[0]: Invalid value: ${JSON.stringify(bound)}: for 'Gt', 'Lt' operators, the value must be an integer`,
    );
  return (labels) => {
    const found = (labels ?? NO_LABELS)[name];
    if (found === undefined || !/^-?\d+$/.test(found)) return false;
    return operator === ">" ? Number(found) > Number(bound) : Number(found) < Number(bound);
  };
}

function tokenize(text: string): Token[] {
  const tokens: Token[] = [];
  for (const match of text.matchAll(/\s*(==|!=|[=!(),<>])|\s*([^\s=!(),<>]+)|\s+/g)) {
    const [, mark, word] = match;
    if (mark !== undefined) tokens.push({ kind: "mark", text: mark });
    else if (word !== undefined) tokens.push({ kind: "word", text: word });
  }
  return tokens;
}

export interface FieldRequirement {
  readonly field: string;
  readonly value: string;
  readonly isEqual: boolean;
}

/**
 * A field selector as in a query: `metadata.name=x,spec.nodeName!=y`, with `\\`, `\,` and `\=` escaped. @throws
 * StatusError 400
 */
export function parseFieldSelector(text: string): readonly FieldRequirement[] {
  const requirements: FieldRequirement[] = [];
  for (const term of splitTerms(text)) {
    if (term === "") continue;
    const match = /^((?:[^=!\\]|\\.)*?)(==|!=|=)(.*)$/s.exec(term);
    if (match === null) throw badRequest(`invalid selector: '${text}'; can't understand '${term}'`);
    const [, field = "", operator, value = ""] = match;
    requirements.push({ field, value: unescapeValue(value), isEqual: operator !== "!=" });
    if (requirements.length > MAX_REQUIREMENTS) throw badRequest(`invalid selector: '${text}'; too many requirements`);
  }
  return requirements;
}

function splitTerms(text: string): string[] {
  const terms: string[] = [];
  let start = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === ",") {
      terms.push(text.slice(start, at));
      start = at + 1;
    }
  }
  terms.push(text.slice(start));
  return terms;
}

function unescapeValue(value: string): string {
  return value.replace(/\\(.)|=/gs, (whole, character?: string) => {
    if (character === undefined) throw badRequest(`invalid field selector: unescaped '=' in ${JSON.stringify(value)}`);
    if (!["\\", ",", "="].includes(character))
      throw badRequest(`invalid field selector: invalid escape sequence: ${whole}`);
    return character;
  });
}
