import type { Watch } from "../../protocol/async/watch.ts";

/** What follows from `source`; made once for each value of it. */
export function derivedWatch<S, T>(source: Watch<S>, derive: (value: S) => T): Watch<T> {
  let from = source.current;
  let value = derive(from);
  const current = (): T => {
    if (source.current !== from) {
      from = source.current;
      value = derive(from);
    }
    return value;
  };
  return {
    get current() {
      return current();
    },
    async *changes(signal) {
      for await (const _ of source.changes(signal)) yield current();
    },
  };
}
