import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { type PluginDescription, servePlugin } from "@picolet/test/support/unit/plugins/grpc-peer.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import type { Plugin, PluginHandler } from "./plugin-handler.ts";
import { PluginWatcher } from "./plugin-watcher.ts";

/** A watcher on a folder of its own, and what its handler for `DRAPlugin` was given. */
function bench(context: TestContext, handler: Partial<PluginHandler> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "picolet-plugins-"));
  const told: string[] = [];
  const waiters: (() => void)[] = [];
  const tell = (text: string): void => {
    told.push(text);
    for (const wake of waiters.splice(0)) wake();
  };
  const own: PluginHandler = {
    register: async (plugin: Plugin, signal) => {
      await handler.register?.(plugin, signal);
      tell(`+${plugin.name} ${plugin.endpoint.replace(folder, "")}`);
    },
    remove: async (plugin) => tell(`-${plugin.name}`),
  };
  const handlers = { DRAPlugin: async () => own };
  const components = { clock: systemClock, random: { next: () => 0 }, log: new RecordedLog(), handlers };
  const watcher = new PluginWatcher(components, { folder });
  const end = new AbortController();
  const running = watcher.run(end.signal).catch(() => undefined);
  context.after(async () => {
    end.abort();
    await running;
    rmSync(folder, { recursive: true });
  });
  const serve = async (name: string, info: Parameters<typeof servePlugin>[1]) => {
    // As a plugin that starts: the socket is there before it answers.
    const peer = await servePlugin(join(folder, name), info);
    context.after(() => peer.stop());
    return peer;
  };
  const until = async (text: string): Promise<void> => {
    while (!told.includes(text)) await new Promise<void>((resolve) => waiters.push(resolve));
  };
  return { folder, told, serve, until };
}

const DRIVER: PluginDescription = { type: "DRAPlugin", name: "gpu.example.com", supported_versions: ["v1.DRAPlugin"] };

test("a plugin is registered, told so, and removed with its socket", async (context) => {
  const { folder, told, serve, until } = bench(context);
  mkdirSync(join(folder, "sub"));
  const peer = await serve("sub/gpu-reg.sock", { ...DRIVER, endpoint: join(folder, "dra.sock") });
  assert.deepEqual(await peer.reported(), { plugin_registered: true, error: "" });
  peer.stop();
  await until("-gpu.example.com");
  assert.deepEqual(told, ["+gpu.example.com /dra.sock", "-gpu.example.com"]);
});

test("a plugin that never answers delays no other, and one without endpoint serves on its own socket", async (context) => {
  const { serve, until } = bench(context);
  await serve("hung.sock", undefined);
  const peer = await serve("gpu.sock", DRIVER);
  await peer.reported();
  await until("+gpu.example.com /gpu.sock");
});

test("a plugin that restarts under the same socket is removed and registered again", async (context) => {
  const { folder, told, serve, until } = bench(context);
  const first = await serve("gpu.sock", DRIVER);
  await first.reported();
  const second = await serve("sub/next.sock", { ...DRIVER, name: "other.example.com" });
  await second.reported();
  renameSync(join(folder, "sub/next.sock"), join(folder, "gpu.sock"));
  await until("-gpu.example.com");
  await until("+other.example.com /gpu.sock");
  assert.equal(told[0], "+gpu.example.com /gpu.sock");
});

test("a refused plugin is told why, and asked again", async (context) => {
  let refusals = 0;
  const register = async (): Promise<void> => {
    refusals += 1;
    if (refusals === 1) throw new Error("not yet");
  };
  const { serve } = bench(context, { register });
  const peer = await serve("gpu.sock", DRIVER);
  assert.deepEqual(await peer.reported(), { plugin_registered: false, error: "not yet" });
  assert.deepEqual(await peer.reported(), { plugin_registered: true, error: "" });
});

test("a plugin that cannot say yet what it is is told nothing, and asked again", async (context) => {
  let questions = 0;
  const { serve } = bench(context);
  const peer = await serve("gpu.sock", () => {
    questions += 1;
    return questions === 1 ? new Error("not yet") : DRIVER;
  });
  assert.deepEqual(await peer.reported(), { plugin_registered: true, error: "" });
});

for (const [what, info, expected] of [
  ["an unknown type", { ...DRIVER, type: "toString" }, /cannot use plugin type "toString": known are DRAPlugin/],
  ["no name", { ...DRIVER, name: "" }, /its name "" must have/],
  ["a relative endpoint", { ...DRIVER, endpoint: "dra.sock" }, /its endpoint "dra.sock" must be an absolute path/],
] as const) {
  test(`a plugin with ${what} is refused`, async (context) => {
    const { serve } = bench(context);
    const peer = await serve("gpu.sock", info);
    const { plugin_registered: isRegistered, error } = await peer.reported();
    assert.equal(isRegistered, false);
    assert.match(error, expected);
  });
}
