import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { joinedWatch } from "./derived-watch.ts";

test("what follows from two sources changes with either, and is made once for each pair", async () => {
  const [name, count] = [new WatchSource("a"), new WatchSource(1)];
  let made = 0;
  const joined = joinedWatch(name, count, (left, right) => {
    made += 1;
    return `${left}${right}`;
  });
  assert.deepEqual([joined.current, joined.current, made], ["a1", "a1", 1]);
  const life = new AbortController();
  const until = async (wanted: string): Promise<void> => {
    for await (const value of joined.changes(life.signal)) if (value === wanted) return;
  };
  await until("a1");
  const following = Promise.all([until("b2"), until("b2")]);
  name.set("b");
  count.set(2);
  await following;
  const waiting = until("never");
  life.abort();
  await waiting;
});
