/** Unit tests need nothing but npm's packages: in their process, starting anything else fails. */
import childProcess, { type ChildProcess } from "node:child_process";
import { syncBuiltinESMExports } from "node:module";
import { basename, relative } from "node:path";
import { TEST_SYSTEM_PROGRAMS } from "./install-test-system.ts";

const INSTALLED: ReadonlySet<string> = new Set([...TEST_SYSTEM_PROGRAMS, "kubectl", "tpm2_clear", "docker"]);
const BUILT = "dist/";
/** Bundles that tests make for themselves. */
const BUNDLED = "dist/test-components/";

const isBuilt = (path: string): boolean => path.startsWith(BUILT) && !path.startsWith(BUNDLED);

/** Why a unit test must not start this; undefined: it may. */
export function refusalOf(command: string, args: readonly string[]): string | undefined {
  const built = [command, ...args].find((each) => isBuilt(relative(".", each)));
  if (built !== undefined) return `a unit test must not use ${relative(".", built)}, which must be built: ${ADVICE}`;
  const name = basename(command);
  return INSTALLED.has(name) ? `a unit test must not use ${name}, which must be installed: ${ADVICE}` : undefined;
}

const ADVICE = "move the test to test/, where `npm test` builds and installs what it needs";

interface Spawnable {
  spawn(options: { readonly file: string; readonly args?: readonly string[] }): unknown;
}

/** For the rest of this process. */
export function refuseInstalledPrograms(): void {
  const check = (command: string, args: unknown): void => {
    const reason = refusalOf(command, Array.isArray(args) ? args.map(String) : []);
    if (reason !== undefined) throw new Error(reason);
  };
  const { ChildProcess: Asynchronous, spawnSync, execFileSync } = childProcess;
  const prototype = Asynchronous.prototype as ChildProcess & Spawnable;
  const { spawn } = prototype;
  prototype.spawn = function (options) {
    // The first argument is the program's name once more.
    check(options.file, options.args?.slice(1));
    return spawn.call(this, options);
  };
  // The types of both have more overloads than a wrapper can repeat.
  const checked = (original: (...given: never[]) => unknown) =>
    ((command: string, ...rest: unknown[]) => {
      check(command, rest[0]);
      return Reflect.apply(original, childProcess, [command, ...rest]);
    }) as never;
  childProcess.spawnSync = checked(spawnSync);
  childProcess.execFileSync = checked(execFileSync);
  syncBuiltinESMExports();
}
