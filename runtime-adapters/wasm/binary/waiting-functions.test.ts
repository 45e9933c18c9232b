import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { waitingFunctions } from "./waiting-functions.ts";

/** Answered without the agent. */
const AT_ONCE: readonly string[] = ["this-pod"];

/** Of one interface of `wit/board`, as WIT calls its functions. */
function functionsOf(name: string): string[] {
  const functions: string[] = [];
  let resource: string | undefined;
  for (const line of readFileSync(`wit/board/${name}.wit`, "utf8").split("\n")) {
    const [, begun] = /^ {2}resource ([\w-]+) \{/.exec(line) ?? [];
    const [, indentation, called] = /^( {2}| {4})([\w-]+): func\(/.exec(line) ?? [];
    if (begun !== undefined) resource = begun;
    if (called !== undefined) functions.push(indentation?.length === 4 ? `[method]${resource}.${called}` : called);
  }
  return functions;
}

for (const name of ["keyvalue", "node-info", "telemetry"]) {
  test(`every function of ${name} that asks the agent may wait`, () => {
    const imported = `picolet:board/${name}@0.1.0`;
    const asking = functionsOf(name).filter((each) => !AT_ONCE.includes(each));
    assert.ok(asking.length > 0);
    assert.deepEqual(
      new Set(waitingFunctions(["wasi:io/poll@0.2.0", imported])),
      new Set(asking.map((each) => `${imported}#${each}`)),
    );
  });
}
