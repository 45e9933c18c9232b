import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { trapMessage, trapReport } from "./trap-message.ts";

const trapped = (stack: string): Error => Object.assign(new WebAssembly.RuntimeError("unreachable"), { stack });

test("a report is the message and the component's own frames", () => {
  const stack = [
    "RuntimeError: unreachable",
    "    at crash (wasm://wasm/core-0b1c:wasm-function[12]:0x1f)",
    "    at wasm://wasm/0b1c:wasm-function[7]:0x20",
    "    at std::rt::{closure#0} (wasm://wasm/core-0b1c:wasm-function[3]:0xabc)",
    "    at Module.run (/runner/wasm-runner.cjs:1:2345)",
  ].join("\n");
  const error = trapped(stack);
  assert.equal(
    trapReport(error, trapMessage(error)),
    [
      "picolet: wasm trap: unreachable",
      "    at crash wasm-function[12]:0x1f",
      "    at wasm-function[7]:0x20",
      "    at std::rt::{closure#0} wasm-function[3]:0xabc",
      "",
    ].join("\n"),
  );
  assert.equal(trapReport("nothing", "why"), "picolet: why\n");
});

test("a report stays short with any names of functions", () => {
  const frame = fc.string({ maxLength: 5000 }).map((name) => `    at ${name} (wasm://wasm/0b1c:wasm-function[1]:0x1)`);
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 40 }), fc.string({ maxLength: 5000 }), (frames, message) => {
      const report = trapReport(trapped(["RuntimeError: x", ...frames].join("\n")), message);
      assert.ok(report.length <= 3072, String(report.length));
      assert.ok(report.startsWith("picolet: ") && report.endsWith("\n"));
    }),
  );
});
