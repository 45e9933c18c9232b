/**
 * One blob of a registry, to a file: goes on where it, or an earlier pull, was cut off, and is verified from the disk.
 */
import { createHash } from "node:crypto";
import { constants, type FileHandle, open, rm } from "node:fs/promises";
import { backoffDelay, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { ignore, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { type Clock, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import { CHUNK_BYTES } from "@picolet/runtime-contract/archive/file-bytes.ts";
import type { PullLimits } from "../shared/messages/pull-request.ts";
import type { Descriptor } from "./documents.ts";
import { networkFailure, unavailable } from "./failures.ts";
import type { HttpResponse } from "./http-client.ts";
import type { RegistryClient } from "./registry-client.ts";

export interface BlobDownloadComponents {
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  readonly random: Random;
  readonly registry: Pick<RegistryClient, "blob">;
  /** Called with the bytes of the blob that have arrived. */
  readonly onBytes: (bytes: number) => void;
  /** Resolves when the next bytes may be read; missing: at once. */
  readonly passed?: ((bytes: number, signal: AbortSignal) => Promise<void>) | undefined;
}

export interface BlobDownloadInit {
  readonly blob: Descriptor;
  /** May hold the beginning of it. */
  readonly path: string;
  readonly limits: PullLimits;
  /** Checks the first bytes as soon as there are some. @throws the reason for which the rest is not needed */
  readonly onStart?: ((first: Uint8Array) => void) | undefined;
}

/** In a row that bring next to nothing; a link that is lost again and again still gets on. */
const MAX_FRUITLESS = 5;
/** With that much at least, an attempt was worth it; and so slow may a link be in the time it may be silent. */
const FRUITFUL_BYTES = 1024;
const MAX_RETRY_DELAY = seconds(30);
/** A component's preamble. */
const START_BYTES = 8;

/** On disk and verified when it returns. @throws `corrupt` when the registry's content is not what its digest says */
export async function downloadBlob(
  components: BlobDownloadComponents,
  init: BlobDownloadInit,
  signal: AbortSignal,
): Promise<void> {
  const { blob, path } = init;
  await using file = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
  const download = new BlobDownload(components, init, file);
  const hasBegun = await download.takeUp();
  await download.fill(signal);
  let actual = await download.digest();
  if (actual !== blob.sha256 && hasBegun) {
    // A power cut may have damaged what an earlier pull left: start over, so that the registry's content decides.
    await download.startOver();
    await download.fill(signal);
    actual = await download.digest();
  }
  if (actual === blob.sha256) return await file.sync();
  await rm(path, { force: true });
  throw new PicoletError("corrupt", `the registry gave sha256:${actual} in the place of ${blob.digest}`, {
    retryable: true,
  });
}

class BlobDownload {
  readonly #components: BlobDownloadComponents;
  readonly #init: BlobDownloadInit;
  readonly #file: FileHandle;
  #size = 0;

  constructor(components: BlobDownloadComponents, init: BlobDownloadInit, file: FileHandle) {
    this.#components = components;
    this.#init = init;
    this.#file = file;
  }

  /** @returns whether something was there. */
  async takeUp(): Promise<boolean> {
    const { size } = await this.#file.stat();
    if (size > this.#init.blob.sizeBytes) await this.startOver();
    else this.#size = size;
    this.#components.onBytes(this.#size);
    if (this.#size >= START_BYTES) {
      const { buffer } = await this.#file.read(Buffer.alloc(START_BYTES), 0, START_BYTES, 0);
      this.#init.onStart?.(buffer);
    }
    return this.#size > 0;
  }

  async startOver(): Promise<void> {
    await this.#file.truncate(0);
    this.#size = 0;
    this.#components.onBytes(0);
  }

  /** Over as many connections as it takes, as long as each brings something. */
  async fill(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#components;
    // Bytes that were received before and discarded are no progress: a registry may send the same again without end.
    let most = this.#size;
    for (let fruitless = 0; this.#size < this.#init.blob.sizeBytes; ) {
      try {
        await this.#attempt(signal);
        continue;
      } catch (error) {
        fruitless = this.#size - most >= FRUITFUL_BYTES ? 0 : fruitless + 1;
        most = Math.max(most, this.#size);
        if (!isPicoletError(error, "unavailable") || signal.aborted || fruitless >= MAX_FRUITLESS) throw error;
      }
      const first = millis(this.#init.limits.retryDelayMs);
      const delay = { first, max: MAX_RETRY_DELAY, jitter: EQUAL_JITTER };
      await clock.sleep(backoffDelay(delay, fruitless + 1, random.next()), signal);
    }
  }

  async digest(): Promise<string> {
    const hash = createHash("sha256");
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    for (let position = 0; ; ) {
      const { bytesRead } = await this.#file.read(buffer, 0, CHUNK_BYTES, position);
      if (bytesRead === 0) return hash.digest("hex");
      hash.update(buffer.subarray(0, bytesRead));
      position += bytesRead;
    }
  }

  async #attempt(signal: AbortSignal): Promise<void> {
    const response = await this.#components.registry.blob(this.#init.blob.digest, this.#size, signal);
    response.body.on("error", ignore("the reader of the body reports it"));
    try {
      await this.#begin(response);
      await this.#receive(response, signal);
    } catch (error) {
      throw isPicoletError(error) || isDiskFailure(error) ? error : networkFailure(error, response.host);
    } finally {
      response.body.destroy();
    }
    if (this.#size < this.#init.blob.sizeBytes) throw unavailable(`${response.host} ended the blob too early`);
  }

  async #begin(response: HttpResponse): Promise<void> {
    const { sizeBytes } = this.#init.blob;
    const { status, host } = response;
    if (status === 416) {
      await this.startOver();
      throw unavailable(`${host} has nothing behind what is here already`);
    }
    const start = /^bytes (\d+)-/.exec(response.header("content-range") ?? "")?.[1];
    // A registry that cannot continue starts over; one that continues at another offset is not used any more.
    if (status === 206 && Number(start) !== this.#size) {
      await this.startOver();
      throw unavailable(`${host} gave another range than it was asked for`);
    }
    if (status === 200 && this.#size > 0) await this.startOver();
    const length = response.header("content-length");
    if (length === undefined) return;
    const bytes = this.#size + Number(length);
    if (bytes > sizeBytes) throw await this.#tooLong(bytes);
    if (bytes < sizeBytes) throw await this.#tooShort(bytes);
  }

  async #receive(response: HttpResponse, signal: AbortSignal): Promise<void> {
    const { blob, limits, onStart } = this.#init;
    const { clock, onBytes, passed } = this.#components;
    let [windowStart, inWindow] = [clock.monotonic() as number, 0];
    for await (const chunk of response.body as AsyncIterable<Buffer>) {
      if (this.#size + chunk.length > blob.sizeBytes) throw await this.#tooLong(this.#size + chunk.length);
      const wasBefore = this.#size;
      await this.#file.write(chunk, 0, chunk.length, this.#size);
      this.#size += chunk.length;
      onBytes(this.#size);
      await passed?.(chunk.length, signal);
      if (onStart !== undefined && wasBefore < START_BYTES && this.#size >= START_BYTES) {
        const { buffer } = await this.#file.read(Buffer.alloc(START_BYTES), 0, START_BYTES, 0);
        onStart(buffer);
      }
      inWindow += chunk.length;
      const now = clock.monotonic();
      if (now - windowStart < limits.idleTimeoutMs) continue;
      if (inWindow < FRUITFUL_BYTES) throw unavailable(`${response.host} sends next to nothing`);
      [windowStart, inWindow] = [now, 0];
    }
  }

  async #tooShort(bytes: number): Promise<PicoletError> {
    await this.startOver();
    const { digest, sizeBytes } = this.#init.blob;
    const message = `the registry has ${bytes} bytes of ${digest}, which should have ${sizeBytes}`;
    return new PicoletError("corrupt", message, { retryable: true });
  }

  /** A registry that sends more than the announced size is not trusted in any part: all is discarded. */
  async #tooLong(bytes: number): Promise<PicoletError> {
    await this.startOver();
    const { digest, sizeBytes } = this.#init.blob;
    const message = `the registry sends ${bytes} bytes and more of ${digest}, which should have ${sizeBytes}`;
    return new PicoletError("corrupt", message, { retryable: true });
  }
}

const DISK_FAILURES: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS"]);

const isDiskFailure = (error: unknown): boolean => DISK_FAILURES.has(errnoOf(error));
