import assert from "node:assert/strict";
import { test } from "node:test";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { Connection } from "./connection.ts";

test("what must be durable is written with fsync, a batch without", () => {
  using folder = new TemporaryFolder();
  using connection = new Connection(folder.file("x.db"));
  const seen: unknown[] = [];
  const look = (): void => void seen.push(connection.pragma("synchronous"));
  connection.durably(look);
  connection.transaction(look);
  assert.throws(() => connection.durably(() => assert.fail("no")));
  connection.transaction(look);
  assert.deepEqual(seen, [2, 1, 1], "FULL, then NORMAL, also after a failure");
});

test("a transaction that fails leaves nothing behind and does not stand in the way of the next", () => {
  using folder = new TemporaryFolder();
  using connection = new Connection(folder.file("x.db"));
  connection.execute("CREATE TABLE t (a INTEGER UNIQUE) STRICT");
  const add = (...values: number[]): void => {
    for (const value of values) connection.run("INSERT INTO t VALUES (?)", value);
  };
  connection.transaction(() => add(1));
  assert.throws(() => connection.transaction(() => add(2, 1)), /UNIQUE/);
  assert.throws(() => connection.durably(() => [add(3), assert.fail("no")]));
  connection.transaction(() => add(4));
  connection.rehearse("DELETE FROM t");
  assert.deepEqual(
    connection.rows("SELECT a FROM t").map(({ a }) => a),
    [1, 4],
  );
});
