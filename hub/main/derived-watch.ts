import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { ignore } from "@picolet/protocol/errors.ts";

/** A watch of values derived from `source`, each derived once. */
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

/** A watch of values derived from two sources, once for each pair of their values. */
export function joinedWatch<A, B, T>(first: Watch<A>, second: Watch<B>, derive: (first: A, second: B) => T): Watch<T> {
  let made: { readonly from: readonly [A, B]; readonly value: T } | undefined;
  const current = (): T => {
    const [a, b] = [first.current, second.current];
    if (made === undefined || made.from[0] !== a || made.from[1] !== b) made = { from: [a, b], value: derive(a, b) };
    return made.value;
  };
  return {
    get current() {
      return current();
    },
    async *changes(signal) {
      using life = joinSignals(signal);
      const poke = new WatchSource(0);
      const follow = async (source: Watch<unknown>): Promise<void> => {
        for await (const _ of source.changes(life.signal)) poke.set(poke.current + 1);
      };
      const following = [follow(first), follow(second)];
      for (const each of following) each.catch(ignore("they end with the watch, by its cancellation"));
      try {
        for await (const _ of poke.changes(life.signal)) yield current();
      } finally {
        life.abort();
      }
    },
  };
}
