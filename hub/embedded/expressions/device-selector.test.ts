import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { SelectorEnvironment } from "./device-selector.ts";

const environment = new SelectorEnvironment();
const DRIVER = "gpu.example.com";
const DEVICE = {
  attributes: {
    model: { string: "A100-SXM" },
    "other.com/generation": { int: 3 },
    driverVersion: { version: "1.2.3" },
    isFast: { bool: true },
  },
  capacity: { memory: { value: "40Gi" } },
};

function run(expression: string): boolean | string {
  const compiled = environment.compile(expression);
  if (!compiled.ok) return `${compiled.kind}: ${compiled.problem}`;
  try {
    return compiled.selector.matches(DRIVER, DEVICE);
  } catch (error) {
    return `error: ${(error as Error).message}`;
  }
}

const own = `device.attributes["${DRIVER}"]`;

describe("selectors of devices", () => {
  for (const [expression, expected] of [
    [`device.driver == "${DRIVER}"`, true],
    [`has(${own}.model) && !has(${own}.speed)`, true],
    [`${own}.model.lowerAscii().matches("^.*a100.*$")`, true],
    [`(${own}.model).matches( "^B" )`, false],
    [`"matches".matches("^matches$") && has(${own}.model)`, true],
    [`${own}.isFast`, true],
    [`device.attributes["other.com"].generation in [2, 3]`, true],
    [`device.attributes["other.com"].generation > 3`, false],
    ['"x" in device.attributes["nowhere.com"]', false],
    ['device.attributes["nowhere.com"].x == 1', "error: No such key: x"],
    [`${own}.speed > 3 || true`, true],
    [`${own}.?speed.orValue(5) > 3`, true],
    [`${own}.driverVersion.compareTo(semver("1.10.0")) < 0`, true],
    [`${own}.driverVersion.isGreaterThan(semver("1.2.3-rc.1"))`, true],
    [`${own}.driverVersion == semver("1.2.3+build")`, true],
    ['semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10"))', true],
    ['semver("v1.2", true).minor() == 2 && isSemver("1.2.3") && !isSemver("1.2")', true],
    [`device.capacity["${DRIVER}"].memory.compareTo(quantity("40Gi")) == 0`, true],
    [`device.capacity["${DRIVER}"].memory.isGreaterThan(quantity("41943041Ki"))`, false],
    [`device.capacity["${DRIVER}"].memory.sub(quantity("39Gi")).isLessThan(quantity("2Gi"))`, true],
    ['quantity("5").add(3).asInteger() == 8 && quantity("-1").sign() == -1 && !quantity("1m").isInteger()', true],
    ['quantity("x").isInteger()', 'error: cannot read the quantity "x"'],
    [`device.attributes.exists(domain, domain == "${DRIVER}")`, true],
    ["[1, 2].map(has, has + 1).all(x, x > 1)", true],
    [`${own}.model`, "error: must evaluate to bool, not string"],
    ["1 + 1", "wrong: must evaluate to bool or the unknown type, not int"],
    ["device.serial == 1", "wrong: compilation failed: No such key: serial"],
    ["device.driver == 1", "wrong: compilation failed: no such overload: string == int"],
    ["node.name == 'x'", "wrong: compilation failed: Unknown variable: node"],
    ["device.driver ==", "wrong: compilation failed: Unexpected token: EOF"],
    ["has(device)", "wrong: compilation failed: invalid argument to has() macro: it must be a field"],
    ["cel.bind(x, 1, x == 1)", "wrong: compilation failed: the function bind is not supported"],
    [
      "device.driver.matches(device.driver)",
      "wrong: compilation failed: the pattern of matches must be a text, not an expression",
    ],
    [
      'device.driver.matches("(a")',
      'wrong: compilation failed: the pattern "(a" is wrong: error parsing regexp: missing closing ): `(a`',
    ],
    ["device.constructor == 1", "wrong: compilation failed: No such key: constructor"],
    ['device.attributes["__proto__"].x == 1', "error: No such key: x"],
  ] as const) {
    test(expression, () => {
      assert.equal(run(expression), expected);
    });
  }
});

const many = (count: number): string => `[${Array.from({ length: count }, (_, index) => index).join()}]`;
const nested = (levels: number, count: number): string =>
  levels === 0 ? "true" : `${many(count)}.all(x${levels}, ${nested(levels - 1, count)})`;

describe("expressions that take too much", () => {
  for (const [name, expression] of Object.entries({
    "loops in loops": nested(4, 20),
    "a loop over a long list of errors": `${many(300)}.exists(x, device.attributes["a"].b == x)`,
    "a text that doubles with each step": `["a"]${".map(x, x + x)".repeat(30)}.size() == 1`,
    "a list that doubles with each step": `[[1]]${".map(x, x + x)".repeat(30)}.size() == 1`,
    "a text that is joined again and again": `["ab"]${".map(x, x.split('').join('abcdefgh'))".repeat(12)}.size() == 1`,
    "a walk over all attributes of all domains": `device.attributes.all(a, ${many(20)}.all(b, ${many(20)}.all(c, a != "x")))`,
    "many patterns in a loop": `${many(100)}.all(x, !device.driver.matches("a.*b.*c"))`,
    "errors that are not passed on": Array.from({ length: 250 }, () => `${own}.x == 1`).join(" || "),
  })) {
    test(name, () => {
      const compiled = environment.compile(expression);
      assert.equal(compiled.ok ? compiled.selector.steps : compiled.kind, "costly");
      assert.match(compiled.ok ? "" : compiled.problem, /^too complex, exceeds cost limit by factor of/);
    });
  }

  for (const [expression, problem] of [
    ['device.driver.matches("(a{50}){50}{50}")', /repeats more than 100 times/],
    [`device.driver.matches("${"a".repeat(513)}")`, /more than 512 characters/],
    [`${"(".repeat(60)}true${")".repeat(60)}`, /Exceeded maxDepth/],
    [Array.from({ length: 1500 }, () => "true").join(" && "), /Exceeded maxAstNodes/],
  ] as const) {
    test(`${expression.slice(0, 50)} is refused`, () => {
      const compiled = environment.compile(expression);
      assert.match(compiled.ok ? "" : compiled.problem, problem);
    });
  }

  test("a pattern that makes others go back takes as many steps as its text has characters", () => {
    const text = "a".repeat(64);
    const compiled = environment.compile(`device.attributes["${DRIVER}"].model.matches("^(a|aa)+$")`);
    assert.ok(compiled.ok);
    const device = { attributes: { model: { string: `${text}b` } } };
    assert.equal(compiled.selector.matches(DRIVER, device), false);
    assert.ok(compiled.selector.steps < 5_000);
  });
});

const leaf = fc.constantFrom(
  ...["1", "-1", "0.5", "true", '"a"', "'x'", "null", "[]", "{}", "device", "device.driver", own, `${own}.model`],
  ...[`${own}.driverVersion`, `device.capacity["${DRIVER}"].memory`, "x", "device.attributes", 'quantity("1")', "b'a'"],
);
const { expression: generated } = fc.letrec<{ expression: string }>((tie) => ({
  expression: fc.oneof(
    { maxDepth: 5, depthSize: "large" },
    leaf,
    fc
      .tuple(
        tie("expression"),
        fc.constantFrom("+", "-", "*", "/", "%", "==", "<", ">=", "in", "&&", "||"),
        tie("expression"),
      )
      .map(([left, operator, right]) => `(${left} ${operator} ${right})`),
    fc
      .tuple(tie("expression"), fc.constantFrom("all", "exists", "exists_one", "map", "filter"), tie("expression"))
      .map(([list, macro, body]) => `${list}.${macro}(x, ${body})`),
    fc
      .tuple(
        tie("expression"),
        fc.constantFrom(..."size contains split join matches compareTo isLessThan major add foo orValue".split(" ")),
        fc.array(tie("expression"), { maxLength: 2 }),
      )
      .map(([receiver, method, args]) => `${receiver}.${method}(${args.join()})`),
    fc
      .tuple(fc.constantFrom("has", "size", "string", "int", "type", "semver", "dyn"), tie("expression"))
      .map(([name, arg]) => `${name}(${arg})`),
    fc.tuple(tie("expression"), tie("expression"), tie("expression")).map(([a, b, c]) => `(${a} ? ${b} : ${c})`),
    fc.array(tie("expression"), { maxLength: 3 }).map((items) => `[${items.join()}]`),
  ),
}));

/** Expressions whose types mostly fit. */
const typed = fc.letrec<{ bool: string; int: string; text: string; list: string }>((tie) => {
  const all = { maxDepth: 4, depthSize: "large" } as const;
  const binary = (left: string, operators: readonly string[], right = left) =>
    fc
      .tuple(tie(left as "int"), fc.constantFrom(...operators), tie(right as "int"))
      .map((parts) => `(${parts.join(" ")})`);
  return {
    bool: fc.oneof(
      all,
      fc.constantFrom("true", `${own}.isFast`, `has(${own}.nope)`, `${own}.nope`, `"x" in ${own}`),
      binary("int", ["==", "<", ">="]),
      binary("text", ["==", "!=", "<"]),
      binary("bool", ["&&", "||", "=="]),
      binary("int", ["in"], "list"),
      fc
        .tuple(tie("list"), fc.constantFrom("all", "exists", "exists_one"), tie("bool"))
        .map(([list, macro, body]) => `${list}.${macro}(x, ${body})`),
      fc
        .tuple(tie("text"), fc.constantFrom("contains", "startsWith"), tie("text"))
        .map(([a, f, b]) => `${a}.${f}(${b})`),
      tie("text").map((text) => `${text}.matches("(a|b)+c?$")`),
    ),
    int: fc.oneof(
      all,
      fc.constantFrom("0", "7", "-1", "9223372036854775807", 'device.attributes["other.com"].generation', "x"),
      binary("int", ["+", "-", "*", "/", "%"]),
      tie("list").map((list) => `size(${list})`),
      tie("text").map((text) => `${text}.size()`),
      fc.tuple(tie("bool"), tie("int"), tie("int")).map(([a, b, c]) => `(${a} ? ${b} : ${c})`),
    ),
    text: fc.oneof(
      all,
      fc.constantFrom('"a"', "device.driver", `${own}.model`, '""'),
      binary("text", ["+"]),
      fc.tuple(tie("text"), fc.constantFrom("lowerAscii", "trim")).map(([text, name]) => `${text}.${name}()`),
      tie("int").map((int) => `string(${int})`),
    ),
    list: fc.oneof(
      all,
      fc.constantFrom("[1, 2, 3]", "[]"),
      fc.array(tie("int"), { maxLength: 4 }).map((items) => `[${items.join()}]`),
      binary("list", ["+"]),
      fc.tuple(tie("list"), tie("int")).map(([list, body]) => `${list}.map(x, ${body})`),
      fc.tuple(tie("list"), tie("bool")).map(([list, body]) => `${list}.filter(x, ${body})`),
    ),
  };
});

test("every text is compiled or refused, and what is compiled ends with a boolean or an error", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        typed.bool,
        generated,
        generated.map((text) => `${text} == true`),
        fc.string({ maxLength: 200 }),
      ),
      (text) => {
        const compiled = environment.compile(text);
        if (!compiled.ok) return compiled.problem.length > 0;
        assert.ok(compiled.selector.steps <= 40_000);
        try {
          return typeof compiled.selector.matches(DRIVER, DEVICE) === "boolean";
        } catch (error) {
          return error instanceof Error && error.message.length > 0 && !(error instanceof RangeError);
        }
      },
    ),
    { numRuns: 2_000 },
  );
});
