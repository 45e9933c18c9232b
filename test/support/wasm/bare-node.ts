/** The floor of a program of ours: Node itself with the same flags and environment, and nothing to do. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { TempFolder } from "../unit/machine/temp-folder.ts";

/** As a runner at rest: it has collected, and its one thread waits in the kernel. */
const AT_REST = `
globalThis.gc?.({ type: "major", flavor: "last-resort", execution: "sync" });
require("fs").writeSync(1, "ready");
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
`;

export class BareNodes implements Disposable {
  readonly #folder = new TempFolder();
  readonly #children: ChildProcess[] = [];

  /** @returns its pid, once it rests */
  async start(flags: readonly string[], env: Readonly<Record<string, string>>): Promise<number> {
    const path = this.#folder.at("rest.cjs");
    writeFileSync(path, AT_REST);
    const child = spawn(process.execPath, [...flags, path], { env, stdio: ["ignore", "pipe", "ignore"] });
    this.#children.push(child);
    const ready = await Promise.race([once(child.stdout, "data"), once(child, "exit")]);
    if (child.pid === undefined || String(ready[0]) !== "ready") throw new Error("Node ends with these flags");
    return child.pid;
  }

  [Symbol.dispose](): void {
    for (const child of this.#children) child.kill("SIGKILL");
    this.#folder[Symbol.dispose]();
  }
}

/** The peak memory of a running process. */
export const peakRssKiB = (pid: number): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
