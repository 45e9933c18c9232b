/** The runners' seccomp filter in the kernel that runs this test. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { seccompFilter } from "@picolet/runtime-wasm/adapter/isolation/seccomp-filter.ts";
import { RUNNER_FLAGS } from "@picolet/runtime-wasm/adapter/processes/node-flags.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

/** @returns what it wrote, as JSON */
function underFilter(context: TestContext, script: string): unknown {
  const folder = new TempFolder();
  context.after(() => folder[Symbol.dispose]());
  const filter = seccompFilter(process.arch);
  assert.ok(filter, `${process.arch} is known`);
  writeFileSync(folder.at("filter"), filter);
  writeFileSync(folder.at("script.cjs"), script);
  const args = ["test/support/wasm/under-seccomp.py", folder.at("filter"), process.execPath, ...RUNNER_FLAGS];
  return JSON.parse(execFileSync("python3", [...args, folder.at("script.cjs")], { encoding: "utf8" }));
}

test("Node does under the filter what a runner does: threads, files, sockets, WebAssembly, time", (context) => {
  const done = underFilter(
    context,
    `const done = [];
    const { once } = require("node:events");
    (async () => {
      await require("node:fs/promises").readFile("/proc/self/status"); done.push("thread");
      new WebAssembly.Instance(new WebAssembly.Module(Buffer.from("0061736d01000000", "hex"))); done.push("module");
      const server = require("node:net").createServer((socket) => socket.end("x")).listen(0, "127.0.0.1");
      await once(server, "listening");
      await once(require("node:net").connect(server.address().port), "data"); done.push("socket");
      server.close();
      await new Promise((resolve) => require("node:dns").lookup("localhost", resolve)); done.push("name");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5); done.push("wait");
      globalThis.gc({ type: "major", flavor: "last-resort", execution: "sync" }); done.push("collection");
      console.log(JSON.stringify(done));
    })();`,
  );
  assert.deepEqual(done, ["thread", "module", "socket", "name", "wait", "collection"]);
});

test("no process is begun and none is signalled under the filter", (context) => {
  const errors = underFilter(
    context,
    `const { spawnSync } = require("node:child_process");
    const kill = (pid) => { try { process.kill(pid, 0); return "done"; } catch (error) { return error.code; } };
    console.log(JSON.stringify([spawnSync(process.execPath, ["--version"]).error?.code, kill(process.ppid), kill(process.pid)]));`,
  );
  assert.deepEqual(errors, ["EPERM", "EPERM", "EPERM"]);
});

test("every jump of the filter leads to an end, on every machine that is known", () => {
  for (const machine of ["x64", "arm64"]) {
    const filter = seccompFilter(machine);
    assert.ok(filter);
    const view = new DataView(filter.buffer);
    const count = filter.length / 8;
    for (let index = 0; index < count; index += 1) {
      const code = view.getUint16(index * 8, true);
      const furthest = index + 1 + Math.max(view.getUint8(index * 8 + 2), view.getUint8(index * 8 + 3));
      assert.ok(code === 0x06 || furthest < count, `${machine}, instruction ${index}`);
    }
  }
  assert.equal(seccompFilter("mips"), undefined);
});
