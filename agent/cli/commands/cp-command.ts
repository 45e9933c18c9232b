/** `edgectl cp`: archives through `tar` in the container, as kubectl copies. */
import { resolve } from "node:path";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY } from "../context/exit-codes.ts";
import { printableLine } from "../context/text-layout.ts";
import { planCopy } from "../copy/copy-names.ts";
import { type Copied, copyIn, copyOut } from "../copy/copy-session.ts";
import { findContainer } from "./session-commands.ts";

export async function runCopy(context: Context, input: Arguments): Promise<number> {
  const [source = "", target = ""] = input.positionals;
  const plan = planCopy(source, target);
  const local = resolve(context.workingDirectory, plan.local);
  const { target: container } = await findContainer(context, input, plan.remote.pod);
  const warn = (text: string): void => context.terminal.writeError(`edgectl: ${printableLine(text)}\n`);
  const session = { context, container, path: plan.remote.path, local, warn };
  const copied: Copied =
    plan.way === "out" ? await copyOut(session) : await copyIn({ ...session, keepsOwner: !input.flag("no-preserve") });
  return copied.refused === 0 ? EXIT_HEALTHY : EXIT_DEGRADED;
}
