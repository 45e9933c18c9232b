import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { AGENT_ENVIRONMENT, AGENT_FLAGS } from "../../scripts/build.ts";

/** A program of this folder, with the flags and the environment that the agent's launcher gives it. */
export function forkWithAgentFlags(program: string): ChildProcess {
  const settings = [...AGENT_ENVIRONMENT.matchAll(/(\w+)=(\S+)/g)].map(([, name = "", value = ""]) => [name, value]);
  return fork(fileURLToPath(new URL(program, import.meta.url)), {
    execArgv: AGENT_FLAGS.trim().split(" "),
    env: { ...process.env, ...Object.fromEntries(settings) },
  });
}
