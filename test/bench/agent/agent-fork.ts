import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { AGENT_ENVIRONMENT, AGENT_FLAGS } from "@picolet/scripts/build/build.ts";

export const agentFlags = (): string[] => AGENT_FLAGS.trim().split(" ");

/** This process's environment, with what the agent's launcher exports. */
export function agentEnvironment(): NodeJS.ProcessEnv {
  const settings = [...AGENT_ENVIRONMENT.matchAll(/(\w+)=(\S+)/g)].map(([, name = "", value = ""]) => [name, value]);
  return { ...process.env, ...Object.fromEntries(settings) };
}

/** A program with the flags and the environment that the agent's launcher gives it. */
export function forkWithAgentFlags(program: URL): ChildProcess {
  return fork(fileURLToPath(program), { execArgv: agentFlags(), env: agentEnvironment() });
}

/** The child's next message. @throws when the child ends before it */
export async function messageOf<T>(child: ChildProcess): Promise<T> {
  const over = new AbortController();
  const { signal } = over;
  try {
    return await Promise.race([
      once(child, "message", { signal }).then(([message]) => message as T),
      // Not its exit, which may come before its last message has been read.
      once(child, "disconnect", { signal }).then(() => {
        throw new Error(`process ${child.pid} has ended without an answer`);
      }),
    ]);
  } finally {
    over.abort();
  }
}
