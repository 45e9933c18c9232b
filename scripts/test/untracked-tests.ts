/**
 * Imported before `node:test`: its runner then does not note for each promise which test made it. With that note, an
 * error that nothing catches fails the test that it comes from; without it, it fails the process, in a third less time.
 */
import asyncHooks, { type AsyncHook, type HookCallbacks } from "node:async_hooks";

const { createHook } = asyncHooks;
const idle: AsyncHook = { enable: () => idle, disable: () => idle };

asyncHooks.createHook = (callbacks: HookCallbacks): AsyncHook => {
  const isRunner = new Error().stack?.includes("node:internal/test_runner") === true;
  return isRunner ? idle : createHook(callbacks);
};
