/** Node's private parts are used in one module each, which has a public way beside it; everything else is public. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { sourceFilesOf } from "./source-tree.ts";

/** Tests name the private parts that they look for. */
const isTest = (path: string): boolean => /^test\/|\.test\.ts$/.test(path);
const PRIVATE: readonly RegExp[] = [
  /\bprocess\.binding\b|Reflect\.get\(process\b/,
  /\b(?:internalBinding|_linkedBinding)\b|expose[-_]internals/,
  /["'](?:node:)?(?:internal\/|_(?:http|tls|stream)_)\w+/,
  /["'](?:tcp|pipe|stream|tty|udp|tls|fs|js_stream)_wrap["']/,
  /\._handle\b|\["_handle"\]|\b_(?:readable|writable)State\b|\._events\b|\b_getActive\w+/,
  /Reflect\.get\((?:Buffer|Socket|Server|EventEmitter)\b|\bgetOwnPropertySymbols\b/,
  /\b(?:latin1|utf8|ascii|hex|ucs2|base64)(?:Slice|Write)\b/,
];
/** With the purpose of each. */
const USED_IN: Readonly<Record<string, string>> = {
  "agent/oom/record-wait.ts": "waiting for the kernel's log",
  "runtime-adapters/wasm/shared/serving/node-parts.ts": "serving HTTP",
  "scripts/test/untracked-tests.ts": "finding the caller of a public function in its stack",
};

const namesPrivate = (text: string): boolean =>
  PRIVATE.some((form) => form.test(text.replace(/^\s*(?:\/?\*|\/\/).*$/gm, "")));

test("Node's private parts are named nowhere but where they are known to be", () => {
  const found = sourceFilesOf(".").filter((path) => !isTest(path) && namesPrivate(readFileSync(path, "utf8")));
  assert.deepEqual(found.sort(), Object.keys(USED_IN).sort());
});

test("every kind of private part is found", () => {
  for (const text of [
    'process.binding("tcp_wrap")',
    'Reflect.get(process, "binding")',
    'process.getBuiltinModule("_http_common")',
    'import { x } from "internal/util";',
    "socket._handle.fd",
    'Reflect.get(Buffer.prototype, "latin1Slice")',
    "buffer.latin1Slice(0, 1)",
    "stream._writableState.length",
  ])
    assert.ok(namesPrivate(text), text);
  assert.ok(!namesPrivate("// process.binding was used here\nconst handle = socket.address();"));
});
