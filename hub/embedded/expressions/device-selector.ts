/**
 * Selectors of devices: CEL expressions over one device, as in Kubernetes 1.34
 * (k8s.io/dynamic-resource-allocation/cel). Loaded with the first of them, through `selector-compiler.ts`.
 */
import { RE2JS } from "@bufbuild/re2";
import { type ASTNode, Environment, EvaluationError, ParseError, TypeError as TypeProblem } from "@marcbachmann/cel-js";
import { parseQuantity } from "@picolet/protocol/kubernetes/quantity.ts";
import { BoundError, boundOf, type ExpressionScope, type Size } from "./expression-bounds.ts";
import { QuantityValue, VersionValue } from "./selector-values.ts";

/** Nodes and levels of a syntax tree: real selectors have 20 nodes. They bound the time of a compilation. */
const MAX_NODES = 2_000;
const MAX_LEVELS = 50;
/**
 * Steps of one evaluation, at most 250 ns each on one core of 2.5 GHz: 10 ms. Real selectors take a thousand.
 * Kubernetes bounds units of its own.
 */
const MAX_STEPS = 40_000;
/** A pattern's length and its instructions: `a{1000}` has a thousand, which each character may visit. */
const MAX_PATTERN_LENGTH = 512;
const MAX_REPEAT = 100;
const MAX_INSTRUCTIONS = 2_000;

/** Kubernetes' limits of a device. */
const MAX_ATTRIBUTES = 32;
const MAX_ATTRIBUTE_LENGTH = 64;
const MAX_DOMAIN_LENGTH = 63 + 1 + 253;

const attribute: Size = { length: MAX_ATTRIBUTE_LENGTH };
const domain: Size = { length: MAX_DOMAIN_LENGTH };
const byDomain: Size = {
  length: MAX_ATTRIBUTES,
  key: domain,
  each: { length: MAX_ATTRIBUTES, key: domain, each: attribute },
};

export interface DeviceFields {
  readonly attributes?: Readonly<Record<string, AttributeFields>>;
  readonly capacity?: Readonly<Record<string, { readonly value?: unknown }>>;
}

export interface AttributeFields {
  readonly int?: number;
  readonly bool?: boolean;
  readonly string?: string;
  readonly version?: string;
}

export interface DeviceSelector {
  /** Kubernetes bounds cost; `steps` bounds the time of one evaluation. */
  readonly steps: number;
  /** @throws Error with what went wrong in the expression */
  matches(driver: string, device: DeviceFields): boolean;
}

export type CompiledSelector =
  | { readonly ok: true; readonly selector: DeviceSelector }
  /** @property kind `costly`: it is right, but too much work */
  | { readonly ok: false; readonly kind: "wrong" | "costly"; readonly problem: string };

/** The variable `device`. */
class Device {
  readonly driver: string;
  readonly attributes: ReadonlyMap<string, ReadonlyMap<string, unknown>>;
  readonly capacity: ReadonlyMap<string, ReadonlyMap<string, unknown>>;

  constructor(driver: string, { attributes = {}, capacity = {} }: DeviceFields) {
    this.driver = driver;
    this.attributes = perDomain(driver, Object.entries(attributes), attributeValue);
    this.capacity = perDomain(driver, Object.entries(capacity), ({ value }) => capacityValue(value));
  }
}

/** Names of functions of ours in place of the library's: its `has` takes no index, its `matches` may backtrack. */
const HAS = "hasField";
const MATCHES = "matchesPattern";

/**
 * Compiles selectors, and keeps the patterns that they have. Each instance costs what the library's environment does.
 */
export class SelectorEnvironment {
  /** Patterns of the expressions that are compiled, by their text. */
  readonly #patterns = new Map<string, RE2JS>();
  readonly #environment = this.#create();

  /** Takes 0.2 ms for a real selector, and 60 ms for the longest on a busy core. */
  compile(expression: string): CompiledSelector {
    try {
      return this.#compile(expression);
    } catch (error) {
      // The library has plain errors too, for types that it cannot tell apart.
      return { ok: false, kind: "wrong", problem: `compilation failed: ${summaryOf(error)}` };
    }
  }

  #compile(expression: string): CompiledSelector {
    // The edits name functions that the library's own check does not know under these names, so it parses twice.
    const { ast } = this.#environment.parse(expression);
    const patterns = new Map<string, RE2JS>();
    const { steps } = boundOf(ast, {
      ...SCOPE,
      patternSteps: (pattern) => stepsOf(compiledPattern(pattern, patterns)),
    });
    if (steps > MAX_STEPS) {
      const factor = (steps / MAX_STEPS).toFixed(1);
      return { ok: false, kind: "costly", problem: `too complex, exceeds cost limit by factor of ${factor}` };
    }
    const program = this.#environment.parse(renamed(expression, ast));
    const { valid, type, error } = program.check();
    if (!valid) throw error ?? new Error("the check names no error");
    if (type !== "bool" && type !== "dyn") {
      const problem = `must evaluate to bool or the unknown type, not ${type}`;
      return { ok: false, kind: "wrong", problem };
    }
    const matches = (driver: string, device: DeviceFields): boolean => {
      this.#patterns.clear();
      for (const [text, pattern] of patterns) this.#patterns.set(text, pattern);
      return evaluated(program, new Device(driver, device));
    };
    return { ok: true, selector: { steps, matches } };
  }

  #create(): Environment {
    const limits = { maxAstNodes: MAX_NODES, maxDepth: MAX_LEVELS };
    const environment = new Environment({ limits, enableOptionalTypes: true, homogeneousAggregateLiterals: false });
    const of = (types: string): string => `map<string, map<string, ${types}>>`;
    addValues(environment);
    environment
      .registerType("Device", {
        ctor: Device,
        fields: { driver: "string", attributes: of("dyn"), capacity: of("Quantity") },
      })
      .registerVariable("device", "Device")
      .registerFunction(`${HAS}(ast): bool`, hasMacro)
      .registerFunction(`string.${MATCHES}(string): bool`, (text: string, pattern: string) =>
        this.#patterns.get(pattern)?.test(text),
      );
    return environment;
  }
}

const SCOPE: Omit<ExpressionScope, "patternSteps"> = {
  variables: { device: { length: 1, fields: { driver: domain, attributes: byDomain, capacity: byDomain } } },
  unknown: attribute,
};

const TYPE_NAMES: Readonly<Record<string, string>> = { bigint: "int", number: "double", string: "string" };

function evaluated(program: (context: { readonly device: Device }) => unknown, device: Device): boolean {
  let result: unknown;
  try {
    result = program({ device });
  } catch (error) {
    throw new Error(summaryOf(error), { cause: error });
  }
  if (typeof result === "boolean") return result;
  throw new Error(`must evaluate to bool, not ${TYPE_NAMES[typeof result] ?? "another type"}`);
}

/** The library's messages show the expression below them. */
function summaryOf(error: unknown): string {
  const text =
    error instanceof ParseError || error instanceof TypeProblem || error instanceof EvaluationError
      ? error.summary
      : error instanceof Error
        ? error.message
        : String(error);
  return text.replaceAll(MATCHES, "matches").replaceAll(HAS, "has");
}

interface Edit {
  readonly start: number;
  readonly length: number;
  readonly text: string;
}

/** The expression with the names of our own functions, found by the places of their calls. */
function renamed(expression: string, ast: ASTNode): string {
  const edits = [...editsOf(expression, ast)].sort((a, b) => b.start - a.start);
  return edits.reduce(
    (text, { start, length, text: name }) => text.slice(0, start) + name + text.slice(start + length),
    expression,
  );
}

function* editsOf(expression: string, node: ASTNode): Generator<Edit> {
  if (node.op === "call" && node.args[0] === "has")
    yield { start: expression.indexOf("has", node.start), length: 3, text: HAS };
  if (node.op === "rcall" && node.args[0] === "matches") {
    const [, receiver, args] = node.args;
    const start = expression.lastIndexOf("matches", args[0]?.start ?? node.end);
    if (start < receiver.end) throw new BoundError("cannot find the call of matches");
    yield { start, length: 7, text: MATCHES };
  }
  for (const child of childrenOf(node)) yield* editsOf(expression, child);
}

function childrenOf(node: ASTNode): readonly ASTNode[] {
  switch (node.op) {
    case "value":
    case "id":
      return [];
    case ".":
    case ".?":
      return [node.args[0]];
    case "call":
      return node.args[1];
    case "rcall":
      return [node.args[1], ...node.args[2]];
    case "map":
      return node.args.flat();
    case "!_":
    case "-_":
      return [node.args];
    default:
      return node.args;
  }
}

function compiledPattern(pattern: string, known: Map<string, RE2JS>): RE2JS {
  const found = known.get(pattern);
  if (found !== undefined) return found;
  if (pattern.length > MAX_PATTERN_LENGTH)
    throw new BoundError(`a pattern has more than ${MAX_PATTERN_LENGTH} characters`);
  // Before it is compiled: each repetition is a copy.
  const repeats = [...pattern.matchAll(/\{(\d+)(?:,(\d*))?\}/g)].map(([, low = "", high = ""]) => Number(high || low));
  if (repeats.reduce((sum, each) => sum + each, 0) > MAX_REPEAT) {
    throw new BoundError(`a pattern repeats more than ${MAX_REPEAT} times`);
  }
  try {
    const compiled = RE2JS.compile(pattern);
    known.set(pattern, compiled);
    return compiled;
  } catch (error) {
    throw new BoundError(`the pattern ${JSON.stringify(pattern)} is wrong: ${summaryOf(error)}`, { cause: error });
  }
}

function stepsOf(pattern: RE2JS): number {
  const instructions = pattern.re2().prog.numInst();
  if (instructions <= MAX_INSTRUCTIONS) return instructions;
  throw new BoundError(`a pattern has more than ${MAX_INSTRUCTIONS} instructions`);
}

interface Macro {
  readonly args: readonly ASTNode[];
}

/** `has(a.b)`: whether the map or object `a` has the field. */
const hasMacro = ({ args }: Macro) => ({
  args,
  async: false,
  typeCheck(
    checker: { check(node: ASTNode, context: unknown): unknown; getType(name: string): unknown },
    { args: [field] }: Macro,
    context: unknown,
  ) {
    if (field?.op !== "." && field?.op !== ".?")
      throw new BoundError("invalid argument to has() macro: it must be a field");
    checker.check(field, context);
    return checker.getType("bool");
  },
  evaluate(evaluator: { run(node: ASTNode, context: unknown): unknown }, { args: [field] }: Macro, context: unknown) {
    if (field?.op !== "." && field?.op !== ".?")
      throw new BoundError("invalid argument to has() macro: it must be a field");
    const [object, name] = field.args;
    const value = evaluator.run(object, context);
    if (value instanceof Map) return value.has(name);
    return typeof value === "object" && value !== null && Object.hasOwn(value, name);
  },
});

function addValues(environment: Environment): void {
  const quantity = (text: string): QuantityValue => QuantityValue.parse(text);
  const compare = (a: Comparable, b: Comparable): bigint => a.compare(b);
  for (const [type, ctor] of [
    ["Quantity", QuantityValue],
    ["Semver", VersionValue],
  ] as const) {
    environment
      .registerType(type, { ctor, fields: {} })
      .registerOperator(`${type} == ${type}`, (a: Comparable, b: Comparable) => a.compare(b) === 0n)
      .registerFunction(`${type}.compareTo(${type}): int`, compare)
      .registerFunction(`${type}.isLessThan(${type}): bool`, (a: Comparable, b: Comparable) => a.compare(b) < 0n)
      .registerFunction(`${type}.isGreaterThan(${type}): bool`, (a: Comparable, b: Comparable) => a.compare(b) > 0n);
  }
  environment
    .registerFunction("quantity(string): Quantity", quantity)
    .registerFunction("isQuantity(string): bool", (text: string) => QuantityValue.isValid(text))
    .registerFunction("Quantity.sign(): int", (a: QuantityValue) => (a.nano < 0n ? -1n : a.nano > 0n ? 1n : 0n))
    .registerFunction("Quantity.isInteger(): bool", (a: QuantityValue) => a.isInteger)
    .registerFunction("Quantity.asInteger(): int", (a: QuantityValue) => a.asInteger)
    .registerFunction("Quantity.asApproximateFloat(): double", (a: QuantityValue) => Number(a.nano) / 1e9)
    .registerFunction("Quantity.add(Quantity): Quantity", (a: QuantityValue, b: QuantityValue) => a.plus(b.nano))
    .registerFunction("Quantity.add(int): Quantity", (a: QuantityValue, b: bigint) => a.plus(b * NANO))
    .registerFunction("Quantity.sub(Quantity): Quantity", (a: QuantityValue, b: QuantityValue) => a.plus(-b.nano))
    .registerFunction("Quantity.sub(int): Quantity", (a: QuantityValue, b: bigint) => a.plus(-b * NANO))
    .registerFunction("semver(string): Semver", (text: string) => VersionValue.parse(text))
    .registerFunction("semver(string, bool): Semver", (text: string, lax: boolean) => VersionValue.parse(text, lax))
    .registerFunction("isSemver(string): bool", (text: string) => VersionValue.isValid(text))
    .registerFunction("isSemver(string, bool): bool", (text: string, lax: boolean) => VersionValue.isValid(text, lax))
    .registerFunction("Semver.major(): int", ({ release: [major] }: VersionValue) => major)
    .registerFunction("Semver.minor(): int", ({ release: [, minor] }: VersionValue) => minor)
    .registerFunction("Semver.patch(): int", ({ release: [, , patch] }: VersionValue) => patch);
}

const NANO = 1_000_000_000n;

interface Comparable {
  compare(other: unknown): bigint;
}

function attributeValue({ int, bool, string, version }: AttributeFields): unknown {
  if (int !== undefined) return BigInt(Math.trunc(int));
  if (bool !== undefined) return bool;
  if (string !== undefined) return string;
  return version !== undefined && VersionValue.isValid(version) ? VersionValue.parse(version) : undefined;
}

function capacityValue(value: unknown): unknown {
  const parsed = parseQuantity(String(value));
  return parsed.ok ? new QuantityValue(parsed.quantity) : undefined;
}

/** A name without a domain has the driver's. A domain that the device does not have is empty, as in Kubernetes. */
function perDomain<T>(
  driver: string,
  entries: readonly (readonly [string, T])[],
  convert: (value: T) => unknown,
): ReadonlyMap<string, ReadonlyMap<string, unknown>> {
  const domains = new Map<string, Map<string, unknown>>();
  for (const [name, input] of entries) {
    const value = convert(input);
    if (value === undefined) continue;
    const slash = name.indexOf("/");
    const [at, id] = slash < 0 ? [driver, name] : [name.slice(0, slash), name.slice(slash + 1)];
    const values = domains.get(at);
    if (values !== undefined) values.set(id, value);
    else domains.set(at, new Map([[id, value]]));
  }
  const none: ReadonlyMap<string, unknown> = new Map();
  // The library knows a map by its constructor, so that a class of its own would be no map.
  return Object.assign(domains, { get: (key: string) => Map.prototype.get.call(domains, key) ?? none });
}
