import { badRequest } from "./status-error.ts";

type Labels = Readonly<Record<string, string>>;

export type LabelSelector = (labels: Labels | undefined) => boolean;

/** Requirements in one selector: kubectl's users have a handful, nobody has more than this. */
const MAX_REQUIREMENTS = 256;

const KEY =
  /^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;

type Token = { readonly kind: "word" | "mark"; readonly text: string };

const NO_LABELS: Labels = {};

/** A label selector as in a query: `a=b,c!=d,e in (f,g),h,!i,j>1`. "" matches everything. @throws StatusError 400 */
export function parseLabelSelector(text: string): LabelSelector {
  const tokens = tokenize(text);
  const requirements: LabelSelector[] = [];
  let at = 0;
  const fail = (detail: string): never => {
    throw badRequest(`unable to parse requirement: ${detail}`);
  };
  const word = (): string => {
    const token = tokens[at];
    if (token?.kind !== "word") return fail(`found '${token?.text ?? ""}', expected: identifier`);
    at += 1;
    return token.text;
  };
  const mark = (...any: readonly string[]): string | undefined => {
    const token = tokens[at];
    if (token?.kind !== "mark" || !any.includes(token.text)) return undefined;
    at += 1;
    return token.text;
  };
  const key = (): string => {
    const name = word();
    if (!KEY.test(name))
      fail(
        `<nil>: Invalid value: ${JSON.stringify(name)}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
      );
    return name;
  };
  const value = (): string => {
    const token = tokens[at];
    const found = token?.kind === "word" ? word() : "";
    if (!VALUE.test(found))
      fail(
        `values[0][x]: Invalid value: ${JSON.stringify(found)}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
      );
    return found;
  };
  const values = (): string[] => {
    if (mark("(") === undefined) return fail(`found '${tokens[at]?.text ?? ""}', expected: '('`);
    const found = [value()];
    while (mark(",") !== undefined) found.push(value());
    if (mark(")") === undefined) return fail(`found '${tokens[at]?.text ?? ""}', expected: ',' or ')'`);
    return found;
  };
  const requirement = (): LabelSelector => {
    if (mark("!") !== undefined) {
      const name = key();
      return (labels) => (labels ?? NO_LABELS)[name] === undefined;
    }
    const name = key();
    const next = tokens[at];
    if (next === undefined || next.text === ",") return (labels) => (labels ?? NO_LABELS)[name] !== undefined;
    if (mark("=", "==") !== undefined) {
      const wanted = value();
      return (labels) => (labels ?? NO_LABELS)[name] === wanted;
    }
    if (mark("!=") !== undefined) {
      const unwanted = value();
      return (labels) => (labels ?? NO_LABELS)[name] !== unwanted;
    }
    const comparison = mark("<", ">");
    if (comparison !== undefined) return compare(name, comparison, word());
    const operator = word();
    if (operator === "in" || operator === "notin") return membership(name, operator === "in", values());
    return fail(`found '${operator}', expected: in, notin, =, ==, !=, gt, lt`);
  };
  while (at < tokens.length) {
    requirements.push(requirement());
    if (requirements.length > MAX_REQUIREMENTS) fail("too many requirements");
    if (at < tokens.length && mark(",") === undefined)
      fail(`found '${tokens[at]?.text ?? ""}', expected: ',' or 'end of string'`);
    else if (at === tokens.length && tokens.at(-1)?.text === ",") fail("found '', expected: identifier after ','");
  }
  return (labels) => requirements.every((matches) => matches(labels));
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

/** A field selector as in a query: `metadata.name=x,spec.nodeName!=y`, with `\\`, `\,` and `\=` escaped. @throws StatusError 400 */
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
  if (/(^|[^\\])(\\\\)*=/.test(value))
    throw badRequest(`invalid field selector: unescaped '=' in ${JSON.stringify(value)}`);
  return value.replace(/\\(.)/gs, (whole, character: string) => {
    if (!["\\", ",", "="].includes(character))
      throw badRequest(`invalid field selector: invalid escape sequence: ${whole}`);
    return character;
  });
}
