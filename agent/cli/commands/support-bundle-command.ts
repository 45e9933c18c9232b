/** `edgectl support-bundle`: everything a maintainer needs, in one file that may be handed on. */
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { resolve } from "node:path";
import { createGzip } from "node:zlib";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { describeError, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { VersionAnswer } from "@picolet/protocol/local-api/status.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY } from "../context/exit-codes.ts";
import { humanBytes, printableLine } from "../context/text-layout.ts";
import { type BoardMachine, LocalMachine } from "../doctor/board-machine.ts";
import { BUNDLE_PARTS, type BundleFile } from "../support/bundle-parts.ts";
import { redactObject, redactText } from "../support/redaction.ts";
import { TAR_END, tarFile } from "../support/tar-writer.ts";
import { examine, readSettings } from "./doctor-command.ts";
import { BUNDLE_SIZE, CONFIG, STANDARD_OUTPUT } from "./node.ts";

/** Room for the list of what is in the bundle, and for what gzip adds to what cannot be compressed. */
const RESERVE_BYTES = 64 * KIBIBYTE;
/** Bounds memory: what one part may have before it is compressed. Of a longer one the end is kept, which is newest. */
const MAX_FILE_BYTES = 4 * MEBIBYTE;
/** A file of less says nothing. */
const LEAST_FILE_BYTES = 1024;

interface Listed {
  readonly name: string;
  readonly bytes: number;
  /** Its beginning is missing. */
  readonly isCut: boolean;
}

export async function runSupportBundle(context: Context, input: Arguments): Promise<number> {
  return await new SupportBundle(context, input, new LocalMachine()).write();
}

export class SupportBundle {
  readonly #context: Context;
  readonly #input: Arguments;
  readonly #machine: BoardMachine;
  readonly #files: Listed[] = [];
  readonly #problems: { readonly part: string; readonly error: string }[] = [];

  constructor(context: Context, input: Arguments, machine: BoardMachine) {
    this.#context = context;
    this.#input = input;
    this.#machine = machine;
  }

  /** @returns the exit code: 1 when a part is missing */
  async write(): Promise<number> {
    const { terminal, workingDirectory } = this.#context;
    const [operand] = this.#input.positionals;
    if (operand === STANDARD_OUTPUT) {
      await this.#pack((bytes) => terminal.write(bytes));
      return this.#report(undefined);
    }
    const path = resolve(workingDirectory, operand ?? `${await this.#name()}.tar.gz`);
    const file = openNew(path);
    try {
      await this.#pack(async (bytes) => {
        for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written);
      });
      closeSync(file);
    } catch (error) {
      rmSync(path, { force: true });
      throw toPicoletError(error, "failed", `cannot write ${path}`);
    }
    return this.#report(path);
  }

  async #name(): Promise<string> {
    const time = new Date(this.#context.now()).toISOString().replace(/\..*/, "").replace(/[-:]/g, "");
    try {
      const { node } = await this.#context.client.get<VersionAnswer>("/v1/version");
      return `picolet-support-${safeName(node)}-${time}`;
    } catch {
      return `picolet-support-${time}`;
    }
  }

  async #pack(take: (bytes: Buffer) => Promise<void>): Promise<void> {
    const limit = this.#input.value(BUNDLE_SIZE) - RESERVE_BYTES;
    const gzip = createGzip();
    let written = 0;
    const taken = (async () => {
      for await (const piece of gzip as AsyncIterable<Buffer>) {
        written += piece.length;
        await take(piece);
      }
    })();
    const put = (bytes: Buffer): Promise<void> =>
      new Promise((done) => {
        gzip.write(bytes);
        // Only what is flushed can be counted.
        gzip.flush(() => done());
      });
    const folder = "picolet-support";
    const add = async (name: string, content: Buffer): Promise<void> =>
      await put(tarFile(`${folder}/${safeName(name)}`, content, this.#context.now()));
    for await (const { name, content } of this.#collected()) {
      // As if it could not be compressed: the file is never larger than it may be.
      const room = Math.min(MAX_FILE_BYTES, limit - written);
      const text = Buffer.from(content);
      if (room < LEAST_FILE_BYTES) {
        this.#problems.push({ part: name, error: "the bundle is full" });
        continue;
      }
      const isCut = text.length > room;
      await add(name, isCut ? text.subarray(text.length - room) : text);
      this.#files.push({ name, bytes: text.length, isCut });
    }
    const list = { files: this.#files, problems: this.#problems };
    await add("contents.json", Buffer.from(`${JSON.stringify(list, undefined, 2)}\n`).subarray(0, RESERVE_BYTES / 2));
    gzip.end(TAR_END);
    await taken;
  }

  /** Each file redacted. */
  async *#collected(): AsyncIterable<{ readonly name: string; readonly content: string }> {
    const { client } = this.#context;
    const podLogs = this.#input.text("pod-logs") ?? "unwell";
    const settings = (): ReturnType<typeof readSettings> =>
      readSettings(resolve(this.#context.workingDirectory, this.#input.value(CONFIG)), undefined);
    const check = async (): Promise<unknown> => await examine(this.#machine, await settings());
    for (const { what, collect } of BUNDLE_PARTS) {
      try {
        for await (const file of collect({ client, machine: this.#machine, examine: check, podLogs }))
          yield { name: file.name, content: redacted(file) };
      } catch (error) {
        this.#problems.push({ part: what, error: redactText(describeError(error)) });
      }
    }
  }

  #report(path: string | undefined): number {
    const { terminal } = this.#context;
    for (const { part, error } of this.#problems)
      terminal.writeError(`edgectl: not in the bundle: ${printableLine(part)}: ${printableLine(error)}\n`);
    const bytes = this.#files.reduce((sum, each) => sum + each.bytes, 0);
    const where = path === undefined ? "" : `${printableLine(path)}: `;
    terminal.writeError(
      `${where}${this.#files.length} files, ${humanBytes(bytes)} before compression. Secrets are replaced by ***; read it before you hand it on.\n`,
    );
    return this.#problems.length === 0 ? EXIT_HEALTHY : EXIT_DEGRADED;
  }
}

const redacted = ({ content }: BundleFile): string =>
  typeof content === "string" ? redactText(content) : `${JSON.stringify(redactObject(content), undefined, 2)}\n`;

/** Names come from pods and nodes. */
const safeName = (name: string): string =>
  name
    .replace(/[^\w./-]/g, "_")
    .replace(/^\/+/, "")
    .replaceAll("..", "__");

/** For its owner alone. @throws `already_exists`, `failed` */
function openNew(path: string): number {
  try {
    return openSync(path, "wx", 0o600);
  } catch (error) {
    if (errnoOf(error) === "EEXIST")
      throw new PicoletError("already_exists", `${path} exists already: name another file`);
    throw toPicoletError(error, "failed", `cannot write ${path}`);
  }
}
