/** Code that several containers of this process run. It is compiled for the first and released with the last. */

import { compiledComponent, type InstantiateComponent } from "../shared/component/load-component.ts";
import type { RunnerLaunch } from "../shared/messages/launch.ts";

interface Compiled {
  readonly make: () => InstantiateComponent;
  users: number;
}

type Wanted = Pick<RunnerLaunch, "component" | "memoryLimitBytes">;

export class SharedCode {
  /** As many as there are different components, each with each of its limits. */
  readonly #compiled = new Map<string, Compiled>();

  /** @param component as the agent names it: where this container sees it is its own */
  take(component: string, launch: Wanted): InstantiateComponent {
    const key = keyOf(component, launch);
    const compiled = this.#compiled.get(key) ?? {
      make: compiledComponent(launch.component, launch.memoryLimitBytes),
      users: 0,
    };
    compiled.users += 1;
    this.#compiled.set(key, compiled);
    return compiled.make();
  }

  release(component: string, launch: Wanted): void {
    const key = keyOf(component, launch);
    const compiled = this.#compiled.get(key);
    if (compiled === undefined) return;
    compiled.users -= 1;
    if (compiled.users === 0) this.#compiled.delete(key);
  }
}

/** The limit is written into the code (`shared/binary/memory-limits.ts`). */
const keyOf = (component: string, { memoryLimitBytes }: Wanted): string => `${memoryLimitBytes ?? ""} ${component}`;
