/** A component runtime beside a registry that the test writes. */
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { ImageInfo, PullOptions } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { ScriptedRegistry } from "../unit/images/scripted-registry.ts";
import { WasmRuntime, type WasmRuntimeOptions } from "./wasm-runtime.ts";

const NEVER = new AbortController().signal;
/** Shortens only the client's own waits: the time of a peer on the loopback is the machine's. */
export const QUICK_PULLS = { retryDelayMs: 10 };

export class PullBench implements AsyncDisposable {
  readonly runtime: WasmRuntime;
  readonly registry: ScriptedRegistry;
  readonly adapter: WasmAdapter;

  private constructor(runtime: WasmRuntime, registry: ScriptedRegistry) {
    this.runtime = runtime;
    this.registry = registry;
    this.adapter = runtime.adapter();
  }

  static async create(options: WasmRuntimeOptions = {}, registry?: ScriptedRegistry): Promise<PullBench> {
    const runtime = await WasmRuntime.create({ pullLimits: QUICK_PULLS, ...options });
    return new PullBench(runtime, registry ?? (await ScriptedRegistry.start()));
  }

  /** @param rest `team/app:1` */
  name(rest: string): string {
    return `${this.registry.address}/${rest}`;
  }

  pull(rest: string, options: PullOptions = {}, signal = NEVER): Promise<ImageInfo> {
    return this.adapter.images.pull(this.name(rest), options, signal);
  }

  /** Has it refused for this. */
  async refuses(rest: string, code: string, text: RegExp, options: PullOptions = {}): Promise<void> {
    await assert.rejects(this.pull(rest, options), (error) => {
      assert.ok(isPicoletError(error), describeError(error));
      assert.match(describeError(error), text);
      assert.deepEqual([error.code, error.reason], [code, "ErrImagePull"]);
      return true;
    });
  }

  /** Names of files in a folder of the runtime's, and in its folders. */
  files(folder: "pulls" | "components" | "images" | "tmp"): readonly string[] {
    const path = this.runtime.folder.at("root", folder);
    if (!existsSync(path)) return [];
    const entries = readdirSync(path, { recursive: true, withFileTypes: true });
    return entries.filter((each) => each.isFile()).map(({ name }) => name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.adapter[Symbol.asyncDispose]();
    await this.runtime[Symbol.asyncDispose]();
    await this.registry[Symbol.asyncDispose]();
  }
}
