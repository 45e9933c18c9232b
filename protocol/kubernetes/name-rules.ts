/**
 * Kubernetes' rules for names (k8s.io/apimachinery/pkg/util/validation). Each returns what is wrong, in Kubernetes'
 * words; nothing when all is well.
 */
export const MAX_LABEL_LENGTH = 63;
export const MAX_SUBDOMAIN_LENGTH = 253;
const MAX_PORT_NAME_LENGTH = 15;

const LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN = `${LABEL}(\\.${LABEL})*`;
const RELAXED_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
const QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE = `(${QUALIFIED})?`;

interface Rule {
  readonly pattern: RegExp;
  readonly maxBytes: number;
  readonly message: string;
}

function rule(expression: string, maxBytes: number, what: string, ...examples: readonly string[]): Rule {
  const shown = examples.map((example) => `'${example}', `).join(" or ");
  return {
    pattern: new RegExp(`^${expression}$`),
    maxBytes,
    message: `${what} (e.g. ${shown}regex used for validation is '${expression}')`,
  };
}

const LABEL_RULE = rule(
  LABEL,
  MAX_LABEL_LENGTH,
  "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
  "my-name",
  "123-abc",
);
const SUBDOMAIN_RULE = rule(
  SUBDOMAIN,
  MAX_SUBDOMAIN_LENGTH,
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
  "example.com",
);
const WILDCARD_RULE = rule(
  `\\*\\.${SUBDOMAIN}`,
  MAX_SUBDOMAIN_LENGTH,
  "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
  "*.example.com",
);
const SERVICE_NAME_RULE = rule(
  "[a-z]([-a-z0-9]*[a-z0-9])?",
  MAX_LABEL_LENGTH,
  "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
  "my-name",
  "abc-123",
);
const SEARCH_DOMAIN_RULE = rule(
  `${RELAXED_LABEL}(\\.${RELAXED_LABEL})*`,
  MAX_SUBDOMAIN_LENGTH,
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
  "example.com",
);
const QUALIFIED_RULE = rule(
  QUALIFIED,
  MAX_LABEL_LENGTH,
  "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
  "MyName",
  "my.name",
  "123-abc",
);
const LABEL_VALUE_RULE = rule(
  LABEL_VALUE,
  MAX_LABEL_LENGTH,
  "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
  "MyValue",
  "my_value",
  "12345",
);

/** Only what is no ASCII has another number of bytes, and that fails the pattern anyway. */
function check({ pattern, maxBytes, message }: Rule, value: string): string[] {
  const problems = value.length > maxBytes ? [`must be no more than ${maxBytes} bytes`] : [];
  if (!pattern.test(value)) problems.push(message);
  return problems;
}

export function dnsLabelProblems(value: string): string[] {
  const problems = check(LABEL_RULE, value);
  const isDotted = problems.at(-1) === LABEL_RULE.message && SUBDOMAIN_RULE.pattern.test(value);
  return isDotted ? [...problems.slice(0, -1), "must not contain dots"] : problems;
}
export const dnsSubdomainProblems = (value: string): string[] => check(SUBDOMAIN_RULE, value);
/** Hosts of Ingresses whose first label is "*". */
export const wildcardProblems = (value: string): string[] => check(WILDCARD_RULE, value);
/** Names of Services (DNS-1035), as others refer to them. */
export const serviceNameProblems = (value: string): string[] => check(SERVICE_NAME_RULE, value);
/**
 * Names of nodes: a DNS-1123 subdomain of at most 253 characters (ValidateNodeName). Dots are legal between labels, as
 * in `edge-1.shed.example`; upper case, blanks, empty labels and the empty name are not. Certificates, authorization,
 * the tunnel, key records and Node objects all judge by this rule.
 */
export const nodeNameProblems = (value: string): string[] => dnsSubdomainProblems(value);
/** A search path of resolv.conf: as a subdomain, with underscores (SRV records) and a final dot. */
export const searchDomainProblems = (value: string): string[] =>
  value === "." ? [] : check(SEARCH_DOMAIN_RULE, value.endsWith(".") ? value.slice(0, -1) : value);
export const labelValueProblems = (value: string): string[] => check(LABEL_VALUE_RULE, value);

/** `example.com/name` or `name`: keys of labels and annotations, names of resources and condition types. */
export function qualifiedNameProblems(value: string): string[] {
  const parts = value.split("/");
  if (parts.length > 2) {
    return [
      `a qualified name ${QUALIFIED_RULE.message} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
    ];
  }
  const name = parts.at(-1) ?? "";
  const prefix = parts.length === 2 ? parts[0] : undefined;
  const problems: string[] = [];
  if (prefix === "") problems.push("prefix part must be non-empty");
  else if (prefix !== undefined) problems.push(...dnsSubdomainProblems(prefix).map((each) => `prefix part ${each}`));
  if (name === "") problems.push("name part must be non-empty");
  else if (name.length > MAX_LABEL_LENGTH) problems.push(`name part must be no more than ${MAX_LABEL_LENGTH} bytes`);
  if (!QUALIFIED_RULE.pattern.test(name)) problems.push(`name part ${QUALIFIED_RULE.message}`);
  return problems;
}

/** Kubernetes 1.34: printable ASCII but `=`. */
export const envNameProblems = (value: string): string[] =>
  /^[ -<>-~]+$/.test(value)
    ? []
    : ["a valid environment variable name must consist only of printable ASCII characters other than '='"];

/** IANA_SVC_NAME, RFC 6335 section 5.1. */
export function portNameProblems(value: string): string[] {
  const problems: string[] = [];
  if (value.length > MAX_PORT_NAME_LENGTH) problems.push(`must be no more than ${MAX_PORT_NAME_LENGTH} bytes`);
  if (!/^[-a-z0-9]+$/.test(value))
    problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
  if (!/[a-z]/.test(value)) problems.push("must contain at least one letter (a-z)");
  if (value.includes("--")) problems.push("must not contain consecutive hyphens");
  if (value.startsWith("-") || value.endsWith("-")) problems.push("must not begin or end with a hyphen");
  return problems;
}

const MAX_PORT = 65_535;

export const portNumberProblems = (value: number): string[] =>
  Number.isInteger(value) && value >= 1 && value <= MAX_PORT ? [] : [`must be between 1 and ${MAX_PORT}, inclusive`];

/** A key of a ConfigMap or Secret, a file name. */
export function configKeyProblems(value: string): string[] {
  const problems: string[] = [];
  if (value.length > MAX_SUBDOMAIN_LENGTH) problems.push(`must be no more than ${MAX_SUBDOMAIN_LENGTH} bytes`);
  if (!/^[-._a-zA-Z0-9]+$/.test(value)) {
    problems.push(
      "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
    );
  }
  if (value === ".") problems.push("must not be '.'");
  else if (value === "..") problems.push("must not be '..'");
  else if (value.startsWith("..")) problems.push("must not start with '..'");
  return problems;
}

const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

function isIpv6(value: string): boolean {
  const halves = value.split("::");
  if (halves.length > 2) return false;
  const groups = halves.flatMap((half) => (half === "" ? [] : half.split(":")));
  const last = groups.at(-1) ?? "";
  const hasIpv4 = last.includes(".");
  if (hasIpv4 && (!IPV4.test(last) || value.endsWith("::"))) return false;
  const hex = hasIpv4 ? groups.slice(0, -1) : groups;
  if (!hex.every((group) => /^[0-9a-fA-F]{1,4}$/.test(group))) return false;
  const count = hex.length + (hasIpv4 ? 2 : 0);
  return halves.length === 2 ? count < 8 : count === 8;
}

export const ipProblems = (value: string): string[] =>
  IPV4.test(value) || isIpv6(value) ? [] : ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"];
