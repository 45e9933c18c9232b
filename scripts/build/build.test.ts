import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { transform } from "esbuild";
import { withPlainExports } from "./build.ts";

async function exportsOf(
  text: string,
  files: Readonly<Record<string, unknown>> = {},
): Promise<Record<string, unknown>> {
  const { code } = await transform(withPlainExports(text), { format: "cjs", minify: true });
  const module = { exports: {} };
  runInNewContext(code, { module, require: (name: string) => files[name] });
  return module.exports;
}

const getterOf = (exports: object, name: string): unknown => Object.getOwnPropertyDescriptor(exports, name)?.get;

test("an export whose variable never changes is a value", async () => {
  const text = 'var a=1,$b=class{#a=1},c=/\\a=/;function d(){return import("./part.cjs")}export{a,$b as b,c,d};\n';
  const part = { e: 1 };
  const exports = await exportsOf(text, { "./part.cjs": part });
  assert.equal(exports.a, 1);
  for (const name of ["a", "b", "c", "d"]) assert.equal(getterOf(exports, name), undefined, name);
  assert.equal(await (exports.d as () => Promise<unknown>)(), part);
});

test("an export whose variable changes shows its value of the moment", async () => {
  const patterns = ["[a]=[2]", "[a,d]=[2]", "({a}={a:2})", "({b:a}={b:2})", "({b:{c:a}}={b:{c:2}})", "[a=2]=[]"];
  const loops = ["for(a of[2]);", "for(a in{2:0})a=+a;"];
  for (const change of ["a=2", "a++", "++a", "a+=1", "a&&=2", ...patterns, ...loops]) {
    const exports = await exportsOf(`var a=1,b=3,d;function c(){${change}}export{a,b,c};`);
    const before = [exports.a, exports.b];
    (exports.c as () => void)();
    assert.deepEqual([...before, exports.a], [1, 3, 2], change);
    assert.equal(getterOf(exports, "b"), undefined, change);
  }
});

test("an export that has its value later shows it then", async () => {
  const exports = await exportsOf("var a;function b(){a=2}export{a,b};");
  (exports.b as () => void)();
  assert.equal(exports.a, 2);
});
