/** Starts a reaper with its runner and waits until the component is about to run. */
import { spawn } from "node:child_process";
import { closeSync } from "node:fs";
import type { Readable } from "node:stream";
import { checkCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import { MAX_END_MESSAGE_LENGTH, STARTED_FD, STARTED_MESSAGE } from "../../shared/messages/launch.ts";
import { SMALL_PROCESS_ENVIRONMENT } from "../processes/node-flags.ts";
import { REAPER_SHELL, type ReaperLaunch, reaperArguments } from "../state/reaper.ts";

export interface RunnerStart {
  readonly reaper: ReaperLaunch;
  /** Open for the runner's standard error; closed here. */
  readonly fatalFd: number;
  /** Bounds what a component may do before its first own instruction (start functions). */
  readonly timeout: Millis;
  /** Called when the reaper has ended, if this process still runs then. */
  readonly onReaperEnd: () => void;
}

/**
 * @throws `failed` with what the runner or its shell said, `deadline_exceeded`, `cancelled`; what was started then
 * still has to be ended.
 */
export async function startRunner(clock: Pick<Clock, "sleep">, start: RunnerStart, signal: AbortSignal): Promise<void> {
  if (signal.aborted) closeSync(start.fatalFd);
  // One that has aborted already tells its listeners nothing.
  checkCancelled(signal, "the start");
  const child = spawn(REAPER_SHELL, reaperArguments(start.reaper), {
    // A session of its own: no signal for the agent's reaches it, and its group can be killed as one.
    detached: true,
    cwd: "/",
    env: SMALL_PROCESS_ENVIRONMENT,
    stdio: ["ignore", "ignore", start.fatalFd, "pipe"],
  });
  closeSync(start.fatalFd);
  child.unref();
  child.once("exit", start.onReaperEnd);
  const spawned = new Promise<never>((_, reject) => {
    child.once("error", (cause) =>
      reject(new PicoletError("failed", `cannot run ${REAPER_SHELL}`, { cause, retryable: true })),
    );
  });
  spawned.catch(ignore("a failed start has no waiter"));
  const pipe = child.stdio[STARTED_FD] as Readable;
  using done = joinSignals(signal);
  try {
    const said = await Promise.race([firstLine(pipe), spawned, elapsed(clock, start.timeout, done.signal)]);
    checkCancelled(signal, "the start");
    if (said === undefined) {
      throw new PicoletError("deadline_exceeded", `the component has not started within ${start.timeout / 1000} s`);
    }
    if (said !== STARTED_MESSAGE) throw new PicoletError("failed", said.trim() || "the runner ended before it began");
  } finally {
    done.abort();
    pipe.destroy();
  }
}

/** Up to the end of what is said: the runner closes its end with that. */
function firstLine(pipe: Readable): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    pipe.setEncoding("utf8");
    pipe.on("data", (chunk: string) => {
      text = (text + chunk).slice(0, MAX_END_MESSAGE_LENGTH);
      if (text === STARTED_MESSAGE) resolve(text);
    });
    pipe.on("error", () => resolve(text));
    pipe.on("end", () => resolve(text));
    pipe.on("close", () => resolve(text));
  });
}

/** Undefined after the time, and when `signal` ends the wait. */
async function elapsed(clock: Pick<Clock, "sleep">, duration: Millis, signal: AbortSignal): Promise<undefined> {
  await clock.sleep(duration, signal).catch(ignore("the caller checks the signal"));
}
