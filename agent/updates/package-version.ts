import { execFile } from "node:child_process";

/** dpkg-query parses one file of at most some MiB. */
const LIMIT_MS = 30_000;
const MAX_OUTPUT_BYTES = 4096;
/** States in which the files are those of the version. A version has no white space. */
const INSTALLED = /^(?:installed|unpacked|half-configured|triggers-\w+) (\S+)$/;

/**
 * The version of the installed Debian package `picolet`, which may have a revision (`1.2-1`) that the agent's own has
 * not. dpkg-query, and not dpkg's file of states: the package's own script starts the new agent, and dpkg writes the
 * file afterwards.
 * @returns `undefined` where dpkg has no such package, or there is no dpkg
 */
export function installedPackageVersion(program = "dpkg-query"): Promise<string | undefined> {
  const args = ["--show", "--showformat", `\${db:Status-Status} \${Version}`, "picolet"];
  const options = { timeout: LIMIT_MS, maxBuffer: MAX_OUTPUT_BYTES, killSignal: "SIGKILL", encoding: "utf8" } as const;
  return new Promise((resolve) => {
    execFile(program, args, options, (error, stdout) => {
      resolve(error === null ? INSTALLED.exec(stdout.trim())?.[1] : undefined);
    });
  });
}
