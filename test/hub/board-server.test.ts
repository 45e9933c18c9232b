/** Answers to probes and balancers on the port for boards. A real hub process. */
import assert from "node:assert/strict";
import { request } from "node:https";
import { test } from "node:test";
import { Fleet } from "../support/hub/test-fleet.ts";

function get(url: string): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    // A probe knows nothing of the hub's CA.
    const asked = request(url, { rejectUnauthorized: false, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (piece: string) => {
        text += piece;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
    });
    asked.on("error", reject);
    asked.end();
  });
}

test("a hub that serves is alive and ready, and says what is not there", async () => {
  await using fleet = await Fleet.start();
  const { tunnel } = fleet.ready;
  assert.deepEqual(await get(`${tunnel}/healthz`), { status: 200, text: "ok" });
  assert.deepEqual(await get(`${tunnel}/readyz`), { status: 200, text: "ok" });
  assert.equal((await get(`${tunnel}/metrics`)).status, 404);
});
