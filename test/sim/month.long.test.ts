/**
 * An agent holds nothing of the pods that come, crash, are probed and go. `npm run chaos` has it live for a month, with
 * 10,000 of them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OwnThread } from "../support/unit/machine/own-thread.ts";
import type { Lives } from "./month.ts";

const DAYS = Number(process.env.PICOLET_MONTH_DAYS ?? 15);
const PODS = Number(process.env.PICOLET_MONTH_PODS ?? 300);
const MAX_GROWTH_BYTES = 1024 * 1024;

test(`${PODS} pods in ${DAYS} days leave nothing in the agent's memory`, async (context) => {
  await using thread = new OwnThread<Lives>(new URL("month.ts", import.meta.url));
  const { days, pods, grownBytes, left } = await thread.run("live", DAYS, PODS);
  assert.deepEqual(left, { statuses: 0, desired: 0 });
  context.diagnostic(`${days} days, ${pods} pods: ${Math.round(grownBytes / 1024)} KiB more`);
  assert.ok(days >= DAYS * 0.8, `${days} days`);
  assert.ok(grownBytes < MAX_GROWTH_BYTES, `${grownBytes} bytes more are held`);
});
