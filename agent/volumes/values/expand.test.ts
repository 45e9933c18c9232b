import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { expandReferences } from "./expand.ts";

const VARIABLES = new Map([
  ["VAR_A", "A"],
  ["VAR_B", "B"],
  ["VAR_REF", "$(VAR_A)"],
  ["VAR_EMPTY", ""],
  ["a b", "odd name"],
]);
const expand = (text: string): string => expandReferences(text, (name) => VARIABLES.get(name));

test("references are expanded as Kubernetes does it", () => {
  const cases: readonly (readonly [string, string])[] = [
    ["$(VAR_A)", "A"],
    ["___$(VAR_B)___", "___B___"],
    ["$(VAR_A)$(VAR_B)", "AB"],
    ["$(VAR_A)_$(VAR_DNE)_$(VAR_B)", "A_$(VAR_DNE)_B"],
    ["$(VAR_REF)", "$(VAR_A)"],
    ["$(VAR_EMPTY)", ""],
    ["$(a b)", "odd name"],
    ["$()", "$()"],
    ["$$(VAR_A)", "$(VAR_A)"],
    ["$$$(VAR_A)", "$A"],
    ["$$$$(VAR_A)", "$$(VAR_A)"],
    ["foo$$var", "foo$var"],
    ["$VAR_A", "$VAR_A"],
    ["$", "$"],
    ["$$", "$"],
    ["$$$", "$$"],
    ["$(", "$("],
    ["$(VAR_A", "$(VAR_A"],
    ["$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)"],
    ["$(VAR_A))", "A)"],
    ["$((VAR_A))", "$((VAR_A))"],
    ["\n$(VAR_A)\n", "\nA\n"],
    ["$é$(VAR_A)", "$éA"],
    ["", ""],
  ];
  for (const [text, expanded] of cases) assert.equal(expand(text), expanded, text);
});

const texts = fc
  .array(fc.constantFrom("$", "(", ")", "VAR_A", "x", "$(VAR_B)", " ", "ü"), { maxLength: 20 })
  .map((parts) => parts.join(""));

test("a long text of references that are never closed takes no time to speak of", () => {
  const begun = process.cpuUsage();
  const text = "$(".repeat(1_000_000);
  assert.equal(expand(text), text);
  const closed = `${"$(".repeat(500_000)}${")$(".repeat(500_000)}`;
  assert.equal(expand(closed), closed);
  // It takes 0.2 s of CPU time; a new search for every reference's end would take 23 s.
  assert.ok(process.cpuUsage(begun).user < 8_000_000);
});

test("it is what a regular expression, slow on long texts, would make of it", () => {
  const VALUES = new Map([
    ["A", "$(B)"],
    ["", "empty"],
  ]);
  const lookup = (name: string): string | undefined => VALUES.get(name);
  const parts = fc.array(fc.constantFrom("$", "(", ")", "A", "$(A)", "$$", "$()", "$(", " "), { maxLength: 30 });
  fc.assert(
    fc.property(parts, (words) => {
      const text = words.join("");
      const expected = text.replace(/\$\$|\$\(([^)]*)\)/g, (match, name: string | undefined) =>
        name === undefined ? "$" : (lookup(name) ?? match),
      );
      assert.equal(expandReferences(text, lookup), expected);
    }),
  );
});

test("doubling every dollar sign gives the text itself", () => {
  fc.assert(
    fc.property(texts, (text) => {
      assert.equal(expand(text.replaceAll("$", "$$$$")), text);
    }),
  );
});

test("an unknown variable changes nothing but doubled dollar signs", () => {
  fc.assert(
    fc.property(texts, (text) => {
      const none = expandReferences(text, () => undefined);
      if (!text.includes("$$")) assert.equal(none, text);
      assert.equal(none.replaceAll("$", ""), text.replaceAll("$", ""));
    }),
  );
});

test("a value is never read again", () => {
  fc.assert(
    fc.property(texts, texts, (text, value) => {
      const seen: string[] = [];
      expandReferences(text, (name) => {
        seen.push(name);
        return value;
      });
      assert.ok(seen.every((name) => text.includes(`$(${name})`)));
    }),
  );
});
