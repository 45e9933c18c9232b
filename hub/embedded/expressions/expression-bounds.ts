/**
 * Bounds the cost of an expression before it ever runs, from its syntax tree: each value has a largest size, and each
 * operation a largest number of steps. Operations that are not in the tables are refused, so nothing runs unbounded.
 */
import type { ASTNode } from "@marcbachmann/cel-js";

/** The largest size of a value. */
export interface Size {
  /** Characters of a text, items of a list, entries of a map; 1 for all else. */
  readonly length: number;
  /** The size of an item or of an entry's value. */
  readonly each?: Size;
  /** The size of a key, where keys are walked over. */
  readonly key?: Size;
  /** The sizes of a variable's fields. */
  readonly fields?: Readonly<Record<string, Size>>;
}

export interface Bound {
  readonly steps: number;
  readonly size: Size;
}

export class BoundError extends Error {
  override readonly name = "BoundError";
}

export interface ExpressionScope {
  readonly variables: Readonly<Record<string, Size>>;
  /** A value whose type is not known: the largest of all attributes. */
  readonly unknown: Size;
  /** Steps of `text.matches(pattern)` for each character of the text. @throws what is wrong with the pattern */
  readonly patternSteps: (pattern: string) => number;
}

const ONE: Size = { length: 1 };
/** Functions whose steps are the sizes of receiver and arguments, and whose result has the size that is named. */
type ResultSize = "one" | "receiver" | "argument" | "number" | "split" | "joined";
const FUNCTIONS: Readonly<Record<string, ResultSize>> = {
  ...{ bool: "one", double: "one", int: "one", uint: "one", size: "one", dyn: "argument", string: "number" },
  ...{ type: "one", timestamp: "one", duration: "one" },
  ...{ quantity: "one", isQuantity: "one", semver: "one", isSemver: "one" },
};
const METHODS: Readonly<Record<string, ResultSize>> = {
  ...{ startsWith: "one", endsWith: "one", contains: "one", indexOf: "one", lastIndexOf: "one", size: "one" },
  ...{ lowerAscii: "receiver", upperAscii: "receiver", trim: "receiver", substring: "receiver" },
  ...{ split: "split", join: "joined" },
  ...{ sign: "one", isInteger: "one", asInteger: "one", asApproximateFloat: "one", add: "one", sub: "one" },
  ...{ compareTo: "one", isLessThan: "one", isGreaterThan: "one", major: "one", minor: "one", patch: "one" },
  ...{ hasValue: "one", value: "receiver", orValue: "receiver", or: "receiver" },
  ...{ of: "argument", none: "one" },
};
/** Macros that walk over a list or the keys of a map. */
const WALKS = new Set(["all", "exists", "exists_one", "map", "filter"]);
/** An error that an operand or an item may throw, and that the operation does not pass on. */
const ERROR_STEPS = 200;
/** Characters of a number as text. */
const NUMBER_LENGTH = 32;

/** All units of a value. */
const total = (size: Size): number => size.length * (size.each === undefined ? 1 : 1 + total(size.each));

function largest(left: Size, right: Size): Size {
  const each =
    left.each === undefined || right.each === undefined ? (left.each ?? right.each) : largest(left.each, right.each);
  return { length: Math.max(left.length, right.length), ...(each === undefined ? {} : { each }) };
}

/** @throws BoundError for an operation that is not in the tables */
export function boundOf(node: ASTNode, scope: ExpressionScope): Bound {
  const of = (each: ASTNode): Bound => boundOf(each, scope);
  switch (node.op) {
    case "value": {
      const { args } = node;
      const length = typeof args === "string" || args instanceof Uint8Array ? args.length : 1;
      return { steps: 1, size: { length: Math.max(1, length) } };
    }
    case "id":
      return { steps: 1, size: scope.variables[node.args] ?? ONE };
    case ".":
    case ".?": {
      const { steps, size } = of(node.args[0]);
      return { steps: steps + 1, size: size.fields?.[node.args[1]] ?? size.each ?? scope.unknown };
    }
    case "[]":
    case "[?]": {
      const [object, index] = [of(node.args[0]), of(node.args[1])];
      return { steps: object.steps + index.steps + 1, size: object.size.each ?? scope.unknown };
    }
    case "list":
      return listBound(node.args.map(of));
    case "map": {
      const { steps, size } = listBound(node.args.flatMap(([key, value]) => [of(key), of(value)]));
      return { steps, size: { ...size, ...(size.each === undefined ? {} : { key: size.each }) } };
    }
    case "call":
      return callBound(node.args[0], undefined, node.args[1].map(of), FUNCTIONS);
    case "rcall":
      return methodBound(node.args[0], node.args[1], node.args[2], scope);
    case "!_":
    case "-_": {
      const { steps } = of(node.args);
      return { steps: steps + 1, size: ONE };
    }
    case "?:": {
      const [condition, yes, no] = node.args.map(of) as [Bound, Bound, Bound];
      return { steps: condition.steps + yes.steps + no.steps + 1, size: largest(yes.size, no.size) };
    }
    default:
      return operatorBound(node.op, of(node.args[0]), of(node.args[1]));
  }
}

function listBound(items: readonly Bound[]): Bound {
  const each = items.map(({ size }) => size).reduce(largest, ONE);
  const steps = items.reduce((sum, item) => sum + item.steps + 1, 1);
  return { steps, size: { length: Math.max(1, items.length), each } };
}

function operatorBound(operator: string, left: Bound, right: Bound): Bound {
  const steps = left.steps + right.steps + 1;
  switch (operator) {
    case "||":
    case "&&":
      return { steps: steps + ERROR_STEPS, size: ONE };
    case "+": {
      const { each } = largest(left.size, right.size);
      const length = left.size.length + right.size.length;
      return { steps: steps + length, size: { length, ...(each === undefined ? {} : { each }) } };
    }
    case "in": {
      const items = right.size.key === undefined ? total(right.size) + right.size.length * total(left.size) : 0;
      return { steps: steps + total(left.size) + items, size: ONE };
    }
    case "==":
    case "!=":
    case "<":
    case "<=":
    case ">":
    case ">=":
      return { steps: steps + total(left.size) + total(right.size), size: ONE };
    case "-":
    case "*":
    case "/":
    case "%":
      return { steps, size: ONE };
    default:
      throw new BoundError(`the operator ${operator} is not supported`);
  }
}

function methodBound(name: string, receiver: ASTNode, args: readonly ASTNode[], scope: ExpressionScope): Bound {
  if (WALKS.has(name) && args.length >= 2) return walkBound(boundOf(receiver, scope), name, args, scope);
  if (name === "matches") return matchBound(boundOf(receiver, scope), args[0], scope);
  return callBound(
    name,
    boundOf(receiver, scope),
    args.map((each) => boundOf(each, scope)),
    METHODS,
  );
}

function walkBound(walked: Bound, name: string, args: readonly ASTNode[], scope: ExpressionScope): Bound {
  const [variable, ...bodies] = args;
  if (variable?.op !== "id") throw new BoundError(`the first argument of ${name} must be a name`);
  const { size } = walked;
  const item = size.key ?? size.each ?? scope.unknown;
  const inner = { ...scope, variables: { ...scope.variables, [variable.args]: item } };
  const bounds = bodies.map((each) => boundOf(each, inner));
  const round = bounds.reduce((sum, { steps }) => sum + steps, name === "all" || name === "exists" ? ERROR_STEPS : 1);
  const each = name === "map" ? (bounds.at(-1)?.size ?? ONE) : item;
  const result = name === "map" || name === "filter" ? { length: size.length, each } : ONE;
  return { steps: walked.steps + size.length * round + 1, size: result };
}

/** A pattern is compiled once, so it must be written out. */
function matchBound(text: Bound, pattern: ASTNode | undefined, { patternSteps }: ExpressionScope): Bound {
  if (pattern?.op !== "value" || typeof pattern.args !== "string") {
    throw new BoundError("the pattern of matches must be a text, not an expression");
  }
  return { steps: text.steps + text.size.length * patternSteps(pattern.args) + 1, size: ONE };
}

function callBound(
  name: string,
  receiver: Bound | undefined,
  args: readonly Bound[],
  table: Readonly<Record<string, ResultSize>>,
): Bound {
  if (name === "has") return { steps: args.reduce((sum, each) => sum + each.steps, 1), size: ONE };
  const result = Object.hasOwn(table, name) ? table[name] : undefined;
  if (result === undefined) throw new BoundError(`the function ${name} is not supported`);
  const all = receiver === undefined ? args : [receiver, ...args];
  const own = receiver?.size ?? ONE;
  const argument = args[0]?.size ?? ONE;
  // A search may compare all of its argument at each place of its receiver.
  const counted = receiver?.size ?? argument;
  const work =
    name === "size" ? counted.length : receiver === undefined ? total(argument) : total(own) * argument.length;
  return {
    steps: all.reduce((sum, { steps }) => sum + steps, 1) + work,
    size: resultSize(result, own, args),
  };
}

function resultSize(result: ResultSize, own: Size, args: readonly Bound[]): Size {
  const argument = args[0]?.size ?? ONE;
  switch (result) {
    case "one":
      return ONE;
    case "receiver":
      return largest(own, argument);
    case "argument":
      return argument;
    case "number":
      return { length: Math.max(NUMBER_LENGTH, argument.length) };
    case "split":
      return { length: own.length + 1, each: { length: own.length } };
    case "joined":
      return { length: total(own) + own.length * argument.length };
  }
}
