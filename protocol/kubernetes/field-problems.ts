/** What is wrong with one field. Printed as Kubernetes does: `spec.containers[0].name: Required value`. */
export interface FieldProblem {
  /** `spec.containers[0].name`; "" for the whole. */
  readonly path: string;
  /** Kubernetes' wording, without the path. */
  readonly message: string;
}

/**
 * More than a user corrects at a time; a broken generator could make one for each of 100,000 values. The rest is
 * counted.
 */
export const MAX_PROBLEMS = 100;
/** Bounds a wrong value in a message; the rest of it is cut. */
const MAX_SHOWN_VALUE = 256;

/** A value as Go's `%q` and `%v` show it in Kubernetes' messages. */
export function showValue(value: unknown): string {
  const text =
    typeof value === "string" || typeof value === "object" ? (JSON.stringify(value) ?? "null") : String(value);
  return text.length <= MAX_SHOWN_VALUE ? text : `${text.slice(0, MAX_SHOWN_VALUE)}…`;
}

/** Gathers problems in the words of k8s.io/apimachinery/pkg/util/validation/field. */
export class FieldProblems {
  readonly #found: FieldProblem[] = [];
  readonly #silenced: string[] = [];
  #omitted = 0;

  /** The problems, at most MAX_PROBLEMS and one that counts the others. */
  get found(): readonly FieldProblem[] {
    if (this.#omitted === 0) return this.#found;
    return [...this.#found, { path: "", message: `and ${this.#omitted} more problems` }];
  }

  /** What is found from now on at `path` and below it is not worth saying. */
  silence(path: string): void {
    this.#silenced.push(path);
  }

  add(path: string, message: string): void {
    if (this.#silenced.some((silenced) => isAtOrBelow(path, silenced))) return;
    if (this.#found.length < MAX_PROBLEMS) this.#found.push({ path, message });
    else this.#omitted += 1;
  }

  required(path: string, detail = ""): void {
    this.add(path, detail === "" ? "Required value" : `Required value: ${detail}`);
  }

  invalid(path: string, value: unknown, detail: string): void {
    this.add(path, `Invalid value: ${showValue(value)}: ${detail}`);
  }

  /** One problem for each of `details`. */
  invalidAll(path: string, value: unknown, details: readonly string[]): void {
    for (const detail of details) this.invalid(path, value, detail);
  }

  /** Checks a required value from a closed set. */
  oneOf(path: string, value: string | undefined, supported: readonly string[]): void {
    if (value === undefined || value === "") this.required(path);
    else if (!supported.includes(value)) this.unsupported(path, value, supported);
  }

  unsupported(path: string, value: unknown, supported: readonly string[]): void {
    const list = supported.map((each) => JSON.stringify(each)).join(", ");
    this.add(path, `Unsupported value: ${showValue(value)}${list === "" ? "" : `: supported values: ${list}`}`);
  }

  duplicate(path: string, value: unknown): void {
    this.add(path, `Duplicate value: ${showValue(value)}`);
  }

  forbidden(path: string, detail: string): void {
    this.add(path, `Forbidden: ${detail}`);
  }

  notFound(path: string, value: unknown): void {
    this.add(path, `Not found: ${showValue(value)}`);
  }

  tooMany(path: string, count: number, max: number): void {
    this.add(path, `Too many: ${count}: must have at most ${max} items`);
  }

  tooLong(path: string, maxBytes: number): void {
    this.add(path, `Too long: may not be more than ${maxBytes} bytes`);
  }
}

const isAtOrBelow = (path: string, above: string): boolean =>
  path.startsWith(above) && (path.length === above.length || path[above.length] === "." || path[above.length] === "[");

export const formatProblem = ({ path, message }: FieldProblem): string =>
  path === "" ? message : `${path}: ${message}`;

/** All of them on one line. */
export const formatProblems = (problems: readonly FieldProblem[]): string => problems.map(formatProblem).join("; ");
