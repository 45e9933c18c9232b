import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { runScheduled, type TestCost, TestSchedule } from "./test-schedule.ts";

const COSTS: ReadonlyMap<string, TestCost> = new Map(
  Object.entries({
    long: { seconds: 60, cores: 1 },
    computes: { seconds: 40, cores: 1.6 },
    waits: { seconds: 30, cores: 0.2 },
    shy: { seconds: 50, cores: 0.2 },
    small: { seconds: 0.5, cores: 1 },
    "small light": { seconds: 0.4, cores: 0.3 },
  }),
);

const scheduleOf = (...files: readonly string[]): TestSchedule =>
  new TestSchedule(files, {
    costs: COSTS,
    cores: 2,
    isShy: (file) => file === "shy",
    isSmall: (file) => file.startsWith("small"),
    turnOf: (file) => (file.startsWith("guest") ? "guest" : undefined),
  });

/** All that begin now, in their order. */
function begun(schedule: TestSchedule): readonly string[] {
  const files: string[] = [];
  for (let file = schedule.next(); file !== undefined; file = schedule.next()) files.push(file);
  return files;
}

describe("the schedule of test files", () => {
  it("begins with the longest, and with what waits beside it", () => {
    assert.deepEqual(begun(scheduleOf("waits", "other", "long")), ["long", "waits", "other"]);
  });

  it("leaves the processors no more to do than they have, and a little", () => {
    const schedule = scheduleOf("computes", "long", "waits", "other");
    assert.deepEqual(begun(schedule), ["long", "computes", "waits"]);
    schedule.ended("waits");
    assert.deepEqual(begun(schedule), []);
    schedule.ended("long");
    assert.deepEqual(begun(schedule), ["other"]);
  });

  it("lets those that wait for the same go one after another", () => {
    const schedule = scheduleOf("guest one", "guest two", "other");
    assert.deepEqual(begun(schedule), ["guest one", "other"]);
    schedule.ended("other");
    assert.deepEqual(begun(schedule), []);
    schedule.ended("guest one");
    assert.deepEqual(begun(schedule), ["guest two"]);
  });

  it("gives a file that nobody has measured a processor", () => {
    assert.deepEqual(begun(scheduleOf("a", "b", "c")), ["a", "b"]);
  });

  it("runs no more at once than the machine has memory for, however long they wait", () => {
    const files = Array.from({ length: 10 }, (_, index) => `file ${index}`);
    const options = {
      costs: new Map(files.map((file) => [file, { seconds: 9, cores: 0 }])),
      cores: 2,
      isShy: () => false,
      isSmall: () => false,
      turnOf: () => undefined,
    };
    assert.equal(begun(new TestSchedule(files, options)).length, 5);
  });

  it("leaves a shy one no company but what is small, and that only at the end", () => {
    const schedule = scheduleOf("shy", "small", "small too", "waits", "other", "more");
    assert.deepEqual(begun(schedule), ["waits", "other", "more"]);
    schedule.ended("waits");
    schedule.ended("other");
    assert.deepEqual(begun(schedule), ["small too"]);
    schedule.ended("more");
    assert.deepEqual(begun(schedule), ["shy", "small"]);
  });

  it("keeps what is small for the time of the shy ones, though it would have room before", () => {
    const schedule = scheduleOf("computes", "long", "other", "small light", "shy");
    assert.deepEqual(begun(schedule), ["long", "computes"]);
    schedule.ended("computes");
    assert.deepEqual(begun(schedule), ["other", "small light"]);
    const without = scheduleOf("computes", "long", "small light");
    assert.deepEqual(begun(without), ["long", "computes", "small light"]);
  });

  it("begins nothing large while a shy one runs, nor a second shy one", () => {
    const schedule = new TestSchedule(["shy", "shy too"], {
      costs: new Map(),
      cores: 2,
      isShy: () => true,
      isSmall: () => false,
      turnOf: () => undefined,
    });
    assert.deepEqual(begun(schedule), ["shy"]);
    schedule.ended("shy");
    assert.deepEqual(begun(schedule), ["shy too"]);
  });

  describe("while the programs are being built", () => {
    const building = (...files: readonly string[]): TestSchedule =>
      new TestSchedule(files, {
        costs: COSTS,
        cores: 2,
        isShy: (file) => file === "shy",
        isSmall: (file) => file.startsWith("small"),
        turnOf: () => undefined,
        needsBuild: (file) => !file.startsWith("small") && file !== "check",
      });

    it("runs what needs none of them, small files too", () => {
      assert.deepEqual(begun(building("long", "shy", "small", "small too", "check")), ["check", "small too"]);
    });

    it("goes on with the others when it is over, and keeps the small ones that are left", () => {
      const schedule = building("long", "computes", "shy", "small", "small too", "small three", "check");
      assert.deepEqual(begun(schedule), ["check", "small too"]);
      schedule.ended("small too");
      schedule.built();
      assert.deepEqual(begun(schedule), ["long"]);
      schedule.ended("check");
      assert.deepEqual(begun(schedule), ["computes"]);
      schedule.ended("long");
      assert.deepEqual(begun(schedule), ["small three"]);
    });

    it("waits for it when there is nothing else to do", async () => {
      const ran: string[] = [];
      const built = Promise.withResolvers<void>();
      const whole = runScheduled(
        building("long", "small"),
        async (file) => {
          ran.push(file);
          if (file === "small") setImmediate(built.resolve);
        },
        built.promise,
      );
      await whole;
      assert.deepEqual(ran, ["small", "long"]);
    });
  });

  describe("with a limit of time", () => {
    const FILES: Readonly<Record<string, TestCost>> = {
      costly: { seconds: 60, cores: 1 },
      "costs less": { seconds: 40, cores: 1 },
      waits: { seconds: 50, cores: 0.1 },
      cheap: { seconds: 5, cores: 1 },
      "guest one": { seconds: 30, cores: 0.1 },
      "guest two": { seconds: 35, cores: 0.1 },
      check: { seconds: 70, cores: 1 },
      kept: { seconds: 55, cores: 1 },
    };
    /** All is built at 0 s. */
    function limited(seconds: number, ...files: readonly string[]) {
      let time = 0;
      const schedule = new TestSchedule(files, {
        costs: new Map(Object.entries(FILES)),
        cores: 1,
        isShy: () => false,
        isSmall: () => false,
        turnOf: (file) => (file.startsWith("guest") ? "guest" : undefined),
        needsBuild: (file) => file !== "check",
        isKept: (file) => file === "kept",
        limit: { seconds, now: () => time },
      });
      schedule.built();
      const at = (now: number): void => {
        time = now;
      };
      return { schedule, at };
    }

    it("leaves out nothing that ends in time", () => {
      const { schedule } = limited(140, "costly", "costs less", "cheap");
      begun(schedule);
      assert.deepEqual(schedule.leftOut, []);
    });

    it("leaves out the costliest first, and nothing for what waits", () => {
      const { schedule } = limited(80, "costly", "costs less", "waits", "cheap");
      begun(schedule);
      assert.deepEqual(schedule.leftOut, ["costly"]);
    });

    it("leaves out what is kept after all others", () => {
      const { schedule } = limited(70, "kept", "costs less", "cheap");
      begun(schedule);
      assert.deepEqual(schedule.leftOut, ["costs less", "cheap"]);
      const tighter = limited(50, "kept", "cheap").schedule;
      assert.deepEqual(begun(tighter), ["cheap"]);
      assert.deepEqual(tighter.leftOut, ["kept"]);
    });

    it("leaves out what runs one at a time and would end too late", () => {
      const { schedule } = limited(60, "guest one", "guest two", "cheap");
      begun(schedule);
      assert.deepEqual(schedule.leftOut, ["guest two"]);
    });

    it("leaves out more on a machine that turns out to be slow", () => {
      const { schedule, at } = limited(400, "costly", "cheap", "costs less");
      assert.deepEqual(begun(schedule), ["costly"]);
      at(300);
      schedule.ended("costly");
      assert.deepEqual(begun(schedule), ["cheap"]);
      assert.deepEqual(schedule.leftOut, ["costs less"]);
    });

    it("begins nothing when the time is over but what needs no build", () => {
      const { schedule, at } = limited(100, "cheap", "check", "waits");
      at(100);
      assert.deepEqual(begun(schedule), ["check"]);
      assert.deepEqual(schedule.leftOut.toSorted(), ["cheap", "waits"]);
    });
  });

  it("runs each file once, and ends when all have", async () => {
    const ran: string[] = [];
    const ended: string[] = [];
    await runScheduled(scheduleOf("long", "computes", "shy", "small", "other"), async (file) => {
      ran.push(file);
      await Promise.resolve();
      ended.push(file);
    });
    assert.deepEqual(ran, ["long", "computes", "other", "small", "shy"]);
    assert.deepEqual(ended, ran);
  });
});
