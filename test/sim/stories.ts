/** The simulation's stories, played in a thread of their own. */
import { serve } from "../support/unit/machine/own-thread.ts";
import { CANARIES } from "./canaries.ts";
import { runScenario } from "./scenario.ts";

/** Each canary is found in at least one; the rarest, found in about one of 60, needs 179. */
const CANARY_STORIES = 240;
/** How much of a failing seed's story is shown. */
const TOLD_LINES = 150;

// A tenth of the time would go into stacks of errors that are there to be caught.
if (process.env.SIM_SEED === undefined) Error.stackTraceLimit = 0;

const stories = {
  /**
   * @returns what went wrong in the first of these stories that did not go well, and its end; undefined when all went
   * well
   */
  async wrongIn(folder: string, first: number, last: number): Promise<string | undefined> {
    for (let seed = first; seed <= last; seed += 1) {
      const told: string[] = [];
      const wrong = await runScenario({ seed, folder, trace: (line) => void told.push(line) });
      if (wrong === undefined) continue;
      const story = told.slice(-TOLD_LINES).join("\n");
      return `${wrong}; SIM_SEED=${seed} shows it again; the end of its story:\n${story}`;
    }
    return undefined;
  },

  /** @returns what was found of the canary's mistake, or what else was wrong last */
  async findingsOf(folder: string, mistake: string): Promise<string | undefined> {
    const [, mutant, found, { step = 1, first = 0 } = {}] = CANARIES.find(([name]) => name === mistake) ?? [];
    let last: string | undefined;
    for (let played = 0; played < CANARY_STORIES; played += 1) {
      const story = (first + played) % CANARY_STORIES;
      const wrong = await runScenario({ seed: 1 + story * step, folder, trace: () => undefined, ...mutant });
      if (wrong !== undefined && found?.test(wrong)) return wrong;
      last = wrong ?? last;
    }
    return last;
  },
};

export type Stories = typeof stories;

serve(stories);
