import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { KubeletAnswers, type KubeletAnswersComponents } from "./kubelet-answers.ts";

test("paths of a kubelet that are not offered are refused with their reason", async () => {
  // None of these asks a part of the node.
  const answers = new KubeletAnswers({ clock: new VirtualClock() } as unknown as KubeletAnswersComponents);
  const { signal } = new AbortController();
  for (const [path, status, why] of [
    [
      "/checkpoint/default/web/app",
      404,
      /^checkpoints of containers are not offered: no runtime here is asked for them\n$/,
    ],
    ["/logs/syslog", 405, /^logs endpoint is disabled\.\n$/],
    ["/debug/pprof/heap", 403, /^profiles and flags of the agent are not given out\n$/],
    ["/nothing", 404, /^404 page not found\n$/],
  ] as const) {
    const answer = await answers.get(path, signal);
    assert.equal(answer.status, status, path);
    let text = "";
    for await (const piece of answer.body) text += String(piece);
    assert.match(text, why);
  }
});
