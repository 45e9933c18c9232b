import { rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { CgroupMemoryEvents } from "./cgroup-memory-events.ts";

test("a cgroup that is made later, removed, and made again is followed each time", { timeout: 60_000 }, async () => {
  using folder = new TemporaryFolder();
  const file = folder.file("memory.events");
  using events = new CgroupMemoryEvents(file);
  let next = Promise.withResolvers<void>();
  const listen = (): void => events.listen(() => next.resolve());
  const told = async (cause: () => void): Promise<void> => {
    next = Promise.withResolvers();
    cause();
    await next.promise;
  };
  listen();
  for (const _ of ["first", "another"]) {
    writeFileSync(file, "high 0\n");
    listen();
    await told(() => writeFileSync(file, "high 1\n"));
    // One that listens already goes on as it is.
    listen();
    await told(() => writeFileSync(file, "high 2\n"));
    await told(() => rmSync(file));
  }
  events[Symbol.dispose]();
});
