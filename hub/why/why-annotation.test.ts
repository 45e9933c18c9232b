import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { awayAnnotation, MAX_WHY_LENGTH, whyAnnotation } from "./why-annotation.ts";

const AT = new Date("2026-11-24T16:05:12.345Z");

test("the newest decision comes last, below the date and how the pod is now", () => {
  const told = [
    "shop/web on board-1: CrashLoopBackOff: back-off 10s",
    "restarting failed container",
    "16:05:10  Container app was started again.",
    "2026-11-23 16:05:01  Container app ended.",
    "boot 3 +12s  The agent started.",
    "(7 earlier)",
    "",
  ].join("\n");
  assert.equal(
    whyAnnotation(told, "shop", AT),
    [
      "2026-11-24 16:05:12 UTC  shop/web on board-1: CrashLoopBackOff: back-off 10s restarting failed container",
      "(7 earlier)",
      "boot 3 +12s  The agent started.",
      "2026-11-23 16:05:01  Container app ended.",
      "16:05:10  Container app was started again.",
    ].join("\n"),
  );
});

test("a pod of another namespace has no name in the annotation", () => {
  const told =
    "shop/web on b: Failed\n16:05:10  The node ended the pod to make room for the critical pod vault/key-1.\n";
  assert.match(whyAnnotation(told, "shop", AT), /for the critical pod of another namespace\.$/);
  assert.match(whyAnnotation(told, "vault", AT), /for the critical pod vault\/key-1\.$/);
});

test("what does not fit is counted, oldest first, and lines are as wide as kubectl shows", () => {
  const decisions = Array.from(
    { length: 40 },
    (_, index) => `16:05:10  Decision ${40 - index} ${"of length ".repeat(20)}`,
  );
  const text = whyAnnotation(`shop/web on b: Running\n${decisions.join("\n")}\n(2 earlier)\n`, "shop", AT);
  const shown = text.match(/Decision/g)?.length ?? 0;
  assert.ok(shown > 10 && Buffer.byteLength(text) <= MAX_WHY_LENGTH, String(shown));
  assert.match(text, new RegExp(`\\n\\(${42 - shown} earlier\\)\\n`));
  assert.match(text, /Decision 40 [^:]*$/);
  assert.ok(text.split("\n").every((line) => line.length <= 120));
});

test("any answer of a board becomes a bounded text without control characters, and never a question", () => {
  const line = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.constantFrom("16:05:10  x ", "(9 earlier)", "?", "😀".repeat(3000)),
  );
  const answers = fc.array(line, { maxLength: 60 }).map((lines) => lines.join("\n"));
  fc.assert(
    fc.property(answers, (told) => {
      const text = whyAnnotation(told, "shop", AT);
      assert.ok(Buffer.byteLength(text) <= MAX_WHY_LENGTH);
      assert.ok(text.startsWith("2026-11-24 16:05:12 UTC"));
      assert.doesNotMatch(text.replaceAll("\n", ""), /\p{Cc}/u);
    }),
  );
  assert.match(awayAnnotation("board-1", AT), /^2026-11-24 16:05:12 UTC {2}board-1 is away: .* "\?" again/);
});
