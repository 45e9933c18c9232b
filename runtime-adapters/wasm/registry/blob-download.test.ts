import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { Readable } from "node:stream";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { digestOf, sha256 } from "@picolet/test/support/unit/images/oci-content.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { DEFAULT_PULL_LIMITS } from "../shared/messages/pull-request.ts";
import { downloadBlob } from "./blob-download.ts";
import type { HttpResponse } from "./http-client.ts";

const NEVER = new AbortController().signal;
const CONTENT = Buffer.alloc(10_000, "content");
const BLOB = { digest: digestOf(CONTENT), sha256: sha256(CONTENT), sizeBytes: CONTENT.length, mediaType: "" };

/** Downloads onto what an earlier pull left. @returns the numbers of bytes that were reported, and the offsets asked for */
async function downloaded(left: Buffer, answer: (offset: number, attempt: number) => Buffer) {
  using folder = new TempFolder();
  const path = folder.at("blob");
  writeFileSync(path, left);
  const [reported, offsets]: [number[], number[]] = [[], []];
  const blob = async (_: string, offset: number): Promise<HttpResponse> => {
    offsets.push(offset);
    const headers: Readonly<Record<string, string>> = { "content-range": `bytes ${offset}-` };
    const body = Readable.from([answer(offset, offsets.length)]) as unknown as HttpResponse["body"];
    return { status: offset > 0 ? 206 : 200, body, host: "x", isAsked: true, header: (name) => headers[name] };
  };
  const onBytes = (bytes: number): void => void reported.push(bytes);
  const components = { clock: new VirtualClock(), random: { next: () => 0 }, registry: { blob }, onBytes };
  const failure = await downloadBlob(components, { blob: BLOB, path, limits: DEFAULT_PULL_LIMITS }, NEVER).then(
    () => undefined,
    (error: unknown) => error,
  );
  return { reported, offsets, failure };
}

test("a download that begins again is not reported as whole meanwhile: whole ones give way to no other pull", async () => {
  const wrong = Buffer.alloc(CONTENT.length, "wrong");
  const { reported, offsets, failure } = await downloaded(wrong.subarray(0, 4_000), (offset, attempt) =>
    attempt === 1 ? wrong.subarray(offset) : CONTENT,
  );
  assert.equal(failure, undefined);
  assert.deepEqual(
    [offsets, reported],
    [
      [4_000, 0],
      [4_000, 10_000, 0, 10_000],
    ],
  );
});

test("a registry that sends more than was announced gets no byte of it kept", async () => {
  const { reported, failure } = await downloaded(CONTENT.subarray(0, 4_000), () => CONTENT);
  assert.ok(failure instanceof PicoletError && failure.code === "corrupt");
  assert.equal(reported.at(-1), 0);
});
