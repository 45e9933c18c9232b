import { describeError, PicoletError } from "../errors.ts";
import { type Clock, type Log, NEVER, seconds } from "../ports.ts";
import { cancelled, ignoreCancelled, joinSignals } from "./abort.ts";
import type { Component } from "./component.ts";
import { withDeadline } from "./deadline.ts";

/** Bounds the disposal of one component. After it the next one follows, and the process's end releases the rest. */
const DISPOSE_LIMIT = seconds(5);

/**
 * Starts the components in order and waits until `signal` aborts or one of them fails, then disposes of all in reverse.
 * @throws what the first failing component threw
 */
export async function supervise(
  components: readonly Component[],
  ports: { readonly clock: Clock; readonly log: Log },
  signal: AbortSignal,
): Promise<void> {
  using life = joinSignals(signal);
  const failures: unknown[] = [];
  const running = components.map(async (component) => {
    try {
      await component.run(life.signal).catch(ignoreCancelled);
      if (!life.signal.aborted) throw new PicoletError("internal", `the ${component.name} ended by itself`);
    } catch (error) {
      failures.push(error);
      life.abort(cancelled("the agent"));
    }
  });
  await Promise.all(running);
  await disposeAll(components, ports);
  if (failures.length > 0) throw failures[0];
}

async function disposeAll(
  components: readonly Component[],
  { clock, log }: { readonly clock: Clock; readonly log: Log },
): Promise<void> {
  for (const component of [...components].reverse()) {
    try {
      const dispose = async (): Promise<void> => await component[Symbol.asyncDispose]?.();
      await withDeadline(clock, DISPOSE_LIMIT, `dispose of the ${component.name}`, dispose, NEVER);
    } catch (error) {
      log.warn("cannot end a part of the agent", { part: component.name, error: describeError(error) });
    }
  }
}
