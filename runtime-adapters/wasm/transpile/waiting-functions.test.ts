import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { waitingFunctions } from "./waiting-functions.ts";

/** Answered without the agent: of devices all that does not open one, but for a break, which takes its time. */
const AT_ONCE = /^this-pod$|^\[method\](?!bucket\.|port\.send-break$)/;

/** The functions of one interface of `wit/board`, by their names in WIT. */
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

for (const name of ["keyvalue", "node-info", "telemetry", "gpio", "i2c", "serial"]) {
  test(`every function of ${name} that asks the agent may wait`, () => {
    const imported = `picolet:board/${name}@0.1.0`;
    const asking = functionsOf(name).filter((each) => !AT_ONCE.test(each));
    assert.ok(asking.length > 0);
    assert.deepEqual(
      new Set(waitingFunctions(["wasi:cli/stdout@0.3.0", imported])),
      new Set(asking.map((each) => `${imported}#${each}`)),
    );
  });
}

test("functions that wait by WASI 0.2 are set aside only where there are devices", () => {
  const streams = ["wasi:io/poll@0.2.3", "wasi:io/streams@0.2.3"];
  assert.deepEqual(
    waitingFunctions([...streams, "picolet:board/telemetry@0.1.0"]).filter((each) => each.startsWith("wasi:io")),
    [],
  );
  const waiting = waitingFunctions([...streams, "picolet:board/serial@0.1.0"]);
  assert.ok(waiting.includes("wasi:io/streams@0.2.3#[method]input-stream.blocking-read"));
});
