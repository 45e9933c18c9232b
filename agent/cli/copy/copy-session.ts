/** The sessions of `edgectl cp`: `tar` in the container, and the archive that it writes or reads. */
import { lstat } from "node:fs/promises";
import { basename } from "node:path";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { streamOf } from "@picolet/runtime-contract/archive/byte-stream.ts";
import { CHUNK_BYTES } from "@picolet/runtime-contract/archive/file-bytes.ts";
import type { Context } from "../context/context.ts";
import { type CommandRequest, type ContainerTarget, runCommand } from "../streams/command-session.ts";
import { pack } from "./copy-in.ts";
import { placeOf } from "./copy-names.ts";
import { unpack } from "./copy-out.ts";

/** Bounds what is kept of tar's own messages: the first of them tell. */
const MAX_COMPLAINT_BYTES = 4096;
/** Exit codes of runtimes and shells for a program that cannot be started. */
const NOT_STARTED = new Set([126, 127, 128]);
/** Matches what runtimes report when the program is not there. */
const NO_PROGRAM = /executable file not found|no such file or directory|not found in \$PATH/i;

export interface CopySession {
  readonly context: Context;
  readonly container: ContainerTarget;
  /** In the container. */
  readonly path: string;
  /** An absolute path of this machine. */
  readonly local: string;
  readonly warn: (text: string) => void;
}

export interface Copied {
  /** Left out, and no link. */
  readonly refused: number;
}

/** @throws with tar's own words; a sentence where the container has no tar */
export async function copyOut(session: CopySession): Promise<Copied> {
  const { local, warn, path } = session;
  const { folder, name } = placeOf(path);
  const handover = new Handover();
  const tar = new Tar(session, ["tar", "-cf", "-", "-C", folder, name === "." ? "." : `./${name}`]);
  const ended = tar.run(undefined, (bytes) => handover.push(bytes)).finally(() => handover.end());
  // It is awaited below; until then its failure is that of the copy.
  ended.catch(() => ignore("it is thrown again below"));
  const archive = streamOf(handover);
  let copied: Awaited<ReturnType<typeof unpack>>;
  try {
    copied = await unpack(archive, { root: name, target: local, warn });
    // tar fills up its last record.
    while ((await archive.read(CHUNK_BYTES)) !== undefined);
  } catch (error) {
    handover.end(error instanceof Error ? error : new Error(String(error)));
    // An archive that is cut off has its reason in the container.
    if (error instanceof PicoletError && error.code === "corrupt") await ended;
    throw error;
  }
  await ended;
  return copied;
}

export interface CopyInSession extends CopySession {
  /** With the owner and permissions of this machine, as far as the container's user may set them. */
  readonly keepsOwner: boolean;
}

/** @throws as `copyOut`; `failed` for a file of this machine that cannot be read */
export async function copyIn(session: CopyInSession): Promise<Copied> {
  const { local, path, warn, keepsOwner } = session;
  await lstat(local).catch((cause: unknown) => {
    throw new PicoletError("failed", `cannot read ${local}`, { cause });
  });
  const isFolder = await new Tar(session, ["test", "-d", path]).run(undefined).then(
    () => true,
    () => false,
  );
  const { folder, name } = isFolder ? { folder: path, name: basename(local) } : placeOf(path);
  let refused = 0;
  let failure: unknown;
  const leaveOut = (left: string): void => {
    refused += 1;
    warn(`${left} is left out: it is neither a file, a folder nor a link`);
  };
  const input = (async function* () {
    try {
      yield* pack({ source: local, name, leaveOut });
    } catch (error) {
      // tar sees its input end within a file, and fails.
      failure = error;
    }
  })();
  const flags = keepsOwner ? [] : ["--no-same-permissions", "--no-same-owner"];
  const tar = new Tar(session, ["tar", ...flags, "-xmf", "-", "-C", folder]);
  await tar.run(input).catch((error: unknown) => {
    throw failure ?? error;
  });
  if (failure !== undefined) throw failure;
  return { refused };
}

/** One program in the container. */
class Tar {
  readonly #session: CopySession;
  readonly #command: readonly string[];
  #complaint = Buffer.alloc(0);

  constructor(session: CopySession, command: readonly string[]) {
    this.#session = session;
    this.#command = command;
  }

  /** @throws unless it ends well */
  async run(input: CommandRequest["input"], out?: (bytes: Buffer) => Promise<void>): Promise<void> {
    const { context, container, path } = this.#session;
    let code: number;
    try {
      code = await runCommand(
        context,
        { kind: "exec", target: container, command: this.#command, input, isTerminal: false },
        {
          out: async (bytes) => await out?.(bytes),
          error: async (bytes) => {
            if (this.#complaint.length < MAX_COMPLAINT_BYTES)
              this.#complaint = Buffer.concat([this.#complaint, bytes]).subarray(0, MAX_COMPLAINT_BYTES);
          },
        },
      );
    } catch (error) {
      if (NO_PROGRAM.test(describeError(error))) throw this.#missing();
      throw error;
    }
    if (code === 0) return;
    const words = this.#complaint.toString("utf8").trim();
    if (NOT_STARTED.has(code) && (words === "" || NO_PROGRAM.test(words))) throw this.#missing();
    throw new PicoletError("failed", `cannot copy ${path} of container ${container.container}`, {
      cause: words === "" ? `tar ended with ${code}` : words,
    });
  }

  #missing(): PicoletError {
    const { container } = this.#session;
    return new PicoletError(
      "failed",
      `container ${container.container} of pod ${container.pod} has no program tar, which copying needs: ` +
        "use an image that has it, or a volume of the pod",
    );
  }
}

/** Hands pieces from a sender that pushes to a reader that pulls, one at a time, so that neither outruns the other. */
class Handover implements AsyncIterable<Uint8Array> {
  #piece: Uint8Array | undefined;
  #isOver = false;
  #error: Error | undefined;
  #changed: (() => void)[] = [];

  /** Resolves when the reader has taken it. @throws the reader's error, once it has given up */
  async push(piece: Uint8Array): Promise<void> {
    this.#piece = piece;
    this.#announce();
    while (this.#piece !== undefined && !this.#isOver) await this.#change();
    if (this.#error !== undefined) throw this.#error;
  }

  /** @param error of the side that gives up */
  end(error?: Error): void {
    this.#isOver = true;
    this.#error ??= error;
    this.#announce();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (;;) {
      const piece = this.#piece;
      if (piece !== undefined) {
        yield piece;
        // It may have been read to its end only now.
        this.#piece = undefined;
        this.#announce();
      } else if (this.#isOver) {
        if (this.#error !== undefined) throw this.#error;
        return;
      } else await this.#change();
    }
  }

  #announce(): void {
    for (const resolve of this.#changed.splice(0)) resolve();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#changed.push(resolve));
  }
}
