/**
 * The process of several unit test files, which are its arguments. It imports all of them before the first test begins.
 * With one file, an uncaught error is reported for the test that it comes from; with several, the process fails.
 */
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { refuseInstalledPrograms } from "./installed-programs.ts";
import { LAST_TEST } from "./last-test.ts";

const files = process.argv.slice(2);
if (files.length > 1) {
  await import("./untracked-tests.ts");
  // The test that it comes from might wait for ever.
  for (const event of ["uncaughtExceptionMonitor", "unhandledRejection"]) process.on(event, () => process.exit(1));
}
const { before, test } = await import("node:test");
refuseInstalledPrograms();
const imported = Promise.withResolvers<void>();
before(() => imported.promise);
for (const file of files) {
  try {
    await import(pathToFileURL(resolve(file)).href);
  } catch (error) {
    test(`${file} cannot be imported`, () => {
      throw error;
    });
  }
}
test(LAST_TEST, () => undefined);
imported.resolve();
