/**
 * edgectl on a serial console: a real pseudo terminal of 24 lines with 80 columns, whose line takes 960 bytes a second.
 * The time on the line is that of the bytes which arrive; no test waits for it.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import type { PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod } from "../../support/agent/node-fixtures.ts";
import { endProcess, untilPrinted } from "../../support/hub/test-fleet.ts";

/** 9600 baud with a start bit and a stop bit for each byte. */
const BYTES_PER_SECOND = 960;
const [ROWS, COLUMNS] = [24, 80];
/** More than a page has lines; without a runtime none of them runs, and each has a message. */
const PODS = 30;
const ESCAPE = "\x1b";

const node = new AgentNode({ config: { containerRuntimeEndpoint: "" } });

/** @param knowsSize false: the size is unset, as that of a serial port after the boot */
function onConsole(term: string, knowsSize: boolean, ...words: readonly string[]): ChildProcess {
  const size = knowsSize ? `rows ${ROWS} cols ${COLUMNS}` : "rows 0 cols 0";
  const line = `stty ${size} 9600 && exec dist/board/bin/edgectl --socket ${node.socketPath} ${words.join(" ")}`;
  const { NO_COLOR: _, ...environment } = process.env;
  return spawn("script", ["-qefc", line, "/dev/null"], {
    env: { ...environment, TERM: term },
    stdio: ["pipe", "pipe", "pipe"],
  });
}

async function shown(child: ChildProcess): Promise<string> {
  let text = "";
  child.stdout?.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  await once(child, "close");
  return text;
}

const secondsOf = (text: string): number => Buffer.byteLength(text) / BYTES_PER_SECOND;

function assertPage(text: string): void {
  const lines = text.trimEnd().split("\r\n");
  assert.ok(lines.length < ROWS, `${lines.length} lines and the prompt:\n${text}`);
  for (const line of lines) assert.ok(line.length <= COLUMNS, `${line.length} columns: ${line}`);
  assert.match(lines[0] ?? "", /^node is /);
  assert.ok(secondsOf(text) <= 2, `${secondsOf(text)} s`);
}

describe("a serial console", { timeout: 300_000 }, () => {
  before(async () => {
    await node.start();
    for (let index = 0; index < PODS; index += 1) node.writeManifest(`p${index}.json`, containerPod(`pod-${index}`));
    await node.waitForPods("all of them", (pods: PodsByName) => pods.size === PODS);
  });
  after(() => node[Symbol.asyncDispose]());

  for (const [term, knowsSize] of [
    ["vt100", true],
    ["vt100", false],
    ["dumb", true],
  ] as const) {
    test(`status on a ${term}, its size ${knowsSize ? "known" : "unknown"}, is one page in two seconds`, async () => {
      const text = await shown(onConsole(term, knowsSize, "status"));
      assertPage(text);
      assert.ok(!text.includes(ESCAPE), JSON.stringify(text));
      assert.match(text, /\.\.\. \d+ more pods, \d+ of them not well; edgectl get pods -A lists all\r\n$/);
    });
  }

  test("status --watch on a vt100 begins with the same page, and then writes what has changed", async () => {
    const child = onConsole("vt100", false, "status", "--watch", "--interval", "1s");
    try {
      const first = await untilPrinted(child, (text) => text.includes("lists all\r\n"));
      const page = first.slice(0, first.indexOf("lists all\r\n") + "lists all\r\n".length);
      assertPage(page);
      assert.ok(!page.includes(ESCAPE));
      node.writeManifest("one-more.json", containerPod("one-more"));
      const change = await untilPrinted(child, (text) => text.includes(`of ${PODS + 1} pods`));
      assert.ok(change.includes(`${ESCAPE}[`), "the cursor goes back");
      // biome-ignore lint/suspicious/noControlCharactersInRegex: a sequence that a VT100 does not have is looked for
      assert.doesNotMatch(change, /\x1b\[[\d;]*m/);
    } finally {
      await endProcess(child);
      node.removeManifest("one-more.json");
    }
  });

  test("status --watch on a dumb terminal prints whole pages without escape codes", async () => {
    const child = onConsole("dumb", false, "status", "--watch", "--interval", "1s");
    try {
      const text = await untilPrinted(child, (said) => said.includes("lists all\r\n"));
      assertPage(text.slice(0, text.indexOf("lists all\r\n") + "lists all\r\n".length));
      assert.ok(!text.includes(ESCAPE));
    } finally {
      await endProcess(child);
    }
  });
});
