/**
 * Takes secrets out of what leaves the board. Objects are redacted by the type of their fields: all values go that may
 * be secrets by a pod's schema. Texts, whose parts have no type, are searched for what secrets look like.
 */

const REDACTED = "***";

/** Bounds what a key without an end takes with it. */
const MAX_KEY_CHARACTERS = 16_384;

/** Names of fields and variables whose values are secrets. */
const SECRET_NAME =
  "[A-Za-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credentials?|authorization|cookie|psk)";

const isSecretName = (name: string): boolean => new RegExp(`^${SECRET_NAME}$`, "i").test(name);

const PATTERNS: readonly (readonly [RegExp, string])[] = [
  [
    new RegExp(
      `-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^]{0,${MAX_KEY_CHARACTERS}}?-----END [A-Z ]*PRIVATE KEY-----|[^]{0,${MAX_KEY_CHARACTERS}})`,
      "g",
    ),
    "*** (a private key)",
  ],
  // A JSON web token, as service accounts have.
  [/\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?/g, REDACTED],
  // A join token.
  [/\b[a-z0-9]{6}\.[a-z0-9]{16}\b/g, REDACTED],
  // User and password of a URL.
  [/\b([a-z][a-z0-9+.-]*:\/\/)[^\s/@"'\\]+@/gi, `$1${REDACTED}@`],
  [/\b(bearer|basic)\s+[\w.~+/=-]{6,}/gi, `$1 ${REDACTED}`],
  [
    new RegExp(
      `\\b(${SECRET_NAME}\\\\?["']?\\s*[=:]\\s*)(\\\\?"(?:[^"\\\\\\n]|\\\\.)*"|'[^'\\n]*'|[^\\s,;}\\]"']+)`,
      "gi",
    ),
    `$1${REDACTED}`,
  ],
];

/** Takes out private keys, tokens, passwords of URLs, and values whose names are those of secrets. */
export function redactText(text: string): string {
  return PATTERNS.reduce((rest, [pattern, replacement]) => rest.replace(pattern, replacement), text);
}

type Fields = Readonly<Record<string, unknown>>;

/** What is done with a field that has this name, wherever a pod has it. */
const POD_FIELDS: Readonly<Record<string, (value: unknown) => unknown>> = {
  // Literal values; what `valueFrom` names is no secret, what it gives is not in the pod.
  env: (value) => items(value, (variable) => ("value" in variable ? { ...variable, value: REDACTED } : variable)),
  httpHeaders: (value) => items(value, (header) => ({ ...header, value: REDACTED })),
  data: hidden,
  stringData: hidden,
  binaryData: hidden,
  // Copies of the whole object.
  "kubectl.kubernetes.io/last-applied-configuration": () => REDACTED,
  managedFields: () => [],
};

function items(value: unknown, redact: (item: Fields) => Fields): unknown {
  if (!Array.isArray(value)) return REDACTED;
  return value.map((each: unknown) => (isFields(each) ? redactObject(redact(each)) : REDACTED));
}

function hidden(value: unknown): unknown {
  return isFields(value) ? Object.fromEntries(Object.keys(value).map((name) => [name, REDACTED])) : REDACTED;
}

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** An API object or an answer of the agent, with the values of secret fields replaced and its texts redacted. */
export function redactObject(value: unknown): unknown {
  if (typeof value === "string") return redactText(value);
  if (Array.isArray(value)) return value.map(redactObject);
  if (!isFields(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => {
      const rule = Object.hasOwn(POD_FIELDS, name) ? POD_FIELDS[name] : undefined;
      if (rule !== undefined) return [name, rule(field)];
      const isSecret = isSecretName(name) && (typeof field === "string" || typeof field === "number");
      return [name, isSecret ? REDACTED : redactObject(field)];
    }),
  );
}
