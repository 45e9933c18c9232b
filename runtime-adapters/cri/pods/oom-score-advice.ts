import { readFileSync } from "node:fs";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";

/** capabilities(7): needed to lower oom_score_adj below what the process has. */
const CAP_SYS_RESOURCE = 24n;
/** runc's errors when the kernel forbids it to lower the score: its child ends before it has reported its pid. */
const FORBIDDEN = /oom_score_adj|final child's PID from pipe/;

export interface OwnOomScore {
  readonly score: number;
  /** True when this process may set a lower score. */
  readonly mayLower: boolean;
}

/**
 * Says what is wrong where oom_score_adj cannot be lowered, as within a container or a user namespace. containerd then
 * needs `restrict_oom_score_adj`: it runs everything with no less than its own score, and nothing fails.
 */
export class OomScoreAdvice {
  readonly #log: Log;
  readonly #own: OwnOomScore;
  #warned = false;

  constructor(components: { readonly log: Log }, own: OwnOomScore = ownOomScore()) {
    this.#log = components.log;
    this.#own = own;
  }

  /** A container is about to have this score: warns, once, when it is likely not to get it. */
  wanted(score: number): void {
    if (this.#warned || this.#own.mayLower || score >= this.#own.score) return;
    this.#warned = true;
    this.#log.warn(
      "oom_score_adj cannot be lowered here (no CAP_SYS_RESOURCE): the OOM killer treats every pod like the runtime itself",
      { ownOomScoreAdj: this.#own.score },
    );
  }

  /** The same error, with a way out where this is the likely cause. */
  explain(error: unknown): unknown {
    if (this.#own.mayLower || !isPicoletError(error, "failed") || !FORBIDDEN.test(error.message)) return error;
    const advice = "oom_score_adj cannot be lowered here: containerd's CRI plugin needs restrict_oom_score_adj = true";
    return new PicoletError("failed", advice, { cause: error });
  }
}

function ownOomScore(): OwnOomScore {
  try {
    const capabilities = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
    const mayLower = ((BigInt(`0x${capabilities}`) >> CAP_SYS_RESOURCE) & 1n) === 1n;
    return { score: Number(readFileSync("/proc/self/oom_score_adj", "utf8")), mayLower };
  } catch {
    return { score: 0, mayLower: true };
  }
}
