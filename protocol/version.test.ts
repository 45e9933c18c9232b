import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { VERSION } from "./version.ts";

const textOf = (path: string): string => readFileSync(new URL(`../${path}`, import.meta.url), "utf8");

test("the programs say the version that package.json has", () => {
  const manifest = JSON.parse(textOf("package.json")) as { version: string };
  assert.equal(VERSION, manifest.version);
});

test("tools that read .nvmrc use the Node that package.json has, and the deployment names this version's image", () => {
  const { dependencies } = JSON.parse(textOf("package.json")) as { dependencies: { node: string } };
  assert.equal(textOf(".nvmrc").trim(), dependencies.node);
  assert.match(textOf("hub/deploy/workload.yaml"), new RegExp(`image: picolet-hub:${VERSION}\\s`));
});
