import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  addressFlag,
  amountFlag,
  bytesFlag,
  countFlag,
  durationFlag,
  fileFlag,
  httpUrlFlag,
  parsedFlag,
  portRangeFlag,
  quantityFlag,
  timeFlag,
  type ValueFlag,
} from "./flag-values.ts";
import { isUsageError } from "./usage-error.ts";

const init = { name: "x", help: "" } as const;
const duration = durationFlag({ ...init, default: "10s" });
const timeout = durationFlag({ ...init, example: "5s", takesSeconds: true });
const since = durationFlag({ ...init, takesZero: true });
const bytes = bytesFlag(init);
const atLeast = bytesFlag({ ...init, least: "1Mi", example: "256Mi" });
const quantity = quantityFlag({ ...init, example: "500m" });
const count = countFlag(init);
const some = countFlag({ ...init, least: 1 });
const orAll = countFlag({ ...init, besides: "-1" });
const amount = amountFlag(init);
const address = addressFlag({ ...init, default: "0.0.0.0:10270" });
const ports = portRangeFlag(init);
const url = httpUrlFlag(init);
const time = timeFlag(init);
const file = fileFlag(init);

for (const [flag, text, value] of [
  [duration, "1m30s", 90_000],
  [timeout, "7", 7000],
  [timeout, "7s", 7000],
  [since, "0", 0],
  [bytes, "64Mi", 67_108_864],
  [bytes, "1", 1],
  [atLeast, "1Mi", 1_048_576],
  [quantity, "500m", "500m"],
  [count, "0", 0],
  [some, "12", 12],
  [orAll, "-1", undefined],
  [orAll, "5", 5],
  [amount, "0.5", 0.5],
  [address, "[::1]:7000", { host: "::1", port: 7000 }],
  [address, ":9", { host: "0.0.0.0", port: 9 }],
  [address, "hub.example", { host: "hub.example", port: 10_270 }],
  [ports, "20000-29999", [20_000, 29_999]],
  [time, "2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"],
  [file, "a b", "a b"],
] as const) {
  test(`${flag.value} ${text}`, () => assert.deepEqual(flag.parse(text), value));
}

for (const [flag, text, sentence] of [
  [duration, "soon", '--x must be a duration such as 10s, not "soon"'],
  [duration, "0", '--x must be a duration such as 10s, not "0"'],
  [duration, "7", '--x must be a duration such as 10s, not "7"'],
  [since, "-5m", '--x must be a duration such as 30s, not "-5m"'],
  [bytes, "64MB", '--x must be a size such as 64Mi, not "64MB"; did you mean "64M" (10^6) or "64Mi" (2^20)?'],
  [bytes, "0", '--x must be a size such as 64Mi, not "0"'],
  [bytes, "9999999Ti", '--x must be a size such as 64Mi, not "9999999Ti"'],
  [atLeast, "1Ki", '--x must be a size of 1Mi or more, such as 256Mi, not "1Ki"'],
  [quantity, "half", '--x must be a quantity such as 500m, not "half"'],
  [count, "1e3", '--x must be a whole number, not "1e3"'],
  [count, "1234567890123456", '--x must be a whole number, not "1234567890123456"'],
  [some, "0", '--x must be a whole number of at least 1, not "0"'],
  [orAll, "-2", '--x must be a whole number, not "-2"'],
  [amount, "0", '--x must be a number above 0, not "0"'],
  [address, "a:b:c", '--x must be HOST:PORT, such as 0.0.0.0:10270, not "a:b:c"'],
  [address, "a:70000", '--x must be HOST:PORT, such as 0.0.0.0:10270, not "a:70000"'],
  [ports, "9-8", '--x must be FIRST-LAST, such as 20000-29999, not "9-8"'],
  [url, "ftp://a", '--x must be an http:// or https:// URL without a user, not "ftp://a"'],
  [url, "http://me@a", '--x must be an http:// or https:// URL without a user, not "http://me@a"'],
  [time, "noon", '--x must be a time such as 2026-01-31T12:00:00Z, not "noon"'],
  [file, "", "--x needs a value"],
] as const) {
  test(`refused: ${flag.value} ${text}`, () => {
    assert.throws(
      () => flag.parse(text),
      (error) => isUsageError(error) && (error as Error).message === sentence,
    );
  });
}

test("an error of a flag's own parser names the flag", () => {
  const flag = parsedFlag({ ...init, value: "REGEX" }, (text) => new RegExp(text));
  assert.throws(() => flag.parse("("), /--x: Invalid regular expression/);
});

test("no text makes a parser throw anything but a usage error", () => {
  const all: readonly ValueFlag<unknown>[] = [
    ...[duration, timeout, bytes, quantity, count, amount, address, ports, url, time, file],
  ];
  fc.assert(
    fc.property(fc.constantFrom(...all), fc.string(), (flag, text) => {
      try {
        flag.parse(text);
      } catch (error) {
        assert.ok(isUsageError(error), String(error));
      }
    }),
  );
});
