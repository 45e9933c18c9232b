import assert from "node:assert/strict";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "./temp-folder.ts";

/** Each instance of the module checks a bundle once, as each process does. */
const instance = async (number: number): Promise<typeof import("./bundles.ts")> => import(`./bundles.ts?${number}`);

test("a bundle is kept until a file that it was made of changes", async () => {
  using folder = new TempFolder();
  const name = `kept-${process.pid}`;
  const source = folder.at(`${name}.ts`);
  writeFileSync(source, 'import { part } from "./part.ts"; console.log(part);');
  writeFileSync(folder.at("part.ts"), 'export const part = "before";');
  const path = await (await instance(1)).bundled(source, "esm");
  try {
    const { ino } = statSync(`${path}.json`);
    await (await instance(2)).bundled(source, "esm");
    assert.equal(statSync(`${path}.json`).ino, ino);
    writeFileSync(folder.at("part.ts"), 'export const part = "after";');
    await (await instance(3)).bundled(source, "esm");
    assert.match(readFileSync(path, "utf8"), /after/);
    writeFileSync(path, "damaged");
    await (await instance(4)).bundled(source, "esm");
    assert.match(readFileSync(path, "utf8"), /after/);
  } finally {
    for (const each of [path, `${path}.json`]) rmSync(each);
  }
});
