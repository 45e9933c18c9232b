import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, test } from "node:test";
import { ignore } from "../errors.ts";
import { joinSignals, onAbort, rejectOnAbort, wokenOrAborted } from "./abort.ts";

const listenersOf = (signal: AbortSignal): number => getEventListeners(signal, "abort").length;

describe("onAbort", () => {
  test("acts once, when the signal aborts", () => {
    const { signal, abort } = controller();
    let acts = 0;
    using _listener = onAbort(signal, () => {
      acts += 1;
    });
    assert.equal(acts, 0);
    abort();
    abort();
    assert.equal(acts, 1);
  });

  test("acts at once on a signal that has aborted", () => {
    let acts = 0;
    using _listener = onAbort(AbortSignal.abort(), () => {
      acts += 1;
    });
    assert.equal(acts, 1);
  });

  test("leaves no listener when it is disposed of", () => {
    const { signal, abort } = controller();
    onAbort(signal, () => assert.fail("it was disposed of"))[Symbol.dispose]();
    assert.equal(listenersOf(signal), 0);
    abort();
  });
});

describe("wokenOrAborted", () => {
  for (const end of ["wake", "abort"] as const) {
    test(`resolves with ${end}, and leaves neither a waiter nor a listener`, async () => {
      const { signal, abort } = controller();
      const waiting = new Set<() => void>();
      const wait = wokenOrAborted(signal, (wake) => {
        waiting.add(wake);
        return () => waiting.delete(wake);
      });
      const [wake] = waiting;
      assert.ok(wake !== undefined);
      if (end === "wake") wake();
      else abort();
      await wait;
      assert.equal(waiting.size, 0);
      assert.equal(listenersOf(signal), 0);
    });
  }

  test("does not register with a signal that has aborted", () =>
    wokenOrAborted(AbortSignal.abort(), () => assert.fail("it has aborted")));
});

describe("rejectOnAbort", () => {
  test("settles with its task, and leaves no listener", async () => {
    const { signal } = controller();
    assert.equal(await rejectOnAbort(Promise.resolve(1), signal, "the test"), 1);
    const failure = new Error("failure");
    await assert.rejects(rejectOnAbort(Promise.reject(failure), signal, "the test"), failure);
    assert.equal(listenersOf(signal), 0);
  });

  test("rejects when the signal aborts, and handles the task's later failure", async () => {
    const { signal, abort } = controller();
    const { promise, reject } = Promise.withResolvers<never>();
    const wait = rejectOnAbort(promise, signal, "the test");
    abort();
    await assert.rejects(wait, { code: "cancelled", message: "the test was cancelled" });
    reject(new Error("late"));
    await assert.rejects(rejectOnAbort(promise, AbortSignal.abort(), "the test"), { code: "cancelled" });
  });
});

describe("joinSignals", () => {
  test("aborts with the reason of either source, and leaves no listener", () => {
    for (const index of [0, 1]) {
      const sources = [new AbortController(), new AbortController()];
      using joined = joinSignals(...sources.map(({ signal }) => signal));
      sources[index]?.abort("why");
      assert.equal(joined.signal.reason, "why");
      joined[Symbol.dispose]();
      for (const { signal } of sources) assert.equal(listenersOf(signal), 0);
    }
  });

  test("is aborted at once by a source that has aborted", () => {
    using joined = joinSignals(new AbortController().signal, AbortSignal.abort("why"));
    assert.equal(joined.signal.reason, "why");
  });
});

test("an ignored failure resolves to undefined", async () => {
  assert.equal(await Promise.reject(new Error("ignored")).catch(ignore("it is the test's own")), undefined);
});

function controller(): { readonly signal: AbortSignal; readonly abort: () => void } {
  const own = new AbortController();
  return { signal: own.signal, abort: () => own.abort() };
}
