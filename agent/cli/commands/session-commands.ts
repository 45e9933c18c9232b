/** `edgectl exec` and `edgectl attach`. */
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { DEFAULT_CONTAINER_ANNOTATION } from "@picolet/protocol/pod/default-container.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { Context } from "../context/context.ts";
import { usageError } from "../context/exit-codes.ts";
import { parsePodName, podPath } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";
import { type ContainerTarget, runCommand } from "../streams/command-session.ts";

export async function runExec(context: Context, input: Arguments): Promise<number> {
  const [pod = "", ...command] = input.positionals;
  if (command.length === 0) throw usageError("exec needs a command: edgectl exec POD -- COMMAND");
  const { target } = await findContainer(context, input, pod);
  return await run(context, input, { kind: "exec", target, command, isTerminal: input.flag("tty") });
}

export async function runAttach(context: Context, input: Arguments): Promise<number> {
  const [pod = ""] = input.positionals;
  const { target, hasTerminal } = await findContainer(context, input, pod);
  if (input.flag("tty") && !hasTerminal)
    context.terminal.writeError(`edgectl: container ${target.container} has no terminal: -t is left out\n`);
  return await run(context, input, {
    kind: "attach",
    target,
    command: [],
    isTerminal: input.flag("tty") && hasTerminal,
  });
}

interface Session {
  readonly kind: "exec" | "attach";
  readonly target: ContainerTarget;
  readonly command: readonly string[];
  readonly isTerminal: boolean;
}

async function run(context: Context, input: Arguments, session: Session): Promise<number> {
  const { terminal, keyboard } = context;
  const hasInput = input.flag("stdin");
  // As kubectl does: input that ends must be seen to end, which a terminal cannot show.
  const isTerminal = session.isTerminal && (!hasInput || keyboard.isTerminal);
  if (isTerminal !== session.isTerminal)
    terminal.writeError("edgectl: standard input is no terminal: -t is left out\n");
  using _raw = isTerminal && hasInput ? keyboard.raw() : undefined;
  return await runCommand(
    context,
    { ...session, isTerminal, input: hasInput ? context.input() : undefined },
    { out: (bytes) => terminal.write(bytes), error: async (bytes) => terminal.writeError(bytes) },
  );
}

/** Asks the agent, so that a short name is resolved, and an unknown one is an error. */
export async function findContainer(
  context: Context,
  input: Arguments,
  text: string,
): Promise<{ readonly target: ContainerTarget; readonly hasTerminal: boolean }> {
  const { metadata, spec } = await context.client.get<Pod>(podPath(parsePodName(text, input.text("namespace"))));
  const { namespace, name: pod, annotations } = metadata;
  const all = [...spec.containers, ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])];
  const given = input.text("container");
  const name = given ?? annotations?.[DEFAULT_CONTAINER_ANNOTATION] ?? all[0]?.name ?? "";
  const container = all.find((each) => each.name === name);
  const names = all.map((each) => each.name);
  if (container === undefined)
    throw usageError(`pod ${pod} has no container ${name}, only ${names.map(printableLine).join(", ")}`);
  if (given === undefined && names.length > 1)
    context.terminal.writeError(`Defaulted container "${name}" out of: ${names.join(", ")}\n`);
  return { target: { namespace, pod, container: name }, hasTerminal: container.tty === true };
}
