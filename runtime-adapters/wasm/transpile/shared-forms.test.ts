import assert from "node:assert/strict";
import { test } from "node:test";
import { shareForms } from "./shared-forms.ts";

const OPENING = "function f(a) { return _lowerFlatVariant(a); }\nlet gen= (function* _initGenerator () {\n";
const codes = Array.from({ length: 12 }, (_, at) => `[ 'code-(${at}', null, 0, 0, 0 ]`).join(",");
const form = (last = "variantSize32: 4"): string => `_lowerFlatVariant({\ncaseMetas: [${codes}],\n${last},\n})`;

test("forms that are equal are made once, within the generator", () => {
  const nested = `_lowerFlatResult({\ncaseMetas: [[ 'err', ${form()}, 4 ]],\n})`;
  const shared = shareForms(`${OPENING}const a = [${form()}];\nconst b = [${form()}, ${nested}];\n`);
  const once = `_lowerFlatResult({\ncaseMetas: [[ 'err', sharedForm0, 4 ]],\n})`;
  assert.equal(
    shared,
    `${OPENING}const sharedForm0 = ${form()};\nconst a = [sharedForm0];\nconst b = [sharedForm0, ${once}];\n`,
  );
  const whole = shareForms(`${OPENING}const a = ${nested};\nconst b = ${nested};\n`);
  assert.match(whole, /^const a = sharedForm0;\nconst b = sharedForm0;\n$/m);
});

test("forms that differ, occur once, are small or depend on their place stay", () => {
  const small = "_lowerFlatOption({ caseMetas: [] })";
  const ofItsPlace = form("getMemoryFn: () => memory0");
  for (const body of [
    `${form()};\n${form("variantSize32: 8")};\n`,
    `${small};\n${small};\n`,
    `${ofItsPlace};\n${ofItsPlace};\n`,
    `${form().slice(0, -2)};\n`.repeat(2),
  ]) {
    assert.equal(shareForms(OPENING + body), OPENING + body);
  }
  assert.equal(shareForms(`${form()};\n${form()};\n`), `${form()};\n${form()};\n`);
});

test("an import is described once for both ways of calling it, if they are equal", () => {
  const bind = (index: number): string => `_lowerImportBackwardsCompat.bind(\nnull,\n{\nindex: ${index},\n},\n)`;
  const either = (one: string, other: string): string =>
    `let trampoline3 = _trampoline3.manuallyAsync ? new WebAssembly.Suspending(_suspendingImport(0, ${one})) : ${other};\n`;
  assert.equal(
    shareForms(either(bind(1), bind(1))),
    `let trampoline3 = ${bind(1)};\nif (_trampoline3.manuallyAsync) { trampoline3 = new WebAssembly.Suspending(_suspendingImport(0, trampoline3)); }\n`,
  );
  assert.equal(shareForms(either(bind(1), bind(2))), either(bind(1), bind(2)));
});
